"""Where a sink stands, told from what is durable and from the head. Reads, and changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidelock.deliver.delivery.ledger import SUSPENDED, Ledger
from tidelock.deliver.delivery.losses import find_losses, lapsed
from tidelock.deliver.reports import Condition, LaggingPartition, SinkStatus
from tidelock.errors import SinkLapsed, SnapshotExpired, TidelockError
from tidelock.model.history.commit import TableState
from tidelock.model.sinks import SinkDefinition, SinkState, Standing, Trouble, told
from tidelock.store.log.log import Head
from tidelock.store.objects.entries import is_entry
from tidelock.store.store import Store


@dataclass(frozen=True)
class _Comparison:
    """A sink against its table as it is now."""

    condition: Condition
    reason: str = ""
    newest: int | None = None
    """The end of what there is to deliver; None where that cannot be told."""


def statuses_of(
    store: Store, ledger: Ledger, definitions: Sequence[SinkDefinition], *, newest: bool = True
) -> list[SinkStatus]:
    """Where sinks stand. What they have is listed once, and the head asked for once.

    Without `newest`, no table is opened to find out how far each could be.
    """
    keys = ledger.keys_by_sink() if definitions else {}
    heads: dict[str, Head | TidelockError] = {}
    for branch in {one.branch for one in definitions}:
        try:
            heads[branch] = store.branches.head(branch)
        except TidelockError as error:
            heads[branch] = error
    entries = store.together.map(
        lambda definition: _read_entry(ledger, definition, keys.get(definition.id, [])), definitions
    )
    return [
        _status(store, definition, heads[definition.branch], entry, newest)
        for definition, entry in zip(definitions, entries, strict=True)
    ]


def status_of(
    store: Store, ledger: Ledger, definition: SinkDefinition, damage: Sequence[str] = ()
) -> SinkStatus:
    (status,) = statuses_of(store, ledger, [definition])
    if not damage:
        return status
    more = f" ({len(damage) - 1} more like that.)" if len(damage) > 1 else ""
    reason = f"{damage[0]}{more} `tidelock sink replay {definition.name}` delivers it again."
    return replace(status, state="damaged", reason=reason, damage=tuple(damage))


@dataclass(frozen=True)
class _LedgerEntry:
    """What is written about a sink."""

    standing: Standing | TidelockError
    trouble: tuple[Trouble, ...]
    suspended: str | None
    quarantined: int


def _read_entry(ledger: Ledger, definition: SinkDefinition, keys: Sequence[str]) -> _LedgerEntry:
    suspension = ledger.suspension(definition.id) if SUSPENDED in keys else None
    quarantined = sum(is_entry(key, "quarantine") for key in keys)
    trouble: list[Trouble] = []
    standing: Standing | TidelockError
    try:
        try:
            standing = ledger.standing(definition, ledger.plans_among(definition.id, keys))
        except TidelockError:
            # Somebody may have delivered since they were listed.
            standing = ledger.standing(definition)
        if standing.open is not None:
            trouble += ledger.progress(standing.open).trouble.values()
        trouble += [lag.trouble for lag in standing.state.lagging.values() if lag.trouble]
    except TidelockError as error:
        standing = error
    reason = None if suspension is None else suspension.reason
    return _LedgerEntry(standing, tuple(trouble), reason, quarantined)


def _status(
    store: Store,
    definition: SinkDefinition,
    head: Head | TidelockError,
    entry: _LedgerEntry,
    newest: bool,
) -> SinkStatus:
    state, in_flight = SinkState(0, definition.start), False
    if isinstance(entry.standing, TidelockError):
        comparison = _Comparison("stopped", entry.standing.told("shell"))
    elif isinstance(head, TidelockError):
        comparison = _Comparison("stopped", head.told("shell"))
    else:
        state, in_flight = entry.standing.state, entry.standing.open is not None
        try:
            comparison = _compare(store, definition, head, state, in_flight, newest)
        except TidelockError as error:
            comparison = _Comparison("stopped", error.told("shell"))
    condition, reason = _foremost(definition, comparison, entry)
    table = None if isinstance(head, TidelockError) else _table(head, definition)
    return SinkStatus(
        name=definition.name,
        id=definition.id,
        table=definition.table if table is None else table.name,
        branch=definition.branch,
        kind=definition.kind,
        to=definition.to,
        feed=definition.feed,
        partition_by=definition.partition_by,
        schedule=definition.schedule,
        state=condition,
        reason=reason,
        watermark=told(definition.feed, state.watermark),
        newest=None if comparison.newest is None else told(definition.feed, comparison.newest),
        lagging=tuple(
            LaggingPartition(path, told(definition.feed, lag.watermark), lag.trouble)
            for path, lag in sorted(state.lagging.items())
        ),
        quarantined=entry.quarantined,
        plan=state.plan,
        in_flight=in_flight,
        retry_at=min((one.retry_at for one in entry.trouble), default=None),
        options=definition.options,
    )


def _compare(
    store: Store,
    definition: SinkDefinition,
    head: Head,
    state: SinkState,
    in_flight: bool,
    looks: bool,
) -> _Comparison:
    """The sink against its table as it is now."""
    table = _table(head, definition)
    if table is None:
        return _Comparison("stopped", "its table was dropped")
    if not looks and state.seen != table.changed:
        return _Comparison("behind")
    try:
        newest = _newest(store, definition, head, table, state)
        losses = find_losses(store.log, head.branch, definition, table, state)
        if losses:
            raise lapsed(definition, losses)
    except (SinkLapsed, SnapshotExpired) as error:
        return _Comparison("lapsed", error.told("shell"))
    behind = newest > state.watermark or bool(state.lagging) or in_flight
    return _Comparison("behind" if behind else "current", newest=newest)


def _table(head: Head, definition: SinkDefinition) -> TableState | None:
    """The table that is followed, under whatever name it has."""
    known = head.tables.find(definition.table)
    if known is not None and known.id == definition.table_id:
        return known
    return next((t for t in head.tables.states() if t.id == definition.table_id), None)


def _newest(
    store: Store, definition: SinkDefinition, head: Head, table: TableState, state: SinkState
) -> int:
    if state.seen == table.changed:
        return state.watermark
    # Most sinks that are looked at are current: that is told without opening a table.
    from tidelock.deliver.feeds.eras import with_partition_ids
    from tidelock.deliver.feeds.feed import open_feed

    known = with_partition_ids(store, head, table, definition, state)
    feed = open_feed(store, known, head.branch, head.version, state.watermark, state.fragment)
    return feed.newest


def _foremost(
    definition: SinkDefinition, comparison: _Comparison, entry: _LedgerEntry
) -> tuple[Condition, str]:
    """What a person is told first: that it is suspended, else what fails, else where it stands."""
    if entry.suspended is not None:
        return "suspended", entry.suspended
    if entry.trouble:
        return "failing", entry.trouble[0].reason
    if comparison.condition == "current" and entry.quarantined:
        chunks = "1 chunk was" if entry.quarantined == 1 else f"{entry.quarantined} chunks were"
        return "quarantined", (
            f"{chunks} refused, and all else is delivered. See them, send them again or give them "
            f"up: tidelock sink quarantine {definition.name}"
        )
    return comparison.condition, comparison.reason
