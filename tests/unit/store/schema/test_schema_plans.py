"""Plans of schemas: what they say, what they do, and what they refuse."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidelock
from tidelock import Lake, errors
from tidelock.model.ddl.statements import read_statements

SHOP = """
CREATE TABLE orders (
  id BIGINT PRIMARY KEY, customer_id BIGINT NOT NULL REFERENCES customers ON DELETE CASCADE,
  amount DECIMAL(12,2) CHECK (amount >= 0), note STRING, qty INT);
CREATE TABLE customers (
  id BIGINT PRIMARY KEY, email STRING UNIQUE, boss BIGINT REFERENCES customers,
  tier STRING NOT NULL DEFAULT 'basic' COMMENT 'what they pay');
"""


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        yield lake


def steps(plan: Any) -> list[str]:
    return [" ".join(step.ddl.split()) for step in plan.steps]


def planned(lake: Lake, text: str, **options: Any) -> list[str]:
    return steps(lake.plan_schema(text, **options))


def rows_of(lake: Lake, table: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = lake.table(table).to_arrow().to_pylist()
    return rows


def test_a_plan_creates_what_is_referred_to_first_and_is_empty_when_it_was_applied(
    lake: Lake,
) -> None:
    plan = lake.plan_schema(SHOP)
    assert [step.table for step in plan.steps] == ["customers", "orders"]
    assert plan == lake.plan_schema(SHOP)
    commit = lake.apply_schema(plan)
    assert commit is not None
    assert commit.kind == "schema"
    assert commit.message == "apply schema: create customers, create orders"
    again = lake.plan_schema(SHOP)
    assert not again
    assert repr(again) == "Schema plan for main at version 1: nothing to do, 2 tables declared"
    assert lake.apply_schema(again) is None
    assert lake.snapshot().version == 1


def test_what_a_lake_shows_is_what_it_reads(lake: Lake) -> None:
    lake.apply_schema(SHOP)
    shown = ";\n".join(lake.schema(name).ddl for name in ("customers", "orders"))
    assert not lake.plan_schema(shown)
    assert "CONSTRAINT orders_amount_check CHECK (amount >= 0)" in shown
    assert "COMMENT 'what they pay'" in shown
    with tidelock.open("memory://shown", create=True) as other:
        other.apply_schema(shown)
        assert other.schema("orders").ddl == lake.schema("orders").ddl


def test_each_step_says_what_it_costs_and_what_it_destroys(lake: Lake) -> None:
    lake.apply_schema(SHOP)
    with lake.transaction() as tx:
        tx.append("customers", [{"id": 1}])
        tx.append("orders", [{"id": n, "customer_id": 1, "qty": 2} for n in range(3)])
    changed = SHOP.replace("note STRING, qty INT", "qty BIGINT NOT NULL, since DATE DEFAULT now()")
    changed = changed.replace("amount DECIMAL(12,2)", "total DECIMAL(12,2) RENAMED FROM amount")
    changed = changed.replace("(amount >= 0)", "(total >= 0)")
    plan = lake.plan_schema(changed)
    told = {" ".join(step.ddl.split()): (step.cost, step.loses) for step in plan.steps}
    assert told == {
        "ALTER TABLE orders RENAME COLUMN amount TO total": ("metadata only", None),
        "ALTER TABLE orders ADD COLUMN since DATE DEFAULT now()": ("rewrites 3 rows", None),
        "ALTER TABLE orders DROP COLUMN note": (
            "metadata only",
            "the values of note in 3 rows",
        ),
        "ALTER TABLE orders ALTER COLUMN qty TYPE BIGINT": ("rewrites 3 rows", None),
        "ALTER TABLE orders ALTER COLUMN qty SET NOT NULL": ("reads 3 rows", None),
    }
    assert "5 steps, 1 destructive" in repr(plan)
    document = plan.to_dict()
    assert document["destructive"] == 1
    assert [step["destructive"] for step in document["steps"]].count(True) == 1
    with pytest.raises(errors.InvalidOption, match="destroys the values of note") as caught:
        lake.apply_schema(plan)
    assert "allow_data_loss=True" in str(caught.value)
    lake.apply_schema(plan, allow_data_loss=True)
    assert not lake.plan_schema(changed)
    assert lake.table("orders").schema.names == ("id", "customer_id", "total", "qty", "since")
    assert lake.schema("orders", version=2).schema.names[-1] == "qty"


def test_renames_are_stated_and_stay_stated(lake: Lake) -> None:
    lake.apply_schema("CREATE TABLE t (a INT, b INT)")
    with lake.transaction() as tx:
        tx.append("t", [{"a": 1, "b": 2}])
    guess = lake.plan_schema("CREATE TABLE t (a INT, c INT)")
    assert steps(guess) == ["ALTER TABLE t ADD COLUMN c INT", "ALTER TABLE t DROP COLUMN b"]
    assert "if it was renamed, declare: c INT RENAMED FROM b" in guess.steps[1].why
    stated = "CREATE TABLE u RENAMED FROM t (a INT, c INT RENAMED FROM b)"
    assert planned(lake, stated) == [
        "ALTER TABLE t RENAME TO u",
        "ALTER TABLE u RENAME COLUMN b TO c",
    ]
    lake.apply_schema(stated)
    assert rows_of(lake, "u") == [{"a": 1, "c": 2}]
    assert not lake.plan_schema(stated)
    chain = "CREATE TABLE u (b INT RENAMED FROM a, a INT RENAMED FROM c)"
    lake.apply_schema(chain)
    assert rows_of(lake, "u") == [{"b": 1, "a": 2}]
    assert not lake.plan_schema(chain)


def test_names_of_tables_go_from_one_to_the_next(lake: Lake) -> None:
    lake.apply_schema("CREATE TABLE a (x INT); CREATE TABLE b (y INT)")
    text = "CREATE TABLE b RENAMED FROM a (x INT); CREATE TABLE c RENAMED FROM b (y INT)"
    text += "; CREATE TABLE a (z INT)"
    lake.apply_schema(text)
    assert {n: lake.table(n).schema.names for n in "abc"} == {"a": ("z",), "b": ("x",), "c": ("y",)}
    assert not lake.plan_schema(text)


def test_tables_that_are_not_declared_are_left_alone_unless_it_is_said(lake: Lake) -> None:
    lake.apply_schema("CREATE TABLE a (x INT); CREATE TABLE b (y INT)")
    plan = lake.plan_schema("CREATE TABLE a (x INT)")
    assert not plan
    assert plan.notes == ("b is in the lake and not declared; nothing is done with it",)
    plan = lake.plan_schema("CREATE TABLE a (x INT)", drop_undeclared=True)
    assert steps(plan) == ["DROP TABLE b"]
    with pytest.raises(errors.InvalidOption, match="destroys the table, 0 rows"):
        lake.apply_schema(plan)
    lake.apply_schema(plan, allow_data_loss=True)
    assert [state.name for state in lake.tables()] == ["a"]


def test_a_plan_is_for_the_schemas_that_it_was_made_for(lake: Lake) -> None:
    lake.apply_schema("CREATE TABLE a (x INT); CREATE TABLE b (y INT)")
    plan = lake.plan_schema("CREATE TABLE a (x INT, z INT); CREATE TABLE c (y INT)")
    with lake.transaction() as tx:
        tx.append("a", [{"x": 1}])
        tx.alter_table("b", "ADD COLUMN w INT")
    lake.apply_schema(plan)
    with pytest.raises(errors.PlanOutdated) as caught:
        lake.apply_schema(plan)
    assert caught.value.tables == ["a", "c"]
    assert isinstance(caught.value, errors.ConflictError)
    rename = lake.plan_schema("CREATE TABLE d RENAMED FROM b (y INT, w INT)")
    lake.create_table("d", "q INT")
    with pytest.raises(errors.PlanOutdated, match="'d'"):
        lake.apply_schema(rename)


def test_references_in_a_circle_come_when_all_tables_are_there(lake: Lake) -> None:
    text = """
    CREATE TABLE hens (id INT PRIMARY KEY, egg INT REFERENCES eggs);
    CREATE TABLE eggs (id INT PRIMARY KEY, hen INT REFERENCES hens)
    """
    plan = lake.plan_schema(text)
    assert steps(plan)[-1].startswith("ALTER TABLE eggs ADD FOREIGN KEY (hen) REFERENCES hens")
    lake.apply_schema(plan)
    assert not lake.plan_schema(text)


def test_keys_and_rules_are_compared_by_what_they_say(lake: Lake) -> None:
    lake.apply_schema("CREATE TABLE t (a INT, b INT, CHECK (a > 0), UNIQUE (a, b))")
    assert not lake.plan_schema("CREATE TABLE t (a INT, b INT, UNIQUE (A, b), CHECK (`a`   > 0))")
    keyed = "CREATE TABLE t (a INT, b INT PRIMARY KEY, CHECK (a > 1), UNIQUE (a, b))"
    assert planned(lake, keyed) == [
        "ALTER TABLE t DROP CONSTRAINT t_a_check",
        "ALTER TABLE t ADD PRIMARY KEY (b)",
        "ALTER TABLE t ADD CHECK (a > 1)",
    ]
    lake.apply_schema(keyed)
    assert planned(lake, "CREATE TABLE t (a INT PRIMARY KEY, b INT, CHECK (a > 1))") == [
        "ALTER TABLE t DROP CONSTRAINT t_a_b_key",
        "ALTER TABLE t DROP PRIMARY KEY",
        "ALTER TABLE t ALTER COLUMN b DROP NOT NULL",
        "ALTER TABLE t ADD PRIMARY KEY (a)",
    ]


REFUSED = {
    "CREATE TABLE t (a STRING)": "not every value would be kept",
    "CREATE TABLE t (a INT, b INT NOT NULL)": "BACKFILL AS",
    "CREATE TABLE t (a INT); CREATE TABLE T (b INT)": "declared twice",
    "CREATE TABLE t (a INT REFERENCES nowhere)": "there is no such table",
    "ALTER TABLE t ADD COLUMN b INT;": "says what is to be done",
    "CREATE TABLE t (a INT, b INT DEFAULT c)": "names a column",
}


@pytest.mark.parametrize(("text", "says"), REFUSED.items())
def test_what_cannot_be_planned_is_refused_with_its_line(lake: Lake, text: str, says: str) -> None:
    lake.apply_schema("CREATE TABLE t (a INT)")
    with lake.transaction() as tx:
        tx.append("t", [{"a": 1}])
    with pytest.raises(errors.InputError, match=says) as caught:
        lake.apply_schema(f"\n{text}")
    assert str(caught.value).lower().startswith("line 2")
    assert lake.snapshot().version == 2


def test_a_backfill_is_stated_where_the_column_is(lake: Lake) -> None:
    lake.apply_schema("CREATE TABLE t (a INT)")
    with lake.transaction() as tx:
        tx.append("t", [{"a": 1}])
    text = "CREATE TABLE t (b INT NOT NULL BACKFILL AS (a + 1))"
    lake.apply_schema(text, allow_data_loss=True)
    assert rows_of(lake, "t") == [{"b": 2}]
    assert not lake.plan_schema(text)


def test_sources_are_texts_files_and_folders(lake: Lake, tmp_path: Path) -> None:
    folder = tmp_path / "schema"
    (folder / "more").mkdir(parents=True)
    (folder / "_old").mkdir()
    (folder / "a.sql").write_text("CREATE TABLE a (x INT)")
    (folder / "more" / "b.sql").write_text(
        "CREATE TABLE b (x INT);\nCREATE MATERIALIZED VIEW v AS SELECT * FROM b"
    )
    (folder / "_old" / "c.sql").write_text("nonsense")
    plan = lake.plan_schema(folder)
    assert [step.table for step in plan.steps] == ["a", "b"]
    assert plan.steps[1].why == f"new in {folder / 'more' / 'b.sql'}:1"
    assert "defines a stream table" in plan.notes[0]
    assert [s.table for s in lake.plan_schema(str(folder / "a.sql")).steps] == ["a"]
    (folder / "a.sql").write_text("CREATE TABLE a (\n  x WHAT)")
    with pytest.raises(errors.InvalidDefinition, match=r"a\.sql:2:3: Column 'x'") as caught:
        lake.plan_schema(folder)
    assert (caught.value.line, caught.value.cause) == (2, "UNSUPPORTED_TYPE")
    for wrong in (tmp_path / "nowhere", "nowhere", 5, tmp_path / "lake", "", " "):
        with pytest.raises(errors.InvalidOption):
            lake.plan_schema(wrong)  # type: ignore[arg-type]


def test_what_has_no_effect_is_told(lake: Lake) -> None:
    plan = lake.plan_schema("CREATE TABLE t (a INT) USING delta")
    assert plan.notes == ("USING delta of 't' has no effect: a lake stores its tables itself",)
    with lake.transaction() as tx:
        (statement,) = read_statements("CREATE TABLE u (a INT) TBLPROPERTIES ('x' = 'y')")
        with pytest.warns(UserWarning, match="TBLPROPERTIES of 'u' have no effect"):
            tx.declare(statement)


def test_the_history_of_a_schema_is_told_as_statements(lake: Lake) -> None:
    lake.apply_schema("CREATE TABLE t (a INT, b INT)")
    with lake.transaction() as tx:
        tx.append("t", [{"a": 1}])
    with lake.transaction(message="names") as tx:
        tx.alter_table("t", "RENAME COLUMN a TO x, DROP COLUMN b, ADD CONSTRAINT pos CHECK (x > 0)")
    with lake.transaction() as tx:
        tx.rename_table("t", "u")
    with lake.transaction() as tx:
        tx.append("u", [{"x": 1}])
    with lake.transaction() as tx:
        tx.rename_table("u", "v")
        tx.alter_table("v", "ALTER COLUMN x TYPE BIGINT")
    found = lake.schema_history("v")
    assert [(one.version, list(one.changes)) for one in found] == [
        (6, ["ALTER TABLE u RENAME TO v", "ALTER TABLE v ALTER COLUMN x TYPE BIGINT"]),
        (4, ["ALTER TABLE t RENAME TO u"]),
        (
            3,
            [
                "ALTER TABLE t DROP COLUMN b",
                "ALTER TABLE t RENAME COLUMN a TO x",
                "ALTER TABLE t ADD CONSTRAINT pos CHECK (x > 0)",
            ],
        ),
        (1, ["CREATE TABLE t (\n  a INT,\n  b INT\n)"]),
    ]
    assert [one.version for one in lake.schema_history("v", limit=1)] == [6]
    assert found[2].message == "names"


def test_a_history_knows_columns_by_their_ids(lake: Lake) -> None:
    lake.apply_schema("CREATE TABLE t (id BIGINT PRIMARY KEY, a INT CHECK (a > 0), b STRING)")
    by_names = ("RENAME COLUMN a TO c", "RENAME COLUMN b TO a", "RENAME COLUMN c TO b")
    lake.alter_table("t", *by_names)
    lake.alter_table("t", "DROP COLUMN a", "ADD COLUMN a INT", "RENAME COLUMN b TO c")
    lake.alter_table("t", "DROP PRIMARY KEY", "DROP COLUMN id", "DROP COLUMN c CASCADE")
    assert [list(one.changes) for one in lake.schema_history("t", limit=3)] == [
        [
            "ALTER TABLE t DROP CONSTRAINT t_a_check",
            "ALTER TABLE t DROP PRIMARY KEY",
            "ALTER TABLE t DROP COLUMN id",
            "ALTER TABLE t DROP COLUMN c",
        ],
        [
            "ALTER TABLE t DROP COLUMN a",
            "ALTER TABLE t RENAME COLUMN b TO c",
            "ALTER TABLE t ADD COLUMN a INT",
        ],
        [
            "ALTER TABLE t RENAME COLUMN a TO a_",
            "ALTER TABLE t RENAME COLUMN b TO a",
            "ALTER TABLE t RENAME COLUMN a_ TO b",
        ],
    ]


def test_renames_that_are_not_clear_are_refused(lake: Lake) -> None:
    lake.apply_schema("CREATE TABLE t (a INT, b INT)")
    for columns, said in (
        ("a INT RENAMED FROM b, b INT RENAMED FROM a", "in a circle (column 'a')"),
        ("a INT RENAMED FROM A, b INT", "in a circle"),
        ("x INT RENAMED FROM a, y INT RENAMED FROM a", "'x' and 'y' of table 't' are both"),
    ):
        with pytest.raises(errors.InvalidSchema, match=re.escape(said)):
            lake.plan_schema(f"CREATE TABLE t ({columns})")
    plan = lake.plan_schema("CREATE TABLE t (a INT, b INT, x INT RENAMED FROM gone)")
    assert plan.notes == ("t has no column gone that could become x; it is added",)
    chain = lake.plan_schema("CREATE TABLE t (b INT RENAMED FROM a, c INT RENAMED FROM b)")
    assert [step.ddl for step in chain.steps] == [
        "ALTER TABLE t RENAME COLUMN b TO c",
        "ALTER TABLE t RENAME COLUMN a TO b",
    ]


def test_a_plan_is_for_one_branch(lake: Lake) -> None:
    lake.apply_schema("CREATE TABLE t (a INT)")
    lake.create_branch("dev")
    plan = lake.plan_schema("CREATE TABLE t (a INT, b INT)", branch="dev")
    lake.apply_schema(plan)
    assert lake.schema("t").schema.names == ("a",)
    assert lake.schema("t", branch="dev").schema.names == ("a", "b")
    assert lake.schema("t", branch="dev", version=1).schema.names == ("a",)
