"""Retention: removing rows because of their age, with an eye on the sinks that follow them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from tidelock.deliver.delivery.ledger import Ledger
from tidelock.deliver.delivery.losses import PRUNED, UNDELIVERED
from tidelock.errors import InvalidOption
from tidelock.model.history.commit import Commit, TableState
from tidelock.model.positions import NOTHING
from tidelock.model.sinks import SinkDefinition, SinkState
from tidelock.store.log.log import Head
from tidelock.store.log.table_changes import changes_of
from tidelock.store.store import Store


@dataclass(frozen=True, slots=True)
class PruneReport:
    """What retention removed, and for whom that was too early."""

    table: str
    rows: int
    held_back: int
    """How many rows stay until they are delivered."""
    waiting_for: tuple[str, ...]
    """The sinks that rows are held back for."""
    lapsed: dict[str, int]
    """Sinks that lost rows, and how many."""
    commit: Commit | None


def prune(
    store: Store, table: str, where: str, branch: str, *, keep_until_delivered: bool, message: str
) -> PruneReport:
    """Remove the rows for which a condition is true, in one commit of retention."""
    if not isinstance(where, str) or not where.strip():
        raise InvalidOption("prune needs a condition, such as \"at < '2026-01-01'\".", table=table)
    head = store.branches.head(branch)
    state = head.tables[table]
    ledger = Ledger(store.objects)
    followers = [
        _Follower(definition, ledger.standing(definition).state)
        for definition in ledger.definitions()
        if definition.table_id == state.id
        and definition.branch_id == head.branch.id
        and definition.feed == "inserts"
    ]
    kept_for = [
        follower
        for follower in followers
        if keep_until_delivered and not _is_late(store, head, state, follower)
    ]
    until = min((follower.state.reached for follower in kept_for), default=None)
    with store.begin(branch, message=message or f"prune {table}") as transaction:
        matching = transaction.table(table).count(where) if until is not None else None
        row_ids = transaction.prune(table, where, until).astype(np.int64)
        lost = {
            follower.definition.name: (follower.definition.id, undelivered)
            for follower in followers
            if len(undelivered := row_ids[row_ids > follower.state.reached])
        }
        transaction.properties[PRUNED] = {
            "table": state.name,
            "rows": len(row_ids),
            "until": int(row_ids.max()) if len(row_ids) else NOTHING,
            UNDELIVERED: {
                sink_id: [len(ids), int(ids.min()), int(ids.max())]
                for sink_id, ids in lost.values()
            },
        }
        if not len(row_ids):
            transaction.rollback()
    held_back = 0 if matching is None else matching - len(row_ids)
    slowest = sorted(
        follower.definition.name for follower in kept_for if follower.state.reached == until
    )
    return PruneReport(
        state.name,
        len(row_ids),
        held_back,
        tuple(slowest) if held_back else (),
        {name: len(ids) for name, (_, ids) in lost.items()},
        transaction.commit,
    )


@dataclass(frozen=True, slots=True)
class _Follower:
    """A sink that follows the table, and where it stands."""

    definition: SinkDefinition
    state: SinkState


def _is_late(store: Store, head: Head, table: TableState, follower: _Follower) -> bool:
    """Whether a sink has left something undelivered for longer than was agreed."""
    seen = follower.state.seen
    waiting = list(changes_of(store.log, head.branch, table.id, table.changed, seen))
    if not waiting:
        return False
    first = store.published_at(head, waiting[-1][0])
    allowed = timedelta(seconds=follower.definition.hold_seconds)
    return first is not None and store.clock.now() - first > allowed
