"""What a process tells of a source while it reads it: the note that others see (registry.py).

Invariants: a note is written when the state changes, else at most each NOTE_SECONDS, and never
while nothing changes; only the process that holds the source's post writes it.
After a crash: the note says what was so last, and who wrote it; whoever reads it sees that nobody
holds the post (status.py).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from tidelock.errors import StoreError
from tidelock.ingest.registry import Registry
from tidelock.ingest.troubles import Trouble
from tidelock.model.sources import Reading, SourceDefinition
from tidelock.store.leases.leases import owner_name

logger = logging.getLogger("tidelock")

NOTE_SECONDS = 1.0
RATE_SECONDS = 5.0
"""Rates are of so many seconds that have just passed."""
IDLE, READING, STREAMING = "idle", "reading", "streaming"


class Teller:
    """Owns the note of one source while its post is held."""

    def __init__(
        self,
        registry: Registry,
        definition: SourceDefinition,
        now: Callable[[], datetime],
        *,
        live: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = registry
        self._definition = definition
        self._now = now
        self._clock = clock
        self._lock = threading.Lock()
        self._usual = STREAMING if live else READING
        self._written = registry.reading(definition)
        self._written_at = -NOTE_SECONDS
        before = self._written or Reading(IDLE)
        self._told = replace(before, state="", reason="", open=(), evidence={}, retry_at=None)
        self._recent: deque[tuple[float, int, int]] = deque()
        self._over = False

    def begin(self) -> None:
        """It is open, and being read. Of a round this is told once it has done something."""
        if self._usual == STREAMING:
            self.write()

    def tell(self, reading: Reading) -> None:
        """What the source itself tells."""
        with self._lock:
            self._told = reading
        self.write()

    def published(self, rows: int, transactions: int) -> None:
        with self._lock:
            self._recent.append((self._clock(), rows, transactions))
        self.write()

    def write(self) -> None:
        """Write what has changed, if it is time to."""
        with self._lock:
            if not self._over:
                self._put(self._note())

    def end(self, trouble: Trouble | None = None) -> None:
        """It is not read any more for now."""
        with self._lock:
            self._over = True
            self._recent.clear()
            note = replace(self._note(), state=IDLE, open=())
            if trouble is not None:
                note = replace(
                    note,
                    state=trouble.state,
                    reason=trouble.reason,
                    retry_at=trouble.retry_at,
                    evidence={"condition": trouble.condition} if trouble.condition else {},
                )
            self._put(note, last=True)

    def _note(self) -> Reading:
        rows, transactions = self._rates()
        lag = self._told.lag_seconds
        return replace(
            self._told,
            state=self._told.state or self._usual,
            lag_seconds=None if lag is None else round(lag, 1),
            rows_per_second=rows,
            transactions_per_second=transactions,
            owner=owner_name(),
            time=None,
        )

    def _rates(self) -> tuple[float, float]:
        since = self._clock() - RATE_SECONDS
        while self._recent and self._recent[0][0] <= since:
            self._recent.popleft()
        rows = sum(one[1] for one in self._recent)
        transactions = sum(one[2] for one in self._recent)
        return round(rows / RATE_SECONDS, 1), round(transactions / RATE_SECONDS, 1)

    def _put(self, note: Reading, *, last: bool = False) -> None:
        before = self._written
        if before is not None and _essence(note) == _essence(before):
            return
        turned = before is None or _turned(note, before)
        if not (last or turned) and self._clock() - self._written_at < NOTE_SECONDS:
            return
        try:
            self._registry.tell(self._definition, replace(note, time=self._now()))
        except StoreError as error:
            logger.warning("source %r: its note was not written: %s", self._definition.name, error)
            return
        self._written, self._written_at = note, self._clock()


def _turned(note: Reading, before: Reading) -> bool:
    """Whether the state is another one."""
    return (note.state, note.reason) != (before.state, before.reason)


def _essence(note: Reading) -> Reading:
    """What of a note makes it another one: not when it was written, nor by whom, where nobody reads
    the source any more."""
    return replace(note, time=None, owner="" if note.state == IDLE else note.owner)
