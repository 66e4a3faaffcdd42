"""Losses by a replay: rows that it would take from a destination and cannot send again.

A replay sends what the lake has now; rows that were deleted or pruned since they were delivered
are not there to be sent.

Law: rows lost = rows that the destination has in the ranges that a replay replaces, or that were
refused and are kept in quarantine alone, less those that the lake still has there, in the same
partitions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import numpy as np

from tidelock.deliver.delivery.plan.plan import by_path
from tidelock.deliver.delivery.quarantine import Quarantine
from tidelock.deliver.destinations.partitions import WHOLE
from tidelock.deliver.destinations.protocol import Ranges
from tidelock.deliver.feeds.eras import Divided, divided_by, schema_at
from tidelock.deliver.feeds.feed import Positioned
from tidelock.errors import Advice, SinkStopped
from tidelock.model.history.commit import TableState
from tidelock.model.sinks import SinkDefinition
from tidelock.store.lookup.by_sequence import SEQUENCE, Ids, find_stretches, read_rows, sequences_in
from tidelock.store.store import Store


def rows_lost(
    store: Store, definition: SinkDefinition, table: TableState, replaced: Sequence[Ranges]
) -> int:
    """How many rows of ranges that a replay replaces the lake does not have any more."""
    return sum(
        max(0, _count_rows(ranges) - _rows_kept(store, table, definition, ranges))
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
    divided = divided_by(definition, schema_at(store, table))
    begin, end = int(wanted[0]) - 1, int(wanted[-1])
    kept = sum(
        int(np.isin(wanted, sequences).sum())
        for path, sequences in _sequences(store, table, divided, begin, end)
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


def _rows_kept(store: Store, table: TableState, definition: SinkDefinition, ranges: Ranges) -> int:
    """How many rows a table has now in some ranges, each in its partition."""
    chunks = [chunk for ordered in ranges.values() for chunk in ordered]
    if not chunks:
        return 0
    after = min(chunk.after for chunk in chunks)
    until = max(chunk.until for chunk in chunks)
    # A destination that sees to its partitions by itself has ranges of the whole.
    divided = {} if WHOLE in ranges else divided_by(definition, schema_at(store, table))
    kept = 0
    for path, sequences in _sequences(store, table, divided, after, until):
        for chunk in ranges.get(path, ()):
            begin, end = np.searchsorted(sequences, [chunk.after, chunk.until], side="right")
            kept += int(end - begin)
    return kept


def _sequences(
    store: Store, table: TableState, divided: Divided, after: int, until: int
) -> Iterator[tuple[str, Ids]]:
    """The sequences of rows in (after, until], in order, with the path of their partition."""
    dataset = store.files.read(table)
    stretches = find_stretches(dataset, after)
    if not divided:
        # Told by the metadata alone.
        for stretch in stretches:
            yield WHOLE, sequences_in(dataset, stretch, after, until)
        return
    with store.files.reading(table):
        for batch in read_rows(dataset, stretches, after, until, list(divided.values())):
            rows: Positioned = (batch, batch.column(SEQUENCE).to_numpy())
            for path, (_, sequences) in by_path([rows], divided).items():
                yield path, sequences
