"""Kinship: which rows and columns of one point are which at another.

Along a line of commits rows and columns keep their ids, and no id is given twice. Two lines that
parted give out ids on their own from there on: below the next one at the parting, equal ids are
the same row, and from there on they are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tidelock.model.commit import TableState
from tidelock.model.renumbering import EVERY, IDENTITY, Renumbering
from tidelock.store.leases.uses import Use
from tidelock.store.parts import Parts
from tidelock.store.points import Point
from tidelock.store.schema.pins import next_column_id
from tidelock.store.tables.next_row_id import next_row_id


@dataclass(frozen=True)
class Kinship:
    """How the rows and columns of two points belong together."""

    store: Parts
    before: Point
    after: Point

    @cached_property
    def parted_at(self) -> int:
        """The last version that both have in common."""
        return parting(self.before, self.after)

    @property
    def on_one_line(self) -> bool:
        return self.parted_at == min(self.before[1], self.after[1])

    def unchanged(self, before: TableState, after: TableState) -> bool:
        """Whether one and the same commit made a table what it is at both points, so that its rows
        and its schema are the same, wherever they lie by now."""
        homes = [
            branch.home_of(state.changed)
            for (branch, _), state in ((self.before, before), (self.after, after))
        ]
        return before.changed == after.changed and homes[0] == homes[1]

    def rows(self, table_id: str) -> Renumbering:
        """The row ids of a table before, as they are after."""
        if self.on_one_line:
            return IDENTITY
        state = self._base.get(table_id)
        if state is None:
            return Renumbering(0)
        return Renumbering(next_row_id(self.store.files.read(state)))

    def same_schema(self, before: TableState, after: TableState) -> bool:
        """Whether a table is declared alike at both points, beyond doubt."""
        return before.schema == after.schema and (self.on_one_line or not after.schema)

    def columns(self, before: TableState, after: TableState) -> int:
        """Below this, equal ids are of one column."""
        # What was never declared has the columns that it was created with.
        if self.on_one_line or not (before.schema or after.schema):
            return EVERY
        state = self._base.get(before.id)
        if state is None:
            return 0
        files = self.store.files
        schema = files.known_schema(state) or files.schema(state, files.read(state))
        return next_column_id(schema)

    @cached_property
    def _base(self) -> dict[str, TableState]:
        """The tables where both parted, held for as long as they are compared."""
        branch, version = self.before[0], self.parted_at
        self.store.hold_versions(self._held, [Use(branch.id, version, version)])
        tables = self.store.log.tables_at(branch, version)
        return {state.id: state for state in tables.states()}

    @cached_property
    def _held(self) -> _Held:
        return _Held()


class _Held:
    """Lives as long as what is compared."""


def parting(one: Point, other: Point) -> int:
    """The last version that two points have in common."""
    low = min(one[1], other[1])
    ends = {low, *(end for branch, _ in (one, other) for _, end in branch.lineage)}
    common = [end for end in ends if end <= low and one[0].home_of(end) == other[0].home_of(end)]
    return max(common, default=0)
