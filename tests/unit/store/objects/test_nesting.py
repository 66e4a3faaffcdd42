"""A lake has its folder for itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.lakes import NUMBERS_DDL, collect_all, numbers

import tidelock
from tidelock import errors


@pytest.fixture
def outer(tmp_path: Path) -> Path:
    with tidelock.open(tmp_path / "outer", create=True) as lake:
        lake.create_table("t", NUMBERS_DDL)
        lake.run(lambda tx: tx.append("t", numbers((1, 1))))
    return tmp_path / "outer"


@pytest.mark.parametrize(
    "inside", ["tables", "_tidelock", "tables/x-0123456789ab", "_tidelock/log", "own", "a/b/c/d"]
)
def test_a_lake_inside_another_is_refused(outer: Path, inside: str) -> None:
    before = sorted(outer.rglob("*"))
    with pytest.raises(errors.InvalidOption, match="lies inside the lake"):
        tidelock.open(outer / inside, create=True)
    assert sorted(outer.rglob("*")) == before


@pytest.mark.parametrize("inside", ["tables/inner", "_tidelock/inner", "inner", "a/b/inner"])
def test_a_lake_around_another_is_refused(tmp_path: Path, inside: str) -> None:
    tidelock.open(tmp_path / "outer" / inside, create=True).close()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(errors.InvalidOption, match="There is a lake inside of"):
        tidelock.open(tmp_path / "outer", create=True)
    assert sorted(tmp_path.rglob("*")) == before
    with tidelock.open(tmp_path / "outer" / inside) as inner:
        inner.create_table("t", NUMBERS_DDL)


def test_a_lake_behind_a_link_into_another_is_refused(outer: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(outer / "tables")
    with pytest.raises(errors.InvalidOption, match="lies inside the lake"):
        tidelock.open(tmp_path / "link" / "inner", create=True)


def test_a_lake_beside_another_and_one_that_is_there_are_not(outer: Path, tmp_path: Path) -> None:
    tidelock.open(tmp_path / "outer 2", create=True).close()
    tidelock.open(outer, create=True).close()


def test_a_folder_with_tables_of_somebody_else_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "tables" / "prices" / "data.csv"
    file.parent.mkdir(parents=True)
    file.write_text("1,2")
    with pytest.raises(errors.InvalidOption, match="Choose an empty place"):
        tidelock.open(tmp_path, create=True)
    assert file.exists()


def test_things_beside_the_tables_of_a_lake_are_left_alone(outer: Path) -> None:
    files = [outer / "notes.txt", outer / "tables" / "prices" / "data.csv", outer / "own" / "x"]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("mine")
    with tidelock.open(outer) as lake:
        lake.drop_table("t")
        collect_all(lake)
    assert all(file.read_text() == "mine" for file in files)
