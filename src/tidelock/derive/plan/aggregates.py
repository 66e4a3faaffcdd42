"""Aggregates that follow from what is kept of a group and what changed: one entry each.

Owns: for each such aggregate the parts that a group keeps of it, how the aggregate is computed from
them, when that gives exactly what computing it anew would give, and the law that makes it so. Every
other aggregate is computed again for the groups that a change touches. A new one is an entry of
AGGREGATES and nothing else, as long as its parts are sums and extremes.

    part        after a change
    Sum         the sum that was kept, plus that of what came, minus that of what left
    Extreme     the outmost of what was kept and what came, as long as what left lies behind it;
                else the group is computed again
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tidelock.derive.algebra.operators import Measure
from tidelock.derive.plan.body_sql import WEIGHT

DIGITS_MAX = 38
SUM_DIGITS = 10
"""How many digits more than its values a sum has: enough for any number of rows."""
SCALE_KEPT = 6
"""Adding two decimals of DIGITS_MAX digits, Spark keeps no more than these behind the point."""
EXACT = frozenset({"tinyint", "smallint", "int", "bigint", "decimal"})
ORDERED = EXACT | {"boolean", "date", "string", "timestamp", "timestamp_ntz"}
"""The types of which every engine finds the same value least."""


@dataclass(frozen=True)
class Sum:
    """A number that is added up over a group; `sql` is over a row of the weighted body."""

    sql: str
    type: str = "BIGINT"
    wide: bool = False
    """Whether its values are so wide that their sum may not fit."""
    column: str = ""
    """The column that holds it, once the columns of the segment's table are planned."""


@dataclass(frozen=True)
class Extreme:
    """The least or the greatest value of a group; `sql` is over a row of the body."""

    sql: str
    type: str
    least: bool
    column: str = ""


Part: TypeAlias = Sum | Extreme


@dataclass(frozen=True)
class KeptAggregate:
    """How one aggregate is kept.

    `given` is the SQL of what it is taken of (None for all rows), `type` the Spark type of that.
    """

    law: str
    parts: Callable[[str | None, str], tuple[Part, ...]]
    """From given and type: what a group keeps."""
    final: Callable[[Sequence[str], str], str]
    """From the columns that hold the parts, as SQL, and type: the SQL of the aggregate."""
    is_exact: Callable[[str], bool] = lambda type_: True
    """Whether moving its parts gives what computing it anew would give, to the last digit."""
    final_here: Callable[[Sequence[pa.ChunkedArray]], pa.ChunkedArray] | None = None
    """The same as `final` over Arrow columns, where that is simple enough to spare the engine."""


def may_keep(measure: Measure) -> bool:
    """Whether the parts of a measure can be kept, if its type allows it (`is_exact`)."""
    return measure.function in AGGREGATES and not measure.distinct


def is_exact(measure: Measure, types: Mapping[str, str]) -> bool:
    """Whether a measure whose parts are moved never drifts.

    `types` are those of the measures' arguments, by the measure's name.
    """
    return AGGREGATES[measure.function].is_exact(types.get(measure.name, ""))


def parts_of(measure: Measure, types: Mapping[str, str]) -> tuple[Part, ...]:
    given = measure.argument
    if measure.condition is not None:
        given = f"CASE WHEN {measure.condition} THEN {measure.argument or '1'} END"
    return AGGREGATES[measure.function].parts(given, types.get(measure.name, ""))


# Parts -----------------------------------------------------------------------------------------


def _values(given: str | None) -> Sum:
    """How many values there are: rows, where nothing is given."""
    return Sum(WEIGHT if given is None else f"IF(({given}) IS NULL, 0L, {WEIGHT})")


def _true(given: str | None) -> Sum:
    return Sum(f"IF({given}, {WEIGHT}, 0L)")


def _false(given: str | None) -> Sum:
    return Sum(f"IF(({given}) = false, {WEIGHT}, 0L)")


def _total(given: str | None, type_: str) -> Sum:
    exact = type_ if type_.startswith("decimal") else "decimal(20,0)"
    value = f"CAST({given} AS {exact})"
    precision, scale = digits_of(exact)
    digits = DIGITS_MAX if scale <= SCALE_KEPT else precision + SUM_DIGITS
    wide = precision + SUM_DIGITS > DIGITS_MAX
    # Weights are 1 or -1 here: changes come row by row.
    return Sum(f"IF({WEIGHT} > 0, {value}, -{value})", f"DECIMAL({digits},{scale})", wide)


# Finals ----------------------------------------------------------------------------------------


def _of_values(count: str, sql: str) -> str:
    """A measure of no values is NULL."""
    return f"CASE WHEN {count} = 0 THEN NULL ELSE {sql} END"


def _average(total: str, count: str, type_: str) -> str:
    if not type_.startswith("decimal"):
        return _of_values(count, f"CAST({total} AS DOUBLE) / {count}")
    # The types that Spark's own average divides.
    precision, scale = digits_of(type_)
    whole = f"CAST({total} AS DECIMAL({precision + SUM_DIGITS},{scale}))"
    return _of_values(count, f"{whole} / CAST({count} AS DECIMAL(20,0))")


def _sum_here(parts: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    total, count = parts
    return pc.if_else(pc.equal(count, 0), pa.scalar(None, total.type), total)


# Exactness -------------------------------------------------------------------------------------


def _sum_is_exact(type_: str) -> bool:
    return _base(type_) in EXACT and (_fits(type_) or digits_of(type_)[1] <= SCALE_KEPT)


def _average_is_exact(type_: str) -> bool:
    # Spark has rounding rules of its own for the average of wider ones.
    return _base(type_) in EXACT and _fits(type_)


def _is_ordered(type_: str) -> bool:
    return _base(type_) in ORDERED


def _fits(type_: str) -> bool:
    return digits_of(type_)[0] + SUM_DIGITS < DIGITS_MAX


def _base(type_: str) -> str:
    return type_.partition("(")[0]


def digits_of(type_: str) -> tuple[int, int]:
    """The precision and the scale of an exact number."""
    if not type_.startswith("decimal"):
        return 20, 0
    precision, scale = type_[len("decimal(") : -1].split(",")
    return int(precision), int(scale)


AGGREGATES: Mapping[str, KeptAggregate] = {
    "count": KeptAggregate(
        law="count(X + D) = count(X) + count(D)",
        parts=lambda given, type_: (_values(given),),
        final=lambda columns, type_: columns[0],
        final_here=lambda columns: columns[0],
    ),
    "count_if": KeptAggregate(
        law="count_if(X + D) = count_if(X) + count_if(D)",
        parts=lambda given, type_: (_true(given),),
        final=lambda columns, type_: columns[0],
        final_here=lambda columns: columns[0],
    ),
    "sum": KeptAggregate(
        law="sum(X + D) = sum(X) + sum(D), NULL when no value is left",
        parts=lambda given, type_: (_total(given, type_), _values(given)),
        final=lambda columns, type_: _of_values(columns[1], columns[0]),
        is_exact=_sum_is_exact,
        final_here=_sum_here,
    ),
    "avg": KeptAggregate(
        law="avg(X) = sum(X) / count(X), and both add up",
        parts=lambda given, type_: (_total(given, type_), _values(given)),
        final=lambda columns, type_: _average(columns[0], columns[1], type_),
        is_exact=_average_is_exact,
    ),
    "bool_and": KeptAggregate(
        law="bool_and(X) = (count of false in X = 0), and the count adds up",
        parts=lambda given, type_: (_false(given), _values(given)),
        final=lambda columns, type_: _of_values(columns[1], f"{columns[0]} = 0"),
    ),
    "bool_or": KeptAggregate(
        law="bool_or(X) = (count of true in X > 0), and the count adds up",
        parts=lambda given, type_: (_true(given), _values(given)),
        final=lambda columns, type_: _of_values(columns[1], f"{columns[0]} > 0"),
    ),
    "min": KeptAggregate(
        law="min(X + D) = least(min(X), min(D)) while nothing that leaves is as little",
        parts=lambda given, type_: (Extreme(str(given), type_, least=True),),
        final=lambda columns, type_: columns[0],
        is_exact=_is_ordered,
    ),
    "max": KeptAggregate(
        law="max(X + D) = greatest(max(X), max(D)) while nothing that leaves is as great",
        parts=lambda given, type_: (Extreme(str(given), type_, least=False),),
        final=lambda columns, type_: columns[0],
        is_exact=_is_ordered,
    ),
}
