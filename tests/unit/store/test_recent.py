"""Recent rows: kept by their writer, and left by processes for each other."""

from __future__ import annotations

import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.lakes import NUMBERS_DDL, numbers, rows_of

import tidelock
from tidelock.store.recent import SHARED_FILE_BYTES_MAX, RecentRows

ROWS = pa.table({"id": [1, None], "name": ["ä", "b"]})


def decoded(batch: bytes) -> pa.Table:
    return pa.Table.from_batches([pa.ipc.read_record_batch(pa.py_buffer(batch), ROWS.schema)])


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "rows")


def test_rows_are_found_by_whoever_folds(folder: str) -> None:
    mine, theirs = RecentRows(folder), RecentRows(folder)
    assert theirs.shared("t") == {}
    for number in range(3):
        mine.keep(f"{number}.lance", ROWS.slice(0, number))
        mine.share("t", f"{number}.lance")
    mine.share("t", "unknown.lance")
    found = theirs.shared("t")
    assert list(found) == ["1.lance", "2.lance"], "nothing is left of no rows"
    assert decoded(found["2.lance"]).equals(ROWS)
    assert theirs.shared("u") == {}
    assert theirs.find("1.lance") is None
    assert RecentRows(None).shared("t") == {}


def test_much_is_neither_kept_nor_shared(folder: str) -> None:
    recent = RecentRows(folder)
    recent.keep("much", pa.table({"id": list(range(1000)), "name": ["x"] * 1000}))
    recent.share("t", "much")
    assert recent.find("much") is not None
    assert recent.shared("t") == {}
    recent.keep("more", pa.table({"id": list(range(20_000))}))
    assert recent.find("more") is None


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_an_entry_that_is_half_there_is_none(folder: str, share: float) -> None:
    recent = RecentRows(folder)
    for name in ("a", "b"):
        recent.keep(name, ROWS)
        recent.share("t", name)
    (path,) = Path(folder).iterdir()
    whole = path.read_bytes()
    lost = int(share * len(whole) / 2)
    path.write_bytes(whole[:-lost])
    assert list(recent.shared("t")) == ["a"]
    path.write_bytes(whole[:-lost] + b"\xff" * lost)
    assert list(recent.shared("t")) == ["a"]


def test_the_file_stays_small(folder: str) -> None:
    recent = RecentRows(folder)
    for number in range(3000):
        recent.keep(f"{number}", ROWS)
        recent.share("t", f"{number}")
        if number % 500 == 0:
            assert f"{number}" in recent.shared("t")
    (path,) = Path(folder).iterdir()
    assert path.stat().st_size <= SHARED_FILE_BYTES_MAX + 5000


def test_many_write_at_once(folder: str) -> None:
    def write(thread: int) -> None:
        recent = RecentRows(folder)
        for number in range(50):
            recent.keep(f"{thread} {number}", ROWS)
            recent.share("t", f"{thread} {number}")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = RecentRows(folder).shared("t")
    assert len(found) == 200
    assert all(decoded(batch).equals(ROWS) for batch in found.values())


def test_what_else_stands_there_is_not_taken_for_rows_of_a_table(tmp_path: Path) -> None:
    """Whatever stands there, a fold gives the rows that the data files hold."""
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        lake.create_table("t", NUMBERS_DDL)
        table_id = lake.tables()[0].id
        for number in range(5):
            with lake.transaction() as tx:
                tx.append("t", numbers((number, number)))
        expected = rows_of(lake.table("t"))
    folder = tmp_path / "lake" / "_tidelock" / "turns" / "rows"
    recent = RecentRows(str(folder))
    recent.keep("0.lance", pa.table({"id": [9], "v": [9]}))
    recent.share(table_id, "0.lance")
    (path,) = folder.iterdir()
    path.write_bytes(path.read_bytes() + b"tlr1" + b"\x01" * 500)
    with tidelock.open(tmp_path / "lake") as lake:
        assert lake.optimize()
        assert rows_of(lake.table("t")) == expected


def _row(number: int) -> dict[str, Any]:
    """Values that are nested, NULL, and of types for which Lance needs buffers aligned."""
    return {
        "id": number,
        "d": Decimal(number).scaleb(-5),
        "s": None if number % 3 == 0 else {"x": Decimal(number), "y": ["é", None][: number % 3]},
        "m": [("k", Decimal(number))] if number % 2 else None,
        "b": bytes([number % 256]),
    }


def test_rows_that_processes_leave_fold_to_what_was_written(tmp_path: Path) -> None:
    schema = (
        "id BIGINT, d DECIMAL(38,5), s STRUCT<x: DECIMAL(20,2), y: ARRAY<STRING>>, "
        "m MAP<STRING, DECIMAL(10,1)>, b BINARY"
    )
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        lake.create_table("t", schema)
        # Handles of one process are to each other what processes are.
        handles = [tidelock.open(tmp_path / "lake") for _ in range(3)]

        def write(handle: tidelock.Lake, first: int) -> None:
            for number in range(first, first + 25):
                with handle.transaction() as tx:
                    tx.append("t", [_row(number)])

        threads = [
            threading.Thread(target=write, args=(handle, 100 * number))
            for number, handle in enumerate(handles)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [path.stat().st_size for path in tmp_path.glob("lake/_tidelock/turns/rows/*")]
        for handle in handles:
            handle.close()
        found = sorted(lake.table("t").to_arrow().to_pylist(), key=lambda row: row["id"])
        written = [_row(100 * number + n) for number in range(3) for n in range(25)]
        assert found == written
        assert any(commit.kind == "maintenance" for commit in lake.log(limit=None))
