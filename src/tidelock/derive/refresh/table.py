"""The refresh of one stream table: staging its next state in a transaction.

Owns: the two ways to get there. By delta: every segment in turn is moved by the changes of what it
reads. In full: every segment is computed over whole tables. What is staged is invisible until the
transaction publishes.

Invariant: after either, the staged rows are those of the view's query over the tables as the
transaction sees them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from tidelock.derive.algebra.operators import Scan, scans
from tidelock.derive.algebra.spark_sql import render
from tidelock.derive.plan.body_sql import WEIGHT
from tidelock.derive.plan.column_types import Kept
from tidelock.derive.plan.segment_sql import bag_rows, group_rows, partition_rows, summed
from tidelock.derive.plan.segments import INTERNAL, Bag, Groups
from tidelock.derive.plan.view import ViewPlan, internal_name, whole
from tidelock.derive.refresh.delta.delta import Move, difference, move, stored
from tidelock.derive.refresh.delta.input_changes import cancelled
from tidelock.derive.refresh.delta.terms import Bound, state
from tidelock.derive.refresh.seen_table import SeenTable, query_seen
from tidelock.derive.spark.comparison import has_nested
from tidelock.derive.spark.differences import differing
from tidelock.derive.spark.engine_query import EngineQuery
from tidelock.errors import QueryFailed
from tidelock.model.names import quote
from tidelock.store.operations.operations import Overwrite, Replacement
from tidelock.store.spark.replacement import replace_frame
from tidelock.store.spark.stage import overwrite_frame
from tidelock.store.staging.staged_table import StagedTable
from tidelock.store.table import Table
from tidelock.store.tables.fragments import with_row_ids
from tidelock.store.transaction import Transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LOCAL_ROWS_MAX = 100_000
"""Whatever is computed anew is compared with what was there, so that its readers see only
what changed: up to this many rows in this process, and more by the engine."""

ChangesOf = Callable[[str, tuple[str, ...]], pa.Table | None]
"""The changes of an input since the frontier, for some of its columns, all by labels; None when
there are none."""


@dataclass
class Outcome:
    """What staging did: the changes of the view's table, where they are known."""

    rows_in: int = 0
    rows_out: int = 0
    changes: pa.Table | None = None
    rewritten: bool = False
    """Whether the table was replaced as a whole, so that its changes are not at hand."""


@dataclass
class TableRefresh:
    """Owns the tables of one view's segments within one transaction: their next state is staged
    here, by delta or in full."""

    transaction: Transaction
    plan: ViewPlan
    name: str
    table_id: str
    now: Mapping[str, SeenTable]
    """The inputs by their labels."""
    old: Mapping[str, SeenTable] = field(default_factory=dict)
    """The inputs as the frontier has them."""
    changes_of: ChangesOf = field(default=lambda table, columns: None)

    def by_delta(self) -> Outcome:
        """By delta."""
        outcome = Outcome()
        internal: dict[str, pa.Table] = {}
        before = {one.segment.number: self._table(one) for one in self.plan.internal}
        for kept in self.plan.kept:
            leaves = [
                self._bound(scan, before, internal, outcome) for scan in scans(kept.segment.body)
            ]
            table = self._table(kept)
            moved = move(table.engine, kept, leaves, table)
            if moved is None:
                continue
            self._stage(kept, table, moved)
            shown = tuple(name for name, _ in kept.state_columns.shown)
            changes = cancelled(moved.changes(shown))
            if self._is_last(kept):
                outcome.changes = changes
                outcome.rows_out = changes.num_rows
            else:
                internal[f"{INTERNAL}{kept.segment.number}"] = changes
        return outcome

    def in_full(self) -> Outcome:
        """In full."""
        if not self.plan.incremental:
            return self._write_all(whole(self._ask(self.plan.definition.query)))
        outcome = Outcome()
        for kept in self.plan.kept:
            outcome = self._write_all(self._rows(kept), kept)
        return outcome

    def _rows(self, kept: Kept) -> DataFrame:
        segment, state_columns = kept.segment, kept.state_columns
        if isinstance(segment.content, Bag) and self._is_last(kept):
            return whole(self._ask(self._query()))
        leaves = [self._now(scan) for scan in scans(segment.body)]
        query = EngineQuery(self._table(kept).engine)
        body = state(query, segment.body, leaves)
        if isinstance(segment.content, Bag):
            return query.prepare(bag_rows(state_columns, body))
        if isinstance(segment.content, Groups):
            return query.prepare(group_rows(state_columns, summed(segment, state_columns, body)))
        return query.prepare(partition_rows(segment, state_columns, body))

    def _ask(self, query: str) -> DataFrame:
        return query_seen(query, self.now, self._table(None).engine)

    def _query(self) -> str:
        """The query itself, or, where it leaves a choice, the operators that settled it."""
        view = self.plan.view
        if view.root is None or not view.notes:
            return self.plan.definition.query
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
            now = SeenTable(self._table(self.plan.kept[number]))
            return Bound(columns, SeenTable(before[number]), now, changes)
        changes = self.changes_of(scan.table, columns)
        if changes is not None:
            outcome.rows_in += changes.num_rows
        now = self.now[scan.table]
        return Bound(columns, self.old.get(scan.table, now), now, changes)

    def _now(self, scan: Scan) -> Bound:
        columns = tuple(dict.fromkeys(column for _, column in scan.columns))
        if scan.table.startswith(INTERNAL):
            table = SeenTable(self._table(self.plan.kept[int(scan.table[len(INTERNAL) :])]))
        else:
            table = self.now[scan.table]
        return Bound(columns, table, table)

    def _is_last(self, kept: Kept) -> bool:
        return kept is self.plan.kept[-1]

    def _name(self, kept: Kept | None) -> str:
        if kept is None or self._is_last(kept):
            return self.name
        return internal_name(self.table_id, kept.segment.number)

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
        before = table.count()
        if last and 0 < before <= LOCAL_ROWS_MAX:
            rows = frame.limit(LOCAL_ROWS_MAX + 1).toArrow()
            if rows.num_rows <= LOCAL_ROWS_MAX:
                schema = table.dataset.schema
                rows = rows.select(schema.names).cast(schema)
                moved = difference(stored(table), rows, paired=_has_keys(kept))
                self._stage(kept, table, moved)
                changes = moved.changes(self._shown(table))
                return Outcome(rows.num_rows, changes.num_rows, changes)
        self.transaction.announce()
        if last and before:
            try:
                return self._write_difference(table, staged, frame, kept)
            except QueryFailed:
                # Not every engine compares every type. What is wrong with the query itself, it says
                # again.
                if not has_nested(table.dataset.schema):
                    raise
        overwrite_frame(table, staged, frame)
        operation = staged.operations[-1]
        assert isinstance(operation, Overwrite)
        written = sum(fragment.physical_rows for fragment in operation.fragments)
        return Outcome(written, written + table.count(), None, rewritten=True)

    def _write_difference(
        self, table: Table, staged: StagedTable, frame: DataFrame, kept: Kept | None
    ) -> Outcome:
        """Put these rows in the place of all others, by what differs."""
        keyed = _has_keys(kept)
        done = replace_frame(table, staged, differing(table, frame, keyed=keyed))
        if done is None:
            ranked = differing(table, frame, keyed=keyed, ranked=True)
            done = replace_frame(table, staged, ranked)
        assert done is not None
        removed = done.removed
        given = table.count() - removed + done.added
        return Outcome(given, removed + done.added, None, rewritten=bool(removed or done.added))

    def _shown(self, table: Table) -> tuple[str, ...]:
        return replace(table, whole=False).schema.names


def _has_keys(kept: Kept | None) -> bool:
    """Whether the hash of a row is that of its key, and not of the whole row."""
    return kept is not None and not isinstance(kept.segment.content, Bag)
