"""Kinship: which rows and columns of a table at one point are which at another.

Both are known by ids, and every branch gives out ids on its own from where it parted. So two points
are followed back to the commits that both descend from (bases.py), and from there along the merges
on either way (identity.py), which tell how ids were changed.

Where that cannot be told any more, because the base was collected, rows are compared by value, and
columns by name: what differs is found all the same, but not which row became which.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tidelock.errors import SnapshotExpired
from tidelock.model.history.commit import TableState
from tidelock.model.history.renumbering import Renumbering, renumbering
from tidelock.store.kinship.bases import Tip, find_bases
from tidelock.store.kinship.identity import Path, path_between
from tidelock.store.leases.uses import Reader, Use
from tidelock.store.parts import Parts
from tidelock.store.tables.next_row_id import next_row_id


@dataclass(frozen=True)
class Way:
    """From one point to another, by a commit that both descend from."""

    store: Parts
    base: Tip
    back: Path
    """From the base to the point before."""
    forth: Path
    """From the base to the point after."""
    is_end: bool
    """Whether the base is one of the two points."""

    def rows(self, table_id: str) -> Renumbering | None:
        """The row ids of a table before, as they are after; None if it is not at the base."""
        state = self._states.get(table_id)
        if state is None:
            return None
        back, forth = self.back.rows(table_id), self.forth.rows(table_id)
        if not self.is_end:
            # What either branch has added since is not of the other, whatever its id.
            bound = next_row_id(self.store.files.read(state))
            back, forth = back.below(bound), forth.below(bound)
        return back.inverse().then(forth)

    def columns(self, table_id: str) -> dict[int, int]:
        """The columns of a table before by id, each with its id after."""
        state = self._states.get(table_id)
        if state is None:
            return {}
        files = self.store.files
        schema = files.known_schema(state) or files.schema(state, files.read(state))
        ids = [column.id for column in schema.columns]
        back, forth = self.back.columns(table_id, ids), self.forth.columns(table_id, ids)
        return {before: forth[one] for one, before in back.items() if one in forth}

    @cached_property
    def _states(self) -> dict[str, TableState]:
        return {state.id: state for state in self.base.tables.states()}


@dataclass(frozen=True)
class Kinship:
    """How the rows and columns of two points belong together."""

    store: Parts
    before: Tip
    after: Tip

    def unchanged(self, before: TableState, after: TableState) -> bool:
        """Whether one and the same commit made a table what it is at both points, so that its rows
        and its schema are the same, wherever they lie by now."""
        return self.before.origin(before) == self.after.origin(after)

    def rows(self, table_id: str) -> Renumbering | None:
        """The row ids of a table before, as they are after; None if nobody can tell."""
        if self._ways is None:
            return None
        try:
            found = [way.rows(table_id) for way in self._ways]
        except SnapshotExpired:
            return None
        whole = renumbering([])
        for one in found:
            if one is not None:
                whole = one if whole == renumbering([]) else whole.union(one.pieces)
        return whole

    def columns(self, table_id: str) -> dict[int, int]:
        """The columns of a table before by id, each with its id after; what is left out is known by
        its name alone."""
        found: dict[int, int] = {}
        try:
            for way in self._ways or ():
                found = {**way.columns(table_id), **found}
        except SnapshotExpired:
            return {}
        return found

    @cached_property
    def _ways(self) -> list[Way] | None:
        try:
            bases = find_bases(self.store, self.before, self.after)
            ends = (self.before.place, self.after.place)
            ways = [
                Way(
                    self.store,
                    base,
                    path_between(self.store, base, self.before),
                    path_between(self.store, base, self.after),
                    base.place in ends,
                )
                for base in bases
            ]
        except SnapshotExpired:
            return None
        uses = [Use(base.branch.id, base.version, base.version) for base in bases]
        self.store.hold_versions(self._reader, uses)
        return ways

    @cached_property
    def _reader(self) -> Reader:
        return Reader()
