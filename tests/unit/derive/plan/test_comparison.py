"""How columns are compared: what SQL is made for each type."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidelock.derive.spark.comparison import compare


@pytest.mark.parametrize(
    "kind", [pa.int64(), pa.string(), pa.binary(), pa.decimal128(38, 2), pa.list_(pa.int32())]
)
def test_what_engines_group_by_is_grouped_by_as_it_is(kind: pa.DataType) -> None:
    (one,) = compare(pa.schema([("a b", kind)]))
    assert (one.made, one.keys, one.value) == (None, ("`a b`",), "`a b`")


def test_a_number_is_grouped_by_with_how_its_zero_is_written() -> None:
    (one,) = compare(pa.schema([("f", pa.float32())]))
    assert one.made == "IF(`f` = 0, CAST(`f` AS STRING), NULL)"
    assert one.keys == ("`f`", one.alias)
    assert one.value == f"IF({one.alias} IS NULL, `f`, CAST({one.alias} AS FLOAT))"


def test_a_map_is_grouped_by_its_entries_in_order() -> None:
    (one,) = compare(pa.schema([("m", pa.map_(pa.string(), pa.int32()))]))
    entry = "named_struct('k', _x0.key, 'v', _x0.value)"
    assert one.made == f"array_sort(transform(map_entries(`m`), _x0 -> {entry}))"
    assert (one.keys, one.value) == ((one.alias,), "first(`m`)")


def test_types_within_types_are_compared_too() -> None:
    inner = pa.struct([("a", pa.int32()), ("f`g", pa.list_(pa.float64()))])
    (one,) = compare(pa.schema([("s", inner)]))
    zero = "IF(_x0 = 0, CAST(_x0 AS STRING), NULL)"
    numbers = f"transform(`s`.`f``g`, _x0 -> named_struct('v', _x0, 'z', {zero}))"
    assert one.made == f"IF(`s` IS NULL, NULL, named_struct('f0', `s`.`a`, 'f1', {numbers}))"
