"""Chunks as bodies: what is sent at once follows from the rows alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.sinks.receivers import define

from tidelock.deliver.destinations.http import destination as http
from tidelock.deliver.destinations.http.destination import HttpSink, divide_lines, verdict_on
from tidelock.deliver.destinations.protocol import Piece, SentChunk
from tidelock.model.sinks import Chunk

SCHEMA = pa.schema([("text", pa.string())])


def batches(texts: list[str | None], cuts: list[int]) -> Iterator[pa.RecordBatch]:
    whole = pa.record_batch({"text": pa.array(texts, pa.string())})
    bounds = sorted({0, len(texts), *(cut % (len(texts) + 1) for cut in cuts)})
    for begin, end in pairwise(bounds):
        yield whole.slice(begin, end - begin)


@given(
    texts=st.lists(st.none() | st.text(max_size=40), min_size=1, max_size=60),
    cuts=st.lists(st.integers(0, 1000), max_size=8),
    size_bytes_max=st.integers(1, 300),
)
def test_bodies_do_not_depend_on_batches_and_hold_each_row_once(
    texts: list[str | None], cuts: list[int], size_bytes_max: int
) -> None:
    found = list(divide_lines(batches(texts, cuts), size_bytes_max))
    assert found == list(divide_lines(batches(texts, []), size_bytes_max))
    rows = [json.loads(line)["text"] for _, body in found for line in body.splitlines()]
    assert rows == texts
    for (count, body), following in zip(found, [*found[1:], None], strict=True):
        lines = body.splitlines(keepends=True)
        assert len(lines) == count >= 1
        assert len(body) <= size_bytes_max or count == 1
        if following is not None:
            # As many lines as fit: the next one would have been too much.
            assert len(body) + len(following[1].splitlines(keepends=True)[0]) > size_bytes_max


def pieces(texts: list[str | None]) -> list[Piece]:
    chunk = SentChunk("hook-1", "inserts", "", Chunk(-1, len(texts) - 1, len(texts)), 1, SCHEMA)
    return list(
        HttpSink.open(define("hook", "http", "http://127.0.0.1:1/")).divide(
            chunk, batches(texts, [3])
        )
    )


def test_a_small_chunk_is_one_piece_with_the_id_of_the_chunk() -> None:
    (piece,) = pieces(["a", None, "c", "d"])
    assert piece.id == "hook-1//0000000000000000000-0000000000000000003@0"
    assert piece.rows == 4


def test_a_large_chunk_is_numbered_and_a_large_row_goes_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "BODY_BYTES_MAX", 60)
    found = pieces(["a", "b", "x" * 200, "c", "d", "e", "f"])
    assert [piece.id.rpartition(".")[2] for piece in found] == ["1", "2", "3"]
    assert [piece.rows for piece in found] == [2, 1, 4]


@pytest.mark.parametrize(
    ("verdict", "statuses"),
    [
        ("taken", [200, 201, 202, 204, 299]),
        ("busy", [429, 503]),
        ("unauthorized", [401]),
        ("refused", [400, 402, 403, 404, 405, 409, 410, 413, 415, 422, 431, 451, 499]),
        ("failed", [408, 425, 500, 501, 502, 504, 507, 599, 600, 999, 300, 304]),
    ],
)
def test_every_status_has_its_meaning(verdict: str, statuses: list[int]) -> None:
    assert {verdict_on(status) for status in statuses} == {verdict}
