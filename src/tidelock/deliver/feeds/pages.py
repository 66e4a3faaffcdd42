"""Pages: rows that came after a sequence, for consumers that are no sink."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa

from tidelock.errors import InvalidOption
from tidelock.model.names import is_hidden
from tidelock.store.lookup.by_sequence import NOTHING, SEQUENCE, find_stretches, read_rows
from tidelock.store.store import Store


@dataclass(frozen=True)
class Page:
    """Rows in the order of their sequence, and where to go on."""

    rows: pa.Table
    """The table's columns and `_sequence`."""
    token: int
    """Give it as `after` to get what follows."""
    more: bool
    """Whether there is more now."""
    version: int

    def __repr__(self) -> str:
        more = "more follow" if self.more else "no more now"
        return f"Page({self.rows.num_rows} rows, token={self.token}, {more})"


def read_page(
    store: Store, table: str, after: int, limit: int, columns: Sequence[str] | None, branch: str
) -> Page:
    for name, value, least in (("after", after, NOTHING), ("limit", limit, 1)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InvalidOption(f"{name}={value!r} is not a number from {least} on.")
    head = store.branches.head(branch)
    snapshot = store.snapshot_at(head.branch, head.version)
    view = snapshot.table(table)
    dataset = view.dataset
    names = [name for name in view.resolve(columns) if not is_hidden(name)]
    with view.files.reading(view.state):
        stretches = find_stretches(dataset, after)
        newest = stretches[-1].last if stretches else after
        found = _first(read_rows(dataset, stretches, after, newest, names), limit)
    fields = [dataset.schema.field(name) for name in names]
    schema = pa.schema([*fields, pa.field(SEQUENCE, pa.int64(), nullable=False)])
    rows = pa.Table.from_batches(found, schema)
    token = rows.column(SEQUENCE)[-1].as_py() if rows.num_rows else after
    return Page(rows, token, token < newest, head.version)


def _first(batches: Iterable[pa.RecordBatch], limit: int) -> list[pa.RecordBatch]:
    found = []
    left = limit
    for batch in islice(batches, limit):
        found.append(batch.slice(0, left))
        left -= batch.num_rows
        if left <= 0:
            break
    return found
