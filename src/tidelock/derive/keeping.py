"""Keeping one stream table: staging its next state in a transaction.

Owns: the two ways to get there. By delta: every stage in turn is moved by the changes of what it
reads. In full: every stage is computed over whole tables. What is staged is invisible until the
transaction publishes.

Invariant: after either, the staged rows are those of the view's query over the tables as the
transaction sees them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from tidelock.derive.analysing import Kept
from tidelock.derive.heads import bag_rows, group_rows, partition_rows, summed
from tidelock.derive.moving import Move, difference, move, stored
from tidelock.derive.relations import Query
from tidelock.derive.sources import cancelled
from tidelock.derive.sql.operators import Scan, scans
from tidelock.derive.sql.rendering import render
from tidelock.derive.stages import INTERNAL, Bag, Groups
from tidelock.derive.terms import Bound, state
from tidelock.derive.views import Prepared, internal_name, whole
from tidelock.derive.weighted import WEIGHT
from tidelock.model.names import quote
from tidelock.store.frame_staging import overwrite_frame
from tidelock.store.operations import Overwrite, Replacement
from tidelock.store.reading import Table
from tidelock.store.staging import StagedTable
from tidelock.store.tables import with_row_ids
from tidelock.store.transaction import Transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DIFFED_ROWS_MAX = 100_000
"""A table of up to this many rows that is computed anew is compared with what was there, so that
whoever reads it sees only what changed."""

ChangesOf = Callable[[str, tuple[str, ...]], pa.Table | None]
"""The changes of a source since the frontier, for some of its columns; None when there are none."""


@dataclass
class Outcome:
    """What staging did: the changes of the view's table, where they are known."""

    rows_in: int = 0
    rows_out: int = 0
    changes: pa.Table | None = None
    rewritten: bool = False
    """Whether the table was replaced as a whole, so that its changes are not at hand."""


@dataclass
class Keeper:
    """The stages of one view within one transaction."""

    transaction: Transaction
    prepared: Prepared
    name: str
    table_id: str
    old: Mapping[str, Table]
    """The sources as the frontier has them."""
    changes_of: ChangesOf = field(default=lambda table, columns: None)

    def move(self) -> Outcome:
        """By delta."""
        outcome = Outcome()
        internal: dict[str, pa.Table] = {}
        before = {one.stage.number: self._table(one) for one in self.prepared.internal}
        for kept in self.prepared.kept:
            leaves = [
                self._bound(scan, before, internal, outcome) for scan in scans(kept.stage.body)
            ]
            table = self._table(kept)
            moved = move(table.engine, kept, leaves, table)
            if moved is None:
                continue
            self._stage(kept, table, moved)
            shown = tuple(name for name, _ in kept.layout.shown)
            changes = cancelled(moved.changes(shown))
            if self._is_last(kept):
                outcome.changes = changes
                outcome.rows_out = changes.num_rows
            else:
                internal[f"{INTERNAL}{kept.stage.number}"] = changes
        return outcome

    def build(self) -> Outcome:
        """In full."""
        if not self.prepared.incremental:
            return self._write_all(whole(self.transaction.sql(self.prepared.definition.query)))
        outcome = Outcome()
        for kept in self.prepared.kept:
            outcome = self._write_all(self._rows(kept), kept)
        return outcome

    def _rows(self, kept: Kept) -> DataFrame:
        stage, layout = kept.stage, kept.layout
        if isinstance(stage.head, Bag) and self._is_last(kept):
            return whole(self.transaction.sql(self._query()))
        leaves = [self._now(scan) for scan in scans(stage.body)]
        query = Query(self._table(kept).engine)
        body = state(query, stage.body, leaves)
        if isinstance(stage.head, Bag):
            return query.prepare(bag_rows(layout, body))
        if isinstance(stage.head, Groups):
            return query.prepare(group_rows(layout, summed(stage, layout, body)))
        return query.prepare(partition_rows(stage, layout, body))

    def _query(self) -> str:
        """The query itself, or, where it leaves a choice, the operators that settled it."""
        view = self.prepared.view
        if view.root is None or not view.notes:
            return self.prepared.definition.query
        columns = ", ".join(f"{quote(column)} AS {quote(name)}" for name, column in view.columns)
        return f"SELECT {columns} FROM ({render(view.root)})"

    def _bound(
        self,
        scan: Scan,
        before: Mapping[int, Table],
        internal: Mapping[str, pa.Table],
        outcome: Outcome,
    ) -> Bound:
        columns = tuple(dict.fromkeys(column for _, column in scan.columns))
        if scan.table.startswith(INTERNAL):
            number = int(scan.table[len(INTERNAL) :])
            changes = internal.get(scan.table)
            if changes is not None:
                changes = changes.select([*columns, WEIGHT])
            now = self._table(self.prepared.kept[number])
            return Bound(columns, before[number], now, changes)
        changes = self.changes_of(scan.table, columns)
        if changes is not None:
            outcome.rows_in += changes.num_rows
        now = self.transaction.table(scan.table)
        return Bound(columns, self.old.get(scan.table, now), now, changes)

    def _now(self, scan: Scan) -> Bound:
        columns = tuple(dict.fromkeys(column for _, column in scan.columns))
        if scan.table.startswith(INTERNAL):
            table = self._table(self.prepared.kept[int(scan.table[len(INTERNAL) :])])
        else:
            table = self.transaction.table(scan.table)
        return Bound(columns, table, table)

    def _is_last(self, kept: Kept) -> bool:
        return kept is self.prepared.kept[-1]

    def _name(self, kept: Kept | None) -> str:
        if kept is None or self._is_last(kept):
            return self.name
        return internal_name(self.table_id, kept.stage.number)

    def _table(self, kept: Kept | None) -> Table:
        return replace(self.transaction.table(self._name(kept)), whole=True)

    def _stage(self, kept: Kept | None, table: Table, moved: Move) -> StagedTable:
        staged = self.transaction.stage(self._name(kept))
        if moved.removed.num_rows or moved.added.num_rows:
            fragments = []
            if moved.added.num_rows:
                rows = moved.added.select(table.dataset.schema.names).cast(table.dataset.schema)
                written = staged.files.write(table.dataset, rows)
                fragments = with_row_ids(written, moved.row_ids[: moved.replaced])
            staged.add(
                Replacement(
                    moved.row_ids,
                    moved.addresses,
                    fragments,
                    moved.replaced,
                    table.dataset.version,
                )
            )
        return staged

    def _write_all(self, frame: DataFrame, kept: Kept | None = None) -> Outcome:
        """Put these rows in the place of all others."""
        table = self._table(kept)
        last = kept is None or self._is_last(kept)
        staged = self.transaction.stage(self._name(kept))
        if last and 0 < table.count() <= DIFFED_ROWS_MAX:
            rows = frame.limit(DIFFED_ROWS_MAX + 1).toArrow()
            if rows.num_rows <= DIFFED_ROWS_MAX:
                schema = table.dataset.schema
                moved = difference(stored(table), rows.select(schema.names).cast(schema))
                self._stage(kept, table, moved)
                changes = moved.changes(self._shown(table))
                return Outcome(rows.num_rows, changes.num_rows, changes)
        self.transaction.announce()
        overwrite_frame(table, staged, frame)
        operation = staged.operations[-1]
        assert isinstance(operation, Overwrite)
        written = sum(fragment.physical_rows for fragment in operation.fragments)
        return Outcome(written, written + table.count(), None, rewritten=True)

    def _shown(self, table: Table) -> tuple[str, ...]:
        return replace(table, whole=False).schema.names
