"""CARDINALITY: how many rows a value may have, and must have."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.ruled import cardinality, new_lake, reference, refused, violations

from tidelock import Lake
from tidelock.errors import InvalidSchema, RuleBroken
from tidelock.model.schema.alterations import AddRule


def knows(*rules: AddRule, referring: bool = False) -> Lake:
    lake = new_lake()
    with lake.transaction() as tx:
        tx.create_table("people", "id BIGINT", key="id")
        tx.create_table("knows", "src BIGINT, dst BIGINT, kind STRING")
        if referring:
            tx.alter_table("knows", reference("src", "people"))
        tx.alter_table("knows", *rules)
    return lake


def edges(*pairs: tuple[int | None, int]) -> list[dict[str, Any]]:
    return [{"src": src, "dst": dst, "kind": "a"} for src, dst in pairs]


def people(*ids: int) -> list[dict[str, int]]:
    return [{"id": one} for one in ids]


def test_no_value_has_more_rows_than_allowed() -> None:
    lake = knows(cardinality("src", most=2, name="few"))
    with lake.transaction() as tx:
        tx.append("knows", edges((1, 1), (1, 2), (2, 1)))
    with pytest.raises(RuleBroken) as caught, lake.transaction() as tx:
        tx.append("knows", edges((1, 3), (2, 2)))
    assert caught.value.message == (
        "Table 'knows': rule 'few' is broken by 3 rows: src = 1 has 3 rows, and may have 2 at "
        "most. Nothing was written."
    )
    assert [row["dst"] for row in caught.value.rows] == [1, 2, 3]
    with refused(lake) as tx:
        tx.update("knows", {"src": "1"}, "src = 2")
    with lake.transaction() as tx:
        tx.append("knows", edges((1, 3), (2, 2)))
        tx.delete("knows", "src = 1 AND dst = 1")
    assert not violations(lake.snapshot())


def test_nulls_are_not_counted() -> None:
    lake = knows(cardinality("src", most=1), cardinality("src", "kind", most=1))
    with lake.transaction() as tx:
        tx.append("knows", edges((None, 1), (None, 2), (1, 3)))


def test_a_value_that_occurs_has_as_many_rows_as_it_must() -> None:
    lake = knows(cardinality("src", least=2, name="pairs"))
    with refused(lake, match="src = 1 has 1 row, and must have 2 at least") as tx:
        tx.append("knows", edges((1, 1)))
    with lake.transaction() as tx:
        tx.append("knows", edges((1, 1), (1, 2), (2, 1), (2, 2), (2, 3)))
    with refused(lake) as tx:
        tx.delete("knows", "src = 1 AND dst = 1")
    with lake.transaction() as tx:
        tx.delete("knows", "src = 1")
        tx.delete("knows", "src = 2 AND dst = 1")
    with refused(lake) as tx:
        tx.update("knows", {"src": "3"}, "dst = 2")
    with lake.transaction() as tx:
        tx.update("knows", {"src": "3"})


def test_with_a_reference_every_parent_is_bound() -> None:
    lake = knows(cardinality("src", least=1, most=2, name="some"), referring=True)
    with pytest.raises(RuleBroken) as caught, lake.transaction() as tx:
        tx.append("people", people(1))
    assert caught.value.message == (
        "Table 'knows': rule 'some' is broken: src = 1 has no rows, and must have 1 at least. "
        "Nothing was written."
    )
    with lake.transaction() as tx:
        tx.append("people", people(1, 2))
        tx.append("knows", edges((1, 1), (2, 1), (2, 2)))
    with refused(lake) as tx:
        tx.delete("knows", "src = 1")
    with lake.transaction() as tx:
        tx.delete("knows", "src = 1")
        tx.delete("people", "id = 1")
    assert not violations(lake.snapshot())


def test_several_columns_are_one_value() -> None:
    lake = knows(cardinality("kind", "src", most=1))
    with lake.transaction() as tx:
        tx.append("knows", [{"src": 1, "kind": "a"}, {"src": 1, "kind": "b"}])
    with refused(lake, match=r"\(kind, src\) = \('b', 1\)") as tx:
        tx.append("knows", [{"src": 1, "kind": "b"}])


def test_what_cascades_counts() -> None:
    lake = new_lake()
    with lake.transaction() as tx:
        tx.create_table("teams", "id BIGINT", key="id")
        tx.create_table("people", "id BIGINT", key="id")
        tx.create_table("members", "team BIGINT, person BIGINT")
        tx.alter_table("members", reference("team", "teams", on_delete="cascade"))
        tx.alter_table("members", reference("person", "people", on_delete="cascade"))
        tx.alter_table("members", cardinality("team", least=1, name="manned"))
        tx.append("teams", [{"id": 1}])
        tx.append("people", [{"id": 1}, {"id": 2}])
        tx.append("members", [{"team": 1, "person": 1}, {"team": 1, "person": 2}])
    with lake.transaction() as tx:
        tx.delete("people", "id = 1")
    with refused(lake, match="manned") as tx:
        tx.delete("people", "id = 2")
    with lake.transaction() as tx:
        tx.delete("people", "id = 2")
        tx.delete("teams", "id = 1")
    assert lake.table("members").count() == 0


def test_bounds_that_no_number_is_within_are_refused() -> None:
    lake = knows()
    with pytest.raises(InvalidSchema, match="no number of rows"), lake.transaction() as tx:
        tx.alter_table("knows", cardinality("src", least=3, most=2))
