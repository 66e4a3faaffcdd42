"""Files of tables that are gone: who removed them, and what is said about it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.lakes import collect_all

import tidelock
from tidelock import Lake, errors


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        lake.create_table("sites", "id BIGINT, name STRING", key="id")
        for number in range(2):
            lake.run(lambda tx, n=number: tx.append("sites", [{"id": n, "name": "x"}]))
        yield lake


def remove(lake: Lake, folder: str) -> None:
    for path in Path(lake.uri).glob(f"tables/*/{folder}/*"):
        path.unlink()


USES: dict[str, Callable[[Lake], Any]] = {
    "read": lambda lake: lake.table("sites").to_arrow(),
    "filter": lambda lake: lake.table("sites").count("name = 'x'"),
    "stream": lambda lake: lake.table("sites").to_batches().read_all(),
    "changes": lambda lake: lake.changes("sites", 2).read_all(),
    "append": lambda lake: lake.run(lambda tx: tx.append("sites", [{"id": 9}])),
    "upsert": lambda lake: lake.run(lambda tx: tx.upsert("sites", [{"id": 1}])),
    "update": lambda lake: lake.run(lambda tx: tx.update("sites", {"name": "'y'"}, "id = 1")),
    "delete": lambda lake: lake.run(lambda tx: tx.delete("sites", "id = 1")),
}


@pytest.mark.parametrize("folder", ["data", "_versions"])
@pytest.mark.parametrize("use", USES)
def test_files_missing_at_the_head_are_not_blamed_on_garbage_collection(
    lake: Lake, use: str, folder: str
) -> None:
    remove(lake, folder)
    with tidelock.open(lake.uri) as other:
        with pytest.raises(errors.CorruptObject, match=r"'sites'.*other than Tidelock") as caught:
            USES[use](other)
        assert caught.value.table == "sites"


def test_files_missing_at_the_head_of_another_branch_are_not_either(lake: Lake) -> None:
    lake.create_branch("dev")
    lake.run(lambda tx: tx.append("sites", [{"id": 9}]))
    remove(lake, "_versions")
    with tidelock.open(lake.uri) as other, pytest.raises(errors.CorruptObject, match="'sites'"):
        other.table("sites", branch="dev")


def test_what_garbage_collection_removed_is_said_by_the_name_of_the_table(lake: Lake) -> None:
    collect_all(lake)
    with pytest.raises(errors.SnapshotExpired, match=r"'sites'.*garbage collection") as caught:
        lake.snapshot(version=2).table("sites")
    assert caught.value.table == "sites"
    with pytest.raises(errors.SnapshotExpired, match="'sites'"):
        lake.changes("sites").read_all()


LOSSES: dict[str, Callable[[Lake], None]] = {
    "its data": lambda lake: remove(lake, "data"),
    "its manifests": lambda lake: remove(lake, "_versions"),
    "its newest manifest": lambda lake: remove_newest(lake),
    "everything but its data": lambda lake: (remove(lake, "_versions"), remove(lake, "_t*"))[0],
    "a bit of its manifests": lambda lake: spoil(lake, "_versions"),
    "all bytes of its data": lambda lake: spoil(lake, "data"),
}


def remove_newest(lake: Lake) -> None:
    pin = lake.snapshot().states()["sites"].pin
    for path in Path(lake.uri).glob(f"tables/*/_versions/d{pin}.manifest"):
        path.unlink()


def spoil(lake: Lake, folder: str) -> None:
    for path in Path(lake.uri).glob(f"tables/*/{folder}/*"):
        path.write_bytes(b"?" * path.stat().st_size)


@pytest.mark.parametrize("same_handle", [True, False], ids=["same handle", "another handle"])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_table_that_was_lost_can_be_dropped(lake: Lake, loss: str, same_handle: bool) -> None:
    LOSSES[loss](lake)
    with tidelock.open(lake.uri) as other:
        used = lake if same_handle else other
        used.drop_table("sites")
        assert not used.tables()
        used.create_table("sites", "id BIGINT")
        assert used.table("sites").count() == 0


@pytest.mark.parametrize("streamed", [False, True], ids=["rows", "stream"])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_table_that_was_lost_can_be_overwritten(lake: Lake, loss: str, streamed: bool) -> None:
    schema = lake.table("sites").schema
    LOSSES[loss](lake)
    with tidelock.open(lake.uri) as other:
        rows = pa.table({"id": [7, 8], "name": ["a", "b"]})
        other.run(lambda tx: tx.overwrite("sites", rows.to_reader() if streamed else rows))
        table = other.table("sites")
        assert table.schema == schema
        assert table.to_arrow().to_pylist() == [{"id": 7, "name": "a"}, {"id": 8, "name": "b"}]
        other.run(lambda tx: tx.upsert("sites", [{"id": 8, "name": "c"}]))
        assert other.table("sites").count() == 2
        collect_all(other)
        assert other.table("sites").to_arrow().num_rows == 2


def test_a_table_of_which_nothing_is_left_is_dropped_and_created_again(lake: Lake) -> None:
    shutil.rmtree(Path(lake.uri, "tables"))
    with tidelock.open(lake.uri) as other:
        with pytest.raises(errors.CorruptObject, match=r"'sites'.*drop it and create it") as caught:
            other.run(lambda tx: tx.overwrite("sites", [{"id": 1}]))
        assert caught.value.table == "sites"
        with other.transaction() as tx:
            tx.drop_table("sites")
            tx.create_table("sites", "id BIGINT", key="id")
            tx.append("sites", [{"id": 1}])
        assert other.table("sites").count() == 1


def test_a_lost_table_of_another_branch_can_be_overwritten_there(lake: Lake) -> None:
    lake.create_branch("dev")
    remove(lake, "_versions")
    with tidelock.open(lake.uri) as other:
        other.run(lambda tx: tx.overwrite("sites", [{"id": 1, "name": "x"}]), branch="dev")
        assert other.table("sites", branch="dev").count() == 1
        with pytest.raises(errors.CorruptObject):
            other.table("sites")
