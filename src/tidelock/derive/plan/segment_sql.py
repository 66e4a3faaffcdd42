"""Segments as SQL: what a segment keeps of its body, and what its table holds.

Every function gives the SQL of rows as the segment's table has them (StateColumns), without or with
the row ids of what they replace.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelock.derive.algebra.operators import Aggregate, Top, Window
from tidelock.derive.plan.aggregates import Extreme, Sum
from tidelock.derive.plan.body_sql import WEIGHT
from tidelock.derive.plan.segments import Groups, Partitions, Segment
from tidelock.derive.plan.state_columns import COUNT, HASH, StateColumns
from tidelock.model.names import HIDDEN, quote

AGAIN = f"{HIDDEN}again"
"""Whether a group is to be computed again, for one of its extremes may have left."""


def bag_rows(state_columns: StateColumns, sql: str, *passed: str) -> str:
    """The rows of a body, and columns that pass along."""
    return f"SELECT {', '.join([_listed(state_columns), *passed])} FROM ({sql})"


def bag_changes(segment: Segment, state_columns: StateColumns, sql: str) -> str:
    """The net changes of a bag: each row once, with its weight."""
    columns = ", ".join(quote(name) for name in segment.given)
    net = f"SELECT {columns}, SUM({WEIGHT}) AS {WEIGHT} FROM ({sql}) GROUP BY {columns}"
    return f"SELECT {_listed(state_columns)}, {WEIGHT} FROM ({net}) WHERE {WEIGHT} <> 0"


def summed(segment: Segment, state_columns: StateColumns, sql: str) -> str:
    """The sums of a weighted body for each group."""
    assert isinstance(segment.content, Groups)
    groups = [quote(name) for name in segment.content.groups]
    sums = [f"COALESCE(SUM({WEIGHT}), 0L) AS {quote(COUNT)}"]
    for part in state_columns.sums:
        sums.append(f"CAST(COALESCE({_total(part)}, 0) AS {part.type}) AS {quote(part.column)}")
    for extreme in state_columns.extremes:
        sums += [
            f"{_outmost(extreme, '>')} AS {quote(extreme.column)}",
            f"{_outmost(extreme, '<')} AS {_gone(extreme)}",
        ]
    by = f" GROUP BY {', '.join(groups)}" if groups else ""
    inner = f"SELECT {', '.join([*groups, *sums])} FROM ({sql}){by}"
    return f"SELECT *, {state_columns.hash} AS {quote(HASH)} FROM ({inner})"


def group_rows(state_columns: StateColumns, sql: str, ids: tuple[str, ...] = ()) -> str:
    """The rows of a Groups table from its groups and sums, and columns that pass along.

    What is shown of a group that has no rows, or whose extremes are not known yet, nobody will see;
    computing it could fail.
    """
    told = [f"{quote(COUNT)} > 0"] if state_columns.keys else []
    if AGAIN in ids:
        told.append(f"NOT {AGAIN}")
    finals = ", ".join(f"{part.sql} AS {quote(part.name)}" for part in state_columns.measures)
    inner = f"SELECT *{', ' + finals if finals else ''} FROM ({sql})"
    extremes = (quote(part.column) for part in state_columns.extremes)
    kept = [quote(COUNT), *(quote(part.column) for part in state_columns.sums), *extremes, *ids]
    listed = _listed(state_columns, " AND ".join(told) if ids else "")
    return f"SELECT {listed}, {', '.join(kept)} FROM ({inner})"


def added(state_columns: StateColumns, changes: str, state: str, ids: tuple[str, ...]) -> str:
    """The groups and sums after a change: what was kept, where it was, plus what came.

    An extreme holds if everything that left lies behind it: then no change took it away.
    """
    sums = [f"COALESCE(o.{quote(COUNT)}, 0L) + d.{quote(COUNT)} AS {quote(COUNT)}"]
    for part in state_columns.sums:
        column = quote(part.column)
        total = _fitting(part, f"COALESCE(o.{column}, 0) + d.{column}")
        sums.append(f"CAST({total} AS {part.type}) AS {column}")
    groups = [f"d.{quote(key)} AS {quote(key)}" for _, key in state_columns.keys]
    passed = [f"o.{name} AS {name}" for name in ids]
    on = " AND ".join(
        [f"d.{quote(HASH)} = o.{quote(HASH)}"]
        + [f"d.{quote(key)} <=> o.{quote(column)}" for column, key in state_columns.keys]
    )
    sums += [f"{_kept(part)} AS {quote(part.column)}" for part in state_columns.extremes]
    if state_columns.extremes:
        sums.append(f"{' OR '.join(map(_may_have_left, state_columns.extremes))} AS {AGAIN}")
    columns = ", ".join([*groups, *sums, *passed])
    return f"SELECT {columns} FROM ({changes}) d LEFT JOIN {state} o ON {on}"


def partition_keys(segment: Segment, state_columns: StateColumns, sql: str) -> str:
    """The distinct keys that a change touches."""
    assert isinstance(segment.content, Partitions)
    keys = ", ".join(quote(key) for key in segment.content.keys)
    distinct = f"SELECT DISTINCT {keys} FROM ({sql})"
    return f"SELECT {keys}, {state_columns.hash} AS {quote(HASH)} FROM ({distinct})"


def partition_rows(
    segment: Segment, state_columns: StateColumns, sql: str, keys: str | None = None
) -> str:
    """The rows of a Partitions table, over a weighted body; with `keys`, of those keys only."""
    assert isinstance(segment.content, Partitions)
    rows = f"SELECT {', '.join(quote(name) for name in segment.body.output)} FROM ({sql})"
    if keys is not None:
        rows = having(rows, segment.content.keys, keys)
    return f"SELECT {_listed(state_columns)} FROM ({operator_sql(segment.content.operator, rows)})"


def having(rows: str, names: Sequence[str], keys: str) -> str:
    """The rows that have one of the keys."""
    if not names:
        return rows
    on = " AND ".join(f"b.{quote(name)} <=> k.{quote(name)}" for name in names)
    return f"SELECT b.* FROM ({rows}) b LEFT SEMI JOIN {keys} k ON {on}"


def operator_sql(operator: Aggregate | Window | Top, rows: str) -> str:
    if isinstance(operator, Aggregate):
        groups = [quote(name) for name in operator.groups]
        measures = [f"{column.sql} AS {quote(column.name)}" for column in operator.measures]
        by = f" GROUP BY {', '.join(groups)}" if groups else ""
        return f"SELECT {', '.join([*groups, *measures])} FROM ({rows}){by}"
    if isinstance(operator, Window):
        made = [f"{column.sql} AS {quote(column.name)}" for column in operator.columns]
        return f"SELECT {', '.join(['*', *made])} FROM ({rows})"
    limit = "" if operator.limit is None else f" LIMIT {operator.limit}"
    offset = f" OFFSET {operator.offset}" if operator.offset else ""
    return f"SELECT * FROM ({rows}) ORDER BY {operator.order}{limit}{offset}"


def _outmost(extreme: Extreme, sign: str) -> str:
    """The extreme among the rows that come (`>`) or leave (`<`)."""
    function = "MIN" if extreme.least else "MAX"
    return f"CAST({function}(IF({WEIGHT} {sign} 0, {extreme.sql}, NULL)) AS {extreme.type})"


def _gone(extreme: Extreme) -> str:
    return quote(f"_gone{extreme.column}")


def _kept(extreme: Extreme) -> str:
    function, name = "least" if extreme.least else "greatest", quote(extreme.column)
    return f"{function}(o.{name}, d.{name})"


def _may_have_left(extreme: Extreme) -> str:
    gone, behind = f"d.{_gone(extreme)}", ">" if extreme.least else "<"
    return f"({gone} IS NOT NULL AND NOT COALESCE({gone} {behind} {_kept(extreme)}, false))"


def _total(sum_: Sum) -> str:
    return _fitting(sum_, f"SUM({sum_.sql})", f"COUNT({sum_.sql}) > 0")


def _fitting(sum_: Sum, total: str, of_something: str = "true") -> str:
    """A sum that fails when it does not fit: where ANSI mode is off, Spark would make it NULL."""
    if not sum_.wide:
        return total
    failed = "raise_error('A sum has more digits than DECIMAL(38) holds.')"
    return f"IF(({total}) IS NULL AND {of_something}, {failed}, {total})"


def _listed(state_columns: StateColumns, told: str = "") -> str:
    """The shown columns, the keys that are not among them, and the hash.

    Where `told` is false, nothing is computed for what is shown.
    """
    shown = {name for name, _ in state_columns.shown}
    plain = {quote(key) for _, key in state_columns.keys}
    columns = [
        f"{sql if not told or sql in plain else f'IF({told}, {sql}, NULL)'} AS {quote(name)}"
        for name, sql in state_columns.shown
    ]
    columns += [
        f"{quote(key)} AS {quote(column)}"
        for column, key in state_columns.keys
        if column not in shown
    ]
    return ", ".join([*columns, f"{state_columns.hash} AS {quote(HASH)}"])
