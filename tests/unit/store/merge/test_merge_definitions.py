"""Definitions at a merge: names, types, defaults, rules and comments, changed on both sides."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.merged import conflicts, rows
from tests.support.ruled import new_lake

from tidelock import Lake, errors

DDL = "id INT NOT NULL, a INT, b STRING"
ROWS = [{"id": 1, "a": 1, "b": "x"}, {"id": 2, "a": 2, "b": "y"}]


def parted(source: list[str], target: list[str], ddl: str = DDL, key: str | None = "id") -> Lake:
    """A table that `dev` and `main` altered, each in its own way; what is no alteration is a
    statement."""
    lake = new_lake()
    lake.create_table("t", ddl, key=key)
    with lake.transaction() as tx:
        tx.append("t", ROWS)
    lake.create_branch("dev")
    for branch, texts in (("dev", source), ("main", target)):
        for text in texts:
            lake.execute(text if " t " in text else f"ALTER TABLE t {text}", branch=branch)
    return lake


@pytest.mark.parametrize(
    ("source", "target", "says"),
    [
        (["ADD CHECK (a < 10)"], ["ALTER COLUMN b SET DEFAULT 'n'"], ["CHECK (a < 10)", "'n'"]),
        (["ALTER COLUMN b SET DEFAULT 'n'"], ["ADD UNIQUE (a)"], ["UNIQUE (a)", "'n'"]),
        (["ADD CHECK (a < 10)"], ["ADD UNIQUE (b)"], ["CHECK (a < 10)", "UNIQUE (b)"]),
        (["ALTER COLUMN a COMMENT 'one'"], ["ALTER COLUMN b COMMENT 'two'"], ["'one'", "'two'"]),
        (["ADD CHECK (a < 10)"], ["ADD CHECK (a < 10)"], ["CHECK (a < 10)"]),
        (["ADD CHECK (a < 10)"], ["RENAME COLUMN a TO z"], ["CHECK (`z` < 10)"]),
    ],
)
def test_definitions_that_move_no_row_are_merged_too(
    source: list[str], target: list[str], says: list[str]
) -> None:
    with parted(source, target) as lake:
        lake.merge("dev")
        assert all(one in lake.schema("t").ddl for one in says), lake.schema("t").ddl
        assert lake.merge("dev").outcome == "up to date"
        lake.merge("main", into="dev")
        assert {one.text for one in lake.rules("t", branch="dev")} == {
            one.text for one in lake.rules("t")
        }


def test_a_definition_comes_also_when_the_target_changed_other_tables_alone() -> None:
    with parted(["ADD CHECK (a < 10)"], []) as lake:
        lake.create_table("other", "id INT")
        lake.merge("dev")
        assert "CHECK (a < 10)" in lake.schema("t").ddl


@pytest.mark.parametrize(
    ("source", "target", "kept"),
    [
        ("ALTER COLUMN a SET DEFAULT 1", "ALTER COLUMN a SET DEFAULT 2", "DEFAULT {}"),
        ("ADD CONSTRAINT c CHECK (a < 10)", "ADD CONSTRAINT c CHECK (a < 20)", "CHECK (a < {}0)"),
        ("ALTER COLUMN a COMMENT '1'", "ALTER COLUMN a COMMENT '2'", "COMMENT '{}'"),
    ],
)
def test_one_definition_changed_otherwise_on_each_side_is_a_conflict(
    source: str, target: str, kept: str
) -> None:
    for number, side in ((1, "source"), (2, "target")):
        with parted([source], [target]) as lake:
            (found,) = conflicts(lake)
            assert (found.table, found.kind) == ("t", "schema")
            assert lake.merge("dev", on_conflict=side).table("t").resolved == 1
            assert kept.format(number) in lake.schema("t").ddl


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        (
            "CHECK (a < 10)",
            "UNIQUE (a, b) WHERE (a > 0)",
            "CHECK (a < 10) at the source, UNIQUE (a, b) WHERE (a > 0) at the target",
        ),
        (
            "CARDINALITY (b) AT MOST 3",
            "CARDINALITY (b) AT LEAST 1",
            "CARDINALITY (b) BETWEEN 0 AND 3 at the source, "
            "CARDINALITY (b) AT LEAST 1 at the target",
        ),
    ],
)
def test_rules_of_one_name_that_differ_are_told_as_they_are_declared(
    source: str, target: str, said: str
) -> None:
    with parted([f"ADD CONSTRAINT c {source}"], [f"ADD CONSTRAINT c {target}"]) as lake:
        (found,) = conflicts(lake)
        assert found.why == f"the rule 'c': {said}"


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (
            ["DROP COLUMN a", "ADD COLUMN a STRING"],
            ["UPDATE t SET b = 'z' WHERE id = 1"],
            [{"id": 1, "b": "z", "a": None}, {"id": 2, "b": "y", "a": None}],
        ),
        (
            ["RENAME COLUMN a TO z", "ADD COLUMN a INT DEFAULT 7"],
            ["UPDATE t SET a = 5 WHERE id = 1"],
            [{"id": 1, "z": 5, "b": "x", "a": 7}, {"id": 2, "z": 2, "b": "y", "a": 7}],
        ),
        (
            ["RENAME COLUMN a TO z", "RENAME COLUMN b TO a", "ALTER COLUMN z TYPE BIGINT"],
            ["UPDATE t SET a = 5 WHERE id = 1"],
            [{"id": 1, "z": 5, "a": "x"}, {"id": 2, "z": 2, "a": "y"}],
        ),
    ],
)
def test_a_name_that_another_column_has_now_is_merged(
    source: list[str], target: list[str], expected: list[dict[str, Any]]
) -> None:
    with parted(source, target) as lake:
        lake.merge("dev")
        assert rows(lake, "t") == expected
        assert lake.verify().ok


@pytest.mark.parametrize("side", ["source", "target"])
def test_of_two_new_columns_of_one_name_the_chosen_one_stays(side: str) -> None:
    sources = ["ADD COLUMN c INT", "UPDATE t SET c = 1 WHERE id = 1"]
    targets = ["ADD COLUMN c STRING", "UPDATE t SET c = 'x' WHERE id = 2"]
    with parted(sources, targets) as lake:
        (found,) = conflicts(lake)
        assert (found.kind, found.columns) == ("schema", ("c",))
        lake.merge("dev", on_conflict=side)
        expected = {"source": [1, None], "target": [None, "x"]}[side]
        assert [row["c"] for row in rows(lake, "t")] == expected


def test_null_comes_into_a_column_that_one_side_no_longer_requires() -> None:
    texts = ["ALTER COLUMN a DROP NOT NULL", "INSERT INTO t VALUES (3, NULL, 'z')"]
    insert = ["INSERT INTO t VALUES (4, 4, 'q')"]
    for source, target in ((texts, insert), (insert, texts)):
        with parted(source, target, "id INT NOT NULL, a INT NOT NULL, b STRING") as lake:
            lake.merge("dev")
            assert [row["a"] for row in rows(lake, "t")] == [1, 2, None, 4]
            assert lake.schema("t").schema.column("a").nullable


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("rule", "column"),
    [
        ("ADD UNIQUE (a)", "ALTER COLUMN a TYPE DOUBLE"),
        ("ADD CARDINALITY (a) AT MOST 3", "ALTER COLUMN a TYPE DOUBLE"),
        ("ADD CHECK (a < 10)", "DROP COLUMN a"),
        ("ADD UNIQUE (a, b)", "DROP COLUMN a"),
    ],
)
def test_a_rule_on_a_column_that_the_other_side_takes_from_under_it_is_a_conflict(
    rule: str, column: str, turned: bool
) -> None:
    sides = ([rule], [column])
    with parted(*(reversed(sides) if turned else sides)) as lake:
        (found,) = conflicts(lake)
        assert (found.table, found.kind) == ("t", "schema")
        assert "rule" in found.why
        assert "'a'" in found.why


def test_a_column_that_one_side_requires_and_a_rule_of_the_other_empties_is_a_conflict() -> None:
    rule = "ADD FOREIGN KEY (a) REFERENCES `t` ON DELETE SET NULL"
    with parted([rule], ["ALTER COLUMN a SET NOT NULL"]) as lake:
        (found,) = conflicts(lake)
        assert (found.kind, found.columns) == ("schema", ("a",))
        assert "ON DELETE SET NULL" in found.why


@pytest.mark.parametrize("turned", [False, True])
def test_a_key_of_one_side_that_rows_of_the_other_repeat_is_a_conflict(turned: bool) -> None:
    sides = (["ADD PRIMARY KEY (a)"], ["INSERT INTO t VALUES (3, 1, 'z')"])
    with parted(*(reversed(sides) if turned else sides), key=None) as lake:
        (found,) = conflicts(lake)
        assert (found.table, found.kind, found.key) == ("t", "uniqueness", {"a": 1})


def test_a_key_of_one_side_comes_where_rows_of_the_other_agree() -> None:
    sides = (["ADD PRIMARY KEY (a)"], ["INSERT INTO t VALUES (3, 3, 'z')"])
    with parted(*sides, key=None) as lake:
        lake.merge("dev")
        assert lake.schema("t").schema.key == ("a",)
        with pytest.raises(errors.DuplicateKey):
            lake.execute("INSERT INTO t VALUES (4, 3, 'z')")


def test_a_rule_that_is_dropped_with_its_column_is_no_conflict() -> None:
    with parted(["DROP COLUMN a CASCADE"], ["INSERT INTO t VALUES (3, 3, 'z')"], DDL) as lake:
        lake.merge("dev")
        assert lake.schema("t").schema.names == ("id", "b")


@pytest.mark.parametrize(
    ("on_conflict", "error"),
    [
        ({"t": {"a": "source.a;; DROP"}}, errors.InvalidExpression),
        ({"t": {"a": "source.a +"}}, errors.InvalidExpression),
        ({"t": {"a": "source.a)"}}, errors.InvalidExpression),
        ({"nobody": "source"}, errors.TableNotFound),
    ],
)
def test_a_resolution_that_means_nothing_is_refused(
    on_conflict: dict[str, Any], error: type[Exception]
) -> None:
    updates = (["UPDATE t SET a = 5 WHERE id = 1"], ["UPDATE t SET a = 6 WHERE id = 1"])
    with parted(*updates) as lake:
        with pytest.raises(error):
            lake.merge("dev", on_conflict=on_conflict)
        assert rows(lake, "t")[0]["a"] == 6


def test_a_value_that_does_not_fit_is_told_in_the_words_of_its_expression() -> None:
    updates = (["UPDATE t SET a = 5 WHERE id = 1"], ["UPDATE t SET a = 6 WHERE id = 1"])
    with parted(*updates) as lake:
        with pytest.raises(errors.WrongType) as refused:
            lake.merge("dev", on_conflict={"t": {"a": "source.a * 10000000000"}})
        assert "__tidelock" not in str(refused.value)
        assert "source.a" in str(refused.value)
