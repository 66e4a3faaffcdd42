"""A replay: a sink goes back to an earlier position, to send again what the lake has now.

Owns: what is refused before anything changes, and the order in which a replay begins. How it is
done at a destination is the destination's own (`Sink.replay`); delivery/replay_losses.py counts
what would be lost.
Invariant: nothing at a destination is removed, and nothing that the lake has lost is overwritten,
without `lose_rows`. Files of a plan that is given up are set aside.
After a crash: the state is as it was, or as the replay leaves it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from tidelock.deliver.delivery.duty import Duty
from tidelock.deliver.delivery.holds import take_version
from tidelock.deliver.delivery.ledger import Ledger
from tidelock.deliver.delivery.quarantine import Quarantine
from tidelock.deliver.delivery.recovery import ask, state_of
from tidelock.deliver.delivery.replay_losses import (
    LOSE,
    quarantined_rows_lost,
    rows_lost,
    tell_rows_lost,
)
from tidelock.deliver.destinations.protocol import (
    DestinationPosition,
    ReplayRequest,
    Sink,
    SinkReplay,
    as_planned,
)
from tidelock.deliver.feeds.eras import with_partition_ids
from tidelock.deliver.start import refuse_expired
from tidelock.errors import InvalidOption, SinkStopped
from tidelock.model.history.commit import TableState
from tidelock.model.positions import NOTHING, end_of, version_of
from tidelock.model.sinks import SinkDefinition, SinkState, Standing, told
from tidelock.store.log.log import Head
from tidelock.store.store import Store


@dataclass(frozen=True)
class Replay:
    """Of one partition, or of all, what comes after a position."""

    store: Store
    ledger: Ledger
    definition: SinkDefinition
    sink: Sink
    duty: Duty
    partition: str | None
    asked: int
    """The position as users know it."""
    lose_rows: bool

    @cached_property
    def head(self) -> Head:
        return self.store.branches.head(self.definition.branch)

    @cached_property
    def since(self) -> int:
        if self.definition.feed == "changes":
            return max(self.definition.start, end_of(self.asked))
        return self.asked

    def run(self) -> SinkState:
        standing = self._standing()
        state = self._known_state(standing)
        self._refuse_nonsense(state)
        state = replace(
            state,
            generation=state.generation + 1,
            seen=0,
            fragment=-1,
            may_lose_rows=self.lose_rows,
        )
        replay = self.sink.replay(
            ReplayRequest(
                state, self.partition, self.since, self.head.version, standing, self.lose_rows
            )
        )
        self._refuse_losses(replay)
        # Nothing is refused from here on.
        self._discard_covered(replay)
        # Files of a plan that is open are set aside: should this be cut short, all are sent again.
        self.ledger.forget_progress(self.definition)
        replay.prepare()
        if replay.version:
            take_version(self.store, self.definition, self.head.branch, replay.version)
        self.duty.check(surely=True)
        return self.ledger.restart(self.definition, replay.state)

    def _standing(self) -> Standing | SinkStopped:
        try:
            return self.ledger.standing(self.definition)
        except SinkStopped as stopped:
            return stopped

    def _known_state(self, standing: Standing | SinkStopped) -> SinkState:
        if isinstance(standing, SinkStopped):
            # The user says where to go on; the destination may know what came before.
            there = ask(self.definition, self.sink)
            return state_of(there or DestinationPosition(self.since))
        if standing.open is not None and self.since > standing.open.after:
            raise InvalidOption(
                f"Sink {self.definition.name!r} has begun to deliver what comes after "
                f"{standing.open.after}. Deliver first, or replay since {standing.open.after}.",
                since=self.since,
            )
        return standing.given_up()

    def _refuse_nonsense(self, state: SinkState) -> None:
        name, feed = self.definition.name, self.definition.feed
        if self.since < NOTHING:
            raise InvalidOption(
                f"{self.since} is no position: the first is 0, and -1 comes before it.",
                since=self.since,
            )
        if self.since > state.watermark:
            raise InvalidOption(
                f"Position {told(feed, self.since)} is not before the watermark of {name!r}, which "
                f"is {told(feed, state.watermark)}.",
                since=self.since,
            )
        if self.partition is not None and not as_planned(self.definition, self.sink).partition_by:
            raise InvalidOption(
                f"Sink {name!r} has no partitions that go on by themselves. Replay all of it.",
                partition=self.partition,
            )

    def _refuse_losses(self, replay: SinkReplay) -> None:
        """What is sent again must be there to be sent."""
        definition = self.definition
        tables = self.head.tables.states()
        table = next((state for state in tables if state.id == definition.table_id), None)
        if table is None:
            return
        if definition.feed == "changes":
            # A change is kept with its version, and is there or cannot be read.
            refuse_expired(self.store, self.head, table, definition, version_of(replay.since))
            return
        if self.lose_rows:
            return
        known = with_partition_ids(self.store, self.head, table, definition, replay.state)
        lost = self._rows_lost(replay, table, known)
        if lost:
            raise InvalidOption(
                tell_rows_lost(definition, lost, replay.since),
                LOSE,
                sink=definition.name,
                rows=lost,
            )

    def _rows_lost(self, replay: SinkReplay, table: TableState, definition: SinkDefinition) -> int:
        store = self.store
        lost = rows_lost(store, definition, table, replay.replaced())
        if self.sink.in_pieces() is not None:
            # What becomes of a request that is sent again is up to the receiver; not so of what it
            # has refused.
            partition, since = replay.partition, replay.since
            lost += quarantined_rows_lost(store, definition, table, partition, since)
        return lost

    def _discard_covered(self, replay: SinkReplay) -> None:
        """Chunks in quarantine whose rows are sent again anyway: both would be twice."""
        quarantine = Quarantine(self.store.objects, self.definition)
        for refused in quarantine.covered(replay.partition, replay.since):
            self.duty.check()
            quarantine.discard(refused)
