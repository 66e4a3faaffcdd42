"""Where a sink stands, told from what is durable and from the head. Reads, and changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidelock.deliver.feeds import open_feed
from tidelock.deliver.ledger import Ledger
from tidelock.deliver.losses import find_losses, lapsed
from tidelock.deliver.quarantine import Quarantine
from tidelock.deliver.reports import Condition, LaggingPartition, SinkStatus
from tidelock.errors import SinkLapsed, SnapshotExpired, TidelockError
from tidelock.model.commit import TableState
from tidelock.model.sinks import SinkDefinition, SinkState, Trouble, told
from tidelock.store.log import Head
from tidelock.store.store import Store


@dataclass(frozen=True)
class _Found:
    condition: Condition
    reason: str = ""
    newest: int | None = None
    """The end of what there is to deliver; None where that cannot be told."""


def status_of(store: Store, ledger: Ledger, definition: SinkDefinition) -> SinkStatus:
    state, in_flight = SinkState(0, definition.start), False
    trouble: list[Trouble] = []
    try:
        standing = ledger.standing(definition)
        state, in_flight = standing.state, standing.open is not None
        if standing.open is not None:
            trouble += ledger.progress(standing.open).trouble.values()
        trouble += [lag.trouble for lag in state.lagging.values() if lag.trouble]
        found = _compare(store, definition, state, in_flight)
    except TidelockError as error:
        found = _Found("stopped", error.message)
    paused = ledger.paused(definition.id)
    condition, reason = _foremost(found, trouble, None if paused is None else paused.reason)
    return SinkStatus(
        name=definition.name,
        id=definition.id,
        table=definition.table,
        branch=definition.branch,
        kind=definition.kind,
        to=definition.to,
        feed=definition.feed,
        partition_by=definition.partition_by,
        schedule=definition.schedule,
        state=condition,
        reason=reason,
        watermark=told(definition.feed, state.watermark),
        newest=None if found.newest is None else told(definition.feed, found.newest),
        lagging=tuple(
            LaggingPartition(path, told(definition.feed, lag.watermark), lag.trouble)
            for path, lag in sorted(state.lagging.items())
        ),
        quarantined=Quarantine(store.objects, definition).count(),
        plan=state.plan,
        in_flight=in_flight,
        retry_at=min((one.retry_at for one in trouble), default=None),
        options=definition.options,
    )


def _compare(store: Store, definition: SinkDefinition, state: SinkState, in_flight: bool) -> _Found:
    """The sink against its table as it is now."""
    head = store.branches.head(definition.branch)
    table = next((t for t in head.tables.states() if t.id == definition.table_id), None)
    if table is None:
        return _Found("stopped", "its table was dropped")
    try:
        newest = _newest(store, definition, head, table, state)
        losses = find_losses(store.log, head.branch, definition, table, state)
        if losses:
            raise lapsed(definition, losses)
    except (SinkLapsed, SnapshotExpired) as error:
        return _Found("lapsed", error.message)
    behind = newest > state.watermark or bool(state.lagging) or in_flight
    return _Found("behind" if behind else "current", newest=newest)


def _newest(
    store: Store, definition: SinkDefinition, head: Head, table: TableState, state: SinkState
) -> int:
    if state.seen == table.changed:
        return state.watermark
    feed = open_feed(store, definition, head.branch, head.version, state.watermark, state.fragment)
    return feed.newest


def _foremost(
    found: _Found, trouble: Sequence[Trouble], paused: str | None
) -> tuple[Condition, str]:
    """What a person is told first: that it is paused, else what fails, else where it stands."""
    if paused is not None:
        return "paused", paused
    if trouble:
        return "failing", trouble[0].reason
    return found.condition, found.reason
