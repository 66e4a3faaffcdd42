"""What the handle and its door say to somebody who uses them wrongly, or reads them in a prompt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.lakes import NUMBERS_DDL, numbers

import tidelock
from tidelock import Lake, errors


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True, actor="etl") as lake:
        lake.create_table("sites", NUMBERS_DDL, key="id")
        yield lake


def load(lake: Lake, *ids: int) -> tidelock.Commit:
    with lake.transaction("load") as tx:
        tx.upsert("sites", numbers(*((one, one) for one in ids)))
    assert tx.commit is not None
    return tx.commit


# Opening


@pytest.mark.parametrize("create", [True, False])
def test_a_path_that_is_a_file_is_said_to_be_one(tmp_path: Path, create: bool) -> None:
    file = tmp_path / "afile"
    file.write_text("rows")
    for path in (file, file / "lake"):
        with pytest.raises(errors.InvalidOption, match=r"afile' is a file.*folder"):
            tidelock.open(path, create=create)
    assert file.read_text() == "rows"


@pytest.mark.parametrize("uri", [5, None, b"lake", ["lake"]])
def test_what_is_no_path_is_refused(uri: Any) -> None:
    with pytest.raises(errors.InvalidOption, match="path or a URI"):
        tidelock.open(uri)


@pytest.mark.parametrize("seconds", [0, -1, 0.001, float("nan"), float("inf")])
def test_a_lease_that_cannot_be_renewed_is_refused(tmp_path: Path, seconds: float) -> None:
    with pytest.raises(errors.InvalidOption, match="lease"):
        tidelock.open(tmp_path / "lake", create=True, lease_seconds=seconds)
    assert not (tmp_path / "lake").exists()


def test_a_lease_from_the_environment_is_checked_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TIDELOCK_LEASE_SECONDS", "0s")
        with pytest.raises(errors.InvalidOption, match="lease"):
            tidelock.open(tmp_path / "lake", create=True)


def test_the_door_lists_its_names_and_nothing_else() -> None:
    shown = {name for name in dir(tidelock) if not name.startswith("__")}
    assert shown == set(tidelock.__all__)


# Transactions


def test_an_empty_operation_id_is_refused(lake: Lake) -> None:
    for operation_id in ("", 5):
        with pytest.raises(errors.InvalidOption, match="operation id"):
            lake.transaction(operation_id=operation_id)  # type: ignore[arg-type]


def test_a_repeated_operation_id_gives_the_first_commit_and_says_so(lake: Lake) -> None:
    with lake.transaction("first", operation_id="a") as first:
        first.append("sites", numbers((1, 1)))
    with lake.transaction("second", operation_id="a") as second:
        assert second.repeated
        second.append("sites", numbers((2, 2)))
        assert second.delete("sites", "true") == 0
    assert not first.repeated
    assert second.commit == first.commit
    assert lake.table("sites").count() == 1


def test_run_wants_a_function(lake: Lake) -> None:
    with pytest.raises(errors.InvalidOption, match="takes a function"):
        lake.run("x")  # type: ignore[arg-type]


def test_a_conflict_with_a_drop_says_that_the_table_was_dropped(lake: Lake) -> None:
    load(lake, 1)
    tx = lake.transaction()
    tx.delete("sites", "id = 1")
    lake.drop_table("sites")
    with pytest.raises(errors.CommitConflict) as caught:
        tx.publish()
    assert "read it as of version 2, and it was dropped." in caught.value.message
    assert "None" not in caught.value.message


def test_a_conflict_with_a_creation_says_that_the_table_did_not_exist(lake: Lake) -> None:
    tx = lake.transaction()
    tx.create_table("new", NUMBERS_DDL)
    lake.create_table("new", NUMBERS_DDL)
    with pytest.raises(errors.CommitConflict) as caught:
        tx.publish()
    assert "it did not exist, and it is now at version 2." in caught.value.message
    assert "version 0" not in caught.value.message


def test_one_name_may_be_given_for_a_list_of_names(lake: Lake) -> None:
    lake.create_table("s", NUMBERS_DDL)
    for number in range(3):
        load(lake, number)
    commits = lake.optimize("SITES")
    assert {change.table for commit in commits for change in commit.tables} == {"sites"}
    with pytest.raises(errors.TableNotFound, match="Did you mean 'sites'"):
        lake.optimize("site")


# What is shown


def test_a_commit_shows_what_it_did_and_when_with_the_zone(lake: Lake) -> None:
    load(lake, 1, 2)
    commit = load(lake, 2, 3)
    shown = re.sub(r"time=\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", "time=NOW", repr(commit))
    assert shown == (
        "Commit(version=3, id='main-3', kind='data', actor='etl', message='load', time=NOW, "
        "tables=[sites +1 ~1])"
    )
    assert repr(commit.tables[0]) == "TableChange(sites +1 ~1, rows=3)"


def test_a_commit_shows_what_was_created_and_dropped(lake: Lake) -> None:
    load(lake, 1)
    created = lake.create_table("new", NUMBERS_DDL)
    dropped = lake.drop_table("sites")
    assert repr(created).endswith("tables=[new created])")
    assert repr(dropped.tables[0]) == "TableChange(sites dropped, rows=0)"


def test_lists_show_times_with_their_zone(lake: Lake) -> None:
    commit = load(lake, 1)
    lake.tag("rel-1")
    assert f"{commit.time:%Y-%m-%d %H:%M:%S}Z" in repr(lake.log())
    assert re.search(r" \d\d:\d\d:\d\dZ", repr(lake.tags()))
