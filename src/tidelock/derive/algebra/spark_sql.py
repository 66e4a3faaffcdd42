"""Operators as Spark SQL.

Each operator becomes one step of a WITH, an operator that is read twice only one; so the text can
be read from top to bottom. An operator without columns has one that nobody reads, because SQL has
no rows without columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidelock.derive.algebra.operators import (
    Aggregate,
    Anti,
    Condition,
    Distinct,
    Generate,
    GroupingSets,
    Join,
    Leaf,
    Left,
    Merge,
    Once,
    Operator,
    OuterJoin,
    Scan,
    Select,
    SetOperation,
    Top,
    Window,
    scans,
)
from tidelock.model.names import fold, quote

NOTHING = "NULL AS `_`"
_JOINS = {
    "left": "LEFT JOIN",
    "right": "RIGHT JOIN",
    "full": "FULL JOIN",
    "semi": "LEFT SEMI JOIN",
    "anti": "LEFT ANTI JOIN",
}


def render(operator: Operator, columns: Iterable[tuple[str, str]] | None = None) -> str:
    """A query that computes the operator; `columns` are (visible name, column), else its own."""
    steps = Steps(operator)
    last = _render(operator, steps)
    shown = columns if columns is not None else ((name, name) for name in operator.output)
    chosen = [f"{quote(name)} AS {quote(visible)}" for visible, name in shown]
    return steps.text(f"SELECT {', '.join(chosen) or NOTHING} FROM {last}")


class Steps:
    """The steps of a WITH, under names that are no tables of the query."""

    def __init__(self, operator: Operator) -> None:
        tables = {fold(one.table) for one in scans(operator)}
        self._prefix = "step"
        while any(table.startswith(self._prefix) for table in tables):
            self._prefix += "_"
        self._known: dict[Operator, str] = {}
        self._texts: list[str] = []

    def known(self, operator: Operator) -> str | None:
        return self._known.get(operator)

    def add(self, sql: str, operator: Operator | None = None) -> str:
        name = f"{self._prefix}{len(self._texts) + 1}"
        self._texts.append(f"{name} AS (\n  {sql}\n)")
        if operator is not None:
            self._known[operator] = name
        return name

    def text(self, last: str) -> str:
        return f"WITH {', '.join(self._texts)}\n{last}"


def quoted(names: Iterable[str]) -> list[str]:
    return [quote(name) for name in names]


def where(condition: Condition | None) -> str:
    return "" if condition is None else f" WHERE {condition.sql}"


def computed(operator: Select | Window) -> list[str]:
    return [
        quote(one.name) if one.passed == one.name else f"{one.sql} AS {quote(one.name)}"
        for one in operator.columns
    ]


def on(operator: Join | OuterJoin) -> str:
    parts = []
    for position, (left, right) in enumerate(operator.keys):
        sign = "<=>" if position in operator.null_safe else "="
        parts.append(f"l.{quote(left)} {sign} r.{quote(right)}")
    if operator.condition is not None:
        parts.append(f"({operator.condition.sql})")
    return " AND ".join(parts) or "TRUE"


def listed(columns: Sequence[str]) -> str:
    return ", ".join(columns) or NOTHING


def top(operator: Top) -> str:
    limit = "" if operator.limit is None else f" LIMIT {operator.limit}"
    offset = f" OFFSET {operator.offset}" if operator.offset else ""
    return f"ORDER BY {operator.order}{limit}{offset}"


def lateral_view(operator: Generate) -> str:
    outer = "OUTER " if operator.outer else ""
    return f"LATERAL VIEW {outer}{operator.sql} g AS {', '.join(quoted(operator.names))}"


def _render(operator: Operator, steps: Steps) -> str:
    known = steps.known(operator)
    return known if known is not None else steps.add(_sql(operator, steps), operator)


def _sql(operator: Operator, steps: Steps) -> str:
    match operator:
        case Scan():
            columns = [f"{quote(original)} AS {quote(name)}" for name, original in operator.columns]
            return f"SELECT {listed(columns)} FROM {quote(operator.table)}"
        case Select():
            below = _render(operator.input, steps)
            return f"SELECT {listed(computed(operator))} FROM {below}{where(operator.condition)}"
        case Generate():
            below = _render(operator.input, steps)
            columns = quoted(operator.output)
            return f"SELECT {listed(columns)} FROM {below} {lateral_view(operator)}"
        case Join() | OuterJoin():
            left, right = _render(operator.left, steps), _render(operator.right, steps)
            kind = "JOIN" if isinstance(operator, Join) else _JOINS[operator.kind]
            columns = quoted(operator.output)
            return f"SELECT {listed(columns)} FROM {left} l {kind} {right} r ON {on(operator)}"
        case Left():
            joined = OuterJoin(
                operator.left, operator.right, "left", operator.keys, None, operator.null_safe
            )
            return _sql(joined, steps)
        case Anti():
            alone = OuterJoin(
                operator.left, operator.partners, "anti", operator.keys, None, operator.null_safe
            )
            return _sql(alone, steps)
        case Merge():
            parts = [_renamed(one, operator.names, steps) for one in operator.inputs]
            return " UNION ALL ".join(parts)
        case Aggregate():
            below = _render(operator.input, steps)
            return aggregated(operator, below)
        case Window():
            below = _render(operator.input, steps)
            columns = [*quoted(operator.input.output), *computed(operator)]
            return f"SELECT {listed(columns)} FROM {below}"
        case Top():
            below = _render(operator.input, steps)
            return f"SELECT {listed(quoted(operator.output))} FROM {below} {top(operator)}"
        case Once():
            below = _render(operator.input, steps)
            return f"SELECT {listed(quoted(operator.output))} FROM {below}"
        case Distinct():
            below = _render(operator.input, steps)
            return f"SELECT DISTINCT {listed(quoted(operator.output))} FROM {below}"
        case SetOperation():
            left = _renamed(operator.left, operator.names, steps)
            right = _renamed(operator.right, operator.names, steps)
            every = " ALL" if operator.all else ""
            return f"{left} {operator.kind.upper()}{every} {right}"
        case GroupingSets():
            return _grouping_sets(operator, _render(operator.input, steps))
        case Leaf():
            raise TypeError("a leaf stands for a relation that only a term knows")


def aggregated(operator: Aggregate, below: str) -> str:
    measures = [f"{one.sql} AS {quote(one.name)}" for one in operator.measures]
    groups = quoted(operator.groups)
    by = f" GROUP BY {', '.join(groups)}" if groups else " HAVING count(*) >= 0"
    return f"SELECT {listed([*groups, *measures])} FROM {below}{by}"


def _grouping_sets(operator: GroupingSets, below: str) -> str:
    # Measures read a group's column as it is; the group itself is NULL where it is left out.
    groups = [f"{quote(column)} AS {quote(name)}" for name, column in operator.groups]
    columns = [quote(column) for _, column in operator.groups]
    identity = []
    if operator.grouping_id is not None:
        bits = (f"shiftleft(CAST(grouping({one}) AS BIGINT), {i})" for i, one in _bits(columns))
        identity = [f"{' + '.join(bits)} AS {quote(operator.grouping_id)}"]
    measures = [f"{one.sql} AS {quote(one.name)}" for one in operator.measures]
    sets = ", ".join(f"({', '.join(columns[i] for i in one)})" for one in operator.sets)
    return (
        f"SELECT {', '.join([*groups, *identity, *measures])} FROM {below} "
        f"GROUP BY GROUPING SETS ({sets})"
    )


def _bits(columns: Sequence[str]) -> list[tuple[int, str]]:
    """The columns with the bit that each has in the grouping id, the first the highest."""
    return list(zip(range(len(columns) - 1, -1, -1), columns, strict=True))


def _renamed(operator: Operator, names: Sequence[str], steps: Steps) -> str:
    """The rows of the operator under other names, by position."""
    below = _render(operator, steps)
    columns = [
        f"{quote(old)} AS {quote(new)}" for old, new in zip(operator.output, names, strict=True)
    ]
    return f"SELECT {listed(columns)} FROM {below}"
