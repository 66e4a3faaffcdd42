"""Stream tables whose inputs are altered: they follow, and nothing is computed anew."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.altered import AlteredLake

import tidelock
from tidelock.model.schema.alterations import (
    AddColumn,
    Alteration,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SetComment,
    SetKey,
    SetRequired,
)
from tidelock.model.schema.schema import Column

TEXT = pa.string()

RENAMES: dict[str, tuple[str, list[Alteration], dict[str, str]]] = {
    "a column": ("T", [RenameColumn("x", "amount")], {"x": "amount"}),
    "a column to a hostile name": ("T", [RenameColumn("x", "a b' \"é")], {"x": "a b' \"é"}),
    "two columns crosswise": (
        "T",
        [RenameColumn("g", "tmp"), RenameColumn("x", "g"), RenameColumn("tmp", "x")],
        {"g": "x", "x": "g"},
    ),
    "the key": ("T", [RenameColumn("id", "number")], {"id": "number"}),
    "a column to what another was": (
        "T",
        [DropColumn("spare"), RenameColumn("x", "spare"), AddColumn(Column("x", TEXT))],
        {"x": "spare", "spare": "x"},
    ),
    "case alone": ("U", [RenameColumn("name", "NAME")], {"name": "NAME"}),
}
OTHERS: dict[str, tuple[str, list[Alteration]]] = {
    "a column that came": ("U", [AddColumn(Column("note", TEXT))]),
    "a first column that came": ("T", [AddColumn(Column("zero", pa.int32()), first=True)]),
    "a column that both tables have now": ("U", [AddColumn(Column("s", TEXT))]),
    "a column that was dropped and came again": (
        "T",
        [DropColumn("spare"), AddColumn(Column("spare", TEXT))],
    ),
    "an order": ("U", [MoveColumn("name"), MoveColumn("k", "g")]),
    "a comment": ("T", [SetComment("x", "how many"), SetComment(None, "all of them")]),
    "no NULL any more": ("U", [SetRequired("k", True)]),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with all views, as it is before anything is altered."""
    folder = tmp_path_factory.mktemp("made") / "lake"
    with tidelock.open(folder, create=True, engine="sail") as lake:
        AlteredLake(lake, random.Random(1)).create()
    return folder


@pytest.fixture
def altered(made: Path, tmp_path: Path) -> Iterator[AlteredLake]:
    from tests.support.lakes import copy_lake

    copy_lake(made, tmp_path / "lake")
    with tidelock.open(tmp_path / "lake", engine="sail") as lake:
        yield AlteredLake(lake, random.Random(2))


def settle(altered: AlteredLake) -> None:
    """After an alteration: nothing is computed anew; and rows that come are followed."""
    altered.refresh(adopting=True)
    altered.check()
    altered.write()
    altered.refresh()
    altered.check()


@pytest.mark.parametrize("what", RENAMES)
def test_a_rename_is_followed_by_every_view(altered: AlteredLake, what: str) -> None:
    one, alterations, names = RENAMES[what]
    with altered.lake.transaction() as tx:
        tx.alter_table(altered.names[one], *alterations)
    altered.names.update(names)
    settle(altered)


@pytest.mark.parametrize("what", OTHERS)
def test_what_no_view_reads_disturbs_none(altered: AlteredLake, what: str) -> None:
    one, alterations = OTHERS[what]
    with altered.lake.transaction() as tx:
        tx.alter_table(altered.names[one], *alterations)
    settle(altered)


def test_changes_before_and_after_a_rename_are_one_delta(altered: AlteredLake) -> None:
    altered.write()
    with altered.lake.transaction() as tx:
        tx.alter_table("t", *RENAMES["two columns crosswise"][1])
        altered.names.update(g="x", x="g")
        tx.update("t", {"g": "coalesce(g, 0) + 1"}, "id % 2 = 0")
    altered.write()
    with altered.lake.transaction() as tx:
        tx.rename_table("u", "v")
        tx.alter_table("v", RenameColumn("g", "group"))
    altered.names.update(U="v", ug="group")
    altered.write()
    altered.refresh()
    altered.check()


@pytest.mark.parametrize("crosswise", [False, True])
def test_tables_that_are_renamed_are_followed(altered: AlteredLake, crosswise: bool) -> None:
    with altered.lake.transaction() as tx:
        tx.rename_table("t", "orders")
        if crosswise:
            tx.rename_table("u", "t")
            tx.rename_table("orders", "u")
    altered.names.update({"T": "u", "U": "t"} if crosswise else {"T": "orders"})
    attempts = altered.lake.refresh()
    assert {a.action for a in attempts} == {"none"}, attempts
    altered.check()
    altered.write()
    altered.refresh()
    altered.check()
    joined = next(s for s in altered.lake.stream_tables() if s.name == "joined")
    assert joined.inputs == (altered.names["T"], altered.names["U"])
    assert altered.names["T"] in repr(altered.lake.graph())


@pytest.mark.parametrize(
    "alteration", [SetKey(()), SetRequired("s", False)], ids=["no key", "NULLs"]
)
def test_what_a_plan_relied_on_may_go(altered: AlteredLake, alteration: Alteration) -> None:
    with altered.lake.transaction() as tx:
        tx.alter_table("t", alteration)
    altered.nullable.add("s")
    if isinstance(alteration, SetKey):
        altered.nullable.clear()
    altered.refresh()
    altered.check()
    altered.write()
    altered.refresh()
    altered.check()
    with altered.lake.transaction() as tx:
        tx.alter_table("t", SetComment("x", "again"))
    altered.refresh(adopting=True)


def test_everything_after_each_other_on_spark(tmp_path: Path, spark: object) -> None:
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        altered = AlteredLake(lake, random.Random(3))
        altered.views["but_one"] = replace(
            altered.views["star"],
            query="SELECT * EXCEPT (spare) FROM t",
            told="SELECT `{id}`, `{g}`, `{x}`, `{s}` FROM `{T}`",
        )
        altered.create()
        altered.check()
        with lake.transaction() as tx:
            tx.alter_table("t", *RENAMES["two columns crosswise"][1], DropColumn("spare"))
            tx.alter_table("u", *OTHERS["a column that both tables have now"][1])
        altered.names.update(g="x", x="g")
        settle(altered)
        with lake.transaction() as tx:
            tx.rename_table("t", "tmp")
            tx.rename_table("u", "t")
            tx.rename_table("tmp", "u")
            tx.alter_table("u", AddColumn(Column("spare", pa.int32())), MoveColumn("s"))
        altered.names.update(T="u", U="t")
        altered.write()
        altered.refresh()
        altered.check()
        altered.refresh(full=True)
        altered.check()
