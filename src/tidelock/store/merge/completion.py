"""Rows that one side added while the other added a column, or began to require one.

Owns: what such rows get in a column that their writer did not know: its default, as if it had been
there when they were written. Where a required column is left without a value, that is a conflict of
rows against a rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tidelock.model.history.conflicts import SEQUENCE, Conflict
from tidelock.model.history.renumbering import ABSENT, Ids
from tidelock.model.schema.column_merge import MergedColumn
from tidelock.model.schema.schema import Column
from tidelock.store.lookup.key_numbers import Numbering
from tidelock.store.merge.columns import MergedColumns
from tidelock.store.merge.rows.located import Located, locate
from tidelock.store.merge.rows.output import Output, RowIds, Written
from tidelock.store.merge.rows.row_merge import RowMerge
from tidelock.store.merge.rows.sides import ByKey, rows_at_a_time
from tidelock.store.merge.rows.work import merge_rows
from tidelock.store.rows.defaults import Defaults


@dataclass
class Completed:
    """Takes merged rows, completes them, and hands them on."""

    rows: RowMerge
    columns: MergedColumns
    out: Output
    defaults: Defaults

    def run(self) -> None:
        """Merge the rows, and complete those that the target added itself."""
        merge_rows(self.rows, self)
        lacking = [one for one in self.columns.merged.columns if one.target is None]
        filled = [one for one in lacking if _is_new(one) and one.column.default is not None]
        stricter = [
            one
            for one in self.columns.merged.columns
            if not one.column.nullable
            and (one.target is None or self.columns.before.column(one.target).nullable)
        ]
        if filled or stricter:
            self._complete_target(filled)

    def write(self, written: Written) -> None:
        come = written.located.ids == ABSENT
        if come.any():
            rows = written.rows
            for one in self.columns.merged.columns:
                if one.source is None and _is_new(one) and one.column.default is not None:
                    rows = self._with_default(rows, one.column, come)
            written = replace(written, rows=rows)
        self._check(written)
        self.out.write(written)

    def delete(self, keys: pa.Table, located: Located) -> None:
        self.out.delete(keys, located)

    def doubt(self, keys: pa.Table, located: Located, ids: RowIds | None) -> None:
        self.out.doubt(keys, located, ids)

    def _complete_target(self, filled: Sequence[MergedColumn]) -> None:
        """Give rows that the target wrote since the base what a new column of the source has for
        them; those that the source wrote as well have it."""
        merge = self.rows
        there, here = merge.there, merge.here
        own = np.arange(len(there.come))
        if len(here.come) and len(own):
            own = own[~Numbering(here.come.keys).find(there.come.keys).is_valid().to_numpy()]
        part = rows_at_a_time(merge.target.dataset)
        for start in range(0, len(own), part):
            chosen = own[start : start + part]
            rows = there.come.take(chosen)
            every = np.ones(len(chosen), dtype=np.bool_)
            for one in filled:
                rows = self._with_default(rows, one.column, every)
            keys = there.come.keys.take(pa.array(chosen))
            located = locate(merge.target.dataset, merge.target_keys, merge.target.shown, keys)
            written = Written(rows, keys, located)
            self._check(written)
            if filled:
                self.out.write(written)

    def _with_default(self, rows: pa.Table, column: Column, mask: np.ndarray) -> pa.Table:
        values = self.defaults.column(column.name, column.type, rows.num_rows)
        place = rows.schema.get_field_index(column.name)
        known = rows.column(place)
        order = np.where(mask, rows.num_rows + np.arange(rows.num_rows), np.arange(rows.num_rows))
        both = pa.chunked_array([*known.chunks, values], column.type)
        return rows.set_column(place, rows.schema.field(place), both.take(pa.array(order)))

    def _check(self, written: Written) -> None:
        """Note rows that have no value where one is required."""
        merge = self.rows
        for column in self.columns.schema.columns:
            values = written.rows.column(column.name)
            if column.nullable or not values.null_count:
                continue
            places = np.flatnonzero(values.is_null().to_numpy())
            shown = places[: merge.conflicts.room]
            merge.conflicts.count(merge.table, "value constraint", len(places) - len(shown))
            keys = self._told_keys(written, shown)
            rows = written.rows.take(pa.array(shown)).to_pylist()
            for key, row in zip(keys, rows, strict=True):
                merge.conflicts.add(
                    Conflict(
                        merge.table,
                        "value constraint",
                        key,
                        source=row,
                        columns=(column.name,),
                        why=f"column {column.name!r} is required at one side, and the row of the "
                        "other has no value in it",
                    )
                )

    def _told_keys(self, written: Written, shown: Ids) -> list[dict[str, object]]:
        if isinstance(self.rows.source_keys, ByKey):
            return written.keys.take(pa.array(shown)).to_pylist()  # type: ignore[no-any-return]
        ids = written.located.ids if written.ids is None else written.ids.source
        return [{SEQUENCE: one} for one in ids[shown].tolist()]


def _is_new(column: MergedColumn) -> bool:
    return not any(column.bases)
