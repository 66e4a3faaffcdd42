"""Layouts: which columns the table of a stage has, and the SQL that computes them.

Beside the columns that are shown, a stage's table holds columns of its own, which readers never
see:

    __tidelock_hash   a hash of the key (of all columns for a bag); how rows are found again
    __tidelock_k0…    the columns of the key that are not among those shown
    __tidelock_n      Groups: how many rows the group has
    __tidelock_s0…    Groups: the sums and counts that its measures are made of
    __tidelock_e0…    Groups: the least and greatest values that its measures are made of

Invariant: a row is found by its hash and then compared, so that equal hashes never mix up rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelock.derive.sql.operators import Measure
from tidelock.derive.stages import EXTREMES, Bag, Groups, Partitions, Stage
from tidelock.derive.weighted import WEIGHT
from tidelock.model.names import HIDDEN, ROW_HASH, quote

HASH = ROW_HASH
COUNT = f"{HIDDEN}n"
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
    """One additive part of a group's state, as SQL over the weighted body and over the state."""

    name: str
    sql: str
    kind: str
    wide: bool = False
    """Whether its values are so wide that their sum may not fit."""


@dataclass(frozen=True)
class Extreme:
    """The least or the greatest value of a group, as SQL over the weighted body."""

    name: str
    sql: str
    kind: str
    least: bool


@dataclass(frozen=True)
class Layout:
    """The table of one stage.

    `shown` are (column of the table, SQL over what the head gives); `keys` are (column of the
    table, column of the head); `types` are the Spark types of the body's columns.
    """

    shown: tuple[tuple[str, str], ...]
    keys: tuple[tuple[str, str], ...]
    sums: tuple[Sum, ...]
    finals: tuple[tuple[str, str], ...]
    """Of each measure: its name and the SQL over the sums that gives it."""
    hash: str
    """SQL over what the head gives."""
    extremes: tuple[Extreme, ...] = ()
    plain: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Of each measure that is just a count, or a sum: its name, and the sums that it is made of: a
    count alone, or a total and how many values went into it."""


def hash_sql(columns: Mapping[str, str]) -> str:
    """A hash of columns, given with their types, that every engine computes alike."""
    parts = []
    for column, kind in columns.items():
        if kind.startswith(("array", "map", "struct", "variant")):
            continue
        wide = kind.startswith("decimal") and _precision(kind) > 18
        parts.append(f"CAST({quote(column)} AS STRING)" if wide else quote(column))
    return f"xxhash64({', '.join(parts)})" if parts else "0L"


def lay_out(
    stage: Stage, names: tuple[str, ...], types: Mapping[str, str], results: Mapping[str, str]
) -> Layout:
    """The layout of a stage whose table shows `names`.

    `types` are the Spark types of the columns that the head gives, `results` those of the
    arguments of the measures, by the measure's name.
    """
    if stage.finish is None:
        shown = tuple(
            (name, quote(column)) for name, column in zip(names, stage.output, strict=True)
        )
        passed = dict(zip(stage.output, names, strict=True))
    else:
        columns = stage.finish.columns
        shown = tuple((name, one.sql) for name, one in zip(names, columns, strict=True))
        passed = {one.passed: name for name, one in zip(names, columns, strict=True) if one.passed}
    if isinstance(stage.head, Bag):
        return Layout(shown, (), (), (), hash_sql({name: types[name] for name in stage.kept}))
    keys = stage.head.groups if isinstance(stage.head, Groups) else stage.head.keys
    named = tuple((passed.get(key, f"{HIDDEN}k{number}"), key) for number, key in enumerate(keys))
    hashed = hash_sql({key: types[key] for key in keys})
    if isinstance(stage.head, Partitions):
        return Layout(shown, named, (), (), hashed)
    sums: list[Sum] = []
    extremes: list[Extreme] = []
    finals: list[tuple[str, str]] = []
    plain: list[tuple[str, tuple[str, ...]]] = []
    for measure in stage.head.measures:
        if measure.function in EXTREMES:
            final = _Final(_extreme(measure, results, extremes))
        else:
            final = _final(measure, results, sums)
        finals.append((measure.name, f"CAST({final.sql} AS {types[measure.name]})"))
        if final.plain:
            plain.append((measure.name, final.plain))
    return Layout(shown, named, tuple(sums), tuple(finals), hashed, tuple(extremes), tuple(plain))


def is_exact(measure: Measure, results: Mapping[str, str]) -> bool:
    """Whether moving its parts gives what computing it anew would give, to the last digit."""
    if measure.function in EXTREMES:
        return results[measure.name].partition("(")[0] in ORDERED
    if measure.function not in ("sum", "avg"):
        return True
    kind = results[measure.name]
    if kind.partition("(")[0] not in EXACT:
        return False
    if _precision(kind) + SUM_DIGITS < DIGITS_MAX:
        return True
    # Spark has rounding rules of its own for the average of wider ones.
    return measure.function == "sum" and _scale(kind) <= SCALE_KEPT


def _given(measure: Measure) -> str | None:
    """What the measure is taken of."""
    if measure.condition is None:
        return measure.argument
    return f"CASE WHEN {measure.condition} THEN {measure.argument or '1'} END"


def _extreme(measure: Measure, results: Mapping[str, str], extremes: list[Extreme]) -> str:
    name = f"{HIDDEN}e{len(extremes)}"
    kind, least = results[measure.name], measure.function == "min"
    extremes.append(Extreme(name, str(_given(measure)), kind, least))
    return quote(name)


@dataclass(frozen=True)
class _Final:
    """The SQL over the sums that gives a measure; the sums' names where that is all it is."""

    sql: str
    plain: tuple[str, ...] = ()


def _final(measure: Measure, results: Mapping[str, str], sums: list[Sum]) -> _Final:
    def add(sql: str, kind: str = "BIGINT", wide: bool = False) -> str:
        known = next((one.name for one in sums if one.sql == sql), None)
        if known is None:
            known = f"{HIDDEN}s{len(sums)}"
            sums.append(Sum(known, sql, kind, wide))
        return known

    given = _given(measure)
    values = f"IF(({given}) IS NULL, 0L, {WEIGHT})"
    if measure.function == "count":
        counted = add(WEIGHT if given is None else values)
        return _Final(quote(counted), (counted,))
    if measure.function == "count_if":
        counted = add(f"IF({given}, {WEIGHT}, 0L)")
        return _Final(quote(counted), (counted,))
    if measure.function == "bool_and":
        false, known = add(f"IF(({given}) = false, {WEIGHT}, 0L)"), add(values)
        return _Final(_of_values(known, f"{quote(false)} = 0"))
    if measure.function == "bool_or":
        true, known = add(f"IF({given}, {WEIGHT}, 0L)"), add(values)
        return _Final(_of_values(known, f"{quote(true)} > 0"))
    kind = results[measure.name]
    exact = kind if kind.startswith("decimal") else "decimal(20,0)"
    value = f"CAST({given} AS {exact})"
    # Weights are 1 or -1 here: changes come row by row.
    precision, scale = _precision(exact), _scale(exact)
    wide = precision + SUM_DIGITS > DIGITS_MAX
    digits = DIGITS_MAX if scale <= SCALE_KEPT else precision + SUM_DIGITS
    total = add(f"IF({WEIGHT} > 0, {value}, -{value})", f"DECIMAL({digits},{scale})", wide)
    known = add(values)
    if measure.function == "sum":
        return _Final(_of_values(known, quote(total)), (total, known))
    if kind.startswith("decimal"):
        # The types that Spark's own average divides.
        whole = f"CAST({quote(total)} AS DECIMAL({precision + SUM_DIGITS},{scale}))"
        quotient = f"{whole} / CAST({quote(known)} AS DECIMAL(20,0))"
    else:
        quotient = f"CAST({quote(total)} AS DOUBLE) / {quote(known)}"
    return _Final(_of_values(known, quotient))


def _of_values(known: str, sql: str) -> str:
    """A measure of no values is NULL."""
    return f"CASE WHEN {quote(known)} = 0 THEN NULL ELSE {sql} END"


def _precision(kind: str) -> int:
    return int(kind[len("decimal(") : -1].split(",")[0]) if kind.startswith("decimal") else 20


def _scale(kind: str) -> int:
    return int(kind[len("decimal(") : -1].split(",")[1]) if kind.startswith("decimal") else 0
