"""Executing: planning what a sink is to get, and sending it, plan by plan.

    1. the plan that is open, if a crash or a failure left one: sent again as it is
    2. partitions that are behind: what was planned for them, then what came since
    3. what is new: hold, plan, chunks, confirmation, watermark, plan closed

Invariants: a chunk is sent only if its plan is written down; the watermark moves only past chunks
that the destination has, or that were put aside in sight; a retry reads the version that its plan
names, which a hold keeps.
After a crash: see ledger.py; whatever step it was, the next tick goes on there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from tidelock.deliver.feeds import Feed, Positioned, by_chunk, open_feed
from tidelock.deliver.holding import hold_version, let_go
from tidelock.deliver.ledger import Ledger, Progress, Standing
from tidelock.deliver.losses import find_losses, lapsed
from tidelock.deliver.planning import (
    Window,
    group_window,
    plan_noted,
    plan_one,
    plan_partitions,
    plan_whole,
    rows_at,
    rows_of,
    since,
)
from tidelock.deliver.quarantine import Quarantine
from tidelock.deliver.sending import Sending, destination
from tidelock.deliver.sink import SentChunk, Sink, WaitingSink, follows
from tidelock.deliver.skipped import Skipped
from tidelock.deliver.steps import Step, after_plan, trouble_of, without
from tidelock.errors import DestinationFailed, SinkStopped
from tidelock.model.commit import TableState
from tidelock.model.sinks import Lag, Part, Plan, SinkDefinition, SinkState, Trouble
from tidelock.store.faults import hit
from tidelock.store.log import Head
from tidelock.store.store import Store

NOTE_SECONDS = 0.2
"""How often the progress of a plan is written down."""
LEFT_BY_MAX = 100
"""So many plans in a row may have ended with a destination's answer lost."""


class Interrupted(Exception):
    """The tick was asked to stop, or another process took over."""


@dataclass
class Sent:
    """What a tick has sent of one partition so far."""

    after: int
    until: int
    rows: int = 0
    size_bytes: int = 0
    chunks: int = 0
    quarantined: int = 0
    trouble: Trouble | None = None


class Run:
    """The part of a tick that plans and sends."""

    def __init__(
        self,
        store: Store,
        ledger: Ledger,
        definition: SinkDefinition,
        sink: Sink,
        head: Head,
        table: TableState,
        stopped: Callable[[], bool],
        *,
        forced: bool,
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._definition = follows(definition, sink)
        self._sink = sink
        self._head = head
        self._table = table
        self._stopped = stopped
        self._forced = forced
        quarantine = Quarantine(store.objects, definition)
        self._sending = Sending(sink, definition, quarantine, self._check)
        if isinstance(sink, WaitingSink):
            sink.stopped = stopped
        self._skipped = Skipped(store.objects, definition)
        self._feeds: dict[int, Feed] = {}
        self._noted = 0.0
        self.sent: dict[str, Sent] = {}
        self.waits: dict[str, Trouble] = {}
        """The partitions that are left alone until their time has come."""

    def all(self, standing: Standing) -> SinkState:
        state = standing.state
        self._check_history(*state.read)
        if standing.open is not None:
            self._check_history(standing.open.version, standing.open.pin)
            troubles = self._ledger.progress(standing.open).trouble
            if troubles and all(self._must_wait(one) for one in troubles.values()):
                for part in standing.open.parts:
                    if part.path in troubles:
                        self._wait(part.path, part.after, troubles[part.path])
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

    def _check_history(self, version: int, pin: int) -> None:
        """What a sink has read must be in the history of its lake, or positions mean other rows."""
        if not pin or (version <= self._head.version and self._pin_at(version) == pin):
            return
        name = self._definition.name
        raise SinkStopped(
            f"Sink {name!r} has read version {version} of {self._definition.table!r}, which is not "
            "in this lake: the lake was put back, or copied while it was written to, and the "
            "sink's state is later than its tables. Nothing was sent. Put the lake back as a "
            "whole; or drop the sink, and create one with an empty place.",
            sink=name,
            version=version,
        )

    def _must_wait(self, trouble: Trouble) -> bool:
        if self._forced and not trouble.asked:
            return False
        return trouble.retry_at > datetime.now(UTC)

    def _wait(self, path: str, at: int, trouble: Trouble) -> None:
        self.waits[path] = trouble
        self.sent.setdefault(path, Sent(at, at)).trouble = trouble

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
            read=(self._head.version, self._table.pin),
        )
        after = replace(after, lagging=self._skip(state, window))
        plan = self._plan(state, after, window.after, window.until, window.parts)
        return self._start(plan, window.rows)

    def _skip(self, state: SinkState, window: Window) -> dict[str, Lag]:
        """The partitions that are behind, each with a note of its rows in a window without it."""
        if self._definition.feed == "changes":
            # Where a change belongs does not change: its version stays as it was.
            return state.lagging
        number = state.plan + 1
        lagging = dict(state.lagging)
        for path in lagging.keys() & window.rows.keys():
            self._skipped.note(number, path, window.rows[path][1])
            lagging[path] = replace(lagging[path], skipped=(*lagging[path].skipped, number))
        return lagging

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
            pin=self._pin_at(version),
            after=begin,
            until=until,
            parts=parts,
            before=state,
            next=after,
            generation=state.generation,
            created=datetime.now(UTC),
        )

    def _pin_at(self, version: int | None) -> int:
        """What tells the table's content at a version from any other, also that of a copy."""
        if version in (None, self._head.version):
            return self._table.pin
        then = self._store.log.tables_at(self._head.branch, version).same(self._table)
        return 0 if then is None else then.pin

    def _start(self, plan: Plan, rows: dict[str, Positioned] | None = None) -> SinkState | None:
        hold_version(self._store, self._definition, self._head.branch, plan.version)
        self._ledger.begin(plan)
        return self._execute(plan, rows)

    def _catch_up(self, state: SinkState) -> SinkState:
        """Bring partitions on that are behind: first what was planned, then what came since."""
        for path in sorted(state.lagging):
            lag = state.lagging[path]
            if lag.trouble is not None and self._must_wait(lag.trouble):
                self._wait(path, lag.watermark, lag.trouble)
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
        """Plan and send what comes next of a partition that is behind."""
        step = self._next_step(state, path, lag)
        others = {one: found for one, found in state.lagging.items() if one != path}
        following = replace(lag, watermark=step.until, chunks=(), of=0, trouble=None)
        following = replace(following, skipped=without(lag.skipped, step.of))
        if following.skipped or step.until < self._goal(state, lag):
            others[path] = following
        after = replace(state, plan=state.plan + 1, lagging=others)
        parts = (Part(path, step.chunks),) if step.chunks else ()
        plan = self._plan(state, after, lag.watermark, step.until, parts, step.version)
        ended = self._start(replace(plan, of=step.of))
        if step.of and not parts:
            # None of its rows is left.
            self._skipped.forget(step.of, path)
        return ended

    def _goal(self, state: SinkState, lag: Lag) -> int:
        """Up to where a partition that is behind is planned from where its rows are now."""
        return state.watermark if self._definition.feed == "changes" else lag.again

    def _next_step(self, state: SinkState, path: str, lag: Lag) -> Step:
        if lag.chunks:
            return Step(lag.chunks, lag.chunks[-1].until, lag.version, lag.of)
        version, count = self._head.version, self._sink.rows_per_chunk
        feed = open_feed(self._store, self._definition, self._head.branch, version, lag.watermark)
        goal = self._goal(state, lag)
        if lag.watermark < goal:
            columns = self._definition.partition_by
            chunks = plan_one(feed, path, columns, lag.watermark, goal, count)
            return Step(chunks, chunks[-1].until if chunks else goal, version)
        if not lag.skipped:
            return Step((), lag.watermark, version)
        number = lag.skipped[0]
        noted = self._skipped.positions(number, path)
        chunks = plan_noted(feed, noted, lag.watermark, count)
        return Step(chunks, int(noted[-1]), version, number)

    # Sending

    def _execute(self, plan: Plan, rows: dict[str, Positioned] | None = None) -> SinkState | None:
        """Send what is left of a plan and close it; None when it stays open."""
        progress = self._ledger.progress(plan)
        sent = confirmed = dict(progress.sent)
        left_by = plan.before.left_by
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
                earlier = progress.trouble.get(part.path)
                if earlier is not None and self._must_wait(earlier):
                    self._wait(part.path, part.after, earlier)
                    troubles[part.path] = earlier
                    continue
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
                # Should its answer be lost, it is there or it is not.
                left_by = (*plan.before.left_by[-LEFT_BY_MAX:], plan.identity)
                with destination(self._definition):
                    self._sink.confirm(plan, state)
                left_by = (plan.identity,)
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
        state = replace(after_plan(plan, confirmed, troubles), left_by=left_by)
        self._ledger.advance(plan, state)
        let_go(self._store, self._definition, state)
        if plan.of and not troubles:
            for part in plan.parts:
                self._skipped.forget(plan.of, part.path)
        return state

    def _in_trouble(
        self, plan: Plan, part: Part, progress: Progress, error: DestinationFailed
    ) -> Trouble:
        lag = plan.before.lagging.get(part.path)
        earlier = progress.trouble.get(part.path) or (lag.trouble if lag else None)
        trouble = trouble_of(error, earlier)
        self._sent_of(part).trouble = trouble
        return trouble

    def close(self) -> None:
        self._sending.close()

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
        elif plan.of:
            rows = rows_at(feed, self._skipped.positions(plan.of, part.path), first, last)
        else:
            rows = rows_of(feed, part.path, self._definition.partition_by, first, last)
        identity = plan.identity
        divided = (
            (
                SentChunk(
                    plan.sink_id,
                    name,
                    part.path,
                    chunk,
                    plan.generation,
                    feed.schema,
                    identity,
                    plan.pin,
                ),
                batches,
            )
            for chunk, batches in by_chunk(rows, chunks)
        )
        for number, taken in enumerate(self._sending.send(divided), begin + 1):
            account = self._sent_of(Part(part.path, chunks))
            account.rows += taken.rows
            account.size_bytes += taken.size_bytes
            account.chunks += 1
            account.quarantined += taken.quarantined
            account.until = taken.chunk.chunk.until
            hit("deliver.after_chunk")
            yield number

    def _sent_of(self, part: Part) -> Sent:
        return self.sent.setdefault(part.path, Sent(part.after, part.after))

    def _note(self, plan: Plan, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._noted >= NOTE_SECONDS:
            self._ledger.note(plan, progress)
            self._noted = now
