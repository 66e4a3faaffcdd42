"""Trees of operators in few words, and the small lake that unit tests read."""

from __future__ import annotations

from tidelock.derive.algebra.operators import (
    Aggregate,
    Anti,
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
    inputs,
)
from tidelock.derive.sql.query import parse_view
from tidelock.derive.sql.view import View
from tidelock.model.ddl import parse_schema

SCHEMAS = {
    "Orders": parse_schema(
        "id BIGINT NOT NULL, customer INT, amount DECIMAL(10,2), day DATE, tags ARRAY<STRING>", "id"
    ),
    "customers": parse_schema("id INT NOT NULL, name STRING, country STRING", "id"),
    "events": parse_schema("kind STRING, value INT, at TIMESTAMP, more MAP<STRING, INT>"),
}


def read(query: str) -> View:
    return parse_view(query, SCHEMAS)


def tree(query: str) -> Operator:
    view = read(query)
    assert view.root is not None, [str(one) for one in view.obstacles]
    return view.root


def outline(operator: Operator, depth: int = 0) -> list[str]:
    """One line for each operator, without the names that were made up."""
    lines = ["  " * depth + _words(operator)]
    for one in inputs(operator):
        lines += outline(one, depth + 1)
    return lines


def shape(query: str) -> list[str]:
    return outline(tree(query))


def _words(operator: Operator) -> str:
    match operator:
        case Scan():
            return f"scan {operator.table}({', '.join(name for _, name in operator.columns)})"
        case Select():
            return "select" if operator.condition is None else "select where"
        case Join() | OuterJoin():
            kind = operator.kind if isinstance(operator, OuterJoin) else "inner"
            on = " and more" if operator.condition is not None else ""
            return f"{kind} join on {len(operator.keys)}{on}"
        case Aggregate():
            return f"aggregate by {len(operator.groups)}: " + ", ".join(
                one.function for one in operator.measures
            )
        case Merge():
            return f"merge of {len(operator.inputs)}"
        case Left():
            return f"left on {len(operator.keys)}"
        case Anti():
            return f"anti on {len(operator.keys)}"
        case Once():
            return "once"
        case Leaf():
            return f"leaf {operator.number}"
        case Generate():
            return "generate"
        case Window():
            return f"window by {len(operator.partition)}"
        case Top():
            return f"top {operator.limit} after {operator.offset}"
        case Distinct():
            return "distinct"
        case SetOperation():
            return f"{operator.kind}{' all' if operator.all else ''}"
        case GroupingSets():
            return f"grouping sets {operator.sets}"
