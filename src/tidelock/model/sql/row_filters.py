"""Which rows of a table a query can do without.

Owns: the choice of conditions that may be applied while a table is read. Law: for a table in the
FROM clause of a SELECT, a condition that mentions this table alone may be applied early if the
SELECT applies it to every row of its result anyway:

    WHERE c            and the table is not on the side of an outer join that is filled with NULLs
    a JOIN b ON c      an inner join, likewise

A table behind the right of a LEFT, SEMI or ANTI join gets nothing, and a SELECT with a RIGHT or
FULL join gets nothing at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tidelock.errors import TidelockError
from tidelock.model.names import fold
from tidelock.model.schema.schema import TableSchema
from tidelock.model.sql.predicates import conjuncts

_INNER = ("", "INNER", "CROSS")


def row_filters(
    root: exp.Expr,
    tables: Mapping[int, TableSchema],
    translate: Callable[[str, TableSchema], str | None],
) -> dict[int, str | None]:
    """For each table, by the `id` of its node, a condition in Lance's words, or None."""
    found: dict[int, list[str]] = {table: [] for table in tables}
    for select in root.find_all(exp.Select):
        from_items = _from_items(select)
        eligible = _eligible(select, from_items, tables)
        if not eligible:
            continue
        for condition in _conditions(select):
            table = _only_table(condition, select, from_items, tables)
            if table is None or id(table) not in eligible:
                continue
            text = unqualified(condition)
            told = None if text is None else _told(translate, text, tables[id(table)])
            if told is not None:
                found[id(table)].append(told)
    return {
        table: " AND ".join(f"({one})" for one in conditions) if conditions else None
        for table, conditions in found.items()
    }


def _told(
    translate: Callable[[str, TableSchema], str | None], text: str, schema: TableSchema
) -> str | None:
    try:
        return translate(text, schema)
    except TidelockError:
        # Spark sees the same condition in the query, and says what is wrong with it.
        return None


def _from_items(select: exp.Select) -> list[exp.Expr]:
    from_ = select.args.get("from_")
    first = [] if from_ is None else [from_.this]
    return [*first, *(join.this for join in select.args.get("joins") or ())]


def _is_inner(join: exp.Join) -> bool:
    return not join.side and join.kind.upper() in _INNER and join.method.upper() in ("", "NATURAL")


def _eligible(
    select: exp.Select, from_items: Sequence[exp.Expr], tables: Mapping[int, TableSchema]
) -> set[int]:
    joins: list[exp.Join] = select.args.get("joins") or []
    if any(join.side.upper() not in ("", "LEFT") for join in joins):
        return set()
    kept = [*from_items[: len(from_items) - len(joins)], *(j.this for j in joins if _is_inner(j))]
    return {
        id(item)
        for item in kept
        if id(item) in tables
        # A sample and a pivot come before the condition; an alias may rename the columns.
        and not any(item.args.get(part) for part in ("sample", "pivots", "joins", "laterals"))
        and not item.alias_column_names
    }


def _conditions(select: exp.Select) -> Iterator[exp.Expr]:
    where = select.args.get("where")
    if where is not None:
        yield from conjuncts(where.this)
    for join in select.args.get("joins") or ():
        if _is_inner(join) and join.args.get("on") is not None:
            yield from conjuncts(join.args["on"])


def _only_table(
    condition: exp.Expr,
    select: exp.Select,
    from_items: Sequence[exp.Expr],
    tables: Mapping[int, TableSchema],
) -> exp.Expr | None:
    """The one table that the condition is about, if that is certain."""
    if condition.find(exp.Query, exp.AggFunc, exp.Window, exp.Lambda):
        return None
    # Columns of other things in FROM are not known here, and an unqualified name may be theirs.
    all_known = not select.args.get("laterals") and all(id(item) in tables for item in from_items)
    about: dict[int, exp.Expr] = {}
    for column in condition.find_all(exp.Column):
        if column.args.get("db") or (not column.table and not all_known):
            return None
        candidates = [
            item
            for item in from_items
            if (not column.table or fold(item.alias_or_name) == fold(column.table))
            and (id(item) not in tables or tables[id(item)].find(column.name))
        ]
        if len(candidates) != 1 or id(candidates[0]) not in tables:
            return None
        about[id(candidates[0])] = candidates[0]
    return next(iter(about.values())) if len(about) == 1 else None


def unqualified(condition: exp.Expr) -> str | None:
    """The condition as text about one table; None if writing it out would change it."""
    bare = condition.copy()
    for column in list(bare.find_all(exp.Column)):
        column.set("table", None)
    text: str = bare.sql(dialect="spark")
    try:
        again = sqlglot.parse_one(text, dialect="spark")
    except SqlglotError:
        return None
    return text if again == bare else None
