"""Terms: the SQL of a body's change, and of its new state at some keys, over reduced tables.

Owns: which state of which table stands where (plan/bodies.py has the law). A relation that has no
rows, once it is reduced to what can matter, takes all with it that needs a row of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidelock.derive.algebra.operators import Core
from tidelock.derive.plan.bodies import leaves_of, state_body, term_body, without_empty
from tidelock.derive.plan.body_sql import WEIGHT, body_sql
from tidelock.derive.plan.column_origins import Trace, trace
from tidelock.derive.refresh.delta.lookup import reduce
from tidelock.derive.refresh.seen_table import SeenTable
from tidelock.derive.spark.engine_query import EngineQuery
from tidelock.model.names import quote


@dataclass(frozen=True)
class Bound:
    """A scan of a body with the table that it reads: before, now, and what changed between.

    `changes` has the scan's columns and a weight, one row for each row that came (1) or went (-1);
    None when the table did not change.
    """

    columns: tuple[str, ...]
    old: SeenTable
    new: SeenTable
    changes: pa.Table | None = None

    @property
    def changed(self) -> bool:
        return self.changes is not None and self.changes.num_rows > 0


def terms(query: EngineQuery, body: Core, leaves: Sequence[Bound]) -> list[str]:
    """The SQL of each term of a body's change: one for each leaf that changed, without those of
    which no row can come."""
    found = []
    for changed, bound in enumerate(leaves):
        if bound.changed:
            term = _term(query, body, leaves, changed)
            if term is not None:
                found.append(term)
    return found


def _term(query: EngineQuery, body: Core, leaves: Sequence[Bound], changed: int) -> str | None:
    changes = leaves[changed].changes
    assert changes is not None
    term = term_body(body, changed)
    tables = [one.new if leaf < changed else one.old for leaf, one in enumerate(leaves)]
    bound = [table.leaf(one.columns) for table, one in zip(tables, leaves, strict=True)]
    loaded = reduce(trace(term.operator), bound.__getitem__, {changed: changes})
    empty = {leaf for leaf, rows in loaded.items() if rows is not None and not rows.num_rows}
    operator = without_empty(term.operator, empty)
    if operator is None:
        return None
    relations = {}
    for leaf in {one.number for one in leaves_of(operator)}:
        rows = loaded[leaf]
        if leaf != changed:
            relations[leaf] = _relation(query, tables[leaf], leaves[leaf], rows)
        elif rows is not None:
            relations[leaf] = query.local(rows if term.sign > 0 else _turned(rows))
    return body_sql(operator, relations)


def _turned(changes: pa.Table) -> pa.Table:
    """What came as what goes, and the other way round."""
    position = changes.column_names.index(WEIGHT)
    return changes.set_column(position, WEIGHT, pc.negate(changes.column(WEIGHT)))


def state_at(
    query: EngineQuery,
    body: Core,
    leaves: Sequence[Bound],
    wanted: Sequence[tuple[Trace, pa.Array]],
) -> str:
    """The SQL of a body as it is now, over the rows that can have the wanted values."""
    operator = state_body(body)
    bound = [one.new.leaf(one.columns) for one in leaves]
    loaded = reduce(trace(operator), bound.__getitem__, {}, wanted)
    relations = {
        leaf: _relation(query, leaves[leaf].new, leaves[leaf], rows)
        for leaf, rows in loaded.items()
    }
    return body_sql(operator, relations)


def state(query: EngineQuery, body: Core, leaves: Sequence[Bound]) -> str:
    """The SQL of a body as it is now, over whole tables."""
    operator = state_body(body)
    relations = {
        leaf.number: _relation(query, leaves[leaf.number].new, leaves[leaf.number], None)
        for leaf in leaves_of(operator)
    }
    return body_sql(operator, relations)


def _relation(query: EngineQuery, table: SeenTable, bound: Bound, rows: pa.Table | None) -> str:
    name = query.frame(table.frame(bound.columns)) if rows is None else query.local(rows)
    columns = ", ".join([*(quote(column) for column in bound.columns), f"1L AS {WEIGHT}"])
    return f"(SELECT {columns} FROM {name})"
