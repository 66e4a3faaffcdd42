"""Terms: the SQL of a body's change, and of its new state at some keys, over reduced tables.

Owns: which state of which table stands where. In the term of leaf i, the leaves before it are read
as they are now, those after it as they were, and leaf i as its changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidelock.derive.provenance import Trace, trace
from tidelock.derive.reducing import Leaf, reduce
from tidelock.derive.relations import Query
from tidelock.derive.sql.operators import Core
from tidelock.derive.weighted import WEIGHT, body_sql
from tidelock.model.names import quote
from tidelock.store.reading import Table


@dataclass(frozen=True)
class Bound:
    """A scan of a body with the table that it reads: before, now, and what changed between.

    `changes` has the table's columns and `_w`, one row for each row that came (1) or went (-1);
    None when the table did not change.
    """

    columns: tuple[str, ...]
    old: Table
    new: Table
    changes: pa.Table | None = None

    @property
    def changed(self) -> bool:
        return self.changes is not None and self.changes.num_rows > 0


@dataclass(frozen=True)
class Term:
    """One term: its SQL, and the rows of the leaves that were loaded for it."""

    sql: str
    loaded: Mapping[int, pa.Table | None]
    columns: Mapping[str, Trace]


def terms(query: Query, body: Core, leaves: Sequence[Bound]) -> list[Term]:
    """The terms of a body's change, one for each leaf that changed."""
    found: list[Term] = []
    for changed, bound in enumerate(leaves):
        if not bound.changed or bound.changes is None:
            continue
        traced = trace(body, changed)

        tables = [one.new if leaf < changed else one.old for leaf, one in enumerate(leaves)]
        bound_leaves = [_leaf(table, one) for table, one in zip(tables, leaves, strict=True)]
        loaded = reduce(traced, bound_leaves.__getitem__, {changed: bound.changes})
        passing = loaded[changed]
        if passing is None or not passing.num_rows:
            continue
        relations = {
            leaf: query.local(passing)
            if leaf == changed
            else _relation(query, tables[leaf], leaves[leaf], rows)
            for leaf, rows in loaded.items()
        }
        found.append(Term(body_sql(body, relations, changed), loaded, traced.columns))
    return found


def state_at(
    query: Query, body: Core, leaves: Sequence[Bound], wanted: Sequence[tuple[Trace, pa.Array]]
) -> str:
    """The SQL of a body as it is now, over the rows that can have the wanted values."""
    traced = trace(body)
    loaded = reduce(traced, lambda leaf: _leaf(leaves[leaf].new, leaves[leaf]), {}, wanted)
    relations = {
        leaf: _relation(query, leaves[leaf].new, leaves[leaf], rows)
        for leaf, rows in loaded.items()
    }
    return body_sql(body, relations)


def state(query: Query, body: Core, leaves: Sequence[Bound]) -> str:
    """The SQL of a body as it is now, over whole tables."""
    relations = {
        leaf: _relation(query, bound.new, bound, None) for leaf, bound in enumerate(leaves)
    }
    return body_sql(body, relations)


def _leaf(table: Table, bound: Bound) -> Leaf:
    return Leaf(table.dataset, bound.columns, table.key)


def _relation(query: Query, table: Table, bound: Bound, rows: pa.Table | None) -> str:
    if rows is not None:
        name = query.local(rows)
    else:
        name = query.frame(table.to_spark(columns=bound.columns))
    columns = ", ".join([*(quote(column) for column in bound.columns), f"1L AS {WEIGHT}"])
    return f"(SELECT {columns} FROM {name})"
