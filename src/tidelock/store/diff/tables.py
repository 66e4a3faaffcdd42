"""Which tables differ between two points, and in what.

A table is known by its id. Where a name belongs to another table by then, the two are compared
under it all the same: rows by their key if both have the same, else by value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tidelock.model.history.commit import TableState
from tidelock.model.history.diffs import DefinitionDiff, StreamDiff, TableDiff, What
from tidelock.model.history.renumbering import IDENTITY
from tidelock.model.names import fold, is_hidden
from tidelock.model.schema.schema import TableSchema
from tidelock.store.changes.pin_diff import PinDiff, PinRows, diff_pins, every_row
from tidelock.store.diff.columns import PairedColumns, pair_columns
from tidelock.store.diff.matches import ById, ByKey, ByValue, Matching
from tidelock.store.diff.rows import TableRows
from tidelock.store.diff.rules import diff_rules
from tidelock.store.kinship.kinship import Kinship
from tidelock.store.parts import Parts
from tidelock.store.snapshot import Snapshot

Streams = Callable[[TableState | None, TableState | None], StreamDiff | None]
"""How the definitions of a stream table differ; None if it is none at either point."""
TablePair = tuple[TableState | None, TableState | None]


@dataclass(frozen=True)
class Comparison:
    """Two snapshots that are compared."""

    store: Parts
    before: Snapshot
    after: Snapshot
    kinship: Kinship
    streams: Streams
    examples: int | None

    def run(self, table: str | None) -> tuple[tuple[TableDiff, ...], tuple[TableDiff, ...]]:
        """The tables that differ, and those that do not; of all, or of the tables of one name."""
        pairs = self._pairs()
        if table is not None:
            pairs = [
                pair for pair in pairs if any(one and fold(one.name) == fold(table) for one in pair)
            ]
            if not pairs:
                raise self.after.states().unknown(table)
        found = [self._diff(*pair) for pair in pairs]
        return (
            tuple(one for one in found if one.differs),
            tuple(one for one in found if not one.differs),
        )

    def _pairs(self) -> list[TablePair]:
        """Every table at both points, by name."""
        left, right = (
            {state.id: state for state in snapshot.states().states() if not is_hidden(state.name)}
            for snapshot in (self.before, self.after)
        )
        gone = {fold(state.name): state for state in left.values() if state.id not in right}
        pairs: list[TablePair] = []
        for state in right.values():
            found = left.get(state.id)
            pairs.append((found or gone.pop(fold(state.name), None), state))
        pairs += [(state, None) for state in gone.values()]
        return sorted(pairs, key=lambda pair: next(one.name for one in reversed(pair) if one))

    def _diff(self, before: TableState | None, after: TableState | None) -> TableDiff:
        state = after or before
        assert state is not None
        rows = self._rows(before, after)
        found = TableDiff(
            state.name,
            state.id,
            _what(before, after),
            inserted=rows.inserted,
            updated=rows.updated,
            deleted=rows.deleted,
            by_column=rows.by_column,
            examples=rows.examples(self.examples),
            stream=self.streams(before, after),
            read=rows.reader,
        )
        if before is None or after is None:
            return found
        if before.id == after.id and before.name != after.name:
            found = replace(found, was=before.name)
        return self._with_schema(found, before, after, rows.columns)

    def _with_schema(
        self, found: TableDiff, before: TableState, after: TableState, columns: PairedColumns
    ) -> TableDiff:
        if before.id == after.id and self.kinship.unchanged(before, after):
            return found
        old, new = self._schema(before), self._schema(after)
        sides = (self.before.states(), before, old), (self.after.states(), after, new)
        comment = None
        if old.comment != new.comment:
            comment = DefinitionDiff("comment", old.comment, new.comment)
        rules = tuple(diff_rules(self.store.files, *sides, columns))
        return replace(found, columns=columns.diffs, rules=rules, comment=comment)

    def _rows(self, before: TableState | None, after: TableState | None) -> TableRows:
        files = self.store.files
        states = tuple(one for one in (before, after) if one is not None)
        old, new = self._schema(states[0]), self._schema(states[-1])
        columns = pair_columns(old, new, self._known_columns(before, after, old))
        old_pin, new_pin = files.read(states[0]), files.read(states[-1])
        if before is None:
            diff = PinDiff(PinRows(new_pin, ()), every_row(new_pin))
        elif after is None:
            diff = PinDiff(every_row(old_pin), PinRows(old_pin, ()))
        elif before.id != after.id:
            diff = PinDiff(every_row(old_pin), every_row(new_pin))
        elif self.kinship.unchanged(before, after):
            # Maintenance may have moved rows, and has changed none.
            diff = PinDiff(PinRows(old_pin, ()), PinRows(new_pin, ()))
        else:
            with files.reading(*states):
                diff = diff_pins(files.reader(after.id), old_pin, new_pin, columns.compared_ids)
        return TableRows(
            files,
            states,
            diff,
            columns,
            old.shown.names,
            new.shown.names,
            self._matching(before, after, old, new, columns),
            (self.before, self.after),
        )

    def _known_columns(
        self, before: TableState | None, after: TableState | None, schema: TableSchema
    ) -> dict[int, int]:
        """The ids of columns before, each with the id that it has after."""
        if before is None or after is None or self.kinship.unchanged(before, after):
            return {column.id: column.id for column in schema.columns}
        return self.kinship.columns(before.id) if before.id == after.id else {}

    def _matching(
        self,
        before: TableState | None,
        after: TableState | None,
        old: TableSchema,
        new: TableSchema,
        columns: PairedColumns,
    ) -> Matching:
        if any(one is not None and one.stream is not None for one in (before, after)):
            return ByValue()
        if new.key and tuple(map(columns.after_name, old.key)) == new.key:
            return ByKey(new.key)
        if before is None or after is None:
            return ById(IDENTITY)
        numbering = self.kinship.rows(before.id) if before.id == after.id else None
        return ByValue() if numbering is None else ById(numbering)

    def _schema(self, state: TableState) -> TableSchema:
        files = self.store.files
        return files.known_schema(state) or files.schema(state, files.read(state))


def _what(before: TableState | None, after: TableState | None) -> What:
    if before is None or after is None:
        return "created" if before is None else "dropped"
    return "changed" if before.id == after.id else "replaced"
