"""Rows keep the order of their ids through folds, whatever was committed meanwhile."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.support.lakes import seed_of

import tidelock
from tidelock import Lake
from tidelock.store.changes.changes import live_row_ids
from tidelock.store.upkeep import row_order


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = tidelock.open(tmp_path / "lake", create=True)
    lake.create_table("t", "a BIGINT", key=["a"])
    return lake


def fragments_of(lake: Lake) -> dict[int, list[int]]:
    """The row ids of each fragment, in the order of its rows."""
    dataset = lake._store.files.read(lake._store.branches.head("main").tables["t"])
    ids = [fragment.fragment_id for fragment in dataset.get_fragments()]
    return {one: live_row_ids(dataset, one).tolist() for one in ids}


def test_what_is_folded_beside_commits_has_ascending_row_ids(lake: Lake) -> None:
    for number in range(400):
        lake.run(lambda tx, number=number: tx.append("t", [{"a": number}]))
    lake._store.chores.finish(30)
    folded = [ids for ids in fragments_of(lake).values() if len(ids) > 1]
    assert folded
    assert all(ids == sorted(ids) for ids in folded)


@pytest.mark.parametrize("sorted_bytes_max", [0, 1 << 20])
def test_rows_come_in_the_order_of_their_ids(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, sorted_bytes_max: int
) -> None:
    with seed_of() as seed:
        chance = random.Random(seed)
        monkeypatch.setattr("tidelock.store.upkeep.maintenance.fold_is_due", lambda *_: False)
        for start in range(0, 6000, 1000):
            rows = [{"a": start + n} for n in range(1000)]
            lake.run(lambda tx, rows=rows: tx.append("t", rows))
        # Updated rows keep their ids, in fragments of their own; deleted ones leave holes.
        for _ in range(4):
            keys = chance.sample(range(6000), 300)
            lake.run(lambda tx, keys=keys: tx.upsert("t", [{"a": key} for key in keys]))
            gone = chance.randrange(6000)
            lake.run(lambda tx, gone=gone: tx.delete("t", f"a BETWEEN {gone} AND {gone + 50}"))
        monkeypatch.setattr(row_order, "SORTED_BYTES_MAX", sorted_bytes_max)
        state = lake._store.branches.head("main").tables["t"]
        dataset = lake._store.files.read(state)
        fragments = chance.sample(dataset.get_fragments(), len(dataset.get_fragments()))
        batches = list(row_order.rows_in_order(dataset, fragments))
        found = pa.Table.from_batches(batches)
        wanted = dataset.scanner(with_row_id=True).to_table()
        assert found.sort_by("a") == wanted.sort_by("a").select(found.column_names)
        if sorted_bytes_max:
            assert row_order.is_ascending(found.column("_rowid").to_numpy())


def test_streams_are_merged_without_reading_them_whole() -> None:
    class Rows(row_order._Rows):
        def __init__(self, *parts: list[int]) -> None:
            self._batches = iter(
                [pa.record_batch({"_rowid": np.array(part, np.uint64)}) for part in parts]
            )
            self.batch = None
            self.advance()

    streams = [Rows([0, 1, 2, 9], [], [10, 30]), Rows([3, 4], [5, 31]), Rows(), Rows([6])]
    merged = [batch.column("_rowid").to_pylist() for batch in row_order._merged(list(streams))]
    assert [*itertools.chain(*merged)] == [0, 1, 2, 3, 4, 5, 6, 9, 10, 30, 31]
    assert max(map(len, merged)) < 9


def test_a_lake_that_nobody_closed_ends_in_silence(tmp_path: Path) -> None:
    script = (
        "import sys, tidelock\n"
        "lake = tidelock.open(sys.argv[1], create=True)\n"
        "lake.create_table('t', 'a BIGINT', key=['a'])\n"
        "for n in range(48):\n"
        "    lake.run(lambda tx: tx.append('t', [{'a': n}]))\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "lake")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
