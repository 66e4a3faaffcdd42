"""Statements that need no engine: constants, and what Lance and Arrow evaluate."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import tidelock
from tidelock import Lake, errors
from tidelock.run.engine.session import Engine
from tidelock.store.statements.reports import StatementReport

HOSTILE = ["'", "''; DROP TABLE t; --", '"', "`", "\\", "${x}", "{t0}", ":p", "?", "\n", "\0", "é"]


@pytest.fixture
def lake(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Lake]:
    """A lake in memory whose engine must not be asked."""

    def refuse(engine: Engine) -> Any:
        raise AssertionError("an engine was asked for")

    monkeypatch.setattr(Engine, "get", refuse)
    with tidelock.open(f"memory://{request.node.name}", create=True) as lake:
        lake.execute(
            "CREATE TABLE t (id BIGINT NOT NULL, a INT, s STRING, d DECIMAL(6,2), at TIMESTAMP,"
            " PRIMARY KEY (id)); CREATE TABLE plain (a INT, s STRING)"
        )
        yield lake


def rows(lake: Any, table: str = "t") -> list[tuple[Any, ...]]:
    found = lake.table(table).to_arrow().to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


def test_a_text_is_one_commit_and_says_what_it_did(lake: Lake) -> None:
    done = lake.execute(
        "INSERT INTO t (id, a) VALUES (1, 10), (2, 20), (3, 30);\n"
        "UPDATE t SET a = a + 1 WHERE id >= 2;\n"
        "DELETE FROM t WHERE a = 31;\n"
        "INSERT INTO plain VALUES (1, 'x')",
        message="some work",
    )
    assert [(one.kind, one.table, one.inserted, one.updated, one.deleted) for one in done.statements
            ] == [
        ("INSERT", "t", 3, 0, 0),
        ("UPDATE", "t", 0, 2, 0),
        ("DELETE", "t", 0, 0, 1),
        ("INSERT", "plain", 1, 0, 0),
    ]  # fmt: skip
    assert (done.version, done.commit.message) == (2, "some work")
    assert done.commit.table("t").summary == "t +3 ~2 -1"
    assert rows(lake) == [(1, 10, None, None, None), (2, 21, None, None, None)]
    assert repr(done) == (
        "Execution(version=2, [INSERT t +3; UPDATE t ~2; DELETE t -1; INSERT plain +1])"
    )
    assert repr(done.statements[0]) == "StatementReport(INSERT t +3)"
    assert "inserted" in repr(done.statements)


def test_a_text_without_a_message_says_what_it_does(lake: Lake) -> None:
    lake.execute("INSERT INTO plain VALUES (1, 'a'); INSERT INTO plain VALUES (2, 'b')")
    lake.execute("TRUNCATE TABLE plain; DROP TABLE t")
    assert [commit.message for commit in lake.log(limit=2)] == [
        "truncate plain, drop table t",
        "insert plain",
    ]


def test_an_operation_id_is_executed_once(lake: Lake) -> None:
    first = lake.execute("INSERT INTO plain VALUES (1, 'a')", operation_id="once")
    again = lake.execute("INSERT INTO plain VALUES (1, 'a')", operation_id="once")
    assert (first.repeated, again.repeated) == (False, True)
    assert again.commit == first.commit
    assert tuple(again.statements) == (StatementReport("INSERT", "plain"),)
    assert rows(lake, "plain") == [(1, "a")]


def test_a_branch_is_changed_alone(lake: Lake) -> None:
    lake.create_branch("dev")
    lake.execute("INSERT INTO plain VALUES (1, 'a')", branch="dev")
    assert (lake.table("plain").count(), lake.table("plain", branch="dev").count()) == (0, 1)


def test_statements_see_what_those_before_them_did(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.append("plain", [{"a": 1, "s": "x"}])
        tx.execute("UPDATE plain SET s = 'y' WHERE a = 1")
        tx.execute("INSERT INTO plain VALUES (2, 'z')")
        (report,) = tx.execute("DELETE FROM plain WHERE s = 'y'")
        assert report == StatementReport("DELETE", "plain", deleted=1)
        assert rows(tx, "plain") == [(2, "z")]
    assert rows(lake, "plain") == [(2, "z")]


def test_rows_of_many_small_inserts_are_put_together(lake: Lake) -> None:
    with lake.transaction() as tx:
        for number in range(50):
            tx.execute("INSERT INTO plain VALUES (?, ?)", [number, "x"])
    assert len(lake.table("plain").dataset.get_fragments()) == 1
    lake.execute(";".join(f"INSERT INTO t (id) VALUES ({number})" for number in range(50)))
    assert len(lake.table("t").dataset.get_fragments()) == 1


# Values


@pytest.mark.parametrize(
    ("cell", "column", "expected"),
    [
        ("5", "id", 5),
        ("-2147483648", "a", -2147483648),
        ("NULL", "a", None),
        ("DEFAULT", "s", None),
        ("'it''s'", "s", "it's"),
        ('"double"', "s", "double"),
        ("1.5", "d", Decimal("1.50")),
        ("1.005", "d", Decimal("1.01")),
        ("7", "d", Decimal("7.00")),
        ("TIMESTAMP '2024-01-02 03:04:05Z'", "at", dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC)),
    ],
)
def test_constants_are_stored_as_spark_stores_them(
    lake: Lake, cell: str, column: str, expected: Any
) -> None:
    names = "id" if column == "id" else f"id, {column}"
    cells = cell if column == "id" else f"1, {cell}"
    lake.execute(f"INSERT INTO t ({names}) VALUES ({cells})")
    assert lake.table("t").to_arrow(columns=[column]).column(0).to_pylist() == [expected]


@pytest.mark.parametrize("value", HOSTILE, ids=ascii)
def test_hostile_text_stays_text(lake: Lake, value: str) -> None:
    lake.execute("INSERT INTO t (id, s) VALUES (:id, :s)", {"id": 1, "s": value})
    lake.execute("INSERT INTO t (id, s) VALUES (?, ?)", [2, "other"])
    lake.execute("UPDATE t SET s = :new WHERE s = :old", {"old": "other", "new": value})
    assert [row[2] for row in rows(lake)] == [value, value]
    assert lake.execute("DELETE FROM t WHERE s = ?", [value]).statements[0].deleted == 2


@pytest.mark.parametrize(
    "name", ["select", "a b", "é", "'", '"', "it''s", ";", "--", "1", "{x}", "?"]
)
def test_hostile_names_are_names(lake: Lake, name: str) -> None:
    quoted = f"`{name}`"
    lake.execute(
        f"CREATE TABLE {quoted} ({quoted} INT, b STRING);"
        f"INSERT INTO {quoted} ({quoted}) VALUES (1), (:x);"
        f"UPDATE {quoted} AS x SET x.{quoted} = {quoted} + 1 WHERE {quoted} = 2;"
        f"DELETE FROM {quoted} AS y WHERE y.{quoted} = 1",
        {"x": 2},
    )
    assert rows(lake, name) == [(3, None)]


def test_overwriting_and_truncating_replace_all_rows(lake: Lake) -> None:
    lake.execute("INSERT INTO plain VALUES (1, 'a'), (2, 'b')")
    (report,) = lake.execute("INSERT OVERWRITE plain VALUES (3, 'c')").statements
    assert report == StatementReport("INSERT", "plain", inserted=1, deleted=2)
    (report,) = lake.execute(
        "INSERT INTO plain REPLACE WHERE a = 3 VALUES (4, 'd'), (5, 'e')"
    ).statements
    assert report == StatementReport("INSERT", "plain", inserted=2, deleted=1)
    assert rows(lake, "plain") == [(4, "d"), (5, "e")]
    assert lake.execute("TRUNCATE TABLE plain").statements[0].deleted == 2
    assert lake.execute("DELETE FROM plain").statements[0].deleted == 0


def test_tables_come_and_go(lake: Lake) -> None:
    lake.execute("CREATE TABLE IF NOT EXISTS plain (x INT); DROP TABLE IF EXISTS nothing")
    assert lake.table("plain").schema.names == ("a", "s")
    lake.execute("DROP TABLE plain; CREATE TABLE plain (x INT); INSERT INTO plain VALUES (1)")
    assert rows(lake, "plain") == [(1,)]


# Refusals


@pytest.mark.parametrize(
    ("sql", "error", "told"),
    [
        ("SELECT 1", errors.InvalidExpression, "Use sql(...)"),
        ("WITH a AS (SELECT 1) SELECT * FROM a", errors.InvalidExpression, "Use sql(...)"),
        ("VACUUM t", errors.InvalidExpression, "VACUUM is no statement"),
        ("ALTER TABLE t ADD COLUMN", errors.InvalidSchema, "expected"),
        ("ALTER TABLE t DROP COLUMN x", errors.ColumnNotFound, "'x'"),
        ("CREATE OR REPLACE TABLE t (a INT)", errors.InvalidSchema, "throw the rows"),
        ("CREATE VIEW v AS SELECT 1", errors.InvalidExpression, "CREATE VIEW is no"),
        ("INSERT INTO nothing VALUES (1)", errors.TableNotFound, "There are: plain, t."),
        ("INSERT INTO main.t VALUES (1)", errors.TableNotFound, "main.t"),
        ("INSERT INTO t (id, amont) VALUES (1, 2)", errors.ColumnNotFound, "amont"),
        ("INSERT INTO plain VALUES (1)", errors.InvalidExpression, "1 values are given for 2"),
        ("INSERT INTO t (a) VALUES (1)", errors.RequiredColumnNull, "'id'"),
        ("INSERT INTO t (id) VALUES (NULL)", errors.RequiredColumnNull, "'id'"),
        ("INSERT INTO t (id) VALUES (1)", errors.DuplicateKey, "(id) is in the table already: 1"),
        ("INSERT INTO t (id) VALUES (7), (7)", errors.DuplicateKey, "more than once: 7"),
        ("INSERT INTO plain VALUES ('x', 'y')", errors.WrongType, "cannot be stored in column 'a'"),
        ("INSERT INTO plain VALUES (3000000000, 'y')", errors.WrongType, "3000000000 does not fit"),
        ("INSERT INTO t (id, d) VALUES (2, 12345)", errors.WrongType, "does not fit"),
        ("UPDATE t SET b = 1", errors.ColumnNotFound, "no column 'b'"),
        ("UPDATE t SET a = 1 WHERE ide = 1", errors.ColumnNotFound, "Did you mean 'id'?"),
        ("UPDATE t SET id = NULL", errors.RequiredColumnNull, "'id'"),
        ("UPDATE t SET id = 2 WHERE id = 1", errors.DuplicateKey, "after this update"),
        ("UPDATE t SET a = 'x'", errors.WrongType, "cannot be stored"),
        ("UPDATE t SET a = max(a)", errors.InvalidExpression, "an aggregate"),
        ("DELETE FROM t AS u WHERE t.id = 1", errors.ColumnNotFound, "t.id"),
        ("CREATE TABLE t (x INT)", errors.TableExists, "'t'"),
        ("CREATE TABLE x (a INT, a INT)", errors.InvalidSchema, "two columns"),
        ("DROP TABLE nothing", errors.TableNotFound, "nothing"),
        ("INSERT INTO t VALUES (1", errors.InvalidExpression, "Line 1"),
    ],
)
def test_what_cannot_be_done_is_a_typed_error_and_changes_nothing(
    lake: Lake, sql: str, error: type[errors.TidelockError], told: str
) -> None:
    lake.execute("INSERT INTO t (id, a) VALUES (1, 1), (2, 2)")
    before = lake.snapshot().version
    with pytest.raises(error) as caught:
        lake.execute(sql)
    assert told in str(caught.value)
    assert lake.snapshot().version == before


def test_of_several_statements_the_error_names_the_one(lake: Lake) -> None:
    with pytest.raises(errors.DuplicateKey, match=r"^Statement 2, line 3: ") as caught:
        lake.execute("INSERT INTO t (id) VALUES (1);\n\nINSERT INTO t (id) VALUES (1)")
    assert caught.value.statement_number == 2
    assert rows(lake) == []


def test_a_text_that_fails_leaves_its_transaction_as_it_was(lake: Lake) -> None:
    lake.execute("INSERT INTO t (id, a) VALUES (1, 1)")
    with lake.transaction() as tx:
        tx.append("plain", [{"a": 1}])
        tx.execute("UPDATE t SET a = 5")
        with pytest.raises(errors.TableNotFound):
            tx.execute(
                "INSERT INTO plain VALUES (2, 'x'); UPDATE t SET a = 6; DROP TABLE t;"
                "CREATE TABLE new (x INT); INSERT INTO nothing VALUES (1)"
            )
        with pytest.raises(errors.DuplicateKey):
            tx.execute("INSERT INTO t REPLACE WHERE a = 99 VALUES (1, 2, NULL, NULL, NULL)")
        with pytest.raises(errors.TableNotFound):
            tx.table("new")
        tx.execute("INSERT INTO plain VALUES (3, 'y')")
    assert rows(lake) == [(1, 5, None, None, None)]
    assert rows(lake, "plain") == [(1, None), (3, "y")]
    assert lake.log(limit=1)[0].table("plain").inserted == 2


def test_nothing_runs_before_all_of_a_text_is_read(lake: Lake) -> None:
    with lake.transaction() as tx:
        with pytest.raises(errors.InvalidExpression, match="Line 2"):
            tx.execute("INSERT INTO plain VALUES (1, 'a');\nUPDATE plain SE a = 1")
        assert rows(tx, "plain") == []


def test_a_relation_must_not_hide_a_table(lake: Lake) -> None:
    with pytest.raises(errors.InvalidOption, match="would hide the table"):
        lake.execute("INSERT INTO plain VALUES (1, 'a')", T=[{"a": 1}])
    with pytest.raises(errors.InvalidOption, match="would hide the table"):
        lake.execute("CREATE TABLE staged (a INT)", staged=[{"a": 1}])
    with pytest.raises(errors.InvalidOption, match="Two relations"):
        lake.execute("INSERT INTO plain VALUES (1, 'a')", x=[{"a": 1}], X=[{"a": 1}])
    with pytest.raises(errors.InvalidName):
        lake.execute("INSERT INTO plain VALUES (1, 'a')", __tidelock_target=[{"a": 1}])


def test_an_update_meets_another_commit_as_every_update_does(lake: Lake) -> None:
    lake.execute("INSERT INTO plain VALUES (1, 'a')")
    tx = lake.transaction()
    tx.execute("UPDATE plain SET s = 'b'")
    lake.execute("INSERT INTO plain VALUES (2, 'b')")
    tx.publish()
    tx = lake.transaction()
    tx.execute("UPDATE plain SET s = 'c'")
    lake.execute("UPDATE plain SET s = 'd' WHERE a = 2")
    with pytest.raises(errors.CommitConflict):
        tx.publish()
    lake.run(lambda tx: tx.execute("UPDATE plain SET s = 'b'"))
    with lake.transaction() as tx:
        tx.execute("INSERT INTO plain VALUES (3, 'c')")
        lake.execute("INSERT INTO plain VALUES (4, 'd')")
    assert lake.table("plain").count() == 4


def test_a_closed_transaction_and_a_lake_that_is_read_only_refuse(lake: Lake) -> None:
    with lake.transaction() as tx:
        pass
    with pytest.raises(errors.TransactionClosed):
        tx.execute("INSERT INTO plain VALUES (1, 'a')")
    reader = tidelock.open(lake.uri, read_only=True)
    with pytest.raises(errors.ReadOnlyLake):
        reader.execute("INSERT INTO plain VALUES (1, 'a')")


def test_rows_of_relations_are_read_with_the_types_that_they_have() -> None:
    from tidelock.store.statements.relations import arrow_rows

    assert arrow_rows("r", [{"a": 1}, {"b": "x"}]).to_pylist() == [
        {"a": 1, "b": None},
        {"a": None, "b": "x"},
    ]
    assert arrow_rows("r", {"a": [1, 2]}).num_rows == 2
    assert arrow_rows("r", pa.table({"a": [1]}).to_reader()).num_rows == 1
    for wrong in ([{"a": 1}, {"a": "x"}], [], 5, "text", [1, 2], {"a": [1], "b": [1, 2]}):
        with pytest.raises(errors.WrongType):
            arrow_rows("r", wrong)
