"""Delivering: one tick of one sink.

    1. nothing new, nothing behind: over, before anything but the head and the state was read
    2. the post of this sink: one process delivers to it at a time
    3. the plan that is open, if a crash or a failure left one: sent again as it is
    4. partitions that are behind: what was planned for them, then what came since
    5. what is new, plan by plan: hold, plan, chunks, confirmation, watermark, plan closed

Invariants: a chunk is sent only if its plan is written down; the watermark moves only past chunks
that the destination has, or that were put aside in sight; a retry reads the version that its plan
names, which a hold keeps.
After a crash: see ledger.py; whatever step it was, the next tick goes on there.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from tidelock.deliver.duty import on_duty
from tidelock.deliver.feeds import Feed, Positioned, by_chunk, open_feed
from tidelock.deliver.ledger import Ledger, Progress, Standing
from tidelock.deliver.losses import find_losses, lapsed
from tidelock.deliver.planning import (
    Window,
    group_window,
    plan_one,
    plan_partitions,
    plan_whole,
    rows_of,
    since,
)
from tidelock.deliver.quarantine import Quarantine
from tidelock.deliver.recovering import find_standing
from tidelock.deliver.reports import Action, DeliveryReport, PartitionReport
from tidelock.deliver.sending import Sending, destination
from tidelock.deliver.sink import SentChunk, Sink, WaitingSink, follows
from tidelock.errors import (
    BranchDeleted,
    BranchNotFound,
    DestinationFailed,
    SinkLapsed,
    SinkStopped,
    SnapshotExpired,
    StoreError,
)
from tidelock.model.commit import BranchRef, TableState
from tidelock.model.sinks import (
    Chunk,
    Lag,
    Part,
    Plan,
    SinkDefinition,
    SinkState,
    Trouble,
    told,
    version_of,
)
from tidelock.model.waiting import wait_seconds
from tidelock.store.faults import hit
from tidelock.store.garbage import check_readable, collection_runs
from tidelock.store.holds import hold_names, release_hold, take_hold
from tidelock.store.log import Head
from tidelock.store.store import Store

NOTE_SECONDS = 0.2
"""How often the progress of a plan is written down."""


def is_idle(state: SinkState, table: TableState) -> bool:
    """Whether there is nothing to deliver, nothing behind and nothing left by a crash."""
    return state.seen == table.changed and not state.lagging


@dataclass
class _Sent:
    """What a tick has sent of one partition so far."""

    after: int
    until: int
    rows: int = 0
    size_bytes: int = 0
    chunks: int = 0
    quarantined: int = 0
    trouble: Trouble | None = None


class Interrupted(Exception):
    """The tick was asked to stop, or another process took over."""


@dataclass
class Tick:
    """One tick of one sink. `forced` tries at once what would wait for its time."""

    store: Store
    ledger: Ledger
    definition: SinkDefinition
    open_sink: Callable[[], Sink]
    forced: bool = True
    stop: threading.Event = field(default_factory=threading.Event)
    _sent: dict[str, _Sent] = field(default_factory=dict)
    _noted: float = 0.0

    def idle(self) -> DeliveryReport | None:
        """What to report when there is nothing to do; None when there is, or may be."""
        state = self.ledger.state(self.definition.id)
        if state is None:
            return None
        head, table = self._look()
        return self._report("idle", state, head.version, "") if is_idle(state, table) else None

    def run(self) -> DeliveryReport:
        began = time.monotonic()
        head, table = self._look()
        state = self.ledger.state(self.definition.id)
        if state is not None and is_idle(state, table):
            return self._report("idle", state, head.version, "")
        paused = self.ledger.paused(self.definition.id)
        if paused is not None:
            shown = state or SinkState(0, self.definition.start)
            return self._report("paused", shown, head.version, paused.reason, began)
        self.store.refuse_read_only()
        with on_duty(self.store, self.definition) as lost:
            return self._deliver(head, table, lost, began)

    def _look(self) -> tuple[Head, TableState]:
        """The head, and the table that is followed; SinkStopped when it is no longer there."""
        definition = self.definition
        try:
            head = self.store.branches.head(definition.branch)
        except (BranchNotFound, BranchDeleted) as error:
            raise self._gone(f"its branch {definition.branch!r} was deleted") from error
        if head.branch.id != definition.branch_id:
            raise self._gone(f"its branch {definition.branch!r} was deleted and made anew")
        table = head.tables.find(definition.table)
        if table is None or table.id != definition.table_id:
            found = next((t for t in head.tables.states() if t.id == definition.table_id), None)
            if found is None:
                raise self._gone(f"table {definition.table!r} was dropped or replaced")
            table = found
        return head, table

    def _gone(self, why: str) -> SinkStopped:
        return SinkStopped(
            f"Sink {self.definition.name!r} has nothing to follow: {why}. What was delivered "
            "stays. Drop the sink, and create one for the table that is there now.",
            sink=self.definition.name,
            reason=why,
        )

    def _expired(self, state: SinkState, error: SnapshotExpired) -> SinkLapsed:
        name, since = self.definition.name, told(self.definition.feed, state.watermark)
        return SinkLapsed(
            f"Sink {name!r} has lapsed: what {self.definition.table!r} was after version {since} "
            f"is no longer kept ({error.message}) `tidelock sink resync {name}` sends the table as "
            "it is now, and follows it from there.",
            sink=name,
            since=since,
        )

    def _deliver(
        self, head: Head, table: TableState, lost: threading.Event, began: float
    ) -> DeliveryReport:
        sink = self.open_sink()
        try:
            standing = find_standing(self.ledger, self.definition, sink)
            first = standing.state
            run = _Run(self, head, table, sink, lost)
            try:
                state = run.all(standing)
            except SnapshotExpired as error:
                raise self._expired(standing.state, error) from error
            except Interrupted:
                state = self.ledger.standing(self.definition).state
                return self._report("interrupted", first, head.version, "", began, state)
            finally:
                run.close()
        finally:
            sink.close()
        self._follow(head, state)
        if run.waits:
            return self._report("waiting", first, head.version, run.waits, began, state)
        trouble = next((one.trouble for one in self._sent.values() if one.trouble), None)
        moved = bool(self._sent) or state.watermark > first.watermark
        action: Action = "failed" if trouble else "delivered" if moved else "idle"
        reason = trouble.reason if trouble else ""
        return self._report(action, first, head.version, reason, began, state)

    def _follow(self, head: Head, state: SinkState) -> None:
        """A feed of changes keeps what it has still to read, as long as was agreed."""
        if self.definition.feed == "changes":
            hold_changes(self.store, self.definition, head.branch, version_of(state.reached))

    def _report(
        self,
        action: Action,
        before: SinkState,
        version: int,
        reason: str,
        began: float | None = None,
        after: SinkState | None = None,
    ) -> DeliveryReport:
        feed = self.definition.feed
        return DeliveryReport(
            self.definition.name,
            action,
            told(feed, before.watermark),
            told(feed, (after or before).watermark),
            version,
            tuple(
                PartitionReport(
                    path,
                    one.rows,
                    one.size_bytes,
                    one.chunks,
                    told(feed, one.after),
                    told(feed, one.until),
                    one.quarantined,
                    one.trouble,
                )
                for path, one in sorted(self._sent.items())
            ),
            reason,
            0.0 if began is None else time.monotonic() - began,
        )


class _Run:
    """The part of a tick that sends."""

    def __init__(
        self, tick: Tick, head: Head, table: TableState, sink: Sink, lost: threading.Event
    ) -> None:
        self._tick = tick
        self._store = tick.store
        self._ledger = tick.ledger
        self._definition = follows(tick.definition, sink)
        self._head = head
        self._table = table
        self._sink = sink
        self._lost = lost
        quarantine = Quarantine(tick.store.objects, tick.definition)
        self._sending = Sending(sink, tick.definition, quarantine, self._check)
        if isinstance(sink, WaitingSink):
            sink.stopped = self._stopped
        self._feeds: dict[int, Feed] = {}
        self.waits = ""

    def all(self, standing: Standing) -> SinkState:
        state = standing.state
        if standing.open is not None:
            if self._must_wait(self._ledger.progress(standing.open).trouble):
                return state
            ended = self._execute(standing.open)
            if ended is None:
                return state
            state = ended
        losses = find_losses(
            self._store.log, self._head.branch, self._definition, self._table, state
        )
        if losses:
            raise lapsed(self._definition, losses)
        state = self._catch_up(state)
        while True:
            window = self._next_window(state)
            whole = not self._definition.partition_by
            if not window.parts and (whole or window.until == state.watermark):
                return self._look_no_more(state)
            ended = self._begin(state, window)
            if ended is None:
                return state
            state = ended
            if window.until >= self._feed(state.watermark).newest:
                return state

    def _must_wait(self, troubles: dict[str, Trouble]) -> bool:
        if self._tick.forced or not troubles:
            return False
        until = min(trouble.retry_at for trouble in troubles.values())
        if until <= datetime.now(UTC):
            return False
        self.waits = f"it is tried again at {until:%H:%M:%S} UTC: " + next(
            trouble.reason for trouble in troubles.values()
        )
        return True

    # Planning

    def _feed(self, after: int, version: int | None = None, newer_than: int = -1) -> Feed:
        wanted = self._head.version if version is None else version
        if wanted not in self._feeds:
            branch = self._head.branch
            self._feeds[wanted] = open_feed(
                self._store, self._definition, branch, wanted, after, newer_than
            )
        return self._feeds[wanted]

    def _next_window(self, state: SinkState) -> Window:
        feed = self._feed(state.watermark, newer_than=state.fragment)
        columns, count = self._definition.partition_by, self._sink.rows_per_chunk
        if not columns:
            return plan_whole(feed, state.watermark, count)
        return plan_partitions(feed, state.watermark, columns, count, frozenset(state.lagging))

    def _look_no_more(self, state: SinkState) -> SinkState:
        """The table changed and has nothing for this sink: say so, that the next tick is idle."""
        seen = replace(state, seen=self._table.changed)
        if seen != state:
            self._ledger.correct(self._definition, seen)
        return seen

    def _begin(self, state: SinkState, window: Window) -> SinkState | None:
        feed = self._feed(state.watermark)
        everything = window.until >= feed.newest
        after = replace(
            state,
            plan=state.plan + 1,
            watermark=window.until,
            seen=self._table.changed if everything else state.seen,
            fragment=feed.fragment if everything else state.fragment,
        )
        plan = self._plan(state, after, window.after, window.until, window.parts)
        return self._start(plan, window.rows)

    def _plan(
        self,
        state: SinkState,
        after: SinkState,
        begin: int,
        until: int,
        parts: tuple[Part, ...],
        version: int | None = None,
    ) -> Plan:
        return Plan(
            number=state.plan + 1,
            sink_id=self._definition.id,
            version=self._head.version if version is None else version,
            after=begin,
            until=until,
            parts=parts,
            before=state,
            next=after,
            generation=state.generation,
            created=datetime.now(UTC),
        )

    def _start(self, plan: Plan, rows: dict[str, Positioned] | None = None) -> SinkState | None:
        self._hold(plan.version)
        self._ledger.begin(plan)
        return self._execute(plan, rows)

    def _catch_up(self, state: SinkState) -> SinkState:
        """Bring partitions on that are behind: first what was planned, then what came since."""
        for path in sorted(state.lagging):
            lag = state.lagging[path]
            if lag.trouble is not None and self._must_wait({path: lag.trouble}):
                continue
            while lag is not None:
                ended = self._catch_up_once(state, path, lag)
                if ended is None:
                    return state
                state = ended
                following = state.lagging.get(path)
                if following is None or following.trouble is not None:
                    break
                lag = following
        return state

    def _catch_up_once(self, state: SinkState, path: str, lag: Lag) -> SinkState | None:
        version = lag.version if lag.chunks else self._head.version
        chunks = lag.chunks
        if not chunks:
            feed = open_feed(
                self._store, self._definition, self._head.branch, version, lag.watermark
            )
            chunks = plan_one(
                feed,
                path,
                self._definition.partition_by,
                lag.watermark,
                state.watermark,
                self._sink.rows_per_chunk,
            )
        others = {one: found for one, found in state.lagging.items() if one != path}
        until = chunks[-1].until if chunks else state.watermark
        if until < state.watermark:
            others[path] = Lag(until)
        after = replace(state, plan=state.plan + 1, lagging=others)
        parts = (Part(path, chunks),) if chunks else ()
        return self._start(self._plan(state, after, lag.watermark, until, parts, version))

    # Sending

    def _execute(self, plan: Plan, rows: dict[str, Positioned] | None = None) -> SinkState | None:
        """Send what is left of a plan and close it; None when it stays open."""
        progress = self._ledger.progress(plan)
        sent = confirmed = dict(progress.sent)
        troubles: dict[str, Trouble] = {}
        # A partition that is behind, and fails again, stays so: others need not wait for it.
        behind = any(part.path in plan.before.lagging for part in plan.parts)
        feed = self._plan_feed(plan)
        columns = self._definition.partition_by
        if rows is None and len(plan.parts) > 1:
            rows = group_window(feed, plan.after, plan.until, columns)
        try:
            if plan.parts:
                with destination(self._definition):
                    self._sink.plan(plan, feed.schema)
            for part in plan.parts:
                try:
                    begin = sent.get(part.path, 0)
                    with closing(self._send(plan, part, begin, feed, rows or {})) as numbers:
                        for number in numbers:
                            sent[part.path] = number
                            self._note(plan, Progress(sent, progress.trouble))
                            self._check()
                except DestinationFailed as error:
                    # A destination that was waited for gives up when the tick is to stop.
                    self._check()
                    troubles[part.path] = self._in_trouble(plan, part, progress, error)
            if len(troubles) < len(plan.parts) or (behind and any(sent.values())):
                state = after_plan(plan, sent, troubles)
                with destination(self._definition):
                    self._sink.confirm(plan, state)
        except DestinationFailed as error:
            # What is not confirmed may be unknown to its readers: all of it counts as not sent.
            confirmed = {}
            for part in plan.parts:
                troubles[part.path] = self._in_trouble(plan, part, progress, error)
        except Interrupted:
            self._ledger.note(plan, Progress(sent, progress.trouble))
            raise
        if plan.parts and len(troubles) == len(plan.parts) and not behind:
            self._ledger.note(plan, Progress(sent, troubles))
            return None
        state = after_plan(plan, confirmed, troubles)
        self._ledger.advance(plan, state)
        self._let_go(state)
        return state

    def _in_trouble(
        self, plan: Plan, part: Part, progress: Progress, error: DestinationFailed
    ) -> Trouble:
        lag = plan.before.lagging.get(part.path)
        earlier = progress.trouble.get(part.path) or (lag.trouble if lag else None)
        trouble = _trouble(error, earlier)
        self._sent_of(part).trouble = trouble
        return trouble

    def close(self) -> None:
        self._sending.close()

    def _stopped(self) -> bool:
        return self._lost.is_set() or self._tick.stop.is_set()

    def _check(self) -> None:
        if self._stopped():
            raise Interrupted

    def _plan_feed(self, plan: Plan) -> Feed:
        if plan.version == self._head.version and plan.version in self._feeds:
            return self._feeds[plan.version]
        return open_feed(self._store, self._definition, self._head.branch, plan.version, plan.after)

    def _send(
        self, plan: Plan, part: Part, begin: int, feed: Feed, known: dict[str, Positioned]
    ) -> Generator[int, None, None]:
        """Send the chunks of a part from a number on; the number of those sent, after each."""
        chunks = part.chunks[begin:]
        if not chunks:
            return
        name, first, last = self._definition.feed, chunks[0].after, chunks[-1].until
        if part.path in known:
            rows = iter([since(known[part.path], first)])
        else:
            rows = rows_of(feed, part.path, self._definition.partition_by, first, last)
        divided = (
            (SentChunk(plan.sink_id, name, part.path, chunk, plan.generation, feed.schema), batches)
            for chunk, batches in by_chunk(rows, chunks)
        )
        for number, taken in enumerate(self._sending.send(divided), begin + 1):
            account = self._sent_of(Part(part.path, chunks))
            account.rows += taken.chunk.rows
            account.size_bytes += taken.size_bytes
            account.chunks += 1
            account.quarantined += taken.quarantined
            account.until = taken.chunk.chunk.until
            hit("deliver.after_chunk")
            yield number

    def _sent_of(self, part: Part) -> _Sent:
        return self._tick._sent.setdefault(part.path, _Sent(part.after, part.after))

    def _note(self, plan: Plan, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._tick._noted >= NOTE_SECONDS:
            self._ledger.note(plan, progress)
            self._tick._noted = now

    # Holds

    def _hold(self, version: int) -> None:
        name = hold_name(self._definition, version)
        take_hold(self._store.objects, name, self._head.branch, version, self._store.actor)
        if collection_runs(self._store.objects, self._store.lease_seconds):
            # It may not have seen the hold: what it left is what counts.
            while collection_runs(self._store.objects, self._store.lease_seconds):
                time.sleep(0.05)
            check_readable(self._store, self._head.branch, version)

    def _let_go(self, state: SinkState) -> None:
        """Release what no plan needs any more, also what a crash left held."""
        needed = {lag.version for lag in state.lagging.values() if lag.chunks}
        kept = {hold_name(self._definition, version) for version in needed}
        kept.add(hold_name(self._definition, "changes"))
        with suppress(StoreError):
            for name in hold_names(self._store.objects):
                if name.startswith(hold_name(self._definition, "")) and name not in kept:
                    release_hold(self._store.objects, name)


def hold_changes(store: Store, definition: SinkDefinition, branch: BranchRef, version: int) -> None:
    """Keep every version after one that a feed of changes has delivered."""
    take_hold(
        store.objects,
        hold_name(definition, "changes"),
        branch,
        version,
        store.actor,
        onward=True,
        allowed_seconds=definition.hold_seconds,
    )


def hold_name(definition: SinkDefinition, what: int | str) -> str:
    return f"sink {definition.id} {what}"


def after_plan(plan: Plan, sent: dict[str, int], troubles: dict[str, Trouble]) -> SinkState:
    """The state once a plan is closed: partitions in trouble lag, with what they have to send."""
    lagging = dict(plan.next.lagging)
    for part in plan.parts:
        if part.path not in troubles:
            continue
        number = sent.get(part.path, 0)
        reached = part.chunks[number - 1].until if number else part.after
        left: tuple[Chunk, ...] = part.chunks[number:]
        lagging[part.path] = Lag(reached, left, plan.version, troubles[part.path])
    return replace(plan.next, lagging=lagging)


def _trouble(error: DestinationFailed, earlier: Trouble | None) -> Trouble:
    failures = 1 + (earlier.failures if earlier else 0)
    now = datetime.now(UTC)
    asked = error.evidence.get("retry_after_seconds")
    wait = wait_seconds(failures, random.Random()) if asked is None else float(asked)
    return Trouble(
        reason=str(error),
        condition=error.condition,
        failures=failures,
        since=earlier.since if earlier else now,
        retry_at=now + timedelta(seconds=wait),
    )
