"""Deliveries by schedule: which sinks of a branch are looked at, until they are stopped.

Owns: when sinks are looked at. What there is to deliver is told by the lake alone, so that a loop
that was killed is resumed by starting another. A look that finds nothing to do reads nothing: the
head is given, and what others changed about sinks is listed every LEDGER_SECONDS.
Invariant: a destination that is slow, hangs or fails keeps no other waiting; lanes.py bounds how
many may.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from tidelock.deliver.delivery.calls import GRACE_SECONDS
from tidelock.deliver.delivery.ledger import Traces
from tidelock.deliver.lanes import SLOW_SECONDS, Lanes
from tidelock.deliver.last_look import GONE, LastLook
from tidelock.deliver.reports import DeliveryReport
from tidelock.deliver.sinks import Sinks, failed, mostly_waits
from tidelock.errors import FormatError, SinkBusy, SinkNotFound, TidelockError
from tidelock.model.sinks import SinkDefinition
from tidelock.model.time.schedules import parse_schedule
from tidelock.store.log.log import Head
from tidelock.store.objects import layout

logger = logging.getLogger("tidelock")

LEDGER_SECONDS = 5.0
"""How long a sink that others add, suspend, resume or replay may go unnoticed."""
END_SECONDS = GRACE_SECONDS + 3.0
"""How long what is being sent has to end."""
TOLD = ("delivered", "refused", "failed")


class Deliveries:
    """Deliveries to the sinks of one branch.

    Owns: what the last look at each sink told, and the lanes in which they are delivered to.
    """

    def __init__(self, sinks: Sinks, branch: str, tell: Callable[[DeliveryReport], None]) -> None:
        self._sinks = sinks
        self._branch = branch
        self._tell = tell
        self._stop = threading.Event()
        self._lanes = Lanes()
        self._lock = threading.Lock()
        self._looks: dict[str, LastLook] = {}
        self._changed: dict[str, int] = {}
        """When each table that is followed changed last, as of the head."""
        self._elsewhere: dict[str, str] = {}
        """The sinks of other branches, and those that cannot be read, by their traces."""
        self._version = -1
        self._listed_at: float | None = None
        self._next: datetime | None = None
        """When a sink may be due though nobody commits."""
        self._waiting = False
        """Whether some are due that there was no room for."""
        self._again = False
        """Whether to look again in any case: a sink that was busy may have more to do now."""

    def look(self, head: Head, now: datetime) -> bool:
        """Begin what is due; whether there was no room for some of it."""
        try:
            self._look(head, now)
        except TidelockError as error:
            # The store may answer at the next look; refreshes say so if it does not.
            logger.warning("sinks could not be looked at: %s", error)
        return self._waiting

    def _look(self, head: Head, now: datetime) -> None:
        listed = self._list()
        moved = head.version != self._version
        if moved or listed:
            states = {state.id: state.changed for state in head.tables.states()}
            with self._lock:
                ids = {look.definition.table_id for look in self._looks.values()}
            self._changed = {table_id: states.get(table_id, GONE) for table_id in ids}
            self._version = head.version
        elif not (self._waiting or self._again) and (self._next is None or now < self._next):
            return
        self._again = False
        due = self._due(now)
        self._waiting = False
        for look in due:
            waits = mostly_waits(look.definition)
            if self._lanes.runs(look.definition.id):
                self._again = True
            elif self._lanes.has_room(waits=waits):
                self._lanes.start(look.definition.id, self._work(look), waits=waits)
            else:
                self._waiting = True

    def _due(self, now: datetime) -> list[LastLook]:
        """What is due; first what was quick, and of that what has waited longest."""
        with self._lock:
            known = list(self._looks.values())
        due = [look for look in known if look.is_due(self._changed_of(look), now)]
        moments = [
            moment
            for look in known
            if look not in due and (moment := look.next_moment(self._changed_of(look))) is not None
        ]
        self._next = min(moments, default=None)
        begin = datetime.min.replace(tzinfo=UTC)
        return sorted(due, key=lambda look: (look.slow, look.last or begin, look.definition.name))

    def _changed_of(self, look: LastLook) -> int:
        return self._changed.get(look.definition.table_id, GONE)

    # What others do

    def _list(self) -> bool:
        """List what there is of sinks, now and then; whether something has changed."""
        now = time.monotonic()
        if self._listed_at is not None and now - self._listed_at < LEDGER_SECONDS:
            return False
        if self._listed_at is None:
            self._sinks.release_leftovers()
        traces = self._sinks.ledger.traces()
        self._listed_at = now
        with self._lock:
            known = {layout.sink_name(look.definition.name): look for look in self._looks.values()}
        changed = False
        for key, trace in traces.names.items():
            look = known.pop(key, None)
            if look is None and self._elsewhere.get(key) == trace:
                continue
            if look is None or look.traces != traces.of(look.definition):
                changed = self._follow(key, look is None, traces) or changed
        with self._lock:
            for look in known.values():
                # It was dropped.
                del self._looks[look.definition.id]
        return changed

    def _follow(self, key: str, is_new: bool, traces: Traces) -> bool:
        """Follow a sink that is new, or that others may have changed; whether it is ours."""
        try:
            definition = self._sinks.ledger.definition_at(key)
        except FormatError as error:
            logger.warning("a sink is passed over: %s", error)
            definition = None
        if definition is None or definition.branch != self._branch:
            self._elsewhere[key] = traces.names[key]
            return False
        schedule = parse_schedule(definition.schedule)
        last = None
        if is_new and not schedule.is_manual and not schedule.is_upstream:
            # Its schedule counts from the last delivery, whichever process made that.
            last = self._sinks.last_delivery(definition)
        with self._lock:
            for look in list(self._looks.values()):
                if look.definition.name == definition.name and look.definition.id != definition.id:
                    # It was dropped, and another has its name.
                    del self._looks[look.definition.id]
            # A delivery of our own leaves traces too: to look once more costs little.
            before = self._looks.get(definition.id) or LastLook(definition, schedule, last=last)
            self._looks[definition.id] = replace(
                before,
                definition=definition,
                schedule=schedule,
                traces=traces.of(definition),
                changed=None,
            )
        return True

    # Delivering

    def _work(self, look: LastLook) -> Callable[[], None]:
        changed = self._changed_of(look)
        return lambda: self._deliver(look.definition, changed)

    def _deliver(self, definition: SinkDefinition, changed: int) -> None:
        began, clock = self._sinks.now(), time.monotonic()
        try:
            report = self._sinks.deliver_due(definition, self._stop.is_set)
        except SinkBusy:
            self._note(definition, lambda look: look.after_another(began))
            return
        except SinkNotFound:
            return
        except TidelockError as error:
            report = failed(definition, error)
        except Exception as error:
            # A bug, or a kind of one's own that is no sink: it is said, and stops no other.
            logger.exception("sink %r could not be delivered to", definition.name)
            report = failed(definition, TidelockError(f"{type(error).__name__}: {error}"))
        slow = time.monotonic() - clock > SLOW_SECONDS
        before = self._note(
            definition, lambda look: replace(look.after(report, changed, began), slow=slow)
        )
        told_before = before is not None and before.said == report.reason
        if report.action in TOLD and not (report.action == "failed" and told_before):
            self._tell(report)

    def _note(
        self, definition: SinkDefinition, change: Callable[[LastLook], LastLook]
    ) -> LastLook | None:
        """Remember what a look told; how it was known before."""
        with self._lock:
            before = self._looks.get(definition.id)
            if before is not None:
                self._looks[definition.id] = change(before)
            self._again = True
        return before

    def stop(self) -> None:
        """Begin nothing more, and let what is being sent end."""
        self._stop.set()

    def end(self) -> None:
        """Wait for what is being sent, for a moment; what hangs is left to its retry."""
        self.stop()
        if not self._lanes.join(END_SECONDS):
            logger.warning("a destination did not answer in time; what was sent is sent again")
