"""Commits as data: what a lake's log is made of.

Invariants:
    versions on a branch are 1, 2, 3, … without holes;
    commit n names commit n - 1 (of its branch, or of the branch it forked from) as its parent, and
    one that merges another branch names that one's head as its second (ancestry.py);
    time(n) >= time(n - 1);
    a `maintenance` commit changes pins and no row: `changed` of its tables stays as it was;
    a `retention` commit removes rows because of their age, and does nothing else.

Every value here is frozen and holds only plain types, so that a record is its own wire format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from tidelock.errors import TableNotFound
from tidelock.model.names import ROW_HASH, fold, is_hidden, suggest
from tidelock.model.streams import PUBLISHING, StreamState
from tidelock.model.time.durations import show_moment

Kind = Literal["data", "schema", "maintenance", "retention", "closed"]


@dataclass(frozen=True, slots=True)
class TableState:
    """One table in a snapshot: its name, its identity, and the pin of its content."""

    name: str
    id: str
    pin: int
    rows: int
    changed: int
    """The version of the last commit that changed a row of it or its schema."""
    key: tuple[str, ...] = ()
    stream: StreamState | None = None
    """Where its content stands, for a stream table."""
    pruned: int = -1
    """The highest sequence of a row that retention has removed."""
    checksum: int = 0
    """Of the manifest of its pin; 0 if it has none."""
    schema: str = ""
    """The id of its declared schema; empty for a table that is as it was created, without rules."""
    origin: str = ""
    """The commit of another branch that made it what it is, if a merge adopted it from there; empty
    once it was changed here."""
    position: str = ""
    """How far a source was read, for the ledger of a source."""

    @property
    def looked_up(self) -> tuple[str, ...]:
        """The columns by which rows are found, and which are indexed therefore."""
        if self.stream is not None or (is_hidden(self.name) and not self.key):
            return (ROW_HASH,)
        return self.key


@dataclass(frozen=True, slots=True)
class TableChange:
    """What one commit did to one table. `before` is None for a table that it created, also by
    adopting it from another branch."""

    before: TableState | None
    after: TableState | None
    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @property
    def state(self) -> TableState:
        state = self.after or self.before
        assert state is not None
        return state

    @property
    def table(self) -> str:
        return self.state.name

    @property
    def table_id(self) -> str:
        return self.state.id

    @property
    def altered(self) -> bool:
        """Whether the table has another schema than before, or another name."""
        before, after = self.before, self.after
        if before is None or after is None:
            return False
        return before.schema != after.schema or before.name != after.name

    @property
    def adopted(self) -> bool:
        """Whether a merge took its pin from another branch. Rows may then lie elsewhere that nobody
        changed, where one of the two branches was maintained."""
        before, after = self.before, self.after
        if after is None or not after.origin:
            return False
        return before is None or before.changed != after.changed

    @property
    def summary(self) -> str:
        """What was done, in a few characters: `orders +2 ~1`, `invoices created`."""
        if self.after is None:
            return f"{self.table} dropped"
        signs = (("+", self.inserted), ("~", self.updated), ("-", self.deleted))
        counts = [f"{sign}{number:,}" for sign, number in signs if number]
        if self.before is None:
            counts.insert(0, "created")
        elif self.before.schema != self.after.schema:
            counts.insert(0, "altered")
        if self.before is not None and self.before.name != self.after.name:
            counts.insert(0, f"renamed from {self.before.name}")
        return " ".join([self.table, *counts])

    def __repr__(self) -> str:
        return f"TableChange({self.summary}, rows={self.after.rows if self.after else 0})"


@dataclass(frozen=True, slots=True)
class Commit:
    """One atomic change over any number of tables."""

    version: int
    id: str
    parents: tuple[str, ...]
    branch: str
    actor: str
    operation_id: str
    kind: Kind
    message: str
    time: datetime
    tables: tuple[TableChange, ...]
    properties: dict[str, Any] = field(default_factory=dict)

    def table(self, name: str) -> TableChange:
        """What this commit did to the named table."""
        for change in self.tables:
            if fold(change.table) == fold(name):
                return change
        names = [change.table for change in self.tables]
        raise TableNotFound(
            f"Commit {self.version} did not change {name!r}. {suggest(name, names)}", table=name
        )

    @property
    def shown(self) -> tuple[TableChange, ...]:
        """What it did to the tables that users made."""
        return tuple(change for change in self.tables if not is_hidden(change.table))

    def __repr__(self) -> str:
        changes = ", ".join(change.summary for change in self.shown)
        return (
            f"Commit(version={self.version}, id={self.id!r}, kind={self.kind!r}, "
            f"actor={self.actor!r}, message={self.message!r}, time={show_moment(self.time)}, "
            f"tables=[{changes}])"
        )


class Tables(Mapping[str, TableState]):
    """All tables of one snapshot, found by name without regard to case. Never changed in place."""

    __slots__ = ("_by_fold",)

    def __init__(self, by_fold: dict[str, TableState]) -> None:
        self._by_fold = by_fold

    @classmethod
    def of(cls, states: tuple[TableState, ...]) -> Tables:
        return cls({fold(state.name): state for state in states})

    def __getitem__(self, name: str) -> TableState:
        found = self._by_fold.get(fold(name))
        if found is None:
            raise self.unknown(name)
        return found

    def unknown(self, name: str) -> TableNotFound:
        """The error for a name that no table here has."""
        known = suggest(name, self.shown())
        return TableNotFound(f"There is no table {name!r}. {known}", table=name)

    def find(self, name: str) -> TableState | None:
        return self._by_fold.get(fold(name))

    def same(self, state: TableState) -> TableState | None:
        """The table that has this one's identity, under whatever name it has here."""
        found = self._by_fold.get(fold(state.name))
        if found is not None and found.id == state.id:
            return found
        return next((s for s in self._by_fold.values() if s.id == state.id), None)

    def __iter__(self) -> Iterator[str]:
        return (state.name for state in self._by_fold.values())

    def __len__(self) -> int:
        return len(self._by_fold)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and fold(name) in self._by_fold

    def shown(self) -> Iterator[str]:
        """The names of the tables that users made."""
        return (name for name in self if not is_hidden(name))

    def states(self) -> tuple[TableState, ...]:
        return tuple(self._by_fold.values())

    def after(self, changes: tuple[TableChange, ...]) -> Tables:
        """The tables once the changes are made."""
        return self._moved([(change.before, change.after) for change in changes])

    def before(self, changes: tuple[TableChange, ...]) -> Tables:
        """The tables as they were before the changes were made."""
        return self._moved([(change.after, change.before) for change in changes])

    def _moved(self, moves: list[tuple[TableState | None, TableState | None]]) -> Tables:
        by_fold = dict(self._by_fold)
        for gone, _ in moves:
            if gone is not None:
                by_fold.pop(fold(gone.name), None)
        for _, come in moves:
            if come is not None:
                by_fold[fold(come.name)] = come
        return Tables(by_fold)


@dataclass(frozen=True, slots=True)
class BranchRef:
    """One incarnation of a branch name.

    `lineage` lists the branches that it descends from, oldest first, each with the last version
    that is shared: version v of this branch is found in the first entry whose version is >= v, else
    in the branch's own log.
    """

    name: str
    id: str
    incarnation: int
    lineage: tuple[tuple[str, int], ...]
    created: datetime
    actor: str
    format: int = 1

    @property
    def fork_version(self) -> int:
        return self.lineage[-1][1] if self.lineage else 0

    def home_of(self, version: int) -> str:
        """The id of the branch whose log holds this version."""
        for branch_id, shared_until in self.lineage:
            if version <= shared_until:
                return branch_id
        return self.id


def with_frontiers(changes: tuple[TableChange, ...]) -> tuple[TableChange, ...]:
    """The changes with frontiers that name what the same commit publishes of their inputs."""
    states = {change.after.id: change.after for change in changes if change.after is not None}
    return tuple(
        replace(change, after=_with_frontier(change.after, states))
        if change.after is not None and change.after.stream is not None
        else change
        for change in changes
    )


def _with_frontier(state: TableState, states: dict[str, TableState]) -> TableState:
    stream = state.stream
    assert stream is not None
    frontier = tuple(
        replace(one, changed=states[one.table_id].changed, pin=states[one.table_id].pin)
        if one.changed == PUBLISHING
        else one
        for one in stream.frontier
    )
    return replace(state, stream=replace(stream, frontier=frontier))


def commit_id(branch_id: str, version: int) -> str:
    return f"{branch_id}-{version}"


def origin_of(branch: BranchRef, state: TableState) -> str:
    """The commit that made a table what it is at some version of a branch. Two states of one table
    with one origin have the same rows under the same ids, and the same columns."""
    return state.origin or commit_id(branch.home_of(state.changed), state.changed)
