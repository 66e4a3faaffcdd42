"""The forms that rows are written in."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from tidelock.cli.show.results import write_rows


def test_csv_has_decimals_in_digits_and_all_else_as_sinks_write_it(tmp_path: Path) -> None:
    moment = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
    rows = pa.table(
        {
            "d": pa.array([Decimal("0.00000001"), None], pa.decimal128(20, 10)),
            "f": pa.array([1e300, None]),
            "t": pa.array([moment, None], pa.timestamp("us", "UTC")),
            "s": pa.array(['say "hi"', ""]),
            "l": pa.array([[1, 2], None]),
            "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
            "i": pa.array([dt.timedelta(seconds=1), None]),
            "n": pa.nulls(2),
        }
    )
    write_rows(rows, "csv", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == (
        '"d","f","t","s","l","m","i","n"\n'
        '0.0000000100,1e+300,"2026-03-01T12:00:00Z","say ""hi""","[1,2]",'
        '"{""k"":1}","0:00:01",\n'
        ',,,"",,,,\n'
    )


def test_csv_without_rows_is_a_header(tmp_path: Path) -> None:
    write_rows(pa.table({"a": pa.array([], pa.int64())}), "csv", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == '"a"\n'
