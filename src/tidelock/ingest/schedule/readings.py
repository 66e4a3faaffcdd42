"""Readings by schedule: which sources of a branch are read, until they are stopped.

Owns: when sources are read. What there is to read is told by the sources and the lake alone, so
that a loop that was killed is resumed by starting another. A look that finds nothing to do reads
nothing; what others do about sources is listed every LIST_SECONDS.
Invariants: a source that is slow, hangs or fails keeps no other waiting; a process ends within
END_SECONDS of being told to, whatever its sources do.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from tidelock.errors import FormatError, TidelockError
from tidelock.ingest.registry import Traces
from tidelock.ingest.reports import IngestReport
from tidelock.ingest.schedule.last_shift import LastShift
from tidelock.ingest.schedule.shift import Shift
from tidelock.ingest.sources import Sources, failed
from tidelock.model.sources import SourceDefinition
from tidelock.store.objects import layout

logger = logging.getLogger("tidelock")

LIST_SECONDS = 4.0
"""How long what others do about a source may go unnoticed."""
TELL_SECONDS = 1.0
END_SECONDS = 5.0
"""How long what is being read has to end."""
ROUNDS_MAX = 16
"""So many rounds are read at once. Sources that are live have a thread each."""


class Readings:
    """The sources of one branch.

    Owns: how the last shift at each source ended, and the shifts that go on.
    """

    def __init__(self, sources: Sources, branch: str, tell: Callable[[IngestReport], None]) -> None:
        self._sources = sources
        self._branch = branch
        self._tell = tell
        self._known: dict[str, LastShift] = {}
        """By the id of the source."""
        self._shifts: dict[str, Shift] = {}
        self._elsewhere: dict[str, str] = {}
        """The sources of other branches, and those that cannot be read, by their traces."""
        self._listed_at: float | None = None
        self._next: datetime | None = None
        """When a source is due though nothing happens."""
        self._stop = threading.Event()
        self._telling: threading.Thread | None = None

    def look(self, now: datetime) -> None:
        """Begin what is due, and end what is not to be read any more."""
        try:
            moved = self._list(now)
        except TidelockError as error:
            # The store may answer at the next look; refreshes say so if it does not.
            logger.warning("sources could not be looked at: %s", error)
            moved = False
        moved = self._settle() or moved
        if not moved and (self._next is None or now < self._next):
            return
        for known in list(self._known.values()):
            if known.is_due(now) and self._has_room(known):
                self._start(known)
        waiting = [
            moment
            for id_, known in self._known.items()
            if id_ not in self._shifts and (moment := known.next_moment(now)) is not None
        ]
        self._next = min(waiting, default=None)

    def _has_room(self, known: LastShift) -> bool:
        if known.definition.id in self._shifts:
            return False
        rounds = sum(not self._known[id_].live for id_ in self._shifts if id_ in self._known)
        return known.live or rounds < ROUNDS_MAX

    def _start(self, known: LastShift) -> None:
        shift = Shift(self._sources, known, self._tell)
        self._shifts[known.definition.id] = shift
        shift.start()
        if self._telling is None:
            self._telling = threading.Thread(
                target=self._tell_on, name="tidelock-sources", daemon=True
            )
            self._telling.start()

    def _settle(self) -> bool:
        """Note how shifts have ended; whether one has."""
        over = [(id_, shift) for id_, shift in self._shifts.items() if shift.is_over]
        for id_, shift in over:
            del self._shifts[id_]
            known = self._known.get(id_)
            if known is None or known.definition != shift.definition:
                continue
            after = known.after(shift.began, shift.trouble, did_something=shift.did_something)
            self._known[id_] = self._say(after, shift)
        return bool(over)

    def _say(self, after: LastShift, shift: Shift) -> LastShift:
        """Tell of a trouble, once."""
        trouble = shift.trouble
        if trouble is None or (trouble.state, trouble.reason) == after.said:
            return after
        self._tell(failed(after.definition, trouble))
        return replace(after, said=(trouble.state, trouble.reason))

    # What others do

    def _list(self, now: datetime) -> bool:
        """List what there is of sources, now and then; whether something has changed."""
        clock = time.monotonic()
        if self._listed_at is not None and clock - self._listed_at < LIST_SECONDS:
            return False
        traces = self._sources.registry.traces()
        self._listed_at = clock
        gone = {layout.source_name(one.definition.name): id_ for id_, one in self._known.items()}
        changed = False
        for key, trace in traces.names.items():
            id_ = gone.pop(key, None)
            known = None if id_ is None else self._known[id_]
            if known is None and self._elsewhere.get(key) == trace:
                continue
            if known is None or known.traces != traces.of(known.definition):
                changed = self._follow(key, known, traces) or changed
        for id_ in gone.values():
            self._forget(id_)
        return changed

    def _follow(self, key: str, known: LastShift | None, traces: Traces) -> bool:
        """Follow a source that is new, or that others did something about; whether it is ours."""
        try:
            definition = self._sources.registry.definition_at(key)
        except FormatError as error:
            logger.warning("a source is passed over: %s", error)
            definition = None
        if known is not None and (definition is None or definition.id != known.definition.id):
            # It was dropped, and another may have its name.
            self._forget(known.definition.id)
            known = None
        if definition is None or definition.branch != self._branch:
            self._elsewhere[key] = traces.names[key]
            return False
        suspended = self._sources.registry.suspension(definition) is not None
        if known is None:
            known = LastShift.of(definition, self._last(definition))
        elif suspended or definition != known.definition:
            self._leave(definition.id)
        self._known[definition.id] = known.known(
            definition, traces.of(definition), suspended=suspended
        )
        return True

    def _last(self, definition: SourceDefinition) -> datetime | None:
        # Its schedule counts from the last round, whichever process made that.
        return self._sources.last_read(definition)

    def _forget(self, id_: str) -> None:
        del self._known[id_]
        self._leave(id_)

    def _leave(self, id_: str) -> None:
        if id_ in self._shifts:
            self._shifts[id_].leave()

    # Telling and ending

    def _tell_on(self) -> None:
        """Write notes and tell of batches, so that neither reading nor looking waits for it."""
        while not self._stop.wait(TELL_SECONDS):
            for shift in list(self._shifts.values()):
                try:
                    shift.tell()
                except Exception:
                    # Of whoever watches. The next may do better.
                    logger.exception("source %r could not be told of", shift.definition.name)

    def stop(self) -> None:
        """Begin nothing more, and let what is being read end."""
        for shift in self._shifts.values():
            shift.leave()

    def end(self) -> None:
        """Wait for what is being read, for a moment; what hangs is left."""
        self.stop()
        ends = time.monotonic() + END_SECONDS
        hanging = [
            name
            for name, shift in self._shifts.items()
            if not shift.wait(max(0.0, ends - time.monotonic()))
        ]
        self._stop.set()
        if hanging:
            logger.warning(
                "%d sources did not end in time; what they had begun is read again", len(hanging)
            )
