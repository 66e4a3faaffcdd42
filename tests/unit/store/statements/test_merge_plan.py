"""What a MERGE becomes, decided from its text and the columns alone."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
import sqlglot

from tidelock.errors import ColumnNotFound, RequiredColumnNull
from tidelock.model.ddl import parse_schema
from tidelock.model.sql.script import read_script
from tidelock.model.sql.statements.merge import read_merge
from tidelock.store.statements.merge_plan import MergePlan
from tidelock.store.statements.needed_rows import Narrowing

SCHEMA = parse_schema("id BIGINT NOT NULL, a INT, s STRING", key="id")


def plan(clauses: str, on: str = "t.id = y.id", source: tuple[str, ...] = ("id", "a")) -> MergePlan:
    (written,) = read_script(f"MERGE INTO t USING y ON {on} {clauses}")
    return MergePlan(read_merge(written.change_cursor()), SCHEMA, source)


def sql(found: MergePlan, **options: Any) -> str:
    types = {(n, name): SCHEMA.column(name).type for n, v in enumerate(found.values) for name in v}
    return found.sql(types, ansi=True, **options)


@pytest.mark.parametrize(
    ("clauses", "join"),
    [
        ("WHEN MATCHED THEN DELETE", "INNER"),
        ("WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id) VALUES (id)", "RIGHT OUTER"),
        ("WHEN NOT MATCHED THEN INSERT (id) VALUES (id)", "RIGHT OUTER"),
        ("WHEN NOT MATCHED BY SOURCE THEN DELETE", "LEFT OUTER"),
        (
            "WHEN NOT MATCHED THEN INSERT (id) VALUES (id) WHEN NOT MATCHED BY SOURCE THEN DELETE",
            "FULL OUTER",
        ),
    ],
)
def test_rows_without_a_match_are_read_only_where_they_count(clauses: str, join: str) -> None:
    text = sql(plan(clauses))
    assert f"{join} JOIN" in text
    assert text.count(" JOIN ") == 1
    sqlglot.parse_one(text, dialect="spark")


def test_only_columns_that_are_needed_are_read() -> None:
    assert plan("WHEN MATCHED THEN DELETE").read == ("id",)
    assert plan("WHEN MATCHED AND t.s = 'x' THEN DELETE").read == ("id", "s")
    assert plan("WHEN MATCHED THEN UPDATE SET a = 1").read == SCHEMA.names
    assert plan("WHEN NOT MATCHED THEN INSERT (id, s) VALUES (id, 'x')").read == ("id",)


def test_a_large_target_is_not_sent_to_every_executor() -> None:
    found = plan("WHEN MATCHED THEN DELETE")
    assert "SHUFFLE_MERGE(`t`)" in sql(found, shuffled=True)
    assert "SHUFFLE_MERGE" not in sql(found)


def test_a_star_stands_for_the_columns_of_the_source() -> None:
    found = plan("WHEN MATCHED THEN UPDATE SET *", source=("S", "a", "ID"))
    assert found.values == ({"id": "__tidelock_s2", "a": "__tidelock_s1", "s": "__tidelock_s0"},)
    assert found.told(0, "s") == "y.s"
    with pytest.raises(ColumnNotFound, match="has no column 's'"):
        _ = plan("WHEN MATCHED THEN UPDATE SET *").values


def test_columns_that_are_not_set_keep_their_value_or_get_their_default() -> None:
    (values,) = plan("WHEN NOT MATCHED THEN INSERT (id) VALUES (id)").values
    assert values == {"id": "id", "a": "NULL", "s": "NULL"}
    (values,) = plan("WHEN MATCHED THEN UPDATE SET a = DEFAULT").values
    assert values == {"a": "NULL"}
    with pytest.raises(RequiredColumnNull, match="'id'"):
        _ = plan("WHEN NOT MATCHED THEN INSERT (a) VALUES (1)").values
    with pytest.raises(ColumnNotFound, match="'b'"):
        _ = plan("WHEN MATCHED THEN UPDATE SET b = 1").values


@pytest.mark.parametrize(
    ("clauses", "sets_key"),
    [
        ("WHEN MATCHED THEN UPDATE SET a = 1", False),
        ("WHEN MATCHED THEN UPDATE SET id = 1", True),
        ("WHEN MATCHED THEN DELETE", False),
        ("WHEN NOT MATCHED THEN INSERT (id) VALUES (id)", True),
    ],
)
def test_keys_are_compared_only_where_they_may_change(clauses: str, sets_key: bool) -> None:
    assert plan(clauses).sets_key is sets_key


def test_types_are_asked_where_a_clause_sees_its_columns() -> None:
    found = plan(
        "WHEN MATCHED THEN UPDATE SET a = y.a + t.a WHEN NOT MATCHED THEN INSERT (id) VALUES (id)"
    )
    matched, unmatched = found.types_sql("matched"), found.types_sql("not matched")
    assert matched is not None
    assert unmatched is not None
    assert "JOIN" in matched
    assert "target" not in unmatched
    assert found.types_sql("not matched by source") is None
    assert found.types_of("matched", [pa.int32()]) == {(0, "a"): pa.int32()}


@pytest.mark.parametrize(
    ("on", "pairs", "own"),
    [
        ("t.id = y.id", [("id", "id")], []),
        ("y.key = t.ID AND t.s = 'x'", [("id", "key")], ["s = 'x'"]),
        ("t.id = y.id OR t.a = 1", [], []),
        ("t.id <=> y.id", [], []),
        ("id = y.id AND s = 'x'", [], []),
        ("t.id = y.id + 1 AND t.a > 3 AND y.a < 2", [], ["a > 3"]),
        ("t.a IN (SELECT 1)", [], []),
    ],
)
def test_what_on_says_of_the_target_narrows_it(
    on: str, pairs: list[tuple[str, str]], own: list[str]
) -> None:
    merge = plan("WHEN MATCHED THEN DELETE", on).merge
    found = Narrowing(merge, SCHEMA)
    assert list(found.pairs()) == pairs
    assert list(found.own_conditions()) == own


def test_nothing_is_left_out_where_rows_without_a_match_count() -> None:
    found = Narrowing(plan("WHEN NOT MATCHED BY SOURCE THEN DELETE", "t.id = y.id").merge, SCHEMA)
    assert list(found.pairs()) == []
