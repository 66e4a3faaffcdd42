"""Losses: rows that a sink will never get.

Retention removes rows that a sink has not delivered yet. Its commit says in its properties which
sinks had not delivered what it removes:

    "pruned": {"table": …, "rows": 12, "until": 811, "undelivered": {sink id: [rows, first, last]}}

Invariant: a sink with a loss that nobody accepted delivers nothing more: it is lapsed, and says
what was lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tidelock.errors import Advice, SinkLapsed
from tidelock.model.history.commit import BranchRef, TableState
from tidelock.model.sinks import SinkDefinition, SinkState
from tidelock.store.log.log import Log
from tidelock.store.log.table_changes import changes_of

PRUNED = "pruned"
UNDELIVERED = "undelivered"


@dataclass(frozen=True, slots=True)
class Loss:
    """Rows that a sink will never get."""

    version: int
    time: datetime
    rows: int
    first: int
    last: int


def find_losses(
    log: Log, branch: BranchRef, definition: SinkDefinition, table: TableState, state: SinkState
) -> list[Loss]:
    """What was lost since the last complete plan and was not accepted, oldest first."""
    if table.pruned <= state.reached:
        return []
    losses = []
    since = max(state.seen, state.accepted)
    for version, _ in changes_of(log, branch, table.id, table.changed, since):
        commit = log.commit_at(branch, version)
        lost = commit.properties.get(PRUNED, {}).get(UNDELIVERED, {}).get(definition.id)
        if lost is not None and lost[2] > state.reached:
            losses.append(Loss(version, commit.time, *lost))
    return losses[::-1]


def lapsed(definition: SinkDefinition, losses: list[Loss]) -> SinkLapsed:
    rows = sum(loss.rows for loss in losses)
    first, last = min(loss.first for loss in losses), max(loss.last for loss in losses)
    versions = ", ".join(str(loss.version) for loss in losses)
    return SinkLapsed(
        f"Sink {definition.name!r} has lapsed: retention removed {rows} rows of "
        f"{definition.table!r} with sequences {first} to {last}, at version {versions}, before "
        "they were delivered.",
        Advice(
            f"lake.resync_sink({definition.name!r}) accepts the loss and goes on with what is "
            "there.",
            f"`tidelock sink resync {definition.name}` accepts the loss and goes on with what is "
            "there.",
        ),
        sink=definition.name,
        rows=rows,
        first=first,
        last=last,
        versions=[loss.version for loss in losses],
    )
