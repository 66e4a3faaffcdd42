"""Days and moments.

    date          2024-07-01
    timestamp     2024-07-01 10:00:00.12         as many digits of the second as there are
    timestamptz   2024-07-01 10:00:00.12+00      in UTC, which the session asks for

The lake's types go from year 1 to year 9999, as Spark's do. What PostgreSQL has beyond them is not
held: infinity, -infinity, 0044-03-15 BC, 12345-01-01. Both count in the proleptic Gregorian
calendar and in microseconds, so between the two years nothing is lost.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelock.ingest.postgres.types.converters import CastConverter, Malformed
from tidelock.model.types import TIMESTAMP, TIMESTAMP_NTZ

_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r" [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
_FAR_DAY = r"[0-9]{4,7}-[0-9]{2}-[0-9]{2}"
_YEAR_1_DAYS = (date.min - date(1970, 1, 1)).days
_SECOND_US = 1_000_000
_YEAR_1_US = _YEAR_1_DAYS * 86_400 * _SECOND_US


class _Times(CastConverter):
    """What days and moments share: the span of years, and how what is beyond it is written."""

    least: int
    """The first of the type that the lake holds, as the number that it is."""
    usual: str
    beyond = ("infinity", "-infinity")
    far: re.Pattern[str]
    expected: str

    def cast(self, texts: pa.Array) -> pa.Array:
        values = texts.cast(self.type)
        count = pa.int64() if self.type.bit_width == 64 else pa.int32()
        first = pc.min(values.cast(count)).as_py()
        if first is not None and first < self.least:
            raise pa.ArrowInvalid("year 0 is none of PostgreSQL's")
        return values

    def read(self, text: str) -> date | None:
        if re.search(self.usual, text):
            try:
                return self.parse(text)
            except ValueError:
                raise Malformed(text, self.expected) from None
        if self.far.fullmatch(text) is None:
            raise Malformed(text, self.expected)
        return None

    def parse(self, text: str) -> date:
        return datetime.fromisoformat(text)


@dataclass(frozen=True)
class Dates(_Times):
    type = pa.date32()
    least = _YEAR_1_DAYS
    usual = f"^{_DAY}$"
    far = re.compile(rf"{_FAR_DAY}( BC)?", re.ASCII)
    expected = "a day"

    def parse(self, text: str) -> date:
        return date.fromisoformat(text)

    def texts(self, values: pa.Array) -> pa.Array:
        return values.cast(pa.string())


@dataclass(frozen=True)
class LocalMoments(_Times):
    type = TIMESTAMP_NTZ
    least = _YEAR_1_US
    usual = f"^{_DAY}{_TIME}$"
    far = re.compile(rf"{_FAR_DAY}{_TIME}( BC)?", re.ASCII)
    expected = "a moment without a zone"

    def texts(self, values: pa.Array) -> pa.Array:
        return _moment_texts(values)


@dataclass(frozen=True)
class Moments(_Times):
    type = TIMESTAMP
    least = _YEAR_1_US
    usual = rf"^{_DAY}{_TIME}\+00$"
    far = re.compile(rf"{_FAR_DAY}{_TIME}\+00( BC)?", re.ASCII)
    expected = "a moment in UTC"

    def texts(self, values: pa.Array) -> pa.Array:
        local = _moment_texts(values.cast(TIMESTAMP_NTZ))
        return pc.binary_join_element_wise(local, "+00", "")


def _moment_texts(moments: pa.Array) -> pa.Array:
    """Arrow prints all digits of a second or none; PostgreSQL none that are 0 at the end."""
    numbers = pc.fill_null(moments.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    fractions = numbers % _SECOND_US
    if not fractions.any():
        return moments.cast(pa.timestamp("s")).cast(pa.string())
    told = moments.cast(pa.string())
    if (fractions % 10 != 0).all():
        return told
    short = pc.ascii_rtrim(told, "0")
    whole = fractions == 0
    if not whole.any():
        return short
    seconds = moments.cast(pa.timestamp("s"), safe=False).cast(pa.string())
    return pc.if_else(pa.array(np.asarray(whole)), seconds, short)
