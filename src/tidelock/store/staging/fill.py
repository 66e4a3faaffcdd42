"""Giving the rows that are there the default of a column that comes.

As an update of all rows that computes nothing: who follows the table sees what became of its rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tidelock.model.schema.schema import Column
from tidelock.store.operations.operations import Mutation
from tidelock.store.rows.defaults import Defaults
from tidelock.store.staging.staged_table import StagedTable
from tidelock.store.staging.writes import write_stream
from tidelock.store.table import Table
from tidelock.store.tables.fragments import Addresses, with_row_ids

_NUMBERS = ("_rowid", "_rowaddr")


def fill_column(view: Table, staged: StagedTable, column: Column, defaults: Defaults) -> None:
    """Stage a column's default for all rows."""
    row_ids: list[Addresses] = []
    addresses: list[Addresses] = []
    scanner = view.dataset.scanner(with_row_id=True, with_row_address=True)
    place = view.schema.names.index(column.name)

    def filled() -> Iterator[pa.RecordBatch]:
        for batch in scanner.to_batches():
            if not batch.num_rows:
                continue
            row_ids.append(batch.column(_NUMBERS[0]).to_numpy())
            addresses.append(batch.column(_NUMBERS[1]).to_numpy())
            values = defaults.column(column.name, column.type, batch.num_rows)
            columns = [*batch.drop_columns(list(_NUMBERS)).columns]
            columns[place] = values
            yield pa.RecordBatch.from_arrays(columns, schema=staged.schema.arrow)

    with view.files.reading(view.state):
        fragments = write_stream(staged.files, view.dataset, staged.target, filled())
    if row_ids:
        ids = np.concatenate(row_ids)
        found_at = view.dataset.version
        staged.add(Mutation(ids, np.concatenate(addresses), with_row_ids(fragments, ids), found_at))
