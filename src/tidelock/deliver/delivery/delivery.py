"""One delivery: one tick of one sink, from its plans to its watermark.

Invariants: a chunk is sent only if its plan is written down; the watermark moves only past chunks
that the destination has, or that were put aside in sight; a retry reads the version that its plan
names, which a hold keeps.
After a crash: whatever step it was at, the next delivery goes on there; ledger.py tells how.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import cached_property, partial

from tidelock.deliver.delivery.calls import Calls, Interrupted, destination
from tidelock.deliver.delivery.duty import Duty, on_duty
from tidelock.deliver.delivery.holds import check_version, hold_changes, let_go, take_version
from tidelock.deliver.delivery.ledger import Ledger, Progress, ProgressNotes, Suspension
from tidelock.deliver.delivery.look import Beginning, check_history, expired, look
from tidelock.deliver.delivery.losses import find_losses, lapsed
from tidelock.deliver.delivery.plan.lagging import LaggingPartitions
from tidelock.deliver.delivery.plan.outcome import (
    PartitionAccount,
    action_of,
    after_plan,
    maybe_left_by,
    must_wait,
    trouble_of,
)
from tidelock.deliver.delivery.plan.plan import group_window, rows_at, rows_of, since
from tidelock.deliver.delivery.plan.planner import Planner
from tidelock.deliver.delivery.quarantine import Quarantine
from tidelock.deliver.delivery.recovery import find_standing
from tidelock.deliver.delivery.replay_losses import refuse_losses
from tidelock.deliver.delivery.sender import Sender
from tidelock.deliver.destinations.protocol import Ranges, SentChunk, Sink, Terms, as_planned
from tidelock.deliver.feeds.eras import with_partition_ids
from tidelock.deliver.feeds.feed import Positioned, RowFeed, by_chunk
from tidelock.deliver.reports import Action, DeliveryReport, PartitionReport
from tidelock.errors import DestinationFailed, SinkBusy, SinkStopped, SnapshotExpired
from tidelock.model.sinks import (
    Chunk,
    DeliveryPlan,
    Part,
    SinkDefinition,
    SinkState,
    Standing,
    Trouble,
    told,
)
from tidelock.store.objects.failpoints import hit
from tidelock.store.objects.protocol import ObjectInfo
from tidelock.store.store import Store


def deliver(
    store: Store,
    ledger: Ledger,
    definition: SinkDefinition,
    open_sink: Callable[[], Sink],
    *,
    forced: bool,
    stopped: Callable[[], bool],
    beginning: Beginning | None = None,
    suspension: Suspension | None = None,
    post: list[ObjectInfo] | None = None,
) -> DeliveryReport:
    """Deliver what is new to one sink, if there is anything and it is not suspended.

    `forced`: somebody asked for it, so that what would wait for its time is tried at once. A time
    that the destination itself has named is waited for all the same. `post` is what there is of
    the post of the sink, if that was asked just now.
    """
    beginning = beginning or look(store, ledger, definition)
    if suspension is not None:
        return report_without(definition, beginning, "suspended", suspension.reason)
    if beginning.is_idle:
        return report_without(definition, beginning, "idle")
    store.refuse_read_only()
    with on_duty(store, definition, post) as duty:
        delivery = Delivery(
            store, ledger, definition, beginning, duty, open_sink, forced=forced, stopped=stopped
        )
        return delivery.run()


def report_without(
    definition: SinkDefinition, beginning: Beginning, action: Action, reason: str = ""
) -> DeliveryReport:
    """What is told when nothing was to be done."""
    state = beginning.state or SinkState(0, definition.start)
    at = told(definition.feed, state.watermark)
    return DeliveryReport(definition.name, action, at, at, beginning.head.version, reason=reason)


class Delivery:
    """One tick of one sink, by the process that has its post.

    Owns: the order of everything that is done, at the lake and at the destination. It delivers in
    plans, one after the other: the plan that is open, if a crash or a failure left one, as it is;
    then what partitions that are behind have still to get (plan/lagging.py); then what is new. Each
    plan goes through these states:

             hold, plan            chunks, confirmation            state, plan closed
        new ------------> planned ----------------------> sent --------------------> settled
                             ^                              |
                             +------------------------------+
                               nothing was taken, or not confirmed: it stays open

    planned    durable in the lake: the version that is read, the range, the chunks and so their
               ids; and, now and then, how many of each partition are sent.
               After a crash, what is not noted is sent again, under the same ids.
    sent       durable at the destination: every chunk but those of partitions that failed.
               After a crash, they are found there and confirmed again.
    settled    durable in the lake: the watermark, and what lagging partitions have still to get.
               After a crash, the next delivery begins with what comes after it.

    A partition that fails while others go on keeps no plan open: it lags once that is settled.
    """

    def __init__(
        self,
        store: Store,
        ledger: Ledger,
        definition: SinkDefinition,
        beginning: Beginning,
        duty: Duty,
        open_sink: Callable[[], Sink],
        *,
        forced: bool,
        stopped: Callable[[], bool],
    ) -> None:
        self._began = time.monotonic()
        self._store = store
        self._ledger = ledger
        self._given = definition
        self._beginning = beginning
        self._head, self._table = beginning.head, beginning.table
        self._duty = duty
        self._open_sink = open_sink
        self._forced = forced
        self._stopped = stopped
        self._calls = Calls(stopped)
        self._notes = ProgressNotes(ledger, far=store.together.far)
        # Whatever is planned next is read from the head, most of the time.
        self._held = self._head.version if store.together.far else 0
        self._opened = 0
        """The version that a plan is read from which is not settled."""
        self._settled: SinkState | None = None
        """The state after the last plan that was."""
        self._accounts: dict[str, PartitionAccount] = {}
        self._waits: dict[str, Trouble] = {}
        """The partitions that are left alone until their time has come."""

    # What it works with, from when it is first needed

    @cached_property
    def _sink(self) -> Sink:
        sink = self._calls.run(self._open_sink)
        sink.accept(Terms(self._duty.check, self._stopped, self._check_losses))
        return sink

    @cached_property
    def _definition(self) -> SinkDefinition:
        state = self._beginning.state
        known = with_partition_ids(self._store, self._head, self._table, self._given, state)
        return as_planned(known, self._sink)

    @cached_property
    def _sender(self) -> Sender:
        quarantine = Quarantine(self._store.objects, self._given)
        return Sender(self._sink, self._given, quarantine, self._calls, self._check)

    @cached_property
    def _lagging(self) -> LaggingPartitions:
        return LaggingPartitions(self._store.objects, self._definition)

    @cached_property
    def _planner(self) -> Planner:
        sink = self._sink
        return Planner(
            self._store,
            self._definition,
            self._beginning,
            self._lagging,
            sink.rows_per_chunk,
            one_schema=sink.has_one_schema,
        )

    # Beginning and ending

    def run(self) -> DeliveryReport:
        first = SinkState(0, self._given.start)
        try:
            standing = self._find_standing()
            first = standing.state
            self._opened = standing.open.version if standing.open is not None else 0
            try:
                state = self._deliver_all(standing)
            except SinkStopped:
                # It may stand still for long.
                self._release_versions(first)
                raise
            finally:
                self._end_threads()
                if self._held:
                    # For a plan that there was not.
                    self._release_versions(first)
        except SnapshotExpired as error:
            raise expired(self._given, first, error) from error
        except Interrupted:
            return self._report("interrupted", first, self._known_state(first))
        finally:
            self._close()
        if self._given.feed == "changes":
            # It keeps what it has still to read, for as long as was agreed.
            complete = told("changes", state.reached)
            hold_changes(self._store, self._given, self._head.branch, complete)
        moved = state.watermark > first.watermark
        action, reason = action_of(self._accounts, self._waits, moved)
        return self._report(action, first, state, reason)

    def _find_standing(self) -> Standing:
        def take_head() -> None:
            if self._held:
                take_version(self._store, self._given, self._head.branch, self._held)

        sink = self._sink
        standing, _ = self._store.together.both(
            lambda: self._calls.run(partial(find_standing, self._ledger, self._given, sink)),
            take_head,
        )
        return standing

    def _known_state(self, first: SinkState) -> SinkState:
        try:
            return self._ledger.standing(self._given).state
        except SinkStopped:
            return first

    def _end_threads(self) -> None:
        if "_sender" in self.__dict__:
            self._sender.close()
        self._notes.close()

    def _release_versions(self, first: SinkState) -> None:
        """Release the versions that this delivery leaves without a plan."""
        self._held = 0
        with suppress(SinkBusy):
            self._let_go(self._settled or first)

    def _close(self) -> None:
        if self._calls.left:
            # It may still reach the destination: nobody follows before the lease has run out.
            self._duty.abandon()
        elif "_sink" in self.__dict__:
            self._calls.run(self._sink.close)
        self._calls.close()

    def _report(
        self, action: Action, before: SinkState, after: SinkState, reason: str = ""
    ) -> DeliveryReport:
        feed = self._given.feed
        partitions = tuple(
            PartitionReport(
                path,
                account.rows,
                account.size_bytes,
                account.chunks,
                told(feed, account.after),
                told(feed, account.until),
                account.quarantined,
                account.trouble,
            )
            for path, account in sorted(self._accounts.items())
        )
        return DeliveryReport(
            self._given.name,
            action,
            told(feed, before.watermark),
            told(feed, after.watermark),
            self._head.version,
            partitions,
            reason,
            time.monotonic() - self._began,
        )

    # Which plans there are

    def _deliver_all(self, standing: Standing) -> SinkState:
        """Everything that there is to deliver, plan by plan; the state that it ends in."""
        state = standing.state
        self._check_history(*state.read)
        if standing.open is not None:
            settled = self._resume(standing.open)
            if settled is None:
                return state
            state = settled
        losses = find_losses(
            self._store.log, self._head.branch, self._definition, self._table, state
        )
        if losses:
            raise lapsed(self._definition, losses)
        state = self._catch_up(state)
        whole = not self._definition.partition_by
        if whole and state.lagging:
            # What is sent again, and was not taken, comes before what is new.
            return state
        while True:
            window = self._planner.next_window(state)
            if not window.parts and (whole or window.until == state.watermark):
                return self._look_no_more(state)
            settled = self._deliver(self._planner.plan_window(state, window), window.rows)
            if settled is None:
                return state
            state = settled
            if self._planner.reaches_newest(window):
                return state

    def _check_history(self, version: int, pin: int) -> None:
        check_history(self._store, self._given, self._beginning, version, pin)

    def _resume(self, plan: DeliveryPlan) -> SinkState | None:
        """Send again what was planned before, unless all of it is to wait."""
        self._check_history(plan.version, plan.pin)
        troubles = self._ledger.progress(plan).trouble
        if troubles and all(self._must_wait(trouble) for trouble in troubles.values()):
            for part in plan.parts:
                if part.path in troubles:
                    self._wait(part.path, part.after, troubles[part.path])
            return None
        return self._send(plan)

    def _catch_up(self, state: SinkState) -> SinkState:
        """Bring partitions on that are behind: first what was planned, then what came since."""
        for path in sorted(state.lagging):
            lag = state.lagging[path]
            if lag.trouble is not None and self._must_wait(lag.trouble):
                self._wait(path, lag.watermark, lag.trouble)
                continue
            while True:
                settled = self._take_step(state, path)
                if settled is None:
                    return state
                state = settled
                if path not in state.lagging or state.lagging[path].trouble is not None:
                    break
        return state

    def _take_step(self, state: SinkState, path: str) -> SinkState | None:
        """Plan and send what comes next of a partition that is behind."""
        step = self._planner.next_step(state, path)
        settled = self._deliver(self._planner.plan_step(state, step))
        if step.of and not step.parts:
            # None of its rows is left.
            self._lagging.forget(step.of, path)
        return settled

    def _must_wait(self, trouble: Trouble) -> bool:
        if self._forced and not trouble.asked:
            return False
        return must_wait(trouble, self._store.clock.now())

    def _wait(self, path: str, at: int, trouble: Trouble) -> None:
        self._waits[path] = trouble
        self._accounts.setdefault(path, PartitionAccount(at, at)).trouble = trouble

    def _look_no_more(self, state: SinkState) -> SinkState:
        """The table changed and has nothing for this sink: say so, that the next tick is idle."""
        seen = replace(state, seen=self._table.changed)
        if seen != state:
            self._duty.check()
            self._ledger.correct(self._definition, seen)
        return seen

    # One plan: planned, sent, settled

    def _deliver(
        self, plan: DeliveryPlan, rows: dict[str, Positioned] | None = None
    ) -> SinkState | None:
        """Write a plan down, send it and settle it; the state after it, None when it stays open."""
        if self._held != plan.version:
            take_version(self._store, self._definition, self._head.branch, plan.version)
        self._held = 0
        self._opened = plan.version
        check_version(self._store, self._head, plan.version)
        self._duty.check()
        self._ledger.begin(plan)
        return self._send(plan, rows, Progress())

    def _send(
        self,
        plan: DeliveryPlan,
        rows: dict[str, Positioned] | None = None,
        progress: Progress | None = None,
    ) -> SinkState | None:
        """Send what is left of a plan and settle it; None when it stays open."""
        progress = progress or self._ledger.progress(plan)
        sent = confirmed = dict(progress.sent)
        left_by = plan.before.left_by
        troubles: dict[str, Trouble] = {}
        # A partition that is behind, and fails again, stays so: others need not wait for it.
        behind = any(part.path in plan.before.lagging for part in plan.parts)
        try:
            self._send_parts(plan, rows, progress, sent, troubles)
            if len(troubles) < len(plan.parts) or (behind and any(sent.values())):
                # Should its answer be lost, it is there or it is not.
                left_by = maybe_left_by(plan)
                self._check()
                with destination(self._definition):
                    state = after_plan(plan, sent, troubles)
                    self._calls.run(partial(self._sink.confirm, plan, state))
                left_by = (plan.identity,)
        except DestinationFailed as error:
            # What is not confirmed may be unknown to its readers: all of it counts as not sent.
            confirmed = {}
            if error.evidence.get("send_again"):
                sent = {}
            for part in plan.parts:
                troubles[part.path] = self._in_trouble(plan, part, progress, error)
        except Interrupted:
            self._notes.note_last(plan, Progress(sent, progress.trouble))
            raise
        if plan.parts and len(troubles) == len(plan.parts) and not behind:
            self._notes.note_last(plan, Progress(sent, troubles))
            return None
        return self._settle(plan, confirmed, troubles, left_by)

    def _send_parts(
        self,
        plan: DeliveryPlan,
        rows: dict[str, Positioned] | None,
        progress: Progress,
        sent: dict[str, int],
        troubles: dict[str, Trouble],
    ) -> None:
        """Send the chunks of every part; fills in what was sent, and which parts are in trouble."""
        if not plan.parts:
            return
        feed = self._planner.feed_of(plan)
        if rows is None and len(plan.parts) > 1:
            rows = group_window(feed, plan.after, plan.until)
        self._check()
        with destination(self._definition):
            self._calls.run(partial(self._sink.plan, plan, feed.schema))
        for part in plan.parts:
            earlier = progress.trouble.get(part.path)
            if earlier is not None and self._must_wait(earlier):
                self._wait(part.path, part.after, earlier)
                troubles[part.path] = earlier
                continue
            try:
                chunks = part.chunks[sent.get(part.path, 0) :]
                with closing(self._send_chunks(plan, part.path, chunks, feed, rows or {})) as each:
                    for _ in each:
                        sent[part.path] = sent.get(part.path, 0) + 1
                        self._notes.note(plan, Progress(sent, progress.trouble))
                        self._check()
            except DestinationFailed as error:
                # A destination that was waited for gives up when the delivery is to stop.
                self._check()
                troubles[part.path] = self._in_trouble(plan, part, progress, error)

    def _send_chunks(
        self,
        plan: DeliveryPlan,
        path: str,
        chunks: tuple[Chunk, ...],
        feed: RowFeed,
        known: dict[str, Positioned],
    ) -> Generator[Chunk, None, None]:
        """Send chunks of one partition, and give each when it was sent."""
        if not chunks:
            return
        name, first, last = self._definition.feed, chunks[0].after, chunks[-1].until
        if path in known:
            rows = iter([since(known[path], first)])
        elif plan.of:
            rows = rows_at(feed, self._lagging.positions(plan.of, path), first, last)
        else:
            rows = rows_of(feed, path, first, last)
        of_plan = (plan.generation, feed.schema, plan.identity, plan.pin)
        divided = (
            (SentChunk(plan.sink_id, name, path, chunk, *of_plan), batches)
            for chunk, batches in by_chunk(rows, chunks)
        )
        for receipt in self._sender.send(divided):
            account = self._accounts.setdefault(path, PartitionAccount(first, first))
            account.rows += receipt.rows
            account.size_bytes += receipt.size_bytes
            account.chunks += 1
            account.quarantined += receipt.quarantined
            account.refused = receipt.refused or account.refused
            account.until = receipt.chunk.chunk.until
            hit("deliver.after_chunk")
            yield receipt.chunk.chunk

    def _settle(
        self,
        plan: DeliveryPlan,
        confirmed: dict[str, int],
        troubles: dict[str, Trouble],
        left_by: tuple[str, ...],
    ) -> SinkState:
        """Move the watermark past a plan, close it, and release what it held."""
        state = replace(after_plan(plan, confirmed, troubles), left_by=left_by)
        self._duty.check()
        self._opened, self._settled = 0, state
        self._ledger.advance(plan, state, self._notes.wait, partial(self._let_go, state))
        if plan.of and not troubles:
            for part in plan.parts:
                self._lagging.forget(plan.of, part.path)
        return state

    def _in_trouble(
        self, plan: DeliveryPlan, part: Part, progress: Progress, error: DestinationFailed
    ) -> Trouble:
        lag = plan.before.lagging.get(part.path)
        earlier = progress.trouble.get(part.path) or (lag.trouble if lag else None)
        trouble = trouble_of(error, earlier, self._store.clock.now())
        account = self._accounts.setdefault(part.path, PartitionAccount(part.after, part.after))
        account.trouble = trouble
        return trouble

    # Before each act

    def _check(self) -> None:
        """Interrupted when it is to stop, SinkBusy when another has taken over."""
        if self._stopped():
            raise Interrupted
        self._duty.check()

    def _check_losses(self, plan: DeliveryPlan, replaced: Sequence[Ranges]) -> None:
        """A replay is about to take rows back: those that the lake has lost since must not go."""
        if not plan.before.may_lose_rows:
            tables = self._store.log.tables_at(self._head.branch, plan.version)
            table = tables.same(self._table) or self._table
            refuse_losses(self._store, self._definition, table, replaced, plan.after)

    def _let_go(self, state: SinkState) -> None:
        """Release what is no longer needed, but nothing that a successor holds."""
        self._duty.check()
        let_go(self._store, self._definition, state, self._opened)
