"""The core as Spark SQL over rows with weights: what the algebra says, computed the plain way.

Every row carries its weight in `_w`. Linear operators compute on weighted rows. Where an operator
is not linear, equal rows are consolidated and each is repeated as often as its weight says, so that
the function itself never sees a weight. A negative weight left at such a place is a broken law, and
stops the query.
"""

from __future__ import annotations

from tidelock.derive.sql.operators import (
    Aggregate,
    Core,
    Generate,
    Join,
    Merge,
    Operator,
    Scan,
    Select,
    Top,
    Window,
    inputs,
)
from tidelock.derive.sql.rendering import (
    Steps,
    aggregated,
    computed,
    lateral_view,
    listed,
    on,
    quoted,
    top,
    where,
)
from tidelock.errors import BrokenInvariant
from tidelock.model.names import quote

WEIGHT = "`_w`"


def render_weighted(core: Core) -> str:
    """A query for the rows of the core, each as often as its weight says."""
    steps = Steps(core)
    last = _repeated(core, steps)
    return steps.text(f"SELECT {listed(quoted(core.output))} FROM {last}")


def _weighted(operator: Operator, steps: Steps) -> str:
    known = steps.known(operator)
    return known if known is not None else steps.add(_sql(operator, steps), operator)


def _repeated(operator: Operator, steps: Steps) -> str:
    """The rows without weights, each as often as it counts."""
    below = _weighted(operator, steps)
    if _is_plain(operator):
        return below
    columns = quoted(operator.output)
    by = f" GROUP BY {', '.join(columns)}" if columns else ""
    consolidated = steps.add(
        f"SELECT {', '.join([*columns, f'sum({WEIGHT}) AS `_times`'])} FROM {below}{by} "
        f"HAVING sum({WEIGHT}) <> 0"
    )
    times = (
        "IF(`_times` > 0, sequence(1, CAST(`_times` AS INT)), "
        "CAST(raise_error('negative weight') AS ARRAY<INT>))"
    )
    return steps.add(
        f"SELECT {listed(columns)} FROM {consolidated} LATERAL VIEW explode({times}) g AS `_n`"
    )


def _is_plain(operator: Operator) -> bool:
    """Whether every weight is 1: nothing below was taken away from anything."""
    match operator:
        case Merge():
            return min(operator.signs) > 0 and all(_is_plain(one) for one in operator.inputs)
        case Select() | Generate() | Join():
            return all(_is_plain(one) for one in inputs(operator))
        case _:
            return True


def _sql(operator: Operator, steps: Steps) -> str:
    match operator:
        case Scan():
            columns = [f"{quote(original)} AS {quote(name)}" for name, original in operator.columns]
            return f"SELECT {', '.join([*columns, f'1L AS {WEIGHT}'])} FROM {quote(operator.table)}"
        case Select():
            below = _weighted(operator.input, steps)
            columns = [*computed(operator), WEIGHT]
            return f"SELECT {', '.join(columns)} FROM {below}{where(operator.condition)}"
        case Generate():
            below = _weighted(operator.input, steps)
            columns = [*quoted(operator.output), WEIGHT]
            return f"SELECT {', '.join(columns)} FROM {below} {lateral_view(operator)}"
        case Join():
            left, right = _weighted(operator.left, steps), _weighted(operator.right, steps)
            columns = [*quoted(operator.output), f"l.{WEIGHT} * r.{WEIGHT} AS {WEIGHT}"]
            return f"SELECT {', '.join(columns)} FROM {left} l JOIN {right} r ON {on(operator)}"
        case Merge():
            parts = []
            for one, sign in zip(operator.inputs, operator.signs, strict=True):
                renamed = [
                    f"{quote(old)} AS {quote(new)}"
                    for old, new in zip(one.output, operator.names, strict=True)
                ]
                columns = [*renamed, f"{sign} * {WEIGHT} AS {WEIGHT}"]
                parts.append(f"SELECT {', '.join(columns)} FROM {_weighted(one, steps)}")
            return " UNION ALL ".join(parts)
        case Aggregate():
            below = steps.add(aggregated(operator, _repeated(operator.input, steps)))
        case Window():
            rows = _repeated(operator.input, steps)
            columns = [*quoted(operator.input.output), *computed(operator)]
            below = steps.add(f"SELECT {listed(columns)} FROM {rows}")
        case Top():
            rows = _repeated(operator.input, steps)
            below = steps.add(
                f"SELECT {listed(quoted(operator.output))} FROM {rows} {top(operator)}"
            )
        case _:
            raise BrokenInvariant(f"{type(operator).__name__} is not in the core")
    return f"SELECT {', '.join([*quoted(operator.output), f'1L AS {WEIGHT}'])} FROM {below}"
