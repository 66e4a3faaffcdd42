"""A shift: one process at one source, from taking its post until it leaves it.

Owns: the thread that reads. A source that is live is read until it is told to leave, or fails; of
any other one round is read. A live source that does not wait by itself is asked again after
PAUSE_SECONDS, and less often while it has nothing, up to PAUSE_SECONDS_MAX.
Invariant: what a source raises, or that it hangs, reaches nobody but its shift.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime

from tidelock.errors import TidelockError
from tidelock.ingest.intake.incoming import Incoming
from tidelock.ingest.reader import Done, SourceReader
from tidelock.ingest.reports import IngestReport
from tidelock.ingest.schedule.last_shift import LastShift
from tidelock.ingest.sources import Sources
from tidelock.ingest.teller import Teller
from tidelock.ingest.troubles import Trouble, trouble_of
from tidelock.model.history.commit import Commit

logger = logging.getLogger("tidelock")

PAUSE_SECONDS = 1.0
PAUSE_GROWTH = 1.5
PAUSE_SECONDS_MAX = 5.0
STEADY_SECONDS = 60.0
"""One that was read for so long did not fail in a row with what was before."""


class Shift:
    """One thread at one source."""

    def __init__(
        self, sources: Sources, before: LastShift, tell: Callable[[IngestReport], None]
    ) -> None:
        """`tell` takes what was published since it was last told, and never two at once."""
        self.definition = before.definition
        self.began: datetime = sources.now()
        self.trouble: Trouble | None = None
        self._sources = sources
        self._before = before
        self._tell = tell
        self._leave = threading.Event()
        self._over = threading.Event()
        self._teller: Teller | None = None
        self._lock = threading.Lock()
        self._untold = Done()
        self._committed = False
        self._began = time.monotonic()
        # A daemon: what hangs does not keep the process from ending.
        self._thread = threading.Thread(
            target=self._run, name=f"tidelock-source-{self.definition.name}", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def leave(self) -> None:
        """Read no more, as soon as the source comes to look."""
        self._leave.set()

    @property
    def is_leaving(self) -> bool:
        return self._leave.is_set()

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    @property
    def did_something(self) -> bool:
        return self._committed or time.monotonic() - self._began > STEADY_SECONDS

    def wait(self, seconds: float) -> bool:
        """Wait for its end; whether it came."""
        return self._over.wait(seconds)

    def tell(self) -> None:
        """Tell what was published since it was last told, and write its note if it has changed."""
        with self._lock:
            if self._untold.commits:
                done, self._untold = self._untold, Done()
                self._tell(done.report(self.definition.name, "ingested"))
        if self._teller is not None:
            self._teller.write()

    def _run(self) -> None:
        try:
            with self._sources.reading(
                self.definition,
                live=self._before.live,
                stopped=self._leave.is_set,
                published=self._published,
                judge=self._judge,
                opened=self._opened,
            ) as reader:
                if self._before.live:
                    self._follow(reader)
                else:
                    reader.read()
        except Exception as error:
            if self.trouble is None:
                self._judge(error)
            if not isinstance(error, TidelockError) and not self.is_leaving:
                # A bug, or a kind of one's own that is no source: it is said, and stops no other.
                logger.exception("source %r could not be read", self.definition.name)
        finally:
            self.tell()
            self._over.set()

    def _follow(self, reader: SourceReader) -> None:
        pause = PAUSE_SECONDS
        while not self._leave.is_set():
            commits = reader.done.commits
            reader.read()
            moved = reader.done.commits > commits
            pause = PAUSE_SECONDS if moved else min(PAUSE_SECONDS_MAX, pause * PAUSE_GROWTH)
            self._leave.wait(PAUSE_SECONDS if moved else pause)

    def _opened(self, teller: Teller) -> None:
        self._teller = teller

    def _published(self, incoming: Incoming, commit: Commit) -> None:
        self._committed = True
        with self._lock:
            self._untold.add(incoming, commit)

    def _judge(self, error: Exception) -> Trouble | None:
        """What an error means. None for one that comes of leaving: a connection that was cut."""
        if self.is_leaving:
            return None
        failures = self._before.failures_with(did_something=self.did_something)
        self.trouble = trouble_of(error, failures, self._sources.now())
        return self.trouble
