"""The refreshes of a lake's stream tables: of all, of what is named, or of what is due.

Owns: the order of a refresh over all units, and what is recorded of each. Deciding is done by
derive's pure functions; a unit is published as one commit.
Invariants: one unit that fails stops no other; of refreshes that meet, one is published,
and the others look again at what is left to do.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from tidelock.derive.attempts.attempts import Attempt, keys_by_table, record, record_once
from tidelock.derive.attempts.failures import Failures
from tidelock.derive.catalog import Arrangement, Catalog, stream_of
from tidelock.derive.definitions.define import CONFLICTS_MAX, StreamDefinitions
from tidelock.derive.graph.backoff import is_engine_away, judge, spares_table
from tidelock.derive.graph.due import Due, MemberState, decide, next_moment, suspension
from tidelock.derive.graph.groups import Unit, unit_levels
from tidelock.derive.refresh.unit import MemberFailed, UnitRefresh, is_current
from tidelock.derive.spark.engine_rest import EngineRest
from tidelock.derive.stream import Stream
from tidelock.errors import CommitConflict, EngineError, TidelockError
from tidelock.model.streams import SchedulePolicy
from tidelock.model.time.schedules import parse_schedule
from tidelock.store.log.log import Head
from tidelock.store.store import Store

UNITS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Agenda:
    """What is to be refreshed."""

    names: frozenset[str]
    """The members of units that are due, and what is below them."""
    next: datetime | None
    """When there may be more without a commit."""


class StreamRefreshes:
    """Owns which units are refreshed in which order, and what is recorded of each; also how long an
    engine that was found away is left alone."""

    def __init__(self, store: Store, definitions: StreamDefinitions, failures: Failures) -> None:
        self._store = store
        self._failures = failures
        self._definitions = definitions
        self._catalog: Catalog = definitions.catalog
        self._rest = EngineRest()

    def refresh(
        self,
        names: Sequence[str] | None,
        branch: str,
        *,
        due: bool = False,
        among: Set[str] | None = None,
        full: bool = False,
        together: bool = False,
        parallel: bool = False,
        progress: Callable[[Attempt], None] | None = None,
        begun: Callable[[Unit], None] | None = None,
        stop: threading.Event | None = None,
    ) -> list[Attempt]:
        """Refresh what is named, or everything; what became of each, upstream first.

        With `due` that alone which is due: by schedule and by changes, and neither backing off nor
        waiting for an engine that is away. `among` leaves out what is known not to be due.
        """
        self._store.refuse_read_only()
        head = self._store.branches.head(branch)
        units = self._chosen(head, names)
        if among is not None:
            units = [unit for unit in units if not among.isdisjoint(unit.members)]
        if together:
            members = tuple(name for unit in units for name in unit.members)
            units = [Unit("lake", members, None, 0)] if members else []
        settings = _Once(self._store.engine.follow_settings)

        telling = threading.Lock()

        def run(unit: Unit) -> list[Attempt]:
            if stop is not None and stop.is_set():
                done = self._passed_over(head, unit, "skipped", "it was to stop before this")
            else:
                done = self._refresh_unit(
                    head, unit, full=full, asked=not due, begun=begun, settings=settings
                )
            if progress is not None:
                # As soon as it is known, and not when the slowest beside it is done.
                with telling:
                    for attempt in done:
                        progress(attempt)
            return done

        attempts: list[Attempt] = []
        for level in unit_levels(units):
            for done in _each(run, level, parallel):
                attempts.extend(done)
        return attempts

    def _chosen(self, head: Head, names: Sequence[str] | None) -> list[Unit]:
        tables = head.tables
        units = self._catalog.arrange(tables).units
        if names is None:
            return list(units)
        asked = {stream_of(tables, self._catalog, name).name for name in names}
        return [unit for unit in units if asked & set(unit.members)]

    def due(
        self, head: Head, arrangement: Arrangement, unit: Unit, now: datetime | None = None
    ) -> Due:
        """Whether a unit is to be refreshed now."""
        moment = now or self._store.clock.now()
        return self._decide(unit, self._members(head, arrangement, unit), moment)

    def agenda(self, head: Head, now: datetime) -> Agenda:
        """What is to be refreshed of a head now, and when there may be more without a commit."""
        arrangement = self._catalog.arrange(head.tables)
        if not arrangement.units:
            return Agenda(frozenset(), None)
        keys = keys_by_table(self._store.objects, head.branch.id)
        wanted: set[str] = set()
        moments = []
        for unit in arrangement.units:
            members = self._members(head, arrangement, unit, keys)
            moments.append(next_moment(members, now))
            if self._decide(unit, members, now).due and (
                not is_current(arrangement, head.tables, unit.members)
                or self._time_has_come(head, arrangement, unit.members, asked=False)
            ):
                wanted.update(unit.members)
                for name in unit.members:
                    wanted.update(arrangement.graph.downstream(name))
        return Agenda(frozenset(wanted), min(filter(None, moments), default=None))

    def _decide(self, unit: Unit, members: Sequence[MemberState], now: datetime) -> Due:
        policy: SchedulePolicy = unit.group.policy if unit.group is not None else "fastest"
        return decide(members, now, policy)

    def _members(
        self,
        head: Head,
        arrangement: Arrangement,
        unit: Unit,
        keys: Mapping[str, list[str]] | None = None,
    ) -> list[MemberState]:
        return [self._member(head, arrangement.streams[name], unit, keys) for name in unit.members]

    def _member(
        self, head: Head, stream: Stream, unit: Unit, keys: Mapping[str, list[str]] | None
    ) -> MemberState:
        state = stream.state
        outside = [read for read in stream.reads if read.name not in unit.members]
        changed: bool | None = None
        if outside:
            changed = any(
                read.state is None or read.then is None or read.state.changed != read.then.changed
                for read in outside
            )
        failures = self._failures.of(head, stream, keys)
        schedule = parse_schedule(stream.definition.schedule)
        refreshed = head.time if state.populated else None
        if not schedule.is_upstream:
            # Only a schedule with moments of its own asks when that was, which is read from the
            # log.
            refreshed = self._failures.refreshed_at(head, state)
        return MemberState(
            stream.name,
            schedule,
            refreshed,
            changed,
            state.suspended,
            failures[-1].retry_at if failures else None,
        )

    def _refresh_unit(
        self,
        head: Head,
        unit: Unit,
        *,
        full: bool,
        asked: bool,
        begun: Callable[[Unit], None] | None,
        settings: _Once,
    ) -> list[Attempt]:
        branch = head.branch.name
        for attempt in range(CONFLICTS_MAX):
            # What was refreshed before it from here is known; only what met it is asked for.
            log, branches = self._store.log, self._store.branches
            head = branches.head(branch) if attempt else log.newer_of(head)
            arrangement = self._catalog.arrange(head.tables)
            members = [name for name in unit.members if name in arrangement.streams]
            if len(members) < len(unit.members):
                return self._passed_over(head, unit, "skipped", "its group has changed")
            held = self._held(arrangement, members)
            if held is not None:
                return self._passed_over(head, unit, "skipped", held)
            # Asked now and not before: what this unit reads may just have been refreshed.
            due = None if asked else self.due(head, arrangement, unit)
            if due is not None and not due.due:
                action = "skipped" if due.held else "none"
                return self._passed_over(head, unit, action, due.reason)
            idle = is_current(arrangement, head.tables, members)
            if idle and not full and not self._time_has_come(head, arrangement, members, asked):
                return self._passed_over(head, unit, "none", "no input changed")
            obstacle = None if asked else self._rest.obstacle(self._store.clock.now())
            if obstacle is not None:
                return self._passed_over(head, unit, "skipped", obstacle)
            if begun is not None:
                begun(unit)
            began = time.monotonic()
            try:
                settings.run()
                attempts = UnitRefresh(self._store, self._catalog, branch, members, full).run()
                self._rest.end()
                return attempts
            except MemberFailed as error:
                cause = error.__cause__
                assert cause is not None
                return self._failed(branch, unit, error.table, cause, began)
            except CommitConflict:
                # Another process refreshed or altered a member: look again at what is left to do.
                continue
            except TidelockError as error:
                named = error.evidence.get("table")
                blamed = named if named in members else unit.members[-1]
                return self._failed(branch, unit, blamed, error, began)
        reason = f"{CONFLICTS_MAX} times, others refreshed or altered it at the same time"
        return self._passed_over(head, unit, "skipped", reason)

    def _time_has_come(
        self, head: Head, arrangement: Arrangement, members: Iterable[str], asked: bool
    ) -> bool:
        """Whether a member whose rows change with time is to be computed again for that alone."""
        now = self._store.clock.now()
        for stream in (arrangement.streams[name] for name in members):
            schedule = parse_schedule(stream.definition.schedule)
            if not stream.stored.tells_time or schedule.is_upstream:
                continue
            refreshed = self._failures.refreshed_at(head, stream.state)
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

    def _passed_over(self, head: Head, unit: Unit, action: Any, reason: str) -> list[Attempt]:
        tables = head.tables
        now = self._store.clock.now()
        return [
            Attempt(
                name,
                state.id if (state := tables.find(name)) else "",
                action,
                now,
                reason,
                epoch=state.stream.epoch if state and state.stream else None,
                actor=self._store.actor,
            )
            for name in unit.members
        ]

    def _failed(
        self, branch: str, unit: Unit, table: str, error: BaseException, began: float
    ) -> list[Attempt]:
        """Record why nothing of a unit was published; suspend the member that cannot go on."""
        head = self._store.branches.head(branch)
        now = self._store.clock.now()
        if head.tables.find(table) is None:
            return self._passed_over(head, unit, "skipped", f"{table!r} was dropped meanwhile")
        stream = stream_of(head.tables, self._catalog, table)
        away = error if isinstance(error, EngineError) and is_engine_away(error) else None
        before = self._failures.of(head, stream)
        alike = [failure.times for failure in before if failure.spares_table == spares_table(error)]
        verdict = judge(error, sum(alike), now, random.Random())
        condition = error.condition if isinstance(error, TidelockError) else type(error).__name__
        told = error.told("shell") if isinstance(error, TidelockError) else str(error)
        failed = Attempt(
            table=table,
            table_id=stream.table.id,
            action="failed",
            time=now,
            reason=told if verdict.suspended is None else suspension(told),
            seconds=time.monotonic() - began,
            version=head.version,
            epoch=stream.state.epoch,
            condition=condition,
            retry_at=self._rest.begin(away, now) if away else verdict.retry_at,
            actor=self._store.actor,
            definition=stream.state.definition,
        )
        keep = record_once if spares_table(error) else record
        keep(self._store.objects, head.branch.id, failed)
        if verdict.suspended is not None:
            self._definitions.suspend(table, branch, verdict.suspended)
        others = [name for name in unit.members if name != table]
        skipped = [
            replace(attempt, action="skipped", reason=f"{table!r} of its group failed: {told}")
            for attempt in self._passed_over(head, unit, "skipped", "")
            if attempt.table in others
        ]
        return [*skipped, failed]


class _Once:
    """Something that is done once, by the first thread that needs it."""

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
