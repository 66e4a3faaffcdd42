"""Times without a zone are read in the session's, whatever form the rows come in."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pyarrow as pa
import pytest

import tidelock
from tidelock.errors import WrongType
from tidelock.model.ddl import parse_schema
from tidelock.store.rows.inputs import read_input

BERLIN = "Europe/Berlin"
SCHEMA = parse_schema("t TIMESTAMP")
# Summer, winter, an hour that a clock change skips, and one that it repeats.
LOCAL = [
    dt.datetime(2026, 7, 1, 12),
    dt.datetime(2026, 1, 1, 12),
    dt.datetime(2026, 3, 29, 2, 30),
    dt.datetime(2026, 10, 25, 2, 30),
    None,
]
INSTANTS = [
    dt.datetime(2026, 7, 1, 10, tzinfo=dt.UTC),
    dt.datetime(2026, 1, 1, 11, tzinfo=dt.UTC),
    dt.datetime(2026, 3, 29, 1, 30, tzinfo=dt.UTC),
    dt.datetime(2026, 10, 25, 0, 30, tzinfo=dt.UTC),
    None,
]


def arrow(unit: str = "us") -> pa.Table:
    return pa.table({"t": pa.array(LOCAL, pa.timestamp(unit))})


FORMS: dict[str, Callable[[], Any]] = {
    "dicts": lambda: [{"t": value} for value in LOCAL],
    "dict of lists": lambda: {"t": LOCAL},
    "table": arrow,
    "seconds": lambda: arrow("s"),
    "nanoseconds": lambda: arrow("ns"),
    "reader": lambda: arrow().to_reader(),
    "iterator": lambda: iter(arrow().to_batches()),
    "dictionary": lambda: pa.table({"t": arrow()["t"].combine_chunks().dictionary_encode()}),
    "pandas": lambda: pandas.DataFrame({"t": LOCAL}),
    "numpy": lambda: {"t": arrow()["t"].to_numpy()},
}


def read(data: Any, schema: Any = SCHEMA, zone: str = BERLIN) -> list[dict[str, Any]]:
    batches = read_input(data, schema, "t", zone).batches()
    return pa.Table.from_batches(batches, schema=schema.arrow).to_pylist()


@pytest.mark.parametrize("form", FORMS)
def test_a_time_without_a_zone_is_read_in_the_sessions(form: str) -> None:
    assert [row["t"] for row in read(FORMS[form]())] == INSTANTS


def test_a_time_with_a_zone_is_that_instant() -> None:
    rows = [{"t": value} for value in INSTANTS]
    assert [row["t"] for row in read(rows)] == INSTANTS
    table = pa.table({"t": pa.array(INSTANTS, pa.timestamp("us", "America/New_York"))})
    assert [row["t"] for row in read(table)] == INSTANTS


def test_times_inside_of_nested_columns_are_read_the_same() -> None:
    schema = parse_schema("c STRUCT<a: ARRAY<TIMESTAMP>, m: MAP<STRING, TIMESTAMP>>")
    rows = [{"c": {"a": LOCAL, "m": [("k", LOCAL[0])]}}]
    wanted = [{"c": {"a": INSTANTS, "m": [("k", INSTANTS[0])]}}]
    assert read(rows, schema) == wanted
    naive = pa.timestamp("us")
    type_ = pa.struct([("a", pa.list_(naive)), ("m", pa.map_(pa.string(), naive))])
    assert read(pa.table({"c": pa.array([rows[0]["c"]], type_)}), schema) == wanted


def test_a_local_time_stays_one_in_a_column_without_a_zone() -> None:
    schema = parse_schema("t TIMESTAMP_NTZ")
    for form in ("dicts", "table"):
        assert [row["t"] for row in read(FORMS[form](), schema)] == LOCAL


@pytest.mark.parametrize("form", ["dicts", "table"])
def test_dates_and_instants_meet_at_the_sessions_midnight(form: str) -> None:
    def given(value: Any, type_: pa.DataType) -> Any:
        return [{"t": value}] if form == "dicts" else pa.table({"t": pa.array([value], type_)})

    day, midnight = dt.date(2026, 7, 1), dt.datetime(2026, 6, 30, 22, tzinfo=dt.UTC)
    assert read(given(day, pa.date32())) == [{"t": midnight}]
    dates, instants = parse_schema("t DATE"), pa.timestamp("us", "UTC")
    assert read(given(midnight, instants), dates) == [{"t": day}]
    with pytest.raises(WrongType):
        read(given(midnight + dt.timedelta(hours=2), instants), dates)


def test_an_append_reads_times_in_the_zone_of_the_lakes_engine(tmp_path: Path) -> None:
    conf = {"spark.sql.session.timeZone": BERLIN}
    with tidelock.open(tmp_path / "lake", create=True, conf=conf) as lake:
        lake.create_table("t", "t TIMESTAMP")
        lake.run(lambda tx: tx.append("t", [{"t": LOCAL[0]}]))
        assert lake.table("t").to_arrow().to_pylist() == [{"t": INSTANTS[0]}]
        # The filter reads its literal in the same zone, and none of this starts Spark.
        assert lake.table("t").count("t = TIMESTAMP '2026-07-01 12:00:00'") == 1
        assert not lake._engine.started
