"""Rules, keys and NOT NULL that come to a table with rows: all agree, or nothing changes."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.support.ruled import (
    cardinality,
    check,
    new_lake,
    reference,
    refused,
    rows_in,
    unique,
    violations,
)

from tidelock import Lake
from tidelock.errors import CommitConflict, DuplicateKey, RequiredColumnNull, RuleBroken
from tidelock.model.schema.alterations import (
    AddColumn,
    Alteration,
    DropRule,
    RenameColumn,
    SetKey,
    SetRequired,
)
from tidelock.model.schema.schema import Column


def filled() -> Lake:
    lake = new_lake()
    with lake.transaction() as tx:
        tx.create_table("p", "id BIGINT", key="id")
        tx.create_table("t", "id BIGINT, p BIGINT, note STRING")
        tx.append("p", [{"id": 1}, {"id": 2}])
        tx.append("t", [{"id": 1, "p": 1, "note": "a"}, {"id": 2, "p": 1, "note": None}])
    with lake.transaction() as tx:
        tx.append("t", [{"id": 2, "p": 7, "note": "c"}])
    return lake


@pytest.mark.parametrize(
    ("alteration", "error", "count"),
    [
        (unique("id"), RuleBroken, 2),
        (unique("p"), RuleBroken, 2),
        (check("p < 5"), RuleBroken, 1),
        (reference("p", "p"), RuleBroken, 1),
        (cardinality("p", most=1), RuleBroken, 2),
        (cardinality("p", least=2), RuleBroken, 1),
        (SetKey(("id",)), DuplicateKey, None),
        (SetKey(("id", "note")), RequiredColumnNull, 1),
        (SetRequired("note", True), RequiredColumnNull, 1),
    ],
)
def test_rows_that_do_not_agree_are_named_and_nothing_changes(
    alteration: Alteration, error: type[Exception], count: int | None
) -> None:
    lake = filled()
    with pytest.raises(error) as caught, lake.transaction() as tx:
        tx.alter_table("t", alteration)
    assert getattr(caught.value, "count", None) == count
    assert "Nothing was written" in str(caught.value)
    assert lake.snapshot().version == 2
    assert rows_in(lake.table("t"))


@pytest.mark.parametrize(
    "alteration",
    [
        unique("id", "p"),
        unique("p", where="note IS NOT NULL"),
        check("id > 0"),
        cardinality("p", most=2),
        SetKey(("id", "p")),
        SetRequired("id", True),
        AddColumn(Column("x", pa.int64(), nullable=False, default="1")),
    ],
)
def test_rules_that_agree_with_what_is_there_come(alteration: Alteration) -> None:
    lake = filled()
    with lake.transaction() as tx:
        tx.alter_table("t", alteration)
    assert lake.table("t").count() == 3


def test_rows_may_be_put_right_in_the_same_transaction() -> None:
    lake = filled()
    with lake.transaction() as tx:
        tx.alter_table("t", unique("id"), reference("p", "p"))
        tx.update("t", {"id": "3", "p": "2"}, "p = 7")
        tx.update("t", {"note": "'n'"}, "note IS NULL")
        tx.alter_table("t", SetRequired("note", True), SetKey(("id",)))
    assert not violations(lake.snapshot())
    assert lake.table("t").key == ("id",)


def test_every_parent_must_have_rows_when_the_rule_comes() -> None:
    lake = filled()
    with refused(lake, match="p = 2 has no rows") as tx:
        tx.update("t", {"p": "1"})
        tx.alter_table("t", reference("p", "p"), cardinality("p", least=1))
    with lake.transaction() as tx:
        tx.update("t", {"p": "2"}, "p = 7")
        tx.alter_table("t", reference("p", "p"), cardinality("p", least=1))


def test_a_reference_that_comes_binds_a_cardinality_that_was_there() -> None:
    lake = filled()
    with lake.transaction() as tx:
        tx.update("t", {"p": "1"})
        tx.alter_table("t", cardinality("p", least=1))
    with refused(lake, match="p = 2 has no rows") as tx:
        tx.alter_table("t", reference("p", "p"))


def test_a_table_is_created_with_rules_and_rows_at_once() -> None:
    lake = filled()
    with refused(lake) as tx:
        tx.create_table("n", "x BIGINT")
        tx.append("n", [{"x": 1}, {"x": 1}])
        tx.alter_table("n", unique("x"))
    with refused(lake, match="x = 2 has no rows") as tx:
        tx.create_table("n", "x BIGINT")
        tx.alter_table("n", reference("x", "p"), cardinality("x", least=1))
        tx.append("n", [{"x": 1}])


def test_a_row_that_others_commit_meanwhile_is_compared_too() -> None:
    lake = filled()
    with refused(lake, match="p < 10") as tx:
        tx.alter_table("t", check("p < 10"))
        with lake.transaction() as other:
            other.append("t", [{"id": 9, "p": 10}])
    with refused(lake, RequiredColumnNull) as tx:
        tx.alter_table("t", SetRequired("id", True))
        with lake.transaction() as other:
            other.append("t", [{"id": None}])


def test_a_writer_that_began_before_a_rule_came_is_held_to_it() -> None:
    lake = filled()
    with refused(lake, match="low") as tx:
        tx.append("t", [{"id": 9, "p": 100}])
        with lake.transaction() as other:
            other.alter_table("t", check("p < 10", name="low"))
    with lake.transaction() as tx:
        tx.append("t", [{"id": 9, "p": 9}])
        with lake.transaction() as other:
            other.alter_table("t", DropRule("low"))


def test_a_table_that_begins_to_be_referred_to_while_its_rows_leave() -> None:
    lake = filled()
    with lake.transaction() as tx:
        tx.delete("t", "p = 7")
    with refused(lake) as tx:
        tx.delete("p", "id = 1")
        with lake.transaction() as other:
            other.alter_table("t", reference("p", "p"))
    with refused(lake, (RuleBroken, CommitConflict)) as tx:
        tx.create_table("n", "x BIGINT")
        tx.alter_table("n", reference("x", "p"))
        tx.append("n", [{"x": 2}])
        with lake.transaction() as other:
            other.delete("p", "id = 2")


def test_a_renamed_column_makes_no_new_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    lake = filled()
    with lake.transaction() as tx:
        tx.alter_table("t", check("p < 10"), unique("id", "p"))
    from tidelock.store.rules import verification

    monkeypatch.setattr(verification, "check_all", pytest.fail)
    with lake.transaction() as tx:
        tx.alter_table("t", RenameColumn("p", "q"))
    assert lake.table("t").schema.rule("t_p_check") is not None
