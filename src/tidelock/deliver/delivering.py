"""Delivering: one tick of one sink.

1. nothing new, nothing behind: over, before anything but the head and the state was read
2. the post of this sink: one process delivers to it at a time
3. everything else is done by executing.py, and reported here
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tidelock.deliver.duty import on_duty
from tidelock.deliver.executing import Interrupted, Run, Sent
from tidelock.deliver.holding import hold_changes
from tidelock.deliver.ledger import Ledger
from tidelock.deliver.partitions import WHOLE
from tidelock.deliver.recovering import find_standing
from tidelock.deliver.reports import Action, DeliveryReport, PartitionReport
from tidelock.deliver.sink import Sink
from tidelock.errors import (
    BranchDeleted,
    BranchNotFound,
    SinkLapsed,
    SinkStopped,
    SnapshotExpired,
)
from tidelock.model.commit import TableState
from tidelock.model.sinks import SinkDefinition, SinkState, Trouble, told
from tidelock.store.log import Head
from tidelock.store.store import Store


def is_idle(state: SinkState, table: TableState) -> bool:
    """Whether there is nothing to deliver, nothing behind and nothing left by a crash."""
    return state.seen == table.changed and not state.lagging


def action_of(
    sent: Mapping[str, Sent], waits: Mapping[str, Trouble], moved: bool
) -> tuple[Action, str]:
    """What a tick that ended did, in one word, and the reason for what it did not."""
    failures = [one.trouble for path, one in sent.items() if one.trouble and path not in waits]
    if failures:
        return "failed", failures[0].reason
    moved = moved or any(one.chunks for one in sent.values()) or bool(sent.keys() - waits.keys())
    for path, trouble in waits.items():
        which = "it" if path == WHOLE else f"partition {path}"
        reason = f"{which} is tried again at {trouble.retry_at:%H:%M:%S} UTC: {trouble.reason}"
        return ("delivered" if moved else "waiting"), reason
    return ("delivered" if moved else "idle"), ""


@dataclass
class Tick:
    """One tick of one sink.

    `forced`: somebody asked for it, so that what would wait for its time is tried at once. A time
    that the destination itself has named is waited for all the same.
    """

    store: Store
    ledger: Ledger
    definition: SinkDefinition
    open_sink: Callable[[], Sink]
    forced: bool = True
    stop: threading.Event = field(default_factory=threading.Event)
    _sent: dict[str, Sent] = field(default_factory=dict)

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
        paused = self.ledger.paused(self.definition.id)
        if paused is not None:
            shown = state or SinkState(0, self.definition.start)
            return self._report("paused", shown, head.version, paused.reason, began)
        if state is not None and is_idle(state, table):
            return self._report("idle", state, head.version, "")
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
            run = Run(
                self.store,
                self.ledger,
                self.definition,
                sink,
                head,
                table,
                lambda: lost.is_set() or self.stop.is_set(),
                forced=self.forced,
            )
            self._sent = run.sent
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
        moved = state.watermark > first.watermark
        action, reason = action_of(self._sent, run.waits, moved)
        return self._report(action, first, head.version, reason, began, state)

    def _follow(self, head: Head, state: SinkState) -> None:
        """A feed of changes keeps what it has still to read, as long as was agreed."""
        if self.definition.feed == "changes":
            complete = told("changes", state.reached)
            hold_changes(self.store, self.definition, head.branch, complete)

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
