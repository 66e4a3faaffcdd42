"""Bodies as Spark SQL over relations with weights.

Every relation has a column `_w`; what a body gives has one too. A term of a body's change reads the
changes of one leaf, and of every other leaf its new state (those before) or its old (those after):

    D(body) = sum over leaves i of body(new, …, new, D_i, old, …, old)

which is the law of Join applied to every join of the body. A merge gives to the term of a leaf
only what comes through the branch that holds the leaf.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelock.derive.provenance import branches_of
from tidelock.derive.sql.operators import Core, Generate, Join, Merge, Operator, Scan, Select, scans
from tidelock.model.names import quote

WEIGHT = "_w"


def body_sql(body: Core, relations: Mapping[int, str], only: int | None = None) -> str:
    """The rows of a body with their weights.

    `relations` gives for each leaf what stands in FROM; `only` is the leaf that a term is of.
    """
    return _sql(body, 0, relations, only)


def _sql(operator: Operator, first: int, names: Mapping[int, str], only: int | None) -> str:
    """The rows of an operator whose leaves are numbered from `first`."""
    if isinstance(operator, Scan):
        columns = [f"{quote(column)} AS {quote(name)}" for name, column in operator.columns]
        return f"SELECT {_listed(columns)} FROM {names[first]}"
    if isinstance(operator, Select):
        inner = _sql(operator.input, first, names, only)
        columns = [f"{column.sql} AS {quote(column.name)}" for column in operator.columns]
        where = f" WHERE {operator.condition.sql}" if operator.condition else ""
        return f"SELECT {_listed(columns)} FROM ({inner}){where}"
    if isinstance(operator, Generate):
        inner = _sql(operator.input, first, names, only)
        made = ", ".join(quote(name) for name in operator.names)
        outer = "OUTER " if operator.outer else ""
        return (
            f"SELECT {_listed([quote(name) for name in operator.output])} FROM ({inner}) "
            f"LATERAL VIEW {outer}{operator.sql} AS {made}"
        )
    if isinstance(operator, Join):
        return _join(operator, first, names, only)
    if isinstance(operator, Merge):
        return _merge(operator, first, names, only)
    raise TypeError(f"{type(operator).__name__} is no part of a body")


def _join(join: Join, first: int, names: Mapping[int, str], only: int | None) -> str:
    left = _sql(join.left, first, names, only)
    right = _sql(join.right, first + len(scans(join.left)), names, only)
    columns = [f"l.{quote(name)}" for name in join.left.output]
    columns += [f"r.{quote(name)}" for name in join.right.output]
    tests = [
        f"l.{quote(a)} {'<=>' if position in join.null_safe else '='} r.{quote(b)}"
        for position, (a, b) in enumerate(join.keys)
    ]
    if join.condition is not None:
        tests.append(f"({join.condition.sql})")
    kind, on = ("JOIN", f" ON {' AND '.join(tests)}") if tests else ("CROSS JOIN", "")
    weight = f"l.{WEIGHT} * r.{WEIGHT} AS {WEIGHT}"
    return f"SELECT {', '.join([*columns, weight])} FROM ({left}) l {kind} ({right}) r{on}"


def _merge(merge: Merge, first: int, names: Mapping[int, str], only: int | None) -> str:
    branches = list(branches_of(merge, first))
    holding = [branch for branch in branches if only in branch.leaves]
    parts: list[str] = []
    for branch in holding or branches:
        one, sign = branch.operator, branch.sign
        columns = [
            f"{quote(name)} AS {quote(renamed)}"
            for name, renamed in zip(one.output, merge.names, strict=True)
        ]
        weight = WEIGHT if sign > 0 else f"-{WEIGHT} AS {WEIGHT}"
        inner = _sql(one, branch.leaves.start, names, only)
        parts.append(f"SELECT {', '.join([*columns, weight])} FROM ({inner})")
    return " UNION ALL ".join(parts)


def _listed(columns: list[str]) -> str:
    return ", ".join([*columns, WEIGHT])
