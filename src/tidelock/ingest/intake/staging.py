"""What a transaction of a source becomes in a transaction of the lake.

    a table with a key       rows are upserted by it, keys that are gone are removed
    a table without one      rows are appended, and as many are removed as were, whichever they are

Columns that came with the rows are added before them; of a table that was emptied, all rows go.
"""

from __future__ import annotations

import pyarrow as pa

from tidelock.ingest.intake.changes import Places, TableChanges, since_emptied, without_parts
from tidelock.ingest.intake.incoming import Incoming, TableWork
from tidelock.ingest.intake.net import Unknown, net_by_key
from tidelock.ingest.intake.spool import as_parts
from tidelock.store.operations.operations import Append, Overwrite
from tidelock.store.operations.upserts import StagedUpsert
from tidelock.store.transaction import Transaction


def stage_incoming(incoming: Incoming, transaction: Transaction) -> None:
    """Stage all that a transaction of a source did."""
    for work in incoming.tables.values():
        if work.alterations:
            transaction.alter_table(work.name, *work.alterations)
        if work.spool is not None:
            transaction.announce()
            _stage_spooled(work, incoming.undone, transaction)
        elif work.collected:
            changes = without_parts(work.collected.joined(), as_parts(incoming.undone))
            _stage_collected(work.name, changes, transaction, incoming.unknown(work.name))


def _stage_collected(
    name: str, changes: TableChanges, transaction: Transaction, unknown: Unknown | None
) -> None:
    changes, emptied = since_emptied(changes)
    key = transaction.table(name).key
    if emptied:
        transaction.delete(name, "true")
    if not key:
        if changes.puts.num_rows:
            transaction.append(name, changes.puts)
        transaction.remove_rows(name, changes.removes)
        return

    def rows_before(keys: pa.Table) -> tuple[pa.Table, Places]:
        return transaction.rows_of(name, keys)

    net = net_by_key(changes, key, rows_before, unknown, emptied=emptied)
    transaction.remove_keys(name, net.removes)
    if net.puts.num_rows:
        transaction.upsert(name, net.puts)


def _stage_spooled(work: TableWork, undone: set[int], transaction: Transaction) -> None:
    assert work.spool is not None
    if work.collected:
        work.spool.add(work.collected.joined(), undone)
        work.collected = type(work.collected)()
    came = work.spool.result(undone)
    staged = transaction.stage(work.name)
    if came.emptied:
        staged.add(Overwrite(came.fragments))
    elif not staged.schema.key and came.fragments:
        staged.add(Append(fragments=came.fragments))
    for gone in came.gone:
        transaction.remove_keys(work.name, gone)
    if staged.schema.key and came.fragments and not came.emptied:
        staged.add(StagedUpsert(came.fragments))
    if not staged.schema.key:
        for rows in work.spool.removed(undone):
            transaction.remove_rows(work.name, rows)
