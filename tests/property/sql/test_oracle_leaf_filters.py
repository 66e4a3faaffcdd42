"""Rows that a leaf filter leaves out are rows for which the condition is not true in the engine.

Conditions are made at random of what is understood and what is not, over every type of column; the
engine has the last word on each.
"""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.support.lakes import seed_of

from tidelock.derive.plan.leaf_filters import find_tests, may_pass

COLUMNS: dict[str, tuple[pa.DataType, list[object]]] = {
    "i": (pa.int32(), [None, -3, 0, 1, 5, 2**31 - 1]),
    "l": (pa.int64(), [None, -3, 0, 1, 5, 2**40]),
    "y": (pa.int8(), [None, -3, 0, 1, 5, 127]),
    "a": (pa.decimal128(12, 2), [None, Decimal("-3.00"), Decimal("0.05"), Decimal("5.00")]),
    "s": (pa.string(), [None, "", "a", "A", "a ", "1994-01-01", "5", "ä"]),
    "d": (pa.date32(), [None, dt.date(1994, 1, 1), dt.date(1994, 12, 31), dt.date(1582, 10, 4)]),
    "f": (pa.float64(), [None, -3.0, 0.0, 5.0, 0.05, float("nan")]),
    "b": (pa.bool_(), [None, True, False]),
}
CONSTANTS = {
    "i": ["5", "-3", "0", "99999999999", "5.0", "0.5", "'5'", "CAST(5 AS INT)", "1 + 4"],
    "a": ["5", "0.05", "0.055", "-3", "-3.00", "5.0", "1e2", "0.06 - 0.01"],
    "s": ["'a'", "'A'", "''", "'1994-01-01'", "'ä'", "concat('a', '')"],
    "d": ["DATE '1994-01-01'", "'1994-01-01'", "DATE '1582-10-04'", "DATE '1994-01-01' + 364"],
    "f": ["5", "0.05", "-3.0"],
    "b": ["true", "false"],
}
COMPARISONS = ("=", "<", "<=", ">", ">=", "<>", "<=>")


def random_rows(chance: random.Random) -> pa.Table:
    arrays = {
        name: pa.array(chance.choices(values, k=60), kind)
        for name, (kind, values) in COLUMNS.items()
    }
    return pa.table({"n": pa.array(range(60)), **arrays})


def random_condition(chance: random.Random, depth: int = 0) -> str:
    if depth < 3 and chance.random() < 0.5:
        parts = [random_condition(chance, depth + 1) for _ in range(2)]
        joined = f"{parts[0]} {chance.choice(['AND', 'AND', 'AND', 'OR'])} {parts[1]}"
        return chance.choice([f"({joined})", f"({joined})", f"NOT ({joined})"])
    name = chance.choice(list(COLUMNS))
    constants = CONSTANTS.get(name, CONSTANTS["i"])
    form = chance.randrange(5)
    if form == 0:
        listed = ", ".join(chance.choices(constants, k=chance.randint(1, 3)))
        return f"`{name}` IN ({listed})"
    if form == 1:
        return f"`{name}` BETWEEN {chance.choice(constants)} AND {chance.choice(constants)}"
    sides = [f"`{name}`", chance.choice(constants)]
    if form == 2:
        sides.reverse()
    return f"{sides[0]} {chance.choice(COMPARISONS)} {sides[1]}"


def test_no_row_is_left_out_that_the_engine_would_keep(spark: SparkSession) -> None:
    with seed_of() as seed:
        chance = random.Random(seed)
        rows = random_rows(chance)
        spark.createDataFrame(rows).createOrReplaceTempView("leaf_rows")
        conditions = [random_condition(chance) for _ in range(120)]
        listed = ", ".join(f"{one} AS c{n}" for n, one in enumerate(conditions))
        truth = spark.sql(f"SELECT n, {listed} FROM leaf_rows ORDER BY n").toArrow()
        spark.catalog.dropTempView("leaf_rows")
        left_out = 0
        for number, condition in enumerate(conditions):
            kept = set(may_pass(rows, find_tests(condition)).column("n").to_pylist())
            true = truth.column(f"c{number}").to_pylist()
            wrong = [n for n, passes in enumerate(true) if passes and n not in kept]
            assert not wrong, f"{condition} keeps {rows.take(wrong).to_pylist()}"
            left_out += rows.num_rows - len(kept)
        assert left_out, "nothing was left out, so that nothing was tested"


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        ("`i` = 5", {"i": [5]}),
        ("5 > `i` AND `i` >= 0", {"i": [0, 1]}),
        ("`s` IN ('a', '')", {"s": ["", "a"]}),
        ("`d` BETWEEN DATE '1994-01-01' AND '1994-06-30'", {"d": [dt.date(1994, 1, 1)]}),
        ("(`a` > 0.01 AND `a` < 1)", {"a": [Decimal("0.05")]}),
        ("`i` = 5 OR `i` = 1", {"i": [None, -3, 0, 1, 5, 2**31 - 1]}),
        ("`a` > 0.055", {"a": [None, Decimal("-3.00"), Decimal("0.05"), Decimal("5.00")]}),
    ],
)
def test_comparisons_with_constants_are_understood(
    condition: str, kept: dict[str, list[object]]
) -> None:
    ((name, values),) = kept.items()
    kind, all_values = COLUMNS[name]
    rows = pa.table({name: pa.array(all_values, kind)})
    assert may_pass(rows, find_tests(condition)).column(name).to_pylist() == values
