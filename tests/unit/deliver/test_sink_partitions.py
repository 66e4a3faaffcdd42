"""Partition paths: one for each combination of values, safe as a folder, readable by Spark."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelock.deliver.destinations.partitions import (
    NULL,
    check_partition_by,
    folder_of,
    group_rows,
    path_of,
    path_of_folder,
    texts_of,
    values_of,
)
from tidelock.errors import InvalidOption, TidelockError
from tidelock.model.ddl import parse_schema
from tidelock.store.objects.kinds.keys import check_key

ODD = ["", ".", "..", "...", "/", "a/b", "%2F", "%", "=", "a=b", "'", '"', "ü", "日本", " ", "\\"]
ODD += [NULL, f"%5F{NULL[1:]}", NULL.lower(), "null", "#1", "x#1", "\n", "\0", "\x7f", "\ufffe"]
VALUES = st.one_of(st.none(), st.sampled_from(ODD), st.text(max_size=8))


@given(st.lists(VALUES, min_size=2, max_size=2), st.lists(VALUES, min_size=2, max_size=2))
def test_two_partitions_never_share_a_path(one: list[str | None], other: list[str | None]) -> None:
    columns = ["g", "a=b/c"]
    assert (path_of(columns, one) == path_of(columns, other)) == (one == other)


@given(st.lists(VALUES, min_size=1, max_size=3))
def test_a_path_gives_its_values_back_and_is_a_key_of_every_store(values: list[str | None]) -> None:
    columns = ["g", "größe", "a=b/c"][: len(values)]
    path = path_of(columns, values)
    assert values_of(path) == tuple(values)
    segments = path.split("/")
    assert len(segments) == len(values)
    assert not {"", ".", ".."} & set(segments)
    assert path.isascii()
    assert path.isprintable()
    check_key(f"{path}/0.parquet")


@given(st.lists(st.text(min_size=20, max_size=30), min_size=1, max_size=2), st.integers(1, 40))
def test_folders_have_names_that_fit_and_are_told_apart(texts: list[str], times: int) -> None:
    path = path_of(["g", "h"][: len(texts)], [text * times for text in texts])
    folder = folder_of(path)
    assert all(len(name.encode()) <= 255 for name in folder.split("/"))
    assert len(folder.split("/")) == len(texts)
    if path_of_folder(folder) is not None:
        assert path_of_folder(folder) == path
    else:
        assert folder != folder_of(
            path_of(["g", "h"][: len(texts)], [f"{t * times}x" for t in texts])
        )
        # Whoever knows the rule cannot make a value that lands in the folder of another.
        assert folder_of(path_of(["g"], [folder.split("/")[0].removeprefix("g=")])) != folder
        check_key(f"{folder}/0.parquet")


def test_letters_beyond_ascii_are_themselves_in_the_name_of_a_folder() -> None:
    assert folder_of(path_of(["größe"], ["日本/é 1%"])) == "größe=日本%2Fé 1%25"
    # Some file systems take these two for one name.
    composed, apart = (folder_of(path_of(["g"], [one])) for one in ("é", "e\u0301"))
    assert (composed, apart) == ("g=é", "g=e%CC%81")
    # What is not seen is encoded.
    assert folder_of(path_of(["g"], ["\u200b\n"])) == "g=%E2%80%8B%0A"


@given(st.lists(VALUES, min_size=2, max_size=2), st.lists(VALUES, min_size=2, max_size=2))
def test_two_partitions_never_share_a_folder(
    one: list[str | None], other: list[str | None]
) -> None:
    columns = ["g", "größe"]
    mine, theirs = (folder_of(path_of(columns, values)) for values in (one, other))
    assert (mine == theirs) == (one == other)
    assert path_of_folder(mine) == path_of(columns, one)
    check_key(f"{mine}/0.parquet")


def test_the_name_of_a_long_folder_stays_what_it_was() -> None:
    name = folder_of(path_of(["region"], ["é" * 300]))
    assert name.startswith("region=%C3%A9%C3%A9")
    assert name.endswith("%C3%~10b1e2d442f6f03fc5cb948b0d27985e")


def test_every_odd_value_is_a_partition_of_its_own() -> None:
    rows = pa.table({"g": [None, *ODD, *ODD, None], "n": range(2 * len(ODD) + 2)})
    found = group_rows(rows, ["g"])
    assert [values for values, _ in found] == sorted(
        [(None,), *((one,) for one in ODD)], key=lambda values: path_of(["g"], values)
    )
    for (value,), mine in found:
        assert mine.column("g").to_pylist() == [value, value]
        assert mine.column("n").to_pylist() == sorted(mine.column("n").to_pylist())


def test_values_of_every_kind_are_told_apart_as_text() -> None:
    moment = dt.datetime(2024, 5, 1, 12, 30, 0, 1)
    columns = {
        "numbers": (pa.int64(), [-(2**63), 2**63 - 1, 0]),
        "decimals": (pa.decimal128(38, 20), [Decimal("1E-20"), Decimal(0), Decimal("0.1")]),
        "truths": (pa.bool_(), [True, False]),
        "dates": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
        "moments": (
            pa.timestamp("us", "UTC"),
            [moment, moment.replace(microsecond=2), dt.datetime(1, 1, 1)],
        ),
        "times": (pa.timestamp("us"), [moment, moment.replace(microsecond=2)]),
    }
    for kind, values in columns.values():
        texts = texts_of(pa.chunked_array([pa.array([*values, None], kind)])).to_pylist()
        assert texts[-1] is None
        assert len(set(texts)) == len(values) + 1
        assert all(texts[:-1])


def test_columns_that_cannot_partition_are_refused() -> None:
    schema = parse_schema("g STRING, x DOUBLE, l ARRAY<INT>, b BINARY")
    assert check_partition_by("G", schema) == ("g",)
    assert check_partition_by(None, schema) == ()
    for wrong in ("x", "l", "b", ["g", "G"]):
        with pytest.raises(InvalidOption):
            check_partition_by(wrong, schema)
    with pytest.raises(TidelockError, match="'h'"):
        check_partition_by("h", schema)
