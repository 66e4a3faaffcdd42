"""What follows when rows leave that others refer to: ON DELETE CASCADE and ON DELETE SET NULL.

Owns: which rows of which tables are deleted or changed then, and that it is staged in the same
transaction. It is found anew whenever the transaction is rebased: a row that others commit
meanwhile follows too. Rows that leave because their own parent does take theirs along, through any
number of tables and through a table that refers to itself.

As in SQL, ON DELETE is about rows that are deleted. A row that stays, and has other values in the
columns that are referred to, takes nothing along: what still refers to it breaks the rule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tidelock.model.history.commit import TableChange
from tidelock.model.schema.rules import Rule
from tidelock.store.lookup.by_key import Match
from tidelock.store.lookup.key_numbers import is_among
from tidelock.store.operations.operations import Mutation
from tidelock.store.rules.deltas import ROW_ID
from tidelock.store.rules.kinds.reference import not_there
from tidelock.store.rules.kinds.values import distinct
from tidelock.store.rules.prospect import Prospect, delta_of
from tidelock.store.rules.related import References
from tidelock.store.staging.staged_table import StagedTable
from tidelock.store.staging.staged_tables import StagedTables
from tidelock.store.staging.writes import write_stream
from tidelock.store.tables.fragments import Addresses, with_row_ids

READ_ROWS = 8192
NONE: Addresses = np.array([], dtype=np.uint64)


@dataclass
class _Followers:
    """Rows of one table that follow: their ids, which ascend, and where they are."""

    gone: Addresses = field(default_factory=lambda: NONE)
    places: Addresses = field(default_factory=lambda: NONE)
    emptied: list[tuple[frozenset[int], Match]] = field(default_factory=list)
    """Columns that are set to NULL, and the rows in which they are."""

    def leave(self, match: Match) -> Addresses:
        """Note rows that leave; the addresses of those that were not noted before."""
        ids, first = np.unique(match.row_ids, return_index=True)
        new = ~is_among(ids, self.gone)
        places = match.addresses[first][new]
        every = np.concatenate([self.gone, ids[new]])
        order = np.argsort(every)
        self.gone, self.places = every[order], np.concatenate([self.places, places])[order]
        return places

    def __bool__(self) -> bool:
        return bool(len(self.gone)) or bool(self.emptied)

    def changed(self) -> Iterator[tuple[frozenset[int], Addresses, Addresses]]:
        """The rows that stay, with other values: by the columns that are NULL, ids and places."""
        if not self.emptied:
            return
        every = np.concatenate([match.row_ids for _, match in self.emptied])
        places = np.concatenate([match.addresses for _, match in self.emptied])
        ids, first, numbers = np.unique(every, return_index=True, return_inverse=True)
        rules = [np.full(len(match), n) for n, (_, match) in enumerate(self.emptied)]
        marks = np.zeros(len(ids), dtype=np.int64)
        np.bitwise_or.at(marks, numbers, np.int64(1) << np.concatenate(rules))
        stays = ~is_among(ids, self.gone)
        for mark in np.unique(marks[stays]).tolist():
            chosen = stays & (marks == mark)
            columns = [some for n, (some, _) in enumerate(self.emptied) if mark >> n & 1]
            yield frozenset().union(*columns), ids[chosen], places[first][chosen]


def follow(
    prospect: Prospect,
    staged: StagedTables,
    changes: tuple[TableChange, ...],
    references: References,
) -> bool:
    """Stage what follows from the rows that leave; whether there was anything."""
    found = _find(prospect, changes, references)
    for table_id, followers in found.items():
        table = staged.following(prospect.state(table_id))
        _stage(prospect, table, followers)
    return bool(found)


def _acting(prospect: Prospect, references: References, table_id: str) -> list[tuple[str, Rule]]:
    """Who refers to a table and does not just refuse. What a query gives is never changed."""
    return [
        (child, rule)
        for child, rule in references.to(table_id)
        if rule.on_delete != "restrict" and prospect.state(child).stream is None
    ]


def _find(
    prospect: Prospect, changes: tuple[TableChange, ...], references: References
) -> dict[str, _Followers]:
    found: defaultdict[str, _Followers] = defaultdict(_Followers)
    leaving: list[tuple[str, pa.Table, bool]] = []
    for change in changes:
        acting = _acting(prospect, references, change.table_id)
        if acting and change.after is not None:
            rows = _deleted(prospect, change, acting)
            if rows.num_rows:
                leaving.append((change.table_id, rows, True))
    while leaving:
        parent, rows, staged = leaving.pop()
        for child, rule in _acting(prospect, references, parent):
            target = prospect.labels(parent, rule.target)
            values = distinct(rows, target)
            # What was found to follow is still there, and leaves.
            gone = not_there(prospect, rule, values) if staged else values
            match = prospect.find(child, rule.columns, gone)
            if rule.on_delete == "set null":
                _empty(found[child], rule, match)
                continue
            new = found[child].leave(match)
            columns = _referred(prospect, references, child)
            if len(new) and columns:
                leaving.append((child, prospect.rows_at(child, new, columns), False))
    return {table: one for table, one in found.items() if one}


def _empty(followers: _Followers, rule: Rule, match: Match) -> None:
    """Note rows that get NULL."""
    if len(match):
        followers.emptied.append((frozenset(rule.columns), match))


def _deleted(
    prospect: Prospect, change: TableChange, acting: Sequence[tuple[str, Rule]]
) -> pa.Table:
    """The rows that leave for good: those that do not come again with other values."""
    delta = delta_of(prospect.files, change)
    columns = _labels(prospect, change.table_id, [rule for _, rule in acting])
    if not delta.left:
        return pa.table({name: pa.nulls(0) for name in columns})
    rows = delta.rows_that_left(columns, ids=delta.came > 0)
    if delta.came:
        came = np.sort(delta.row_ids_that_came())
        again = is_among(rows.column(ROW_ID).to_numpy(), came)
        rows = rows.filter(pa.array(~again)).drop_columns([ROW_ID])
    return rows


def _referred(prospect: Prospect, references: References, table_id: str) -> list[str]:
    """The columns of a table by which rows follow those that leave it."""
    acting = _acting(prospect, references, table_id)
    return _labels(prospect, table_id, [rule for _, rule in acting])


def _labels(prospect: Prospect, table_id: str, rules: Sequence[Rule]) -> list[str]:
    ids = dict.fromkeys(one for rule in rules for one in rule.target)
    return prospect.labels(table_id, list(ids))


def _stage(prospect: Prospect, table: StagedTable, followers: _Followers) -> None:
    version = prospect.dataset(table.state.id).version
    if len(followers.gone):
        table.add_derived(Mutation(followers.gone, followers.places, (), version))
    for columns, ids, places in followers.changed():
        _stage_empty(prospect, table, columns, ids, places)


def _stage_empty(
    prospect: Prospect,
    table: StagedTable,
    columns: frozenset[int],
    ids: Addresses,
    addresses: Addresses,
) -> None:
    """Stage rows with NULL in some columns."""
    table_id = table.state.id
    dataset, schema = prospect.dataset(table_id), prospect.schema(table_id)
    names = set(schema.labels(columns))

    def rows() -> Iterator[pa.RecordBatch]:
        for start in range(0, len(addresses), READ_ROWS):
            some = prospect.rows_at(table_id, addresses[start : start + READ_ROWS], schema.names)
            arrays = [
                pa.nulls(some.num_rows, column.type)
                if column.name in names
                else some.column(column.name).combine_chunks()
                for column in schema.columns
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)

    fragments = write_stream(table.files, dataset, table.target, rows())
    changed = Mutation(ids, addresses, with_row_ids(fragments, ids), dataset.version)
    table.add_derived(changed)
