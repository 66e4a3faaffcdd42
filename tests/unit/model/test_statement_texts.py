"""Statements read from their text alone."""

from __future__ import annotations

from typing import Any

import pytest

from tidelock.errors import InvalidExpression
from tidelock.model.sql.script import read_script
from tidelock.model.sql.statements.changes import (
    read_delete,
    read_insert,
    read_truncate,
    read_update,
)
from tidelock.model.sql.statements.definition import (
    Assigned,
    Delete,
    Insert,
    Merge,
    Truncate,
    Update,
    When,
)
from tidelock.model.sql.statements.merge import read_merge

READERS: dict[str, Any] = {
    "INSERT": read_insert,
    "UPDATE": read_update,
    "DELETE": read_delete,
    "TRUNCATE": read_truncate,
    "MERGE": read_merge,
}


def read(text: str) -> Any:
    (written,) = read_script(text)
    return READERS[written.words[0]](written.change_cursor())


# Scripts


def test_a_text_is_cut_at_its_semicolons_and_nowhere_else() -> None:
    text = (
        "INSERT INTO t VALUES (';', \";\", `;`); -- not ; here\n/* nor ; here */ DELETE FROM t;;\n"
    )
    first, second = read_script(text)
    assert first.text == "INSERT INTO t VALUES (';', \";\", `;`)"
    assert (second.text, second.number, second.line) == ("DELETE FROM t", 2, 2)


@pytest.mark.parametrize(
    ("text", "is_query"),
    [
        ("SELECT 1", True),
        ("(SELECT 1)", True),
        ("VALUES (1)", True),
        ("TABLE t", True),
        ("FROM t SELECT a", True),
        ("WITH a AS (SELECT 1) SELECT * FROM a", True),
        ("WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a", False),
        ("WITH a AS (SELECT 1), b(x) AS (SELECT 2) MERGE INTO t USING a ON true", False),
        ("FROM t INSERT INTO u SELECT a", False),
        ("delete from t", False),
        ("VACUUM t", False),
        ("SHOW TABLES", False),
    ],
)
def test_a_query_is_told_from_a_statement(text: str, is_query: bool) -> None:
    (written,) = read_script(text)
    assert written.is_query is is_query


@pytest.mark.parametrize("text", ["", "  ;; ", "-- nothing", "SELECT 'open", "/* open"])
def test_a_text_without_a_statement_is_refused(text: str) -> None:
    with pytest.raises(InvalidExpression):
        read_script(text)


# INSERT


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "INSERT INTO t VALUES (1, 'a,b'), (f(1, 2), :x)",
            Insert(
                "t",
                "VALUES (1, 'a,b'), (f(1, 2), :x)",
                values=(("1", "'a,b'"), ("f(1, 2)", ":x")),
            ),
        ),
        ("insert into t values 1, 2", Insert("t", "values 1, 2", values=(("1",), ("2",)))),
        (
            "INSERT INTO TABLE `a b` (`x y`, z) SELECT 1, 2",
            Insert("a b", "SELECT 1, 2", ("x y", "z")),
        ),
        ("INSERT INTO t (SELECT 1)", Insert("t", "(SELECT 1)")),
        ("INSERT INTO t TABLE s", Insert("t", "TABLE s")),
        ("INSERT INTO t BY NAME SELECT 1 AS a", Insert("t", "SELECT 1 AS a", by_name=True)),
        ("INSERT OVERWRITE t SELECT 1", Insert("t", "SELECT 1", overwrite=True)),
        ("INSERT OVERWRITE TABLE t (a) SELECT 1", Insert("t", "SELECT 1", ("a",), overwrite=True)),
        (
            "INSERT INTO t REPLACE WHERE a IS DISTINCT FROM 3 SELECT 1",
            Insert("t", "SELECT 1", replace_where="a IS DISTINCT FROM 3"),
        ),
        (
            "WITH q AS (SELECT 1) INSERT INTO t SELECT * FROM q",
            Insert("t", "WITH q AS (SELECT 1)\nSELECT * FROM q"),
        ),
        ("INSERT INTO t VALUES (1) UNION SELECT 2", Insert("t", "VALUES (1) UNION SELECT 2")),
        ("INSERT INTO t VALUES (1) AS q(a)", Insert("t", "VALUES (1) AS q(a)")),
    ],
)
def test_an_insert_is_read(text: str, expected: Insert) -> None:
    assert read(text) == expected


# UPDATE, DELETE, TRUNCATE


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("UPDATE t SET a = 1", Update("t", "t", (Assigned("a", "1"),))),
        (
            "UPDATE t AS u SET u.a = f(1, 2), `b c` = (SELECT x, y FROM z WHERE q) WHERE a = 1",
            Update(
                "t",
                "u",
                (Assigned("a", "f(1, 2)"), Assigned("b c", "(SELECT x, y FROM z WHERE q)")),
                "a = 1",
            ),
        ),
        (
            "UPDATE t u SET a = CASE 'x' WHEN b THEN 1 END, c = CASE WHEN d THEN 2 END",
            Update(
                "t",
                "u",
                (
                    Assigned("a", "CASE 'x' WHEN b THEN 1 END"),
                    Assigned("c", "CASE WHEN d THEN 2 END"),
                ),
            ),
        ),
        ("UPDATE t SET end = 1, case = 2", Update("t", "t", (Assigned("end", "1"),
                                                             Assigned("case", "2")))),
        (
            "WITH q AS (SELECT 1 AS a) UPDATE t SET a = (SELECT a FROM q)",
            Update(
                "t",
                "t",
                (Assigned("a", "(SELECT a FROM q)"),),
                definitions="WITH q AS (SELECT 1 AS a)",
            ),
        ),
        ("DELETE FROM t", Delete("t", "t")),
        ("DELETE FROM `t t` x WHERE x.a IN (1, 2)", Delete("t t", "x", "x.a IN (1, 2)")),
        ("TRUNCATE TABLE t", Truncate("t")),
    ],
)  # fmt: skip
def test_changes_of_rows_are_read(text: str, expected: Any) -> None:
    assert read(text) == expected


def test_comments_and_line_ends_may_stand_everywhere() -> None:
    found = read("UPDATE t -- the table\nSET a = 1 -- one\n + 2, b = 3 /* three */\nWHERE c -- end")
    assert found.assignments == (Assigned("a", "1 -- one\n + 2"), Assigned("b", "3"))
    assert found.where == "c"


# MERGE


def test_a_merge_is_read() -> None:
    text = (
        "MERGE INTO orders AS o USING staged s ON o.id = s.id AND CASE WHEN a THEN b END\n"
        "WHEN MATCHED AND CASE WHEN x THEN y END THEN UPDATE SET\n"
        "a = CASE WHEN p THEN q END, o.b=2\n"
        "WHEN MATCHED THEN DELETE\n"
        "WHEN NOT MATCHED BY TARGET AND s.ok THEN INSERT (id, o.a) VALUES (s.id, f(1, 2))\n"
        "WHEN NOT MATCHED THEN INSERT *\n"
        "WHEN NOT MATCHED BY SOURCE AND o.old THEN UPDATE SET a = DEFAULT\n"
        "WHEN NOT MATCHED BY SOURCE THEN DELETE"
    )
    found = read(text)
    lines = [0, *(at + 1 for at, sign in enumerate(text) if sign == "\n")]
    assert found == Merge(
        "orders",
        "o",
        "SELECT * FROM `staged`",
        "staged",
        "s",
        on="o.id = s.id AND CASE WHEN a THEN b END",
        clauses=(
            When(
                "matched",
                "update",
                "CASE WHEN x THEN y END",
                (Assigned("a", "CASE WHEN p THEN q END"), Assigned("b", "2")),
                lines[1],
            ),
            When("matched", "delete", at=lines[3]),
            When(
                "not matched",
                "insert",
                "s.ok",
                (Assigned("id", "s.id"), Assigned("a", "f(1, 2)")),
                lines[4],
            ),
            When("not matched", "insert", assignments=None, at=lines[5]),
            When("not matched by source", "update", "o.old", (Assigned("a", "DEFAULT"),), lines[6]),
            When("not matched by source", "delete", at=lines[7]),
        ),
    )
    assert found.updates
    assert not found.allows_repeats


@pytest.mark.parametrize(
    ("using", "source", "alias", "columns"),
    [
        ("staged", "SELECT * FROM `staged`", "staged", None),
        ("`a b` AS s", "SELECT * FROM `a b`", "s", None),
        ("(SELECT 1 AS id) s", "SELECT 1 AS id", "s", None),
        ("(VALUES (1, 2)) AS s(id, a)", "VALUES (1, 2)", "s", ("id", "a")),
        ("(SELECT 1 AS id)", "SELECT 1 AS id", None, None),
    ],
)
def test_the_source_of_a_merge_has_many_forms(
    using: str, source: str, alias: str | None, columns: tuple[str, ...] | None
) -> None:
    found = read(f"MERGE INTO t USING {using} ON true WHEN MATCHED THEN DELETE")
    assert (found.source, found.source_alias, found.source_columns) == (source, alias, columns)
    assert found.allows_repeats


# Refusals


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("INSERT t VALUES (1)", "expected INTO"),
        ("INSERT INTO t", "expected a query"),
        ("INSERT INTO t (a, A) VALUES (1, 2)", "listed twice"),
        ("INSERT INTO t PARTITION (a = 1) VALUES (1)", "no partitions"),
        ("INSERT OVERWRITE t REPLACE WHERE a SELECT 1", "REPLACE WHERE"),
        ("UPDATE t SET a.b = 1", "named_struct"),
        ("UPDATE t SET a = 1, A = 2", "set twice"),
        ("UPDATE t SET", "expected a column"),
        ("UPDATE t SET a = 1 WHERE", "expected a condition"),
        ("UPDATE IDENTIFIER(:t) SET a = 1", "named in the text"),
        ("DELETE t WHERE a", "expected FROM"),
        ("DELETE FROM t WHERE (a = 1))", "closes that was not opened"),
        ("DELETE FROM t WHERE ((a = 1)", "a parenthesis that closes"),
        ("TRUNCATE TABLE t x", "expected the end of the statement"),
        ("MERGE INTO t USING s ON true", "expected WHEN"),
        ("MERGE INTO t USING s WHEN MATCHED THEN DELETE", "expected ON"),
        ("MERGE INTO t USING s ON true WHEN MATCHED THEN INSERT *", "may UPDATE or DELETE"),
        ("MERGE INTO t USING s ON true WHEN NOT MATCHED THEN DELETE", "may INSERT"),
        ("MERGE INTO t USING s ON a WHEN MATCHED THEN DELETE WHEN MATCHED THEN DELETE", "Put it"),
        ("MERGE INTO t USING s ON a WHEN NOT MATCHED THEN INSERT (a) VALUES (1, 2)", "1 columns"),
        ("MERGE INTO t USING s ON a WHEN NOT MATCHED THEN INSERT (a, A) VALUES (1, 2)", "twice"),
        ("MERGE INTO t USING s ON a WHEN NOT MATCHED BY SOURCE THEN UPDATE SET *", "no values"),
        ("MERGE WITH SCHEMA EVOLUTION INTO t USING s ON a", "SCHEMA EVOLUTION"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(text: str, told: str) -> None:
    with pytest.raises(InvalidExpression, match=r"^Line 1, column \d+: ") as caught:
        read(text)
    assert told in caught.value.message
    assert caught.value.line == 1
