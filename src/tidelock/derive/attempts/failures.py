"""Failures: which stream tables cannot be refreshed, told from the attempts that were recorded."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from tidelock.derive.attempts.attempts import Attempt, failures_since, read_attempts, recorded
from tidelock.derive.stream import Stream
from tidelock.model.streams import StreamState
from tidelock.store.log.clock import TOLERANCE
from tidelock.store.log.log import Head
from tidelock.store.parts import Parts

TIMES_MAX = 10_000


class Failures:
    """Owns when each stream table was last refreshed, as far as that was asked for."""

    def __init__(self, store: Parts) -> None:
        self._store = store
        self._times: dict[tuple[str, int], datetime | None] = {}

    def of(
        self, head: Head, stream: Stream, keys: Mapping[str, list[str]] | None = None
    ) -> list[Attempt]:
        """The refreshes of a stream table that failed in a row until now; `keys` as keys_by_table
        has found them."""
        objects, branch_id, table_id = self._store.objects, head.branch.id, stream.table.id
        if keys is not None and table_id not in keys:
            return []
        state = stream.state
        if keys is None:
            found = recorded(objects, branch_id, table_id)
            since = self.refreshed_at(head, state) if found else None
        else:
            since = self.refreshed_at(head, state)
            found = read_attempts(objects, keys[table_id], since)
        # What a clock dated that was ahead would count for as long as it was ahead.
        latest = self._store.clock.now() + TOLERANCE
        found = [attempt for attempt in found if attempt.time <= latest]
        return failures_since(found, since, state.definition)

    def refreshed_at(self, head: Head, state: StreamState) -> datetime | None:
        if not state.populated:
            return None
        place = (head.branch.home_of(state.refreshed), state.refreshed)
        if place not in self._times:
            # Commits do not change, and a lake has more stream tables than the log remembers.
            if len(self._times) >= TIMES_MAX:
                self._times.clear()
            self._times[place] = self._store.published_at(head, state.refreshed)
        return self._times[place]
