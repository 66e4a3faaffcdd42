"""Schemas from the shell: shown, planned, applied, traced, and applied beside stream tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.cli.command_line import Cli, rows_of

CUSTOMERS = (
    "CREATE TABLE customers (id BIGINT PRIMARY KEY, tier STRING NOT NULL DEFAULT 'basic');\n"
)
NOTES = "CREATE TABLE notes (id BIGINT PRIMARY KEY, who BIGINT REFERENCES customers, t STRING);\n"


@pytest.fixture
def schema(shop: Cli, tmp_path: Path) -> Path:
    folder = tmp_path / "schema"
    folder.mkdir()
    (folder / "a.sql").write_text(NOTES)
    (folder / "b.sql").write_text(CUSTOMERS)
    return folder


def test_a_plan_is_shown_and_changes_nothing(shop: Cli, schema: Path) -> None:
    told = shop("schema", "plan", "schema").out.splitlines()
    assert told[:4] == [
        "Schema plan for main at version 1: 2 steps, 2 tables declared",
        "+ CREATE TABLE customers (",
        "    id BIGINT PRIMARY KEY,",
        "    tier STRING NOT NULL DEFAULT 'basic'",
    ]
    assert "    new in schema/b.sql:1; metadata only" in told
    assert told[-1] == "note: orders is in the lake and not declared; nothing is done with it"
    document = shop("schema", "plan", "schema", "--json").document
    assert [step["table"] for step in document["steps"]] == ["customers", "notes"]
    assert shop("log", "--json").document[0]["version"] == 1


def test_what_is_shown_can_be_applied(shop: Cli, schema: Path, tmp_path: Path) -> None:
    assert "Applied: version 2" in shop("schema", "apply", "schema").out
    shown = shop("schema", "show").out
    (tmp_path / "all.sql").write_text(shown)
    assert "nothing to do, 3 tables declared" in shop("schema", "apply", "all.sql").out
    assert shop("schema", "apply", "all.sql", "--json").document["commit"] is None
    one = shop("schema", "show", "notes").out
    assert one.startswith("CREATE TABLE notes (\n  id BIGINT PRIMARY KEY,\n")
    assert "FOREIGN KEY (who) REFERENCES customers\n);\n" in one
    document = shop("schema", "show", "notes", "--version", 2, "--json").document
    assert [column["name"] for column in document["columns"]] == ["id", "who", "t"]
    assert document["rules"][0]["kind"] == "reference"
    assert "no table 'notes'" in shop("schema", "show", "notes", "--at", 1, code=3).err


def test_what_destroys_something_needs_a_word(shop: Cli, schema: Path) -> None:
    shop("schema", "apply", "schema")
    (schema / "a.sql").write_text(NOTES.replace(", t STRING", ""))
    refused = shop("schema", "apply", "schema", code=3).err
    assert "DROP COLUMN t destroys the column t" in refused
    assert "Say --allow-data-loss" in refused
    shop("schema", "apply", "schema", "--allow-data-loss", "-m", "nobody uses it")
    (schema / "a.sql").unlink()
    assert "DROP TABLE notes" in shop("schema", "plan", "schema", "--drop-undeclared").out
    history = shop("schema", "history", "notes").out.splitlines()
    assert history[0].endswith("nobody uses it")
    assert history[1] == "  ALTER TABLE notes DROP COLUMN t"
    assert history[3] == "  CREATE TABLE notes ("
    assert history[-1] == "  )"
    document = shop("schema", "history", "notes", "--json", "-n", 1).document
    assert [one["changes"] for one in document] == [["ALTER TABLE notes DROP COLUMN t"]]
    assert "notes altered" in shop("log").out


def test_mistakes_are_told_with_file_line_and_column(shop: Cli, schema: Path) -> None:
    (schema / "a.sql").write_text("CREATE TABLE a (\n  id BIGINT,\n  x MONEY)")
    error = shop("schema", "plan", "schema", code=3).err
    assert error.startswith("error: schema/a.sql:3:3: Column 'x' cannot have the type MONEY")
    assert "There is no file or folder 'none'" in shop("schema", "plan", "none", code=3).err


def test_load_evolves_a_table_on_a_word(shop: Cli) -> None:
    refused = shop("load", "orders", "--format", "jsonl", stdin=b'{"id": 1, "n": 5}\n', code=3).err
    assert refused.endswith("Nothing was loaded. --evolve adds it.\n")
    shop("load", "orders", "--format", "jsonl", "--evolve", stdin=b'{"id": 1, "n": 5}\n')
    assert rows_of(shop, "orders")[0]["n"] == 5
    assert "orders altered +1" in shop("log").out


@pytest.fixture
def pipe(shop: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TIDELOCK_ENGINE", "sail")
    folder = tmp_path / "pipe"
    (folder / "schema").mkdir(parents=True)
    (folder / "schema" / "tables.sql").write_text(CUSTOMERS)
    (folder / "views.sql").write_text(
        NOTES + "CREATE MATERIALIZED VIEW tiers AS\nSELECT tier, count(*) AS n FROM customers "
        "GROUP BY tier;\n"
    )
    return folder


def files_of(path: Path) -> set[Path]:
    return {file for file in path.rglob("*") if file.is_file() and "leases" not in file.parts}


def test_tables_and_stream_tables_are_one_plan_and_one_commit(
    shop: Cli, pipe: Path, tmp_path: Path
) -> None:
    before = files_of(tmp_path / "shop.lake")
    dry = shop("apply", "pipe", "--dry-run").out
    assert files_of(tmp_path / "shop.lake") == before
    applied = shop("apply", "pipe").out
    assert dry.replace("Nothing was changed.", "Applied: version 2") == applied
    lines = applied.splitlines()
    assert lines[0] == "pipe: 2 steps for tables, 1 to create"
    assert lines[1] == "+ CREATE TABLE customers ("
    assert "    new in pipe/views.sql:1; metadata only" in lines
    assert lines[-2] == "+ create     tiers  new in pipe/views.sql:2"
    assert shop("apply", "pipe").out == "pipe: nothing to do, 3 unchanged\n"
    document = shop("apply", "pipe", "--json").document
    assert document["schema"]["steps"] == []


def test_a_dry_run_of_alterations_leaves_nothing(shop: Cli, pipe: Path, tmp_path: Path) -> None:
    shop("apply", "pipe")
    shop("load", "customers", "--format", "csv", stdin=b"id\n1\n2\n")
    (pipe / "schema" / "tables.sql").write_text(
        "CREATE TABLE customers (id BIGINT PRIMARY KEY, since DATE DEFAULT current_date(), "
        "level STRING NOT NULL DEFAULT 'basic' RENAMED FROM tier, n DECIMAL(5,1) DEFAULT 2);"
    )
    (pipe / "views.sql").write_text(
        NOTES.replace("t STRING", "u STRING") + "CREATE MATERIALIZED VIEW levels AS\n"
        "SELECT level, sum(n) AS n FROM customers GROUP BY level;\n"
    )
    before = files_of(tmp_path / "shop.lake")
    told = shop("apply", "pipe", "--dry-run").out
    assert files_of(tmp_path / "shop.lake") == before
    assert (
        told.splitlines()[0] == "pipe: 5 steps for tables (1 destructive), 1 to drop, 1 to create"
    )
    assert "rewrites 2 rows" in told
    assert "Say --allow-data-loss" in shop("apply", "pipe", "--yes", code=3).err
    shop("apply", "pipe", "--yes", "--allow-data-loss")
    shop("stream", "refresh")
    assert rows_of(shop, "levels") == [{"level": "basic", "n": "4.0"}]


MISTAKES = {
    "CREATE TABLE v (a INT); CREATE MATERIALIZED VIEW v AS SELECT 1 AS a": "Rename one",
    "CREATE TABLE tiers (a INT)": "is a stream table",
    "CREATE TABLE a (b INT);\nCREATE TABLE A (b INT)": "declared twice",
    "\nCREATE TABLE a (b INT": "views.sql:2:22: this CREATE TABLE cannot be read",
    "CREATE OR REPLACE TABLE a (b INT)": "throw the rows",
    "ALTER TABLE a DROP COLUMN b": "Only CREATE TABLE",
}


@pytest.mark.parametrize(("text", "says"), MISTAKES.items())
def test_what_cannot_be_applied_is_told_with_its_place(
    shop: Cli, pipe: Path, text: str, says: str
) -> None:
    shop("apply", "pipe")
    (pipe / "views.sql").write_text(text)
    error = shop("apply", "pipe", "--yes", code=3).err
    assert says in error
    assert "pipe/views.sql:" in error


def test_tables_belong_to_a_pipeline_whatever_its_specification_names(
    shop: Cli, pipe: Path
) -> None:
    (pipe / "spark-pipeline.yml").write_text(
        "name: shop\nlibraries:\n  - glob: {include: views.sql}\n"
    )
    assert shop("apply", "pipe").out.splitlines()[0] == "shop: 2 steps for tables, 1 to create"
