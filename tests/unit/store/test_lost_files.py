"""Files of tables that are gone: who removed them, and what is said about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.lakes import collect_all

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
