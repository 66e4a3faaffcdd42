"""UNIQUE holds over everything that is committed, whichever way rows come."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.support.lakes import seed_of
from tests.support.ruled import new_lake, refused, rows_in, unique

from tidelock import Lake
from tidelock.errors import InvalidSchema, RuleBroken
from tidelock.model.schema.alterations import AddRule, DropRule, RenameColumn
from tidelock.model.schema.declared import DeclaredRule

DDL = "id BIGINT, email STRING, team BIGINT, status STRING"


def people(key: str | None, *rules: AddRule) -> Lake:
    lake = new_lake()
    with lake.transaction() as tx:
        tx.create_table("people", DDL, key=key)
        tx.alter_table("people", *rules)
    return lake


def row(id: int, email: str | None = None, team: int | None = None, status: str = "open") -> Any:
    return {"id": id, "email": email, "team": team, "status": status}


def append(lake: Lake, *rows: Any) -> None:
    with lake.transaction() as tx:
        tx.append("people", list(rows))


@pytest.fixture(params=["id", None], ids=["keyed", "keyless"])
def lake(request: pytest.FixtureRequest) -> Lake:
    return people(request.param, unique("email", name="one_each"))


def test_a_value_that_is_there_is_refused_and_named(lake: Lake) -> None:
    append(lake, row(1, "a"), row(2, "b"))
    with pytest.raises(RuleBroken) as caught:
        append(lake, row(3, "c"), row(4, "b"))
    error = caught.value
    assert error.message == (
        "Table 'people': rule 'one_each' is broken by 2 rows: email = 'b' is in 2 rows. Nothing "
        "was written."
    )
    assert (error.table, error.rule, error.kind, error.count) == ("people", "one_each", "unique", 2)
    assert [one["id"] for one in error.rows] == [2, 4]
    assert lake.table("people").count() == 2


def test_a_value_twice_in_one_transaction_is_refused(lake: Lake) -> None:
    with pytest.raises(RuleBroken, match="is in 3 rows"):
        append(lake, row(1, "a"), row(2, "a"), row(3, "a"))
    with refused(lake, match="is in 2 rows") as tx:
        tx.append("people", [row(1, "a")])
        tx.append("people", [row(2, "a")])


def test_null_is_never_a_value_twice(lake: Lake) -> None:
    append(lake, row(1), row(2))
    append(lake, row(3))
    assert lake.table("people").count() == 3


def test_a_value_that_leaves_may_come_again_in_the_same_transaction(lake: Lake) -> None:
    append(lake, row(1, "a"), row(2, "b"))
    with lake.transaction() as tx:
        tx.append("people", [row(3, "a")])
        tx.delete("people", "id = 1")
    assert sorted(one["id"] for one in rows_in(lake.table("people"))) == [2, 3]


def test_values_may_be_swapped_within_a_transaction(lake: Lake) -> None:
    append(lake, row(1, "a"), row(2, "b"))
    with lake.transaction() as tx:
        tx.update("people", {"email": "'b'"}, "id = 1")
        tx.update("people", {"email": "'a'"}, "id = 2")
    found = {one["id"]: one["email"] for one in rows_in(lake.table("people"))}
    assert found == {1: "b", 2: "a"}


def test_an_update_that_moves_a_value_onto_another_is_refused(lake: Lake) -> None:
    append(lake, row(1, "a"), row(2, "b"))
    with refused(lake) as tx:
        tx.update("people", {"email": "'b'"}, "id = 1")
    with lake.transaction() as tx:
        tx.update("people", {"status": "'done'"}, "true")
    assert {one["email"] for one in rows_in(lake.table("people"))} == {"a", "b"}


def test_an_upsert_may_keep_its_own_value_and_not_take_anothers() -> None:
    lake = people("id", unique("email"))
    append(lake, row(1, "a"), row(2, "b"))
    with lake.transaction() as tx:
        tx.upsert("people", [row(1, "a", 7), row(3, "c")])
    with refused(lake, match="email = 'b'") as tx:
        tx.upsert("people", [row(1, "b"), row(4, "d")])


def test_an_overwrite_is_compared_with_itself_alone(lake: Lake) -> None:
    append(lake, row(1, "a"), row(2, "b"))
    with lake.transaction() as tx:
        tx.overwrite("people", [row(5, "a"), row(6, "b")])
    with refused(lake) as tx:
        tx.overwrite("people", [row(7, "x"), row(8, "x")])


def test_a_stream_is_checked_like_rows(lake: Lake) -> None:
    append(lake, row(1, "a"))
    schema = pa.schema([("id", pa.int64()), ("email", pa.string())])
    batches = [pa.RecordBatch.from_pylist([{"id": i, "email": f"e{i}"}], schema) for i in (2, 3)]
    with lake.transaction() as tx:
        tx.append("people", pa.RecordBatchReader.from_batches(schema, batches))
    with refused(lake, match="email = 'e3'") as tx:
        again = [pa.RecordBatch.from_pylist([{"id": 9, "email": "e3"}], schema)]
        tx.append("people", pa.RecordBatchReader.from_batches(schema, again))
    assert not lake.intents()


def test_several_columns_are_one_value_and_a_null_in_one_exempts() -> None:
    lake = people(None, unique("email", "team"))
    append(lake, row(1, "a", 1), row(2, "a", 2), row(3, "b", 1), row(4, "a"), row(5, "a"))
    with pytest.raises(RuleBroken, match=r"\(email, team\) = \('a', 2\) is in 2 rows"):
        append(lake, row(6, "a", 2), row(7, "b", 2))


def test_a_condition_limits_the_rows_that_are_compared() -> None:
    lake = people("id", unique("team", where="status = 'open'", name="one_open"))
    append(lake, row(1, team=1), row(2, team=1, status="done"), row(3, team=1, status="done"))
    with pytest.raises(RuleBroken, match="team = 1 is in 2 rows"):
        append(lake, row(4, team=1))
    with refused(lake) as tx:
        tx.update("people", {"status": "'open'"}, "id = 2")
    with lake.transaction() as tx:
        tx.update("people", {"status": "'done'"}, "id = 1")
        tx.update("people", {"status": "'open'"}, "id = 2")
    append(lake, row(5, team=2), row(6, team=3))


def test_a_column_of_the_condition_may_be_renamed_and_not_dropped() -> None:
    lake = people("id", unique("team", where="status = 'open'", name="one_open"))
    append(lake, row(1, team=1))
    with lake.transaction() as tx:
        tx.alter_table("people", RenameColumn("status", "state"))
    assert lake.table("people").schema.rules[0].condition == "`state` = 'open'"
    with refused(lake) as tx:
        tx.append("people", [{"id": 2, "team": 1, "state": "open"}])


def test_a_rule_that_is_dropped_holds_no_longer(lake: Lake) -> None:
    append(lake, row(1, "a"))
    with lake.transaction() as tx:
        tx.alter_table("people", DropRule("one_each"))
        tx.append("people", [row(2, "a")])
    assert lake.table("people").count() == 2


@pytest.mark.parametrize("kind", ["DOUBLE", "ARRAY<INT>", "STRUCT<a: INT>"])
def test_values_that_cannot_be_compared_exactly_cannot_be_unique(kind: str) -> None:
    lake = new_lake()
    lake.create_table("t", f"x {kind}")
    with pytest.raises(InvalidSchema, match="compared exactly"), lake.transaction() as tx:
        tx.alter_table("t", unique("x"))


def test_a_rule_without_columns_is_refused() -> None:
    lake = people(None)
    with pytest.raises(InvalidSchema, match="names no column"), lake.transaction() as tx:
        tx.alter_table("people", AddRule(DeclaredRule("unique", "u")))
    with pytest.raises(InvalidSchema, match="twice"), lake.transaction() as tx:
        tx.alter_table("people", unique("team", "team"))


@pytest.mark.parametrize(
    ("ddl", "values"),
    [
        ("BOOLEAN", [True, False]),
        ("DECIMAL(20,4)", ["1.5", "1.25"]),
        ("DATE", ["0001-01-01", "9999-12-31"]),
        ("TIMESTAMP", ["2020-01-01T00:00:00.000001Z", "2020-01-01T00:00:00Z"]),
        ("BINARY", [b"\0", b""]),
        ("TINYINT", [-128, 127]),
        ("STRING", ["it's", "É"]),
    ],
)
def test_every_type_of_a_key_can_be_unique(ddl: str, values: list[Any]) -> None:
    lake = new_lake()
    with lake.transaction() as tx:
        tx.create_table("t", f"x {ddl}, y {ddl}")
        tx.alter_table("t", unique("x"), unique("x", "y"))
    arrow = lake.table("t").schema.arrow.field("x").type
    array = pa.array(values).cast(arrow) if ddl != "BINARY" else pa.array(values, arrow)
    with lake.transaction() as tx:
        tx.append("t", pa.table({"x": array, "y": array}))
    with refused(lake) as tx:
        tx.append("t", pa.table({"x": array.slice(1), "y": array.slice(0, 1)}))


def test_many_values_are_compared_exactly() -> None:
    with seed_of() as seed:
        random = np.random.default_rng(seed)
        lake = people(None, unique("team"))
        teams = random.permutation(60_000)
        with lake.transaction() as tx:
            tx.append("people", pa.table({"id": np.arange(50_000), "team": teams[:50_000]}))
        with lake.transaction() as tx:
            tx.append("people", pa.table({"id": np.arange(5_000), "team": teams[50_000:55_000]}))
        again = np.concatenate([teams[55_000:], teams[:7]])
        with pytest.raises(RuleBroken) as caught, lake.transaction() as tx:
            tx.append("people", pa.table({"id": np.arange(len(again)), "team": again}))
        assert caught.value.count == 14
