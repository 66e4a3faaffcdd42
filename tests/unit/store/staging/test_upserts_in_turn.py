"""Upserts of a table that others change: rows are written before it is known which are there."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidelock
from tidelock import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = tidelock.open(tmp_path / "lake", create=True)
    lake.create_table("t", "id BIGINT NOT NULL, x BIGINT", key="id")
    with lake.transaction() as tx:
        tx.append("t", [{"id": one, "x": 0} for one in range(4)])
    return lake


def rows_of(lake: Lake) -> dict[int, tuple[int, int]]:
    """Each row's value and sequence, by key."""
    found = lake.read_since("t", -1, limit=100).rows.to_pylist()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: (row["x"], row["_sequence"]) for row in found}


@pytest.mark.parametrize("ids", [[1], [9], [1, 2], [2, 1], [8, 9], [1, 9], [9, 1], [9, 1, 8, 2]])
@pytest.mark.parametrize("between", ["nothing", "the rows go", "the rows come", "others come"])
@pytest.mark.parametrize("read", [False, True], ids=["", "read before"])
def test_rows_that_were_written_early_replace_what_is_there_then(
    lake: Lake, ids: list[int], between: str, read: bool
) -> None:
    head = lake._store.branches.head("main")
    # As if another thread were about to change the table.
    with lake._store.publisher.claim(head.branch.id, [head.tables["t"].id]):
        tx = lake.transaction()
        tx.upsert("t", [{"id": one, "x": 7} for one in ids])
        if read:
            assert tx.table("t").to_arrow(filter="x = 7").num_rows == len(ids)
        with lake.transaction() as other:
            if between == "the rows go":
                other.delete("t", f"id IN ({', '.join(map(str, ids))})")
            elif between == "the rows come":
                other.upsert("t", [{"id": one, "x": 5} for one in ids])
            elif between == "others come":
                other.append("t", [{"id": 30, "x": 5}])
        before = rows_of(lake)
        commit = tx.publish()
    assert commit is not None
    after = rows_of(lake)
    assert {one: x for one, (x, _) in after.items()} == {
        **{one: x for one, (x, _) in before.items()},
        **dict.fromkeys(ids, 7),
    }
    # A row that is replaced keeps its sequence; a new one has a later one than all there were.
    newest = max(sequence for _, sequence in before.values())
    for one, (_, sequence) in after.items():
        if one in before:
            assert sequence == before[one][1]
        else:
            assert sequence > newest
    (change,) = commit.tables
    assert (change.inserted, change.updated) == (
        len(set(ids) - set(before)),
        len(set(ids) & set(before)),
    )
