"""One table of the source as the lake has it, and messages of its rows as changes of that table.

Owns: which column of a message is which column of the lake, and what of an old row is used.

    identity    an update tells                      a delete tells
    key         the old key, if it changed           the key
    full        the old row                          the old row
    nothing     (PostgreSQL refuses both)

Values that a column's type does not hold exactly are kept as text beside (types/). Columns that the
lake has and the source no longer sends are NULL in rows that come from then on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelock.ingest.intake.changes import Carried, Mask, Places, TableChanges
from tidelock.ingest.postgres.tuples import DELETE, Changes, Tuples, decode_changes
from tidelock.ingest.postgres.types import KEPT_TEXTS, Mapped, convert, keep_beside
from tidelock.model.names import HIDDEN
from tidelock.model.schema.schema import TableSchema

TEXTS = f"{HIDDEN}texts"
"""The hidden column of texts that are kept beside values."""


@dataclass(frozen=True)
class SentColumn:
    """A column as a relation sends it: where it is in a message, and what the lake makes of it."""

    place: int
    mapped: Mapped
    name: str
    """What the lake calls it."""


@dataclass(frozen=True)
class TableMapping:
    """How messages of one relation become changes of one table."""

    table: str
    schema: TableSchema
    """All columns that the lake has, hidden ones included."""
    sent: tuple[SentColumn, ...]
    columns: int
    """How many columns a message has, those that nobody wants included."""
    key: tuple[str, ...]
    """What the lake calls the columns that identify a row."""

    def changes(self, messages: Sequence[bytes], *, streamed: bool) -> TableChanges:
        """INSERT, UPDATE and DELETE messages, in their order, as changes."""
        told = decode_changes(messages, self.columns, streamed=streamed)
        new = self._fill_from_old_rows(told)
        puts = self._rows(new)
        numbers: Places = np.cumsum(told.has_new) - told.has_new
        removes, at = self._removes(told, puts)
        parts = told.xids
        return TableChanges(
            puts,
            removes,
            numbers[at].astype(np.int64),
            parts[told.has_new],
            parts[at],
            self._carried(told, new, puts),
        )

    def rows(self, texts: Mapping[str, pa.Array], rows: int) -> pa.Table:
        """Rows from the texts of their columns, by the names that the lake has for them."""
        marked: dict[str, tuple[pa.Array, pa.Array | None]] = {}
        columns: dict[str, Any] = {}
        for one in self.sent:
            given = texts[one.name]
            columns[one.name], kept = convert(given, one.mapped)
            if kept is not None:
                marked[one.name] = (given, kept)
        arrow = self.schema.arrow
        columns[TEXTS] = keep_beside(marked, rows) if marked else pa.nulls(rows, KEPT_TEXTS)
        arrays = [
            columns[field.name] if field.name in columns else pa.nulls(rows, field.type)
            for field in arrow
        ]
        return pa.Table.from_arrays(arrays, schema=arrow)

    def _rows(self, tuples: Tuples) -> pa.Table:
        texts = {one.name: tuples.texts[one.place] for one in self.sent}
        return self.rows(texts, tuples.rows)

    def _fill_from_old_rows(self, told: Changes) -> Tuples:
        """New rows with the values that were not sent, where the old row was sent whole."""
        new = told.new
        both = told.has_old_row & told.has_new
        if not both.any():
            return new
        at_new = np.cumsum(told.has_new)[both] - 1
        at_old = np.cumsum(told.has_old_row)[both] - 1
        kinds, texts = list(new.kinds), list(new.texts)
        for place in range(len(kinds)):
            missing = new.missing(place)[at_new]
            if not missing.any():
                continue
            rows, olds = at_new[missing], at_old[missing]
            kind = kinds[place].copy()
            kind[rows] = told.old_rows.kinds[place][olds]
            kinds[place] = kind
            origin = np.arange(new.rows)
            origin[rows] = new.rows + olds
            joined = pa.chunked_array([texts[place], told.old_rows.texts[place]])
            texts[place] = joined.take(pa.array(origin)).combine_chunks()
        return Tuples(tuple(kinds), tuple(texts), new.rows)

    def _removes(self, told: Changes, puts: pa.Table) -> tuple[pa.Table, npt.NDArray[np.int64]]:
        """What is removed, in the columns that tell it, and by which message each."""
        names = list(self.key or self.schema.arrow.names)
        by_key, by_row = self._old(told.old_keys, names), self._old(told.old_rows, names)
        places = [np.flatnonzero(told.has_old_key), np.flatnonzero(told.has_old_row)]
        at = np.concatenate(places)
        removes = pa.concat_tables([by_key, by_row])
        order = np.argsort(at, kind="stable")
        at, removes = at[order], removes.take(pa.array(order))
        if not self.key or not len(at):
            return removes, at
        # An update that left the key as it was has removed nothing.
        goes = told.kinds[at] == DELETE
        updates = np.flatnonzero(~goes)
        if len(updates):
            mine = np.cumsum(told.has_new)[at[updates]] - 1
            now = puts.select(names).take(pa.array(mine))
            goes[updates] = _differ(now, removes.take(pa.array(updates)))
        return removes.filter(pa.array(goes)), at[goes]

    def _old(self, tuples: Tuples, names: Sequence[str]) -> pa.Table:
        if not self.key:
            return self._rows(tuples)
        schema = pa.schema([self.schema.arrow.field(name) for name in names])
        if not tuples.rows:
            return schema.empty_table()
        columns = {one.name: one for one in self.sent}
        arrays = [convert(tuples.texts[columns[n].place], columns[n].mapped)[0] for n in names]
        return pa.Table.from_arrays(arrays, schema=schema)

    def _carried(self, told: Changes, new: Tuples, puts: pa.Table) -> Carried | None:
        masks = {one.name: new.missing(one.place) for one in self.sent}
        masks = {name: mask for name, mask in masks.items() if mask.any()}
        if not masks or not self.key:
            return None
        lacking: Mask = np.logical_or.reduce(list(masks.values()))
        rows = np.flatnonzero(lacking)
        keys = puts.select(list(self.key))
        old = self._old(told.old_keys, self.key)
        if old.num_rows:
            # The row was known by another key before.
            changed = told.has_old_key & told.has_new
            at_new = np.cumsum(told.has_new)[changed] - 1
            at_old = np.cumsum(told.has_old_key)[changed] - 1
            origin = np.arange(keys.num_rows)
            origin[at_new] = keys.num_rows + at_old
            keys = pa.concat_tables([keys, old]).take(pa.array(origin))
        return Carried(
            rows.astype(np.int64),
            keys.take(pa.array(rows)),
            {name: mask[rows] for name, mask in masks.items()},
            TEXTS,
        )


def _differ(one: pa.Table, other: pa.Table) -> Mask:
    """Which rows of two tables differ in a value; none of them is NULL."""
    found = np.zeros(one.num_rows, np.bool_)
    for left, right in zip(one.columns, other.columns, strict=True):
        differs = pc.not_equal(left, right)
        found |= pc.fill_null(differs, True).to_numpy()
    return found
