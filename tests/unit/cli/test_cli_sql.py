"""Statements on the command line, as far as they need no engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.cli.command_line import Cli, rows_of

from tidelock.cli.parameters import read_parameters
from tidelock.errors import InvalidOption


def test_a_script_is_one_commit(shop: Cli, tmp_path: Path) -> None:
    script = tmp_path / "fill.sql"
    script.write_text(
        "-- the first orders\nINSERT INTO orders (id, customer) VALUES (1, 'ada'), (2, 'bob');\n"
        "UPDATE orders SET customer = 'grace' WHERE id = 2;\n"
    )
    told = shop("sql", "--file", script, "-m", "fill").out
    assert [line.split() for line in told.splitlines()][2:] == [
        ["INSERT", "orders", "2", "0", "0"],
        ["UPDATE", "orders", "0", "1", "0"],
        ["Committed", "as", "version", "2"],
    ]
    assert [row["customer"] for row in rows_of(shop, "orders")] == ["ada", "grace"]
    assert shop("show", 2, "--json").document["message"] == "fill"


def test_a_statement_comes_from_stdin_and_answers_in_json(shop: Cli) -> None:
    script = (
        b"INSERT INTO orders (id, customer) VALUES (:id, :who);\nDELETE FROM orders WHERE id = 1;\n"
    )
    params = ("-p", "id:int=7", "--param", "who=it's")
    once = ("--operation-id", "one")
    answer = shop("sql", "-", "--json", *params, *once, stdin=script).document
    assert (answer["version"], answer["executed"], answer["operation_id"]) == (2, True, "one")
    assert answer["statements"] == [
        {"statement": "INSERT", "table": "orders", "inserted": 1, "updated": 0, "deleted": 0},
        {"statement": "DELETE", "table": "orders", "inserted": 0, "updated": 0, "deleted": 0},
    ]
    again = shop("sql", "INSERT INTO orders (id) VALUES (8)", "--operation-id", "one")
    assert again.out == "This operation was done before, as version 2. Nothing was executed.\n"
    assert [row["customer"] for row in rows_of(shop, "orders")] == ["it's"]


def test_a_script_declares_tables_and_fills_them(shop: Cli) -> None:
    text = (
        "CREATE TABLE notes (id INT PRIMARY KEY, tier STRING DEFAULT 'basic' CHECK (tier <> ''));"
        "INSERT INTO notes (id) VALUES (1);\nALTER TABLE notes ADD COLUMN text STRING;"
        "UPDATE notes SET text = :text"
    )
    told = shop("sql", text, "-p", "text=a;b").out
    assert told.splitlines()[-1] == "Committed as version 2"
    assert rows_of(shop, "notes") == [{"id": 1, "tier": "basic", "text": "a;b"}]
    broken = text.replace("notes", "others") + ";INSERT INTO others (id, tier) VALUES (2, '')"
    assert "others_tier_check" in shop("sql", broken, "-p", "text=x", code=3).err
    assert "others" not in shop("table", "list").out


def test_a_branch_is_changed(shop: Cli) -> None:
    shop("branch", "create", "dev")
    shop("sql", "INSERT INTO orders (id) VALUES (1)", "-b", "dev")
    assert rows_of(shop, "orders") == []


def test_a_script_that_fails_changes_nothing_and_names_the_statement(shop: Cli) -> None:
    text = "INSERT INTO orders (id) VALUES (1);\nINSERT INTO orders (id) VALUES (1)"
    assert shop("sql", text, code=3).err.startswith("error: Statement 2, line 2: ")
    assert shop("sql", text, "--json", code=3).error["statement_number"] == 2
    assert rows_of(shop, "orders") == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["DELETE FROM orders", "--at", "1"], "are for queries"),
        (["DELETE FROM orders", "--format", "csv"], "are for one query"),
        (["SELECT 1; SELECT 2", "--format", "csv"], "are for one query"),
        (["SELECT 1", "-m", "why"], "A query changes nothing"),
        (["SELECT 1", "--operation-id", "x"], "A query changes nothing"),
        (["VACUUM orders"], "VACUUM is no statement"),
        (["DELETE FROM orders; SELEC 1"], "SELEC is no statement"),
        (["DELETE FROM orders WHERE id = :id"], "--param id=VALUE"),
        (["DELETE FROM orders", "--param", "id=1"], "no parameter :id"),
        (["DELETE FROM orders WHERE id = :id", "--param", "id"], "not NAME=VALUE"),
        (["DELETE FROM orders WHERE id = :id", "-p", "id:integer=1"], "there is no type 'integer'"),
        (["DELETE FROM orders WHERE id = :id", "-p", "id:int=one"], "'one' is no int"),
        (["INSERT INTO nothing VALUES (1)"], "There is no table 'nothing'"),
    ],
)
def test_what_cannot_be_done_is_told(shop: Cli, arguments: list[str], told: str) -> None:
    before = shop("log", "--json").document
    assert told in shop("sql", *arguments, code=3).err
    assert shop("log", "--json").document == before


def test_parameters_have_the_type_that_is_named() -> None:
    given = [
        "a=5",
        "b:int=5",
        "c:double=1.5",
        "d:decimal=1.10",
        "e:boolean=TRUE",
        "f:null=",
        "g=a=b",
    ]
    found = read_parameters([*given, "h:date=2024-01-02", "i:timestamp=2024-01-02T03:04:05+00:00"])
    assert [type(value).__name__ for value in found.values()] == [
        "str", "int", "float", "Decimal", "bool", "NoneType", "str", "date", "datetime",
    ]  # fmt: skip
    assert (found["a"], found["e"], found["g"]) == ("5", True, "a=b")
    with pytest.raises(InvalidOption, match="given twice"):
        read_parameters(["a=1", "a=2"])
