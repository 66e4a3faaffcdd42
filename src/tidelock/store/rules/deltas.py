"""The rows that come to a table, and those that leave it, between two pins of it.

Owns: how they are told apart from all others, by the fragments of both pins, and how they are read
when they are few. An updated row leaves and comes again, under the same row id.
Law: rows(after) = rows(before) - left + came, as multisets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from tidelock.store.changes.changes import fragments_by_file, live_rows, newly_deleted
from tidelock.store.lookup.by_place import take_rows
from tidelock.store.tables.datasets import TableFiles
from tidelock.store.tables.fragments import Addresses, Dataset
from tidelock.store.tables.labelled import Labelled

ROW_ID, ROW_ADDRESS = "_rowid", "_rowaddr"


@dataclass(frozen=True, eq=False)
class TableDelta:
    """What lies between two pins of a table. None before: it is new, or every row counts as new;
    None after: it is dropped."""

    files: TableFiles
    table_id: str
    before: Dataset | None
    after: Dataset | None
    alike: bool = True
    """Whether fragments of the same file hold the same rows in both pins; else all leave and all
    come."""
    _read: dict[str, pa.Table] = field(default_factory=dict)

    @cached_property
    def _old(self) -> dict[str, int]:
        return fragments_by_file(self.before)

    @cached_property
    def _new(self) -> dict[str, int]:
        return fragments_by_file(self.after)

    @cached_property
    def added(self) -> tuple[tuple[str, int], ...]:
        """The fragments of `after` that `before` does not have: data file and id."""
        if not self.alike:
            return tuple(self._new.items())
        return tuple((file, id) for file, id in self._new.items() if file not in self._old)

    @cached_property
    def removed(self) -> tuple[int, ...]:
        """The fragments of `before` that `after` does not have."""
        if not self.alike:
            return tuple(self._old.values())
        return tuple(id for file, id in self._old.items() if file not in self._new)

    @cached_property
    def worn(self) -> tuple[int, ...]:
        """The fragments of both in which rows were deleted."""
        if self.before is None or self.after is None or not self.alike:
            return ()
        return tuple(
            id
            for file, id in self._old.items()
            if file in self._new
            and self.before.get_fragment(id).num_deletions
            != self.after.get_fragment(id).num_deletions
        )

    @cached_property
    def came(self) -> int:
        """How many rows come."""
        if self.after is None:
            return 0
        return sum(self.after.get_fragment(id).count_rows() for _, id in self.added)

    @cached_property
    def left(self) -> int:
        """How many rows leave."""
        if self.before is None:
            return 0
        rows = sum(self.before.get_fragment(id).count_rows() for id in self.removed)
        for id in self.worn:
            assert self.after is not None
            then, now = self.before.get_fragment(id), self.after.get_fragment(id)
            rows += now.num_deletions - then.num_deletions
        return int(rows)

    def leads_to(self, dataset: Dataset) -> bool:
        """Whether a pin is the one after, so that every row that came is in it."""
        return self.after is not None and bool(self.after.version == dataset.version)

    def read_ahead(self, columns: Sequence[str]) -> None:
        """Read columns of the rows that come, which are then at hand."""
        self._read["came"] = self.rows_that_came(columns)

    def rows_that_came(
        self, columns: Sequence[str], filter: str | None = None, files: Sequence[str] | None = None
    ) -> pa.Table:
        """Some columns of the rows that come, with their ids and addresses; with those alone for
        which a condition in Lance's words is true, or that are in some files."""
        known = self._read.get("came")
        whole = filter is None and files is None
        if known is not None and whole and set(columns) <= set(known.column_names):
            return known.select([*columns, ROW_ID, ROW_ADDRESS])
        chosen = [id for file, id in self.added if files is None or file in files]
        if not chosen:
            meant = self.before if self.after is None else self.after
            assert meant is not None
            schema = meant.schema
            return with_ids([schema.field(name) for name in columns]).empty_table()
        assert self.after is not None
        scanner = self.after.scanner(
            columns=list(columns),
            filter=filter,
            fragments=[self.after.get_fragment(id) for id in chosen],
            with_row_id=True,
            with_row_address=True,
        )
        return scanner.to_table()

    def rows_that_left(self, columns: Sequence[str], *, ids: bool = False) -> pa.Table:
        """Some columns of the rows that leave, as the pin after calls them; with their row ids, if
        those are asked for."""
        before = self.before
        assert before is not None
        meant = before if self.after is None else self.after
        then = Labelled.of(before, meant, columns)
        batches: list[pa.RecordBatch] = []
        row_ids: list[Addresses] = []
        for fragment_id in self.removed:
            fragment = before.get_fragment(fragment_id)
            scanner = before.scanner(columns=then.names, fragments=[fragment], scan_in_order=True)
            batches.extend(then.shown(scanner.to_batches()))
            if ids:
                row_ids.append(live_rows(before, fragment_id)[0])
        for fragment_id in self.worn:
            read = self.files.reader(self.table_id)
            live, gone = newly_deleted(read, before, self.after, fragment_id)
            batches.extend(then.shown(take_rows(before, fragment_id, live, gone, then.names)))
            if ids:
                known, offsets = live_rows(before, fragment_id)
                row_ids.append(known[np.searchsorted(offsets, gone)])
        fields = [meant.schema.field(name).with_nullable(True) for name in columns]
        rows = pa.Table.from_batches(
            [
                pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields))
                for batch in batches
            ],
            pa.schema(fields),
        )
        if ids:
            listed = np.concatenate([*row_ids, np.array([], dtype=np.uint64)])
            rows = rows.append_column(ROW_ID, pa.array(listed, pa.uint64()))
        return rows

    def row_ids_that_came(self) -> Addresses:
        found = [live_rows(self.after, id)[0] for _, id in self.added]
        return np.concatenate([*found, np.array([], dtype=np.uint64)]).astype(np.uint64)


def with_ids(fields: Sequence[pa.Field]) -> pa.Schema:
    return pa.schema([*fields, pa.field(ROW_ID, pa.uint64()), pa.field(ROW_ADDRESS, pa.uint64())])
