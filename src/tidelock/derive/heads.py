"""Heads as SQL: what a stage keeps of its body, and what its table holds.

Every function gives the SQL of rows as the stage's table has them (Layout), without or with the
row ids of what they replace.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelock.derive.layouts import COUNT, HASH, Extreme, Layout, Sum
from tidelock.derive.sql.operators import Aggregate, Top, Window
from tidelock.derive.stages import Groups, Partitions, Stage
from tidelock.derive.weighted import WEIGHT
from tidelock.model.names import HIDDEN, quote

AGAIN = f"{HIDDEN}again"
"""Whether a group is to be computed again, for one of its extremes may have left."""


def bag_rows(layout: Layout, sql: str, *passed: str) -> str:
    """The rows of a body, and columns that pass along."""
    return f"SELECT {', '.join([_listed(layout), *passed])} FROM ({sql})"


def bag_changes(stage: Stage, layout: Layout, sql: str) -> str:
    """The net changes of a bag: each row once, with its weight."""
    columns = ", ".join(quote(name) for name in stage.kept)
    net = f"SELECT {columns}, SUM({WEIGHT}) AS {WEIGHT} FROM ({sql}) GROUP BY {columns}"
    return f"SELECT {_listed(layout)}, {WEIGHT} FROM ({net}) WHERE {WEIGHT} <> 0"


def summed(stage: Stage, layout: Layout, sql: str) -> str:
    """The sums of a weighted body for each group."""
    assert isinstance(stage.head, Groups)
    groups = [quote(name) for name in stage.head.groups]
    sums = [f"COALESCE(SUM({WEIGHT}), 0L) AS {quote(COUNT)}"]
    sums += [f"CAST(COALESCE({_total(s)}, 0) AS {s.kind}) AS {quote(s.name)}" for s in layout.sums]
    for one in layout.extremes:
        sums += [
            f"{_outmost(one, '>')} AS {quote(one.name)}",
            f"{_outmost(one, '<')} AS {_gone(one)}",
        ]
    by = f" GROUP BY {', '.join(groups)}" if groups else ""
    inner = f"SELECT {', '.join([*groups, *sums])} FROM ({sql}){by}"
    return f"SELECT *, {layout.hash} AS {quote(HASH)} FROM ({inner})"


def group_rows(layout: Layout, sql: str, ids: tuple[str, ...] = ()) -> str:
    """The rows of a Groups table from its groups and sums, and columns that pass along.

    What is shown of a group that has no rows, or whose extremes are not known yet, nobody will see;
    computing it could fail.
    """
    told = [f"{quote(COUNT)} > 0"] if layout.keys else []
    if AGAIN in ids:
        told.append(f"NOT {AGAIN}")
    finals = ", ".join(f"{final} AS {quote(name)}" for name, final in layout.finals)
    inner = f"SELECT *{', ' + finals if finals else ''} FROM ({sql})"
    extremes = (quote(one.name) for one in layout.extremes)
    kept = [quote(COUNT), *(quote(one.name) for one in layout.sums), *extremes, *ids]
    listed = _listed(layout, " AND ".join(told) if ids else "")
    return f"SELECT {listed}, {', '.join(kept)} FROM ({inner})"


def added(layout: Layout, changes: str, state: str, ids: tuple[str, ...]) -> str:
    """The groups and sums after a change: what was kept, where it was, plus what came.

    An extreme holds if everything that left lies behind it: then no change took it away.
    """
    sums = [f"COALESCE(o.{quote(COUNT)}, 0L) + d.{quote(COUNT)} AS {quote(COUNT)}"]
    sums += [
        f"CAST({_fitting(s, f'COALESCE(o.{quote(s.name)}, 0) + d.{quote(s.name)}')} AS {s.kind}) "
        f"AS {quote(s.name)}"
        for s in layout.sums
    ]
    groups = [f"d.{quote(key)} AS {quote(key)}" for _, key in layout.keys]
    found = [f"o.{name} AS {name}" for name in ids]
    on = " AND ".join(
        [f"d.{quote(HASH)} = o.{quote(HASH)}"]
        + [f"d.{quote(key)} <=> o.{quote(column)}" for column, key in layout.keys]
    )
    sums += [f"{_kept(one)} AS {quote(one.name)}" for one in layout.extremes]
    if layout.extremes:
        sums.append(f"{' OR '.join(map(_may_have_left, layout.extremes))} AS {AGAIN}")
    columns = ", ".join([*groups, *sums, *found])
    return f"SELECT {columns} FROM ({changes}) d LEFT JOIN {state} o ON {on}"


def partition_keys(stage: Stage, layout: Layout, sql: str) -> str:
    """The distinct keys that a change touches."""
    assert isinstance(stage.head, Partitions)
    keys = ", ".join(quote(key) for key in stage.head.keys)
    return (
        f"SELECT {keys}, {layout.hash} AS {quote(HASH)} FROM (SELECT DISTINCT {keys} FROM ({sql}))"
    )


def partition_rows(stage: Stage, layout: Layout, sql: str, keys: str | None = None) -> str:
    """The rows of a Partitions table, over a weighted body; with `keys`, of those keys only."""
    assert isinstance(stage.head, Partitions)
    rows = f"SELECT {', '.join(quote(name) for name in stage.body.output)} FROM ({sql})"
    if keys is not None:
        rows = having(rows, stage.head.keys, keys)
    return f"SELECT {_listed(layout)} FROM ({operator_sql(stage.head.operator, rows)})"


def having(rows: str, names: Sequence[str], keys: str) -> str:
    """The rows that have one of the keys."""
    if not names:
        return rows
    on = " AND ".join(f"b.{quote(name)} <=> k.{quote(name)}" for name in names)
    return f"SELECT b.* FROM ({rows}) b LEFT SEMI JOIN {keys} k ON {on}"


def operator_sql(operator: Aggregate | Window | Top, rows: str) -> str:
    if isinstance(operator, Aggregate):
        groups = [quote(name) for name in operator.groups]
        measures = [f"{one.sql} AS {quote(one.name)}" for one in operator.measures]
        by = f" GROUP BY {', '.join(groups)}" if groups else ""
        return f"SELECT {', '.join([*groups, *measures])} FROM ({rows}){by}"
    if isinstance(operator, Window):
        made = [f"{one.sql} AS {quote(one.name)}" for one in operator.columns]
        return f"SELECT {', '.join(['*', *made])} FROM ({rows})"
    limit = "" if operator.limit is None else f" LIMIT {operator.limit}"
    offset = f" OFFSET {operator.offset}" if operator.offset else ""
    return f"SELECT * FROM ({rows}) ORDER BY {operator.order}{limit}{offset}"


def _outmost(one: Extreme, sign: str) -> str:
    """The extreme among the rows that come (`>`) or leave (`<`)."""
    function = "MIN" if one.least else "MAX"
    return f"CAST({function}(IF({WEIGHT} {sign} 0, {one.sql}, NULL)) AS {one.kind})"


def _gone(one: Extreme) -> str:
    return quote(f"_gone{one.name}")


def _kept(one: Extreme) -> str:
    function, name = "least" if one.least else "greatest", quote(one.name)
    return f"{function}(o.{name}, d.{name})"


def _may_have_left(one: Extreme) -> str:
    gone, behind = f"d.{_gone(one)}", ">" if one.least else "<"
    return f"({gone} IS NOT NULL AND NOT COALESCE({gone} {behind} {_kept(one)}, false))"


def _total(one: Sum) -> str:
    return _fitting(one, f"SUM({one.sql})", f"COUNT({one.sql}) > 0")


def _fitting(one: Sum, total: str, of_something: str = "true") -> str:
    """A sum that fails when it does not fit: where ANSI mode is off, Spark would make it NULL."""
    if not one.wide:
        return total
    failed = "raise_error('A sum has more digits than DECIMAL(38) holds.')"
    return f"IF(({total}) IS NULL AND {of_something}, {failed}, {total})"


def _listed(layout: Layout, told: str = "") -> str:
    """The shown columns, the keys that are not among them, and the hash.

    Where `told` is false, nothing is computed for what is shown.
    """
    shown = {name for name, _ in layout.shown}
    plain = {quote(key) for _, key in layout.keys}
    columns = [
        f"{sql if not told or sql in plain else f'IF({told}, {sql}, NULL)'} AS {quote(name)}"
        for name, sql in layout.shown
    ]
    columns += [
        f"{quote(key)} AS {quote(column)}" for column, key in layout.keys if column not in shown
    ]
    return ", ".join([*columns, f"{layout.hash} AS {quote(HASH)}"])
