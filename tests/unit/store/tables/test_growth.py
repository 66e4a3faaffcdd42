"""What large operations cost: as much as there are rows, not rows times batches or deletions.

Where work can be counted, it is; elsewhere it is measured in the processor's time, which other
processes do not change, with bounds that are far from both ways of doing it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidelock
from tidelock import Lake
from tidelock.deliver.feeds import row_pairs
from tidelock.store.lookup import by_key, by_sequence, key_numbers, wanted_keys
from tidelock.store.lookup.by_key import find_rows, match_keys, rows_by_id
from tidelock.store.lookup.key_numbers import is_among, slabs
from tidelock.store.operations.counts import Counts, Target
from tidelock.store.staging import staged_tables, writes
from tidelock.store.upkeep.maintenance import Compaction
from tidelock.store.upkeep.rewrite import Rewritten, rewrite

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("x", pa.int64())])


def rows(ids: Any, x: int = 0) -> pa.Table:
    return pa.table({"id": np.asarray(ids), "x": np.full(len(ids), x)}, schema=SCHEMA)


def filled(path: Path, count: int) -> Lake:
    lake = tidelock.open(path, create=True)
    lake.create_table("t", SCHEMA, key="id")
    with lake.transaction() as tx:
        tx.append("t", rows(np.random.default_rng(1).permutation(count)))
    return lake


def processor_seconds(function: Callable[[], Any]) -> float:
    began = time.process_time()
    function()
    return time.process_time() - began


class Hashed:
    """Stands for Arrow's kernels in a module, and counts the values that they hash."""

    def __init__(self) -> None:
        self.values = 0

    def __getattr__(self, name: str) -> Any:
        kernel = getattr(pc, name)
        if name not in ("index_in", "is_in"):
            return kernel

        def counted(values: Any, *, value_set: Any) -> Any:
            self.values += len(values) + len(value_set)
            return kernel(values, value_set=value_set)

        return counted


def test_keys_are_not_hashed_again_for_every_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 60_000
    hashed = Hashed()
    for module in (key_numbers, by_key):
        monkeypatch.setattr(module, "pc", hashed)
        monkeypatch.setattr(module, "PASS_BATCH_ROWS", 256, raising=False)
    monkeypatch.setattr(key_numbers, "SLAB_ROWS_MIN", 256)
    monkeypatch.setattr(wanted_keys, "KEYS_AT_ONCE", 16_384)
    with filled(tmp_path / "lake", count) as lake:
        dataset = lake.table("t").dataset
        wanted = np.arange(count // 2, count // 2 + count)
        hashed.values = 0
        match = match_keys(dataset, pa.table({"id": wanted}))
        assert sorted(match.positions.tolist()) == list(range(count // 2))
        assert hashed.values < 6 * count
        hashed.values = 0
        found = find_rows(dataset, "id", pa.array(wanted), ["id"])
        assert found is not None
        assert found.num_rows == count // 2
        assert hashed.values < 6 * count


def test_many_rows_are_found_again_by_their_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_key, "LOOKUP_KEYS_MAX", 10)
    monkeypatch.setattr(by_key, "PASS_BATCH_ROWS", 100)
    with filled(tmp_path / "lake", 1000) as lake:
        lake.run(lambda tx: tx.upsert("t", rows(range(0, 1000, 3), 7)))
        dataset = lake.table("t").dataset
        all_rows = dataset.to_table(with_row_id=True, with_row_address=True)
        ids, addresses = (all_rows.column(one).to_numpy() for one in ("_rowid", "_rowaddr"))
        chosen = np.random.default_rng(2).permutation(len(ids))[:400]
        wanted = np.concatenate([ids[chosen], np.array([5000], np.uint64)])
        assert sorted(rows_by_id(dataset, wanted)) == sorted(addresses[chosen])


def test_values_are_told_from_others_that_are_in_order() -> None:
    for ordered in ([], [3], [-5, 0, 3, 9]):
        values = np.array([-6, -5, 3, 4, 9, 10])
        expected = np.isin(values, ordered)
        assert is_among(values, np.array(ordered, dtype=np.int64)).tolist() == expected.tolist()
    assert not len(is_among(np.array([], np.int64), np.array([1])))


def test_slabs_hold_as_many_rows_as_were_asked_for_unless_those_are_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(key_numbers, "SLAB_ROWS_MIN", 2)
    batches = [pa.record_batch({"a": pa.array([n] * n, pa.int64())}) for n in (3, 0, 1, 4, 2, 5)]
    assert [one.num_rows for one in slabs(batches, 4)] == [4, 4, 7]
    assert [one.num_rows for one in slabs(batches, 100)] == [15]
    assert [one.num_rows for one in slabs(batches, 100, bytes_max=40)] == [8, 7]
    assert list(slabs([], 4)) == []


@pytest.mark.parametrize("operation", ["append", "upsert", "update"])
def test_many_operations_of_one_transaction_do_not_cost_each_other(
    tmp_path: Path, operation: str
) -> None:
    with filled(tmp_path / "lake", 1000) as lake:
        for number, count in enumerate((20, 120)):
            first = 10_000 * (number + 1)
            with lake.transaction() as tx:
                for one in range(count):
                    if operation == "update":
                        tx.update("t", {"x": "x + 1"}, where=f"id = {one}")
                    else:
                        getattr(tx, operation)("t", [{"id": first + one, "x": one}])
                # Eight of a kind are folded into one.
                assert len(tx.table("t").dataset.get_fragments()) < 32
            (change,) = tx.commit.tables if tx.commit else ()
            assert change.inserted + change.updated == count
        found = lake.table("t").to_arrow(filter="id < 1000 AND x > 0").num_rows
        assert found == (120 if operation == "update" else 0)
        changes = lake.changes("t", since=lake.snapshot().version - 1).read_all()
        assert changes.num_rows == (240 if operation == "update" else 120)


def test_of_upserts_that_wait_together_the_last_counts(tmp_path: Path) -> None:
    with filled(tmp_path / "lake", 3) as lake:
        with lake.transaction() as tx:
            tx.upsert("t", [{"id": 1, "x": 1}, {"id": 9, "x": 1}])
            tx.upsert("t", [{"id": 9, "x": 2}, {"id": 8, "x": 2}])
            tx.upsert("t", [{"id": 1, "x": 3}])
        (change,) = tx.commit.tables if tx.commit else ()
        assert (change.inserted, change.updated) == (2, 3)
        found = {row["id"]: row["x"] for row in lake.table("t").to_arrow().to_pylist()}
        assert found == {0: 0, 1: 3, 2: 0, 8: 2, 9: 2}


def test_a_key_that_an_earlier_append_of_the_transaction_has_is_refused(tmp_path: Path) -> None:
    with filled(tmp_path / "lake", 3) as lake, lake.transaction() as tx:
        tx.append("t", rows(range(10, 20)))
        with pytest.raises(tidelock.errors.DuplicateKey, match=r"more than once: 15\."):
            tx.append("t", rows([30, 15]))
        tx.append("t", rows([30]))
        with pytest.raises(tidelock.errors.DuplicateKey, match=r"more than once: 30\."):
            tx.append("t", rows([30]))
        assert tx.table("t").count() == 14


def test_a_stream_whose_keys_repeat_far_apart_is_refused_with_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writes, "FEW_ROWS_MAX", 10)
    monkeypatch.setattr(wanted_keys, "KEYS_AT_ONCE", 16)
    given = [*range(100, 200), 107, *range(300, 320), 113, 107]
    with filled(tmp_path / "lake", 3) as lake:
        for operation in ("append", "upsert", "overwrite"):
            with lake.transaction() as tx:
                with pytest.raises(
                    tidelock.errors.DuplicateKey, match=r"2 keys \(id\) more than once: 107, 113"
                ) as caught:
                    getattr(tx, operation)("t", rows(given).to_reader(max_chunksize=3))
                assert caught.value.rows == [122, 121]
        assert lake.table("t").count() == 3


def test_changes_do_not_take_longer_the_more_rows_were_deleted_before(tmp_path: Path) -> None:
    with filled(tmp_path / "lake", 120_000) as lake:
        lake.run(lambda tx: tx.upsert("t", rows(range(0, 120_000, 2), 1)))
        lake.run(lambda tx: tx.delete("t", "x = 1"))
        before = lake.snapshot().version
        for where in ("id < 12000", "id > 119000 AND id < 119100", "id = 60001", "id > 60001"):
            expected = lake.table("t").to_arrow(filter=where).column("id").to_pylist()
            lake.run(lambda tx, where=where: tx.delete("t", where))
            found: list[int] = []

            def read(found: list[int] = found, since: int = before) -> None:
                changes = lake.changes("t", since=since).read_all()
                assert set(changes.column("_weight").to_pylist()) == {-1}
                found.extend(changes.column("id").to_pylist())

            assert processor_seconds(read) < 2
            assert sorted(found) == sorted(expected)
            before = lake.snapshot().version


def test_rows_whose_sequences_interleave_are_read_in_order_however_many_there_are(
    tmp_path: Path,
) -> None:
    count = 120_000
    with filled(tmp_path / "lake", count) as lake:
        chosen = np.random.default_rng(3).permutation(count)[: count // 2]
        lake.run(lambda tx: tx.upsert("t", rows(chosen, 1)))
        expected = lake.table("t").dataset.to_table(with_row_id=True).sort_by("_rowid")

        def read() -> None:
            found = lake.read_since("t", limit=2 * count).rows
            assert found.column("_sequence").to_pylist() == list(range(count))
            assert found.column("id").equals(expected.column("id"))

        assert processor_seconds(read) < 3


def test_a_large_commit_is_delivered_in_order_in_as_many_parts_as_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_pairs, "LOOKED_UP_ROWS_MIN", 10)
    monkeypatch.setattr(by_sequence, "READ_ROWS", 16)
    with filled(tmp_path / "lake", 500) as lake:
        before = lake.table("t").dataset
        with lake.transaction() as tx:
            tx.upsert("t", rows(np.random.default_rng(4).permutation(700)[:400], 1))
            tx.delete("t", "id < 50")
        after = lake.table("t").dataset
        state = lake.snapshot().states()["t"]
        changes = row_pairs.PairedChanges(lake._store.files.reader(state.id), before, after)
        parts = list(changes.read(["id", "x"], -1, 10_000))
        assert len(parts) > 4
        found = pa.Table.from_batches([batch for batch, _ in parts]).to_pylist()
        places = [place for _, some in parts for place in some.tolist()]
        assert places == changes.ordinals().tolist()
        old, new = (
            {
                row["_rowid"]: (row["id"], row["x"])
                for row in one.to_table(with_row_id=True).to_pylist()
            }
            for one in (before, after)
        )
        told = [(row["_sequence"], row["_op"], (row["id"], row["x"])) for row in found]
        expected = []
        for one in sorted(old.keys() | new.keys()):
            if old.get(one) == new.get(one):
                continue
            if one in old:
                expected.append((one, "update_before" if one in new else "delete", old[one]))
            if one in new:
                expected.append((one, "update_after" if one in old else "insert", new[one]))
        assert told == expected


def test_rows_that_go_while_their_fragments_are_rewritten_are_not_there_afterwards(
    tmp_path: Path,
) -> None:
    with filled(tmp_path / "lake", 300) as lake:
        lake.run(lambda tx: tx.append("t", rows(range(300, 500))))
        store, state = lake._store, lake.snapshot().states()["t"]
        base = store.files.read(state)
        ids = [fragment.fragment_id for fragment in base.get_fragments()]
        one, other = (rewrite(store.files, state.id, base, [part]) for part in ids)
        group = Rewritten(
            one.paths + other.paths,
            one.fragments + other.fragments,
            np.concatenate([one.row_ids, other.row_ids]),
            one.deletions + other.deletions,
        )
        lake.run(lambda tx: tx.delete("t", "id < 20 OR id > 290 AND id < 310 OR id = 499"))
        now = store.files.read(lake.snapshot().states()["t"])
        target = Target("t", state.id, lake.table("t").schema)
        result = Compaction([group]).apply(store.files, target, now, Counts())
        expected, found = (
            {row["_rowid"]: row["id"] for row in one.to_table(with_row_id=True).to_pylist()}
            for one in (now, result)
        )
        assert found == expected


def test_changes_of_wide_tables_grow_with_the_columns_and_not_with_their_square(
    tmp_path: Path,
) -> None:
    taken = {}
    for count in (300, 2400):
        wide = pa.table({f"c{n}": np.arange(40) for n in range(count)})
        with tidelock.open(tmp_path / str(count), create=True) as lake:
            lake.create_table("t", wide.schema)
            lake.run(lambda tx, rows=wide: tx.append("t", rows))
            lake.run(lambda tx: tx.delete("t", "c0 % 10 = 7"))

            def read(lake: Lake = lake) -> None:
                assert lake.changes("t", since=2).read_all().num_rows == 4

            read()
            taken[count] = min(processor_seconds(read) for _ in range(3))
    assert taken[2400] < 30 * taken[300]


def test_a_table_is_read_by_whoever_speaks_arrow(tmp_path: Path) -> None:
    with filled(tmp_path / "lake", 100) as lake:
        assert pa.table(lake.table("t")).equals(lake.table("t").to_arrow())
        assert polars.DataFrame(lake.table("t"))["id"].sum() == sum(range(100))
        lake.create_table("copy", SCHEMA)
        lake.run(lambda tx: tx.append("copy", lake.table("t")))
        assert lake.table("copy").count() == 100


def test_a_transaction_over_many_tables_does_not_look_through_all_of_them_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 40
    looked: list[str] = []
    fold, changed = staged_tables.fold, staged_tables.StagedTable.changed.fget
    assert changed is not None

    def is_changed(staged: Any) -> Any:
        looked.append(staged.state.name)
        return changed(staged)

    monkeypatch.setattr(staged_tables, "fold", lambda name: looked.append(name) or fold(name))
    monkeypatch.setattr(staged_tables.StagedTable, "changed", property(is_changed))
    with tidelock.open(tmp_path / "lake", create=True) as lake, lake.transaction() as tx:
        for number in range(count):
            tx.create_table(f"t{number}", SCHEMA)
            tx.append(f"t{number}", rows([number]))
    assert len(looked) <= 12 * count
