"""Names of branches and tags: any text of 64 characters, found without regard to case."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.lakes import NUMBERS_DDL, numbers

import tidelock
from tidelock import Lake, errors


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        lake.create_table("t", NUMBERS_DDL)
        yield lake


NAMES = [
    "dev",
    "Release/2026 Q1",
    "a.b..c",
    "..",
    "=2E%~",
    "ÄÖÜ ß",
    "日本語" * 21,
    "🦊" * 64,
    "x" * 64,
    "CON",
    "a\\b:c*d?",
    "Straße",
    "İstanbul",
    "e\u0301tude",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_branch_may_have_any_name_and_keeps_it(lake: Lake, name: str) -> None:
    normal = unicodedata.normalize("NFC", name)
    assert lake.create_branch(name).name == normal
    lake.run(lambda tx: tx.append("t", numbers((1, 1))), branch=name)
    with tidelock.open(lake.uri) as other:
        assert [ref.name for ref in other.branches()] == ["main", normal]
        for spelling in spellings(name):
            assert other.table("t", branch=spelling).count() == 1
            assert other.snapshot(spelling).branch == normal
            with pytest.raises(errors.BranchExists, match="exists"):
                other.create_branch(spelling)
        other.delete_branch(next(iter(spellings(name))))
        with pytest.raises(errors.BranchNotFound):
            other.snapshot(name)
    with pytest.raises(errors.BranchNotFound):
        lake.snapshot(name)
    assert lake.create_branch(name).incarnation == 2


@pytest.mark.parametrize("name", NAMES)
def test_a_tag_may_have_any_name_and_keeps_it(lake: Lake, name: str) -> None:
    normal = unicodedata.normalize("NFC", name)
    assert lake.tag(name).name == normal
    lake.run(lambda tx: tx.append("t", numbers((1, 1))))
    with tidelock.open(lake.uri) as other:
        assert [tag.name for tag in other.tags()] == [normal]
        for spelling in spellings(name):
            assert other.snapshot(tag=spelling).version == 1
            assert other.find_commit(spelling).version == 1
            with pytest.raises(errors.TagExists):
                other.tag(spelling)
        other.delete_tag(next(iter(spellings(name))))
        with pytest.raises(errors.TagNotFound):
            other.snapshot(tag=name)


def spellings(name: str) -> Iterator[str]:
    yield name
    yield name.lower()
    if name.upper().lower() == name.lower():
        yield name.upper()
    yield unicodedata.normalize("NFD", name)


def test_main_is_main_in_any_case(lake: Lake) -> None:
    for name in ("main", "Main", "MAIN"):
        assert lake.snapshot(name).branch == "main"
        lake.run(lambda tx: tx.append("t", numbers((1, 1))), branch=name)
        with pytest.raises(errors.BranchExists):
            lake.create_branch(name)
        with pytest.raises(errors.InvalidOption):
            lake.delete_branch(name)
    assert lake.snapshot().version == 4


@pytest.mark.parametrize("name", ["", " ", " a", "a ", "x" * 65, "a\nb", "a\0b", "\ud800"])
def test_a_name_that_is_none_is_refused(lake: Lake, name: str) -> None:
    with pytest.raises(errors.InputError):
        lake.create_branch(name)
    with pytest.raises(errors.InputError):
        lake.tag(name)


@pytest.mark.parametrize("name", ["1", "007", "\u0661"])
def test_a_tag_is_no_whole_number(lake: Lake, name: str) -> None:
    with pytest.raises(errors.InvalidName, match="read as a version"):
        lake.tag(name)
    assert lake.create_branch(name).name == name


@pytest.mark.parametrize("name", ["main-1", "2026-01-01", "main"])
def test_a_tag_is_meant_before_a_commit_or_a_time(lake: Lake, name: str) -> None:
    lake.run(lambda tx: tx.append("t", numbers((1, 1))))
    lake.tag(name)
    assert lake.find_commit(name).version == 2


def test_names_whose_beginnings_are_alike_stay_apart(lake: Lake) -> None:
    names = ["🦊" * 63 + end for end in "🦊🐺🐶"]
    for version, name in enumerate(names, start=1):
        lake.create_branch(name)
        lake.tag(name)
        lake.run(lambda tx, b=name, n=version: tx.append("t", numbers(*[(n, n)] * n)), branch=name)
    assert [lake.table("t", branch=name).count() for name in names] == [1, 2, 3]


@pytest.mark.parametrize("operation_id", ["x" * 300, "日本" * 200, "Load", "load", "a/b"])
def test_an_operation_id_may_be_any_text(lake: Lake, operation_id: str) -> None:
    for _ in range(2):
        with lake.transaction(operation_id=operation_id) as tx:
            tx.append("t", numbers((1, 1)))
    assert lake.table("t").count() == 1
    assert lake.find_operation(operation_id) == tx.commit
