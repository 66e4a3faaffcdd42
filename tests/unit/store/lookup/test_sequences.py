"""Rows by their sequence: in commit order, each once, through whatever a table goes through."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidelock
from tidelock import Lake
from tidelock.store.lookup import by_sequence
from tidelock.store.lookup.by_sequence import (
    NOTHING,
    SEQUENCE,
    find_stretches,
    newest_fragment,
    read_rows,
    sequences_in,
)
from tidelock.store.tables.fragments import Dataset

DDL = "id BIGINT NOT NULL, x BIGINT"


def dataset_of(lake: Lake) -> Dataset:
    return lake.table("t").dataset


def truth(dataset: Dataset) -> dict[int, tuple[int, int]]:
    """Every row by its row id, read whole."""
    rows = dataset.to_table(with_row_id=True).to_pylist()
    return {row["_rowid"]: (row["id"], row["x"]) for row in rows}


def read(dataset: Dataset, after: int, until: int, newer_than: int = -1) -> pa.Table:
    stretches = find_stretches(dataset, after, newer_than)
    batches = list(read_rows(dataset, stretches, after, until, ["id", "x"]))
    assert all(batch.num_rows for batch in batches)
    return (
        pa.Table.from_batches(batches) if batches else pa.table({"id": [], "x": [], SEQUENCE: []})
    )


def check(dataset: Dataset, chance: random.Random) -> None:
    """Any range gives its rows, in order; what is told without reading agrees."""
    expected = truth(dataset)
    top = max(expected, default=NOTHING)
    for after, until in [(NOTHING, top), *((chance.randint(-1, top), top) for _ in range(3))]:
        for end in (until, chance.randint(after, max(after, until))):
            wanted = sorted(one for one in expected if after < one <= end)
            found = read(dataset, after, end)
            assert found.column(SEQUENCE).to_pylist() == wanted
            rows = zip(found.column("id").to_pylist(), found.column("x").to_pylist(), strict=True)
            assert list(rows) == [expected[one] for one in wanted]
            stretches = find_stretches(dataset, after)
            told = [sequences_in(dataset, one, after, end) for one in stretches]
            assert [int(one) for found in told for one in found] == wanted
    whole = find_stretches(dataset)
    assert sum(one.rows for one in whole) == len(expected)
    assert all(one.last < following.first for one, following in pairwise(whole))


@pytest.mark.parametrize("seed", range(4))
def test_rows_are_found_by_sequence_whatever_the_table_went_through(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_sequence, "READ_ROWS", 7)
    chance = random.Random(seed)
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        lake.create_table("t", DDL, key="id")
        highest = NOTHING
        for number in range(14):
            known = set(truth(dataset_of(lake)))
            fragment = newest_fragment(dataset_of(lake))
            step(lake, chance, number)
            now = truth(dataset_of(lake))
            # Rows that came have sequences above all that ever were, and lie in newer fragments.
            came = set(now) - known
            assert all(one > highest for one in came)
            if came:
                later = read(dataset_of(lake), highest, max(came), newer_than=fragment)
                assert set(later.column(SEQUENCE).to_pylist()) == came
            highest = max([highest, *came])
            check(dataset_of(lake), chance)


def step(lake: Lake, chance: random.Random, number: int) -> None:
    def rows(ids: Any) -> list[dict[str, int]]:
        return [{"id": one, "x": number} for one in ids]

    fresh = rows(range(number * 100, number * 100 + chance.randint(1, 40)))
    old = rows(chance.sample(range(number * 100 + 1), min(20, number + 1)))
    match chance.choice(
        ["append", "append", "upsert", "update", "delete", "optimize", "overwrite"]
    ):
        case "append":
            lake.run(lambda tx: tx.append("t", fresh))
        case "upsert":
            lake.run(lambda tx: tx.upsert("t", old))
        case "update":
            lake.run(lambda tx: tx.update("t", {"x": "x + 1000"}, where=f"x < {number}"))
        case "delete":
            lake.run(lambda tx: tx.delete("t", where=f"x = {chance.randrange(number + 1)}"))
        case "overwrite":
            lake.run(lambda tx: tx.overwrite("t", fresh[:3]))
        case "optimize":
            lake.optimize()


def test_an_empty_table_has_no_stretch(tmp_path: Path) -> None:
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        lake.create_table("t", DDL)
        assert find_stretches(dataset_of(lake)) == ()
        assert newest_fragment(dataset_of(lake)) == -1
        assert read(dataset_of(lake), NOTHING, 10).num_rows == 0


def test_rows_of_any_size_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        lake.create_table("t", "id BIGINT, x BINARY")
        wide = pa.table(
            {"id": range(64), "x": [np.random.default_rng(n).bytes(1 << 20) for n in range(64)]}
        )
        lake.run(lambda tx: tx.append("t", wide))
        dataset = dataset_of(lake)
        sizes = [
            batch.nbytes
            for batch in read_rows(dataset, find_stretches(dataset), NOTHING, 63, ["id", "x"])
        ]
        assert len(sizes) >= 4
        assert max(sizes) <= 2 * by_sequence.READ_BYTES
