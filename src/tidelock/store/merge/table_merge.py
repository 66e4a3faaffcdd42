"""The merge of one table that both sides changed: its columns, then its rows.

Owns: the order. Pins are opened, columns merged, rows merged under the merged columns; what follows
is staged on the target's table within the transaction of the merge, or, in a dry run, counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tidelock.errors import RequiredColumnNull
from tidelock.model.history.commit import TableState
from tidelock.model.history.conflicts import Conflict, Conflicts
from tidelock.model.history.merges import Granularity, Resolution, Side
from tidelock.model.history.renumbering import Renumbering
from tidelock.store.changes.alike import Mask
from tidelock.store.kinship.bases import Tip
from tidelock.store.kinship.identity import Path
from tidelock.store.merge.columns import MergedColumns, merge_columns
from tidelock.store.merge.completion import Completed
from tidelock.store.merge.opened_states import BaseOf, OpenedState, open_bases, open_state
from tidelock.store.merge.rows.expressions import Evaluator
from tidelock.store.merge.rows.pruned import pruned_rows, retention_since
from tidelock.store.merge.rows.row_merge import Keys, Pruned, RowMerge, Version
from tidelock.store.merge.rows.sides import ById, Touched
from tidelock.store.merge.rows.virtual_base import keys_of, virtual_base
from tidelock.store.merge.rows.writer import RowCount, RowWriter
from tidelock.store.parts import Parts
from tidelock.store.rows.defaults import Defaults
from tidelock.store.schema.change import SchemaChange
from tidelock.store.schema.defaults import DefaultValues
from tidelock.store.staging.staged_table import StagedTable
from tidelock.store.tables.fragments import Dataset
from tidelock.store.tables.next_row_id import next_row_id


@dataclass
class Merged:
    """What became of one table."""

    counts: RowCount = field(default_factory=RowCount)
    altered: bool = False
    resolved: int = 0
    rows: Renumbering | None = None
    """The ids of rows at the source, as they are at the target; None if they are the same."""
    columns: list[list[int]] | None = None
    """The same of columns, as pairs."""


@dataclass
class MergingTable:
    """One table of two branches on its way to being one."""

    store: Parts
    name: str
    source: OpenedState
    target: OpenedState
    bases: Sequence[BaseOf]
    resolution: Resolution
    granularity: Granularity
    conflicts: Conflicts
    columns_elsewhere: Mapping[str, Mapping[int, int]]
    """For tables that it may refer to: columns of the source that have other ids at the target."""
    values: DefaultValues

    @classmethod
    def open(
        cls,
        store: Parts,
        name: str,
        source: tuple[Tip, TableState],
        target: tuple[Tip, TableState],
        bases: Sequence[tuple[Tip, Path, Path]],
        states: Sequence[TableState | None],
        resolution: Resolution,
        granularity: Granularity,
        conflicts: Conflicts,
        columns: Mapping[str, Mapping[int, int]],
    ) -> MergingTable:
        here, there = open_state(store, *source), open_state(store, *target)
        known = open_bases(store, bases, states, there)
        values = DefaultValues(store.engine, store.clock.now)
        return cls(
            store, name, here, there, known, resolution, granularity, conflicts, columns, values
        )

    def run(self, staged: StagedTable | None) -> Merged:
        """Merge; stage what follows, if there is something to stage it on."""
        columns = self._columns()
        merged = Merged(resolved=columns.merged.resolved, altered=columns.changed)
        merged.columns = columns.renumbered(self.source.schema)
        self.conflicts.extend(columns.merged.conflicts)
        if not columns.merged.comparable:
            return merged
        rows = self._rows(columns)
        kept = self._kept_though_dropped(columns, rows, merged)
        if kept:
            columns = self._columns(kept)
            rows = self._rows(columns)
            merged.altered = columns.changed
            merged.columns = columns.renumbered(self.source.schema)
        self._stage(rows, columns, staged, merged)
        merged.resolved += rows.resolved
        return merged

    # Columns

    def _columns(self, kept: frozenset[str] = frozenset()) -> MergedColumns:
        prefer: Side | None = None if self.resolution.side == "fail" else self.resolution.side
        return merge_columns(
            self.name,
            [(one.opened.schema, one.to_source, one.to_target) for one in self.bases],
            self.source.schema,
            self.target.schema,
            self.target.id,
            prefer,
            kept,
            self.columns_elsewhere,
        )

    def _kept_though_dropped(
        self, columns: MergedColumns, rows: RowMerge, merged: Merged
    ) -> frozenset[str]:
        """Columns that one side dropped while the other changed values in them: a conflict, unless
        it is said which side is right; those that stay then."""
        kept: set[str] = set()
        for column, side in columns.merged.dropped:
            other: Side = "target" if side == "source" else "source"
            count = self._changed_values(column, other, rows)
            if not count:
                continue
            # The values of a column that the target dropped cannot be brought back.
            lost = side == "target" and self.resolution.side == "source"
            if self.resolution.side == "fail" or lost:
                told = f"{count:,} row{'' if count == 1 else 's'}"
                why = f"column {column!r} was dropped at the {side}, and {told} changed in it at "
                why += f"the {other}"
                self.conflicts.add(Conflict(self.name, "schema", columns=(column,), why=why))
                continue
            merged.resolved += 1
            if self.resolution.side == other:
                kept.add(column)
        return frozenset(kept)

    def _changed_values(self, column: str, side: Side, rows: RowMerge) -> int:
        """How many rows of the base have another value in a column at a side."""
        base = self.bases[0]
        opened, path, touched = self.source, base.to_source, rows.here
        if side == "target":
            opened, path, touched = self.target, base.to_target, rows.there
        schema = base.opened.schema
        ids = path.columns(opened.id, [one.id for one in schema.columns])
        wanted = opened.schema.column(column).id
        before = next((one for one in schema.columns if ids.get(one.id) == wanted), None)
        return 0 if before is None else rows.changed_in(touched, before.name, column)

    # Rows

    def _rows(self, columns: MergedColumns) -> RowMerge:
        key = self._key(columns)
        here, there = keys_of(self.bases, self.source.id, key)
        shown = [(one, columns.of_base(number)) for number, one in enumerate(self.bases)]
        rows = RowMerge(
            self.name,
            self.store.files.reader(self.source.id),
            Version(self.bases[0].opened.dataset, shown[0][1]),
            Version(self.source.dataset, columns.of_source),
            Version(self.target.dataset, columns.of_target),
            here,
            there,
            self.granularity,
            self.resolution,
            self.conflicts,
            overrides=virtual_base(self.store, shown, key),
        )
        if self.resolution.expressions:
            evaluator = Evaluator(self.name, columns.schema, self.store.engine)
            checked = evaluator.check(dict(self.resolution.expressions))
            rows.resolution = replace(self.resolution, expressions=tuple(checked.items()))
            rows.compute = evaluator.compute
        new = {one.column.name for one in columns.merged.columns if not any(one.bases)}
        known = self._defaults(columns).values
        rows.filled = Defaults({name: value for name, value in known.items() if name in new})
        rows.pruned_at_source = self._pruned(self.source, rows.source, here)
        rows.pruned_at_target = self._pruned(self.target, rows.target, there)
        return rows

    def _defaults(self, columns: MergedColumns) -> Defaults:
        return self.values.of(columns.schema, self.name)

    def _key(self, columns: MergedColumns) -> tuple[str, ...] | None:
        """The key by which rows are known: that of the base, if both sides have its columns."""
        schema = self.bases[0].opened.schema
        by_name = {one.bases[0]: one for one in columns.merged.columns if one.bases[0] is not None}
        found = [by_name.get(name) for name in schema.key]
        known = [one for one in found if one is not None and one.source and one.target]
        if not schema.key or len(known) < len(found):
            return None
        return tuple(one.column.name for one in known)

    def _pruned(self, side: OpenedState, version: Version, keys: Keys) -> Pruned | None:
        base = self.bases[0].opened
        changes = list(retention_since(self.store, base.tip, base.state, side.tip, side.state))
        if not changes:
            return None

        def told(touched: Touched) -> Mask:
            return pruned_rows(self.store, changes, keys, version.dataset, version.shown, touched)

        return told

    # Staging

    def _stage(
        self,
        rows: RowMerge,
        columns: MergedColumns,
        staged: StagedTable | None,
        merged: Merged,
    ) -> None:
        if staged is None:
            merged.counts = RowCount()
            Completed(rows, columns, merged.counts, self._defaults(columns)).run()
            return
        # What is required now may be missing until the rows of both sides are there.
        relaxed = columns.relaxed
        if columns.changed:
            staged.add(SchemaChange(self.target.schema, relaxed))
        writer = RowWriter(files=self.store.files, dataset=staged.current(), schema=relaxed.arrow)
        with self.store.files.reading(self.target.state, self.source.state):
            Completed(rows, columns, writer, self._defaults(columns)).run()
        merged.counts = writer
        operation = writer.operation()
        if operation is not None:
            staged.add(operation)
        if self._may_repeat_keys(columns, written=operation is not None):
            self._refuse_repeated_keys(columns, staged.current())
        if relaxed != columns.schema:
            self._tighten(columns, staged)
        if isinstance(rows.source_keys, ById):
            merged.rows = self._renumbered(writer)

    def _tighten(self, columns: MergedColumns, staged: StagedTable) -> None:
        """Require what is required at one side, of the rows of both."""
        if any(one.kind == "value constraint" for one in self.conflicts.found):
            return
        staged.add(SchemaChange(columns.relaxed, columns.schema))
        try:
            staged.current()
        except RequiredColumnNull as error:
            why = error.message.removesuffix("Nothing was written.").rstrip(" .")
            column = (str(error.evidence["column"]),)
            self.conflicts.add(Conflict(self.name, "value constraint", columns=column, why=why))

    def _may_repeat_keys(self, columns: MergedColumns, *, written: bool) -> bool:
        """Whether rows may have one key that nothing has compared by it: those that were matched by
        something else, and those of the target if the key comes from the source."""
        if written and columns.schema.key != self._key(columns):
            return True
        return set(columns.schema.key_ids) != set(self.target.schema.key_ids)

    def _refuse_repeated_keys(self, columns: MergedColumns, dataset: Dataset) -> None:
        """Rows were matched by something else than the key that the table has now."""
        key = list(columns.schema.key)
        if not key:
            return
        counted = dataset.to_table(columns=key).group_by(key).aggregate([([], "count_all")])
        repeated = counted.filter(pa.compute.greater(counted.column("count_all"), 1))
        for row in repeated.select(key).to_pylist():
            why = f"the key ({', '.join(key)}) would occur more than once"
            self.conflicts.add(Conflict(self.name, "uniqueness", row, columns=tuple(key), why=why))

    def _renumbered(self, writer: RowWriter) -> Renumbering | None:
        """The ids of rows at the source, as they are at the target after the merge."""
        found: Renumbering | None = None
        plain = True
        for one in self.bases:
            here, there = one.to_source.rows(self.source.id), one.to_target.rows(self.source.id)
            plain = plain and here.is_identity and there.is_identity
            bound = next_row_id(one.opened.dataset)
            part = here.below(bound).inverse().then(there.below(bound))
            found = part if found is None else found.union([(0, 0, part.shared), *part.ranges])
        new = writer.renumbered()
        if plain and not new:
            return None
        assert found is not None
        return found.union(new)
