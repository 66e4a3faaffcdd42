"""What the text of a default means, and which texts are none."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from tidelock.errors import InputError
from tidelock.model.ddl import parse_schema
from tidelock.model.schema.defaults import Default, at_moment, moment_of, read_default

ZONE = "America/New_York"
MOMENT = dt.datetime(2020, 1, 1, 3, tzinfo=dt.UTC)


def default(ddl: str) -> Default:
    (column,) = parse_schema(f"a {ddl}").columns
    return read_default(column, "t", ZONE)


CONSTANTS: dict[str, Any] = {
    "INT DEFAULT 1 + 2 * 3": 7,
    "INT DEFAULT -(1 + 2)": -3,
    "INT DEFAULT 2.0": 2,
    "BIGINT DEFAULT 10L": 10,
    "DECIMAL(5,2) DEFAULT 1.5": Decimal("1.50"),
    "DECIMAL(5,2) DEFAULT 7": Decimal(7),
    "FLOAT DEFAULT 0.5": 0.5,
    "DOUBLE DEFAULT -3": -3.0,
    "STRING DEFAULT 'it''s'": "it's",
    "BOOLEAN DEFAULT true": True,
    "BINARY DEFAULT X'00ff'": b"\x00\xff",
    "DATE DEFAULT DATE '2020-02-29'": dt.date(2020, 2, 29),
    "TIMESTAMP DEFAULT DATE '2020-01-01'": dt.datetime(2020, 1, 1, 5, tzinfo=dt.UTC),
    "TIMESTAMP DEFAULT TIMESTAMP '2020-01-01 00:00:00'": dt.datetime(2020, 1, 1, 5, tzinfo=dt.UTC),
}


@pytest.mark.parametrize(("ddl", "value"), CONSTANTS.items())
def test_constants_are_computed_without_an_engine(ddl: str, value: Any) -> None:
    found = default(ddl)
    assert (found.kind, found.value) == ("constant", value)


MOMENTS = {
    "DATE DEFAULT current_date": dt.date(2019, 12, 31),
    "DATE DEFAULT CURRENT_DATE()": dt.date(2019, 12, 31),
    "TIMESTAMP DEFAULT now()": MOMENT,
    "TIMESTAMP DEFAULT current_date()": dt.datetime(2019, 12, 31, 5, tzinfo=dt.UTC),
    "TIMESTAMP_NTZ DEFAULT current_timestamp()": dt.datetime(2019, 12, 31, 22),
    "TIMESTAMP_NTZ DEFAULT localtimestamp()": dt.datetime(2019, 12, 31, 22),
    "DATE DEFAULT current_timestamp": dt.date(2019, 12, 31),
}


@pytest.mark.parametrize(("ddl", "value"), MOMENTS.items())
def test_the_time_is_that_of_the_transaction_in_the_sessions_zone(ddl: str, value: Any) -> None:
    found = default(ddl)
    assert found.kind == "moment"
    assert moment_of(found, MOMENT, ZONE) == value


def test_whatever_is_the_same_for_all_rows_is_left_to_the_engine() -> None:
    assert default("STRING DEFAULT uuid()").kind == "uuid"
    for ddl in (
        "DATE DEFAULT date_add(current_date(), 7)",
        "STRING DEFAULT current_user()",
        "ARRAY<INT> DEFAULT array(1, 2)",
        "STRING DEFAULT 'a' || 'b'",
        "INT DEFAULT 7 / 2",
    ):
        assert default(ddl).kind == "engine"
    asked = at_moment("date_add(current_date(), 7)", MOMENT, ZONE)
    assert asked == "date_add(CAST('2019-12-31' AS DATE), 7)"


REFUSED = {
    "INT DEFAULT b": "names a column, 'b'",
    "INT DEFAULT a": "names a column",
    "STRING DEFAULT basic": "Texts stand in quotes",
    "INT DEFAULT (SELECT 1)": "subquery",
    "INT DEFAULT sum(1)": "aggregate",
    "DOUBLE DEFAULT rand()": "answers differently for each row",
    "STRING DEFAULT concat('x', uuid())": "uuid() alone",
    "STRING DEFAULT my_function()": "not known to answer alike",
    "STRING DEFAULT input_file_name()": "not known to answer alike",
    "STRING DEFAULT raise_error('x')": "not known to answer alike",
    "INT DEFAULT 2147483647 + 1": "overflows",
    "TINYINT DEFAULT 300": "does not fit TINYINT",
    "INT DEFAULT 1.5": "does not fit INT",
    "DECIMAL(5,2) DEFAULT 1.505": "does not fit DECIMAL(5,2)",
    "INT DEFAULT '5'": "is of type STRING and does not fit INT",
    "STRING DEFAULT current_date()": "does not fit STRING",
    "INT DEFAULT uuid()": "does not fit INT",
    "INT DEFAULT 1 +": "not a Spark SQL expression",
    "INT DEFAULT true": "does not fit INT",
}


@pytest.mark.parametrize(("ddl", "says"), REFUSED.items())
def test_what_is_no_default_is_refused_with_its_column(ddl: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        default(ddl)
    assert says in str(caught.value)
    assert "The default of column 'a' of table 't'" in str(caught.value)
