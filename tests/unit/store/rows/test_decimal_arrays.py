"""Numbers that become decimals, and decimals that become numbers: the same, or an error."""

from __future__ import annotations

import random
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tidelock.errors import WrongType
from tidelock.ingest.files.text import TextMisfit, array_from_text
from tidelock.model.ddl import parse_schema
from tidelock.store.rows.inputs import read_input

NARROW = {9: pa.decimal32, 18: pa.decimal64, 38: pa.decimal128, 76: pa.decimal256}


def is_held(value: Decimal | None, precision: int, scale: int) -> bool:
    if value is None:
        return True
    with localcontext(prec=200):
        scaled = value.scaleb(scale)
        whole = scaled == scaled.to_integral_value()
        return bool(value.is_finite() and whole and abs(scaled) < 10**precision)


def read(values: pa.Array, ddl: str) -> tuple[list[Any] | None, list[int]]:
    """What the values are in a column, or the rows that an error names."""
    try:
        given = read_input(pa.table({"a": values}), parse_schema(f"a {ddl}"), "t")
    except WrongType as error:
        return None, error.rows
    assert given.table is not None
    return given.table.column("a").to_pylist(), []


def drawn(chance: random.Random, digits: int, scale: int) -> Decimal | None:
    if chance.random() < 0.1:
        return None
    most = 10 ** chance.randint(1, digits)
    with localcontext(prec=200):
        return Decimal(chance.randrange(1 - most, most)).scaleb(-scale)


@pytest.mark.parametrize("digits", NARROW)
def test_a_decimal_is_the_same_in_its_column_or_named(digits: int) -> None:
    chance = random.Random(digits)
    for _ in range(400):
        scale = chance.randrange(digits)
        values = [drawn(chance, digits, scale) for _ in range(chance.randint(1, 8))]
        given = pa.array(values, NARROW[digits](digits, scale))
        if chance.random() < 0.5:
            hidden = pa.array([chance.random() < 0.4 for _ in values])
            given = pc.if_else(hidden, pa.scalar(None, given.type), given)
            values = given.to_pylist()
        precision = chance.randint(1, 38)
        held = chance.randint(0, precision)
        misfits = [n for n, value in enumerate(values) if not is_held(value, precision, held)]
        found, rows = read(given, f"DECIMAL({precision}, {held})")
        assert rows == misfits[:3]
        assert found == (None if misfits else values)


@pytest.mark.parametrize("digits", NARROW)
@pytest.mark.parametrize("column", ["TINYINT", "INT", "BIGINT"])
def test_a_decimal_is_an_integer_if_it_is_whole_and_in_range(digits: int, column: str) -> None:
    chance = random.Random(digits)
    bound = 1 << {"TINYINT": 7, "INT": 31, "BIGINT": 63}[column]
    for _ in range(150):
        scale = chance.choice([0, 0, 2, digits - 1])
        values = [drawn(chance, digits, scale) for _ in range(6)]
        values += [Decimal(n) for n in (-3, 0, 7)]
        misfits = [
            n
            for n, value in enumerate(values)
            if value is not None
            and (value != value.to_integral_value() or not -bound <= value < bound)
        ]
        found, rows = read(pa.array(values, NARROW[digits](digits, scale)), column)
        assert rows == misfits[:3]
        assert found == (None if misfits else [None if v is None else int(v) for v in values])


@pytest.mark.parametrize("digits", NARROW)
def test_a_decimal_becomes_the_nearest_double(digits: int) -> None:
    chance = random.Random(digits)
    for _ in range(150):
        scale = chance.randrange(digits)
        values = [drawn(chance, digits, scale) for _ in range(6)]
        found, _ = read(pa.array(values, NARROW[digits](digits, scale)), "DOUBLE")
        assert found == [None if value is None else float(value) for value in values]
    huge = pa.array([Decimal(1), Decimal(10) ** 45], pa.decimal256(60, 0))
    assert read(huge, "FLOAT") == (None, [1])


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_a_float_is_the_decimal_that_it_is_printed_as_or_named(kind: Any) -> None:
    chance = random.Random(str(kind))
    for _ in range(600):
        numbers = [
            kind(chance.choice([0, 1, -25, chance.random()]) * 10.0 ** chance.randint(-30, 30))
            for _ in range(chance.randint(1, 6))
        ]
        values = [Decimal(str(number)) for number in numbers]
        precision = chance.randint(1, 38)
        scale = chance.randint(0, precision)
        misfits = [n for n, value in enumerate(values) if not is_held(value, precision, scale)]
        found, rows = read(pa.array(numbers), f"DECIMAL({precision}, {scale})")
        assert rows == misfits[:3]
        assert found == (None if misfits else values)
    odd = pa.array([None, 1.5, float("nan"), float("inf")], pa.float64())
    assert read(odd, "DECIMAL(3, 1)") == (None, [2, 3])
    assert read(odd.slice(0, 1), "DECIMAL(3, 1)") == ([None], [])


def test_a_text_is_the_decimal_that_it_says_or_none() -> None:
    chance = random.Random(1)
    for _ in range(3000):
        value = drawn(chance, 40, chance.randrange(30)) or Decimal(0)
        precision = chance.randint(1, 38)
        scale = chance.randint(0, precision)
        text = str(value) if chance.random() < 0.2 else f"{value:f}"
        try:
            found = array_from_text(pa.array([text]), pa.decimal128(precision, scale))[0].as_py()
        except TextMisfit:
            found = None
        assert found == (value if is_held(value, precision, scale) else None)
