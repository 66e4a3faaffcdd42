"""Texts are kept as they are, bytes and booleans by what is spelt; nothing else is taken."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.ingest.postgres.pg_types import BOOL, BYTEA, TEXT, column, converted, values_of

from tidelock.errors import WrongType
from tidelock.ingest.postgres.types import PgType, convert, map_column


def test_booleans_are_one_letter() -> None:
    assert values_of(BOOL, "t", None, "f") == [True, None, False]


@pytest.mark.parametrize("text", ["", "true", "T", "1", "tt", " t"])
def test_what_is_no_boolean_is_refused(text: str) -> None:
    with pytest.raises(WrongType, match="t or f"):
        converted(BOOL, "t", text)


def test_bytes_are_read_from_their_digits() -> None:
    texts = ["\\xdeadbeef", "\\x", None, "\\x00", "\\x5c78", "\\x" + "ff" * 1000]
    assert values_of(BYTEA, *texts)[:5] == [b"\xde\xad\xbe\xef", b"", None, b"\0", b"\\x"]
    assert values_of(BYTEA, None, None) == [None, None]
    assert values_of(BYTEA) == []


@given(st.lists(st.binary() | st.none()))
def test_any_bytes_are_given_back(values: list[bytes | None]) -> None:
    texts = [None if one is None else "\\x" + one.hex() for one in values]
    assert values_of(BYTEA, *texts) == values


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\\",
        "x00",
        "\\x0",
        "\\xDE",
        "\\x0g",
        "\\000\\377A",
        "00\\x",
        "ab",
        "\\x00\\x00",
        "\\x é",
    ],
)
def test_what_are_no_digits_of_bytes_is_refused_and_named(text: str) -> None:
    with pytest.raises(WrongType) as refused:
        converted(BYTEA, "\\xab", None, text, "\\xcd")
    assert refused.value.values == [text]


@given(st.lists(st.text() | st.none()))
def test_any_text_is_itself(texts: list[str | None]) -> None:
    assert values_of(TEXT, *texts) == texts


@pytest.mark.parametrize(
    ("oid", "name", "text"),
    [
        (1042, "character(5)", "a    "),
        (2950, "uuid", "00000000-0000-0000-0000-000000000000"),
        (114, "json", '{"a" : 1,\n "a":2}'),
        (1186, "interval", "1 year 2 mons -3 days +04:05:06.789"),
        (1266, "time with time zone", "24:00:00-15:59:59"),
        (3904, "int4range", "empty"),
        (99_999, "somebody.s_own", ""),
    ],
)
def test_what_has_no_type_in_spark_is_its_text(oid: int, name: str, text: str) -> None:
    assert values_of(PgType(oid, name), text, None) == [text, None]


def test_bytes_that_are_no_text_are_refused_and_named() -> None:
    given_bytes = pa.array([b"good", b"\xff\xfe", b"good"]).view(pa.string())
    for type_ in (TEXT, BOOL, BYTEA):
        with pytest.raises(WrongType, match="UTF-8") as refused:
            convert(given_bytes, map_column(column(type_)))
        assert refused.value.values == [b"\xff\xfe"]


def test_a_null_may_lie_over_bytes_of_any_kind() -> None:
    # As a decoder may leave them.
    texts = pa.Array.from_buffers(
        pa.string(),
        2,
        [
            pa.py_buffer(b"\2"),
            pa.py_buffer(np.array([0, 3, 7], np.int32)),
            pa.py_buffer(b"odd\\x00"),
        ],
    )
    values, kept = convert(texts, map_column(column(BYTEA)))
    assert (values.to_pylist(), kept) == ([None, b"\0"], None)


def test_large_texts_are_taken_like_others() -> None:
    texts = pa.array(["\\x00", None], pa.large_string())
    assert convert(texts, map_column(column(BYTEA)))[0].to_pylist() == [b"\0", None]
    assert convert(texts, map_column(column(TEXT)))[0].type == pa.string()


def test_a_long_value_is_shown_cut_and_told_whole() -> None:
    with pytest.raises(WrongType) as refused:
        converted(BOOL, "x" * 1000)
    assert len(str(refused.value)) < 400
    assert refused.value.values == ["x" * 1000]
