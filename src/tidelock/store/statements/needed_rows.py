"""Which rows of its target a MERGE can do without.

Law: a row that is left out matches no row of the source, and a MERGE with no clause about rows that
the source does not match leaves such a row alone. So two kinds of conditions are applied while the
target is read: those of ON that are about the target alone, and, where ON wants a column equal to
one of a source of few rows, that the column has one of the values that are there.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tidelock.errors import TidelockError
from tidelock.model.names import fold
from tidelock.model.schema.schema import TableSchema
from tidelock.model.sql.predicates import conjuncts, has_query, sides
from tidelock.model.sql.row_filters import unqualified
from tidelock.model.sql.statements.definition import Merge
from tidelock.store.lookup.literals import in_list
from tidelock.store.statements.desk import Desk
from tidelock.store.table import Table

VALUES_MAX = 10_000
"""A source of more rows is not looked through: a list of its values costs more than it saves."""


class Narrowing:
    """What ON says about the rows of the target, as far as it can be read here."""

    def __init__(self, merge: Merge, schema: TableSchema) -> None:
        self._merge = merge
        self._schema = schema

    @cached_property
    def _conditions(self) -> list[exp.Expr]:
        """The parts of ON that must all be true; none where a row without a match counts."""
        if self._merge.about("not matched by source"):
            return []
        try:
            return conjuncts(sqlglot.parse_one(self._merge.on, dialect="spark"))
        except (SqlglotError, RecursionError):
            return []

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Columns of the target that ON wants equal to a column of the source."""
        for condition in self._conditions:
            both = sides(condition)
            if both is None or both[2]:
                continue
            for one, other in (both[:2], both[1::-1]):
                mine, theirs = self._column(one, self._merge.alias), self._of_source(other)
                if mine is not None and theirs is not None:
                    yield mine, theirs

    def _column(self, node: exp.Expr, alias: str) -> str | None:
        if not isinstance(node, exp.Column) or len(node.parts) != 2:
            return None
        found = self._schema.find(node.name)
        return found.name if found is not None and fold(node.table) == fold(alias) else None

    def _of_source(self, node: exp.Expr) -> str | None:
        alias = self._merge.source_alias
        if not isinstance(node, exp.Column) or len(node.parts) != 2 or alias is None:
            return None
        return str(node.name) if fold(node.table) == fold(alias) else None

    def own_conditions(self) -> Iterator[str]:
        """The conditions of ON that are about the target alone, as text about its columns."""
        for condition in self._conditions:
            columns = list(condition.find_all(exp.Column))
            own = columns and all(self._column(one, self._merge.alias) for one in columns)
            text = unqualified(condition) if own and not has_query(condition) else None
            if text is not None:
                yield text


def lance_filter(desk: Desk, merge: Merge, view: Table) -> str | None:
    """The rows of the target that are read, in Lance's words; None for all."""
    narrowing = Narrowing(merge, view.schema)
    found: list[str] = []
    for text in narrowing.own_conditions():
        try:
            condition = desk.condition(text, view, view.name).lance
        except TidelockError:
            # Spark sees the same condition, and says what is wrong with it.
            continue
        if condition is not None:
            found.append(condition)
    listed = (_listed(desk, merge, view, *pair) for pair in narrowing.pairs())
    first = next((one for one in listed if one is not None), None)
    if first is not None:
        found.append(first)
    return " AND ".join(f"({one})" for one in found) or None


def _listed(desk: Desk, merge: Merge, view: Table, column: str, other: str) -> str | None:
    """That a column of the target has one of the values of a column of the source, if these are few
    and of the same type."""
    values = _values(desk, merge, other)
    wanted = view.schema.column(column).type
    kinds = pa.types
    plain = kinds.is_integer(wanted) or kinds.is_string(wanted) or kinds.is_date(wanted)
    if values is None or not plain:
        return None
    if values.type != wanted and not (kinds.is_integer(values.type) and kinds.is_integer(wanted)):
        return None
    try:
        present = values.cast(wanted).unique().drop_null()
    except pa.ArrowInvalid:
        # A number that the column cannot hold; Spark compares it in a wider type.
        return None
    if isinstance(present, pa.ChunkedArray):
        present = present.combine_chunks()
    return in_list(column, present) if len(present) else "false"


def _values(desk: Desk, merge: Merge, column: str) -> pa.ChunkedArray | pa.Array | None:
    """A column of a source that is a table or rows of this process, if it has few."""
    if merge.source_name is None or merge.source_columns is not None or merge.definitions:
        return None
    given = desk.relations.rows_here(merge.source_name)
    if given is not None:
        found = [one for one in given.column_names if fold(one) == fold(column)]
        few = len(found) == 1 and given.num_rows <= VALUES_MAX
        return given.column(found[0]) if few else None
    if desk.tables.find(merge.source_name) is None:
        return None
    table = desk.table(merge.source_name)
    if table.schema.find(column) is None or table.count() > VALUES_MAX:
        return None
    return table.to_arrow(columns=[column]).column(0)
