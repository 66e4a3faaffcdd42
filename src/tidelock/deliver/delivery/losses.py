"""Losses: rows that a sink will never get, and rows that a replay would take from a destination.

**Before they were delivered.** Retention removes rows that a sink has not delivered yet.
Its commit says in its properties which sinks had not delivered what it removes:

    "pruned": {"table": …, "rows": 12, "until": 811, "undelivered": {sink id: [rows, first, last]}}

Invariant: a sink with a loss that nobody accepted delivers nothing more: it is lapsed, and says
what was lost.

**After they were delivered.** A replay sends what the lake has now; rows that were deleted or
pruned since are not there to be sent.

Law: rows lost = rows that the destination has in the ranges that a replay replaces, or that were
refused and are kept in quarantine alone, less those that the lake still has there, in the same
partitions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from tidelock.deliver.delivery.feed import Positioned
from tidelock.deliver.delivery.plan import by_path
from tidelock.deliver.delivery.quarantine import Quarantine
from tidelock.deliver.destinations.partitions import WHOLE
from tidelock.deliver.destinations.protocol import Ranges
from tidelock.errors import Advice, SinkLapsed, SinkStopped
from tidelock.model.commit import BranchRef, TableState
from tidelock.model.sinks import SinkDefinition, SinkState
from tidelock.store.log.log import Log
from tidelock.store.lookup.by_sequence import SEQUENCE, Ids, find_stretches, read_rows, sequences_in
from tidelock.store.store import Store
from tidelock.store.tables.changes import changes_of

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


def rows_lost(
    store: Store, definition: SinkDefinition, table: TableState, replaced: Sequence[Ranges]
) -> int:
    """How many rows of ranges that a replay replaces the lake does not have any more."""
    return sum(
        max(0, _count_rows(ranges) - _rows_kept(store, table, definition.partition_by, ranges))
        for ranges in replaced
    )


def quarantined_rows_lost(
    store: Store, definition: SinkDefinition, table: TableState, partition: str | None, since: int
) -> int:
    """How many rows are in quarantine alone: a replay discards what it sends anew."""
    quarantine = Quarantine(store.objects, definition)
    lines = (
        line
        for chunk in quarantine.covered(partition, since)
        for line in quarantine.body(chunk).splitlines()
    )
    wanted = np.unique(np.array([json.loads(line)[SEQUENCE] for line in lines], dtype=np.int64))
    if not len(wanted):
        return 0
    columns, begin, end = definition.partition_by, int(wanted[0]) - 1, int(wanted[-1])
    kept = sum(
        int(np.isin(wanted, sequences).sum())
        for path, sequences in _sequences(store, table, columns, begin, end)
        if partition in (None, path)
    )
    return len(wanted) - kept


LOSE = Advice(
    "Let them go with lose_rows=True; or replay since a later position, if there is one.",
    "Let them go with --lose-rows; or replay since a later position, if there is one.",
)


def tell_rows_lost(definition: SinkDefinition, lost: int, since: int) -> str:
    """That rows would be lost, as a sentence; LOSE says what to do."""
    return (
        f"{lost} {'row' if lost == 1 else 'rows'} that sink {definition.name!r} delivered after "
        f"{since} {'is' if lost == 1 else 'are'} no longer in table {definition.table!r}: a replay "
        f"sends what is there now, and {definition.to} would lose them."
    )


def refuse_losses(
    store: Store,
    definition: SinkDefinition,
    table: TableState,
    replaced: Sequence[Ranges],
    since: int,
) -> None:
    """SinkStopped when rows that a replay is about to take back have gone from the lake since."""
    lost = rows_lost(store, definition, table, replaced)
    if lost:
        raise SinkStopped(
            f"Nothing was taken back: {tell_rows_lost(definition, lost, since)}",
            LOSE,
            sink=definition.name,
            reason=f"{lost} rows would be lost by the replay that was asked for",
            rows=lost,
        )


def _count_rows(ranges: Ranges) -> int:
    return sum(chunk.rows for chunks in ranges.values() for chunk in chunks)


def _rows_kept(store: Store, table: TableState, columns: Sequence[str], ranges: Ranges) -> int:
    """How many rows a table has now in some ranges, each in its partition."""
    chunks = [chunk for ordered in ranges.values() for chunk in ordered]
    if not chunks:
        return 0
    after = min(chunk.after for chunk in chunks)
    until = max(chunk.until for chunk in chunks)
    # A destination that sees to its partitions by itself has ranges of the whole.
    columns = () if WHOLE in ranges else columns
    kept = 0
    for path, sequences in _sequences(store, table, columns, after, until):
        for chunk in ranges.get(path, ()):
            begin, end = np.searchsorted(sequences, [chunk.after, chunk.until], side="right")
            kept += int(end - begin)
    return kept


def _sequences(
    store: Store, table: TableState, columns: Sequence[str], after: int, until: int
) -> Iterator[tuple[str, Ids]]:
    """The sequences of rows in (after, until], in order, with the path of their partition."""
    dataset = store.files.read(table)
    stretches = find_stretches(dataset, after)
    if not columns:
        # Told by the metadata alone.
        for stretch in stretches:
            yield WHOLE, sequences_in(dataset, stretch, after, until)
        return
    with store.files.reading(table):
        for batch in read_rows(dataset, stretches, after, until, columns):
            rows: Positioned = (batch, batch.column(SEQUENCE).to_numpy())
            for path, (_, sequences) in by_path([rows], columns).items():
                yield path, sequences
