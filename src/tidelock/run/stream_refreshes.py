"""Refreshing stream tables: all that is due, or what was asked for.

Owns: the order of a refresh over all units, and what is recorded of each. Deciding is done by
derive's pure functions; a unit is published as one commit.
Invariants: one unit that fails stops nobody but itself; of refreshes that meet, one is published,
and the others look again at what is left to do.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tidelock.derive.attempts import Attempt, record
from tidelock.derive.backoff import judge
from tidelock.derive.catalog import Arrangement, Catalog, Stream, stream_of
from tidelock.derive.due import Due, MemberState, decide, suspension
from tidelock.derive.groups import Unit, unit_levels
from tidelock.derive.refreshing import MemberFailed, Refresh, is_current
from tidelock.derive.schedules import parse_schedule
from tidelock.errors import CommitConflict, TidelockError
from tidelock.model.streams import SchedulePolicy
from tidelock.run.stream_definitions import CONFLICTS_MAX, StreamDefinitions
from tidelock.store.log import Head
from tidelock.store.store import Store

UNITS_AT_ONCE = 16


class StreamRefreshes:
    """The refreshes of one lake's stream tables."""

    def __init__(self, store: Store, definitions: StreamDefinitions) -> None:
        self._store = store
        self._definitions = definitions
        self._catalog: Catalog = definitions.catalog

    def refresh(
        self,
        names: Sequence[str] | None,
        branch: str,
        *,
        full: bool = False,
        together: bool = False,
        parallel: bool = False,
        progress: Callable[[Attempt], None] | None = None,
        begun: Callable[[Unit], None] | None = None,
        stop: threading.Event | None = None,
    ) -> list[Attempt]:
        """Refresh what is named, or all that is due; what became of each, upstream first."""
        self._store.refuse_read_only()
        units = self._chosen(branch, names)
        if together:
            members = tuple(name for unit in units for name in unit.members)
            units = [Unit("lake", members, None, 0)] if members else []
        asked = names is not None or together
        settings = _Once(self._store.engine.follow_settings)

        def run(unit: Unit) -> list[Attempt]:
            if stop is not None and stop.is_set():
                return self._passed_over(branch, unit, "skipped", "it was to stop before this")
            return self._refresh_unit(
                branch, unit, full=full, asked=asked, begun=begun, settings=settings
            )

        attempts: list[Attempt] = []
        for level in unit_levels(units):
            for found in _each(run, level, parallel):
                for attempt in found:
                    attempts.append(attempt)
                    if progress is not None:
                        progress(attempt)
        return attempts

    def _chosen(self, branch: str, names: Sequence[str] | None) -> list[Unit]:
        tables = self._store.branches.head(branch).tables
        units = self._catalog.arrange(tables).units
        if names is None:
            return list(units)
        asked = {stream_of(tables, self._catalog, name).name for name in names}
        return [unit for unit in units if asked & set(unit.members)]

    def due(
        self, head: Head, arrangement: Arrangement, unit: Unit, now: datetime | None = None
    ) -> Due:
        """Whether a unit is to be refreshed now."""
        moment = now or datetime.now(UTC)
        members = [self._member(head, arrangement.streams[name], unit) for name in unit.members]
        policy: SchedulePolicy = unit.group.policy if unit.group is not None else "fastest"
        return decide(members, moment, policy)

    def _member(self, head: Head, stream: Stream, unit: Unit) -> MemberState:
        state = stream.state
        seen = {source.table: source.changed for source in state.frontier}
        outside = [name for name in stream.stored.sources if name not in unit.members]
        changed: bool | None = None
        if outside:
            found = [head.tables.find(name) for name in outside]
            changed = any(one is None or one.changed != seen.get(one.name) for one in found)
        failures = self._definitions.failures(head, stream)
        return MemberState(
            stream.name,
            parse_schedule(stream.definition.schedule),
            self._definitions.refreshed_at(head, state),
            changed,
            state.suspended,
            failures[-1].retry_at if failures else None,
        )

    def _refresh_unit(
        self,
        branch: str,
        unit: Unit,
        *,
        full: bool,
        asked: bool,
        begun: Callable[[Unit], None] | None,
        settings: _Once,
    ) -> list[Attempt]:
        for _ in range(CONFLICTS_MAX):
            head = self._store.branches.head(branch)
            arrangement = self._catalog.arrange(head.tables)
            members = [name for name in unit.members if name in arrangement.streams]
            if len(members) < len(unit.members):
                return self._passed_over(branch, unit, "skipped", "its group has changed")
            held = self._held(arrangement, members)
            if held is not None:
                return self._passed_over(branch, unit, "skipped", held)
            # Asked now and not before: what this unit reads may just have been refreshed.
            due = None if asked else self.due(head, arrangement, unit)
            if due is not None and not due.due:
                return self._passed_over(branch, unit, "none", due.reason)
            idle = is_current(arrangement, head.tables, members)
            if idle and not full and not self._time_has_come(head, arrangement, members, asked):
                return self._passed_over(branch, unit, "none", "no source changed")
            if begun is not None:
                begun(unit)
            began = time.monotonic()
            try:
                settings.run()
                return Refresh(self._store, self._catalog, branch, members, full).run()
            except MemberFailed as error:
                cause = error.__cause__
                assert cause is not None
                return self._failed(branch, unit, error.table, cause, began)
            except CommitConflict:
                # Somebody else refreshed or altered a member: look again at what is left to do.
                continue
            except TidelockError as error:
                return self._failed(branch, unit, unit.members[-1], error, began)
        reason = f"{CONFLICTS_MAX} times, others refreshed or altered it at the same time"
        return self._passed_over(branch, unit, "skipped", reason)

    def _time_has_come(
        self, head: Head, arrangement: Arrangement, members: Iterable[str], asked: bool
    ) -> bool:
        """Whether a member whose rows change with time is to be computed again for that alone."""
        now = datetime.now(UTC)
        for stream in (arrangement.streams[name] for name in members):
            schedule = parse_schedule(stream.definition.schedule)
            if not stream.stored.tells_time or schedule.is_upstream:
                continue
            refreshed = self._definitions.refreshed_at(head, stream.state)
            if asked or refreshed is None or schedule.latest_due(refreshed, now) is not None:
                return True
        return False

    def _held(self, arrangement: Arrangement, members: Iterable[str]) -> str | None:
        """Why a unit may not be refreshed even when it is asked for."""
        for name in members:
            state = arrangement.streams[name].state
            if state.suspended is not None:
                return f"{name!r} is {suspension(state.suspended)}"
        return None

    def _passed_over(self, branch: str, unit: Unit, action: Any, reason: str) -> list[Attempt]:
        tables = self._store.branches.head(branch).tables
        now = datetime.now(UTC)
        return [
            Attempt(
                name,
                found.id if (found := tables.find(name)) else "",
                action,
                now,
                reason,
                epoch=found.stream.epoch if found and found.stream else None,
                actor=self._store.actor,
            )
            for name in unit.members
        ]

    def _failed(
        self, branch: str, unit: Unit, table: str, error: BaseException, began: float
    ) -> list[Attempt]:
        """Record why nothing of a unit was published; suspend the member that cannot go on."""
        head = self._store.branches.head(branch)
        now = datetime.now(UTC)
        if head.tables.find(table) is None:
            return self._passed_over(branch, unit, "skipped", f"{table!r} was dropped meanwhile")
        stream = stream_of(head.tables, self._catalog, table)
        verdict = judge(error, len(self._definitions.failures(head, stream)), now, random.Random())
        condition = error.condition if isinstance(error, TidelockError) else type(error).__name__
        failed = Attempt(
            table=table,
            table_id=stream.table.id,
            action="failed",
            time=now,
            reason=str(error) if verdict.suspended is None else suspension(str(error)),
            seconds=time.monotonic() - began,
            version=head.version,
            epoch=stream.state.epoch,
            condition=condition,
            retry_at=verdict.retry_at,
            actor=self._store.actor,
        )
        record(self._store.objects, head.branch.id, failed)
        if verdict.suspended is not None:
            self._definitions.suspend(table, branch, verdict.suspended)
        others = [name for name in unit.members if name != table]
        skipped = [
            replace(one, action="skipped", reason=f"{table!r} of its group failed: {error}")
            for one in self._passed_over(branch, unit, "skipped", "")
            if one.table in others
        ]
        return [*skipped, failed]


class _Once:
    """Something that is done once, by whoever needs it first."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._done = False

    def run(self) -> None:
        with self._lock:
            if not self._done:
                self._work()
                self._done = True


def _each(
    run: Callable[[Unit], list[Attempt]], units: Sequence[Unit], parallel: bool
) -> Iterator[list[Attempt]]:
    if not parallel or len(units) < 2:
        yield from map(run, units)
        return
    with ThreadPoolExecutor(UNITS_AT_ONCE) as pool:
        yield from pool.map(run, units)
