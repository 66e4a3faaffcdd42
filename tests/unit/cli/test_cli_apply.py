"""A folder of definitions from the shell: planned, checked, and applied in one commit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.unit.cli.command_line import Cli, rows_of

TOTALS = """CREATE MATERIALIZED VIEW totals AS
SELECT customer, sum(amount) AS total FROM orders GROUP BY customer;
"""
BIG = "CREATE MATERIALIZED VIEW big AS\nSELECT * FROM totals WHERE total > 15;\n"


@pytest.fixture
def pipe(shop: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder `pipe` that defines two stream tables, one above the other."""
    monkeypatch.setenv("TIDELOCK_ENGINE", "sail")
    shop("load", "orders", "--format", "csv", stdin=b"id,customer,amount\n1,ada,10\n2,grace,20\n")
    folder = tmp_path / "pipe"
    folder.mkdir()
    (folder / "a.sql").write_text(BIG + TOTALS)
    return folder


def versions(cli: Cli) -> int:
    return len(cli("log", "--json").document)


def streams(cli: Cli) -> list[str]:
    return [one["name"] for one in cli("stream", "list", "--json").document]


def test_everything_is_one_commit(shop: Cli, pipe: Path) -> None:
    before = versions(shop)
    applied = shop("apply", "pipe", "--json").document
    assert [(one["action"], one["name"]) for one in applied["changes"]] == [
        ("create", "totals"),
        ("create", "big"),
    ]
    assert applied["commit"]["version"] == before + 1
    assert applied["commit"]["message"] == "apply pipe"
    assert versions(shop) == before + 1
    shop("stream", "refresh")
    assert rows_of(shop, "big") == [{"customer": "grace", "total": "20.00"}]
    assert shop("stream", "show", "big", "--json").document["origin"] == "pipe/a.sql:1"


def test_nothing_to_do_is_no_commit(shop: Cli, pipe: Path) -> None:
    shop("apply", "pipe")
    before = versions(shop)
    (pipe / "a.sql").write_text(f"-- moved down\n\n{BIG}{TOTALS}")
    assert "nothing to do, 2 unchanged" in shop("apply", "pipe").out
    assert shop("apply", "pipe", "--json").document["commit"] is None
    assert versions(shop) == before


def test_a_dry_run_shows_the_plan_and_changes_nothing(shop: Cli, pipe: Path) -> None:
    before = versions(shop)
    told = shop("apply", "pipe", "--dry-run").out
    assert "2 to create" in told
    assert "Nothing was changed." in told
    assert versions(shop) == before
    assert streams(shop) == []


def test_options_are_altered_and_rows_stay(shop: Cli, pipe: Path) -> None:
    shop("apply", "pipe")
    shop("stream", "refresh")
    scheduled = TOTALS.replace(" AS\n", " TBLPROPERTIES ('tidelock.schedule' = '5m') AS\n", 1)
    (pipe / "a.sql").write_text(BIG + scheduled)
    told = shop("apply", "pipe").out
    assert "schedule upstream → 5m" in told
    assert shop("stream", "show", "totals", "--json").document["schedule"] == "5m"
    assert len(rows_of(shop, "totals")) == 2


def test_a_changed_query_replaces_the_table(shop: Cli, pipe: Path) -> None:
    shop("apply", "pipe")
    shop("stream", "refresh")
    (pipe / "a.sql").write_text(BIG.replace("15", "5") + TOTALS)
    assert "+SELECT * FROM totals WHERE total > 5" in shop("apply", "pipe").out
    shop("stream", "refresh")
    assert len(rows_of(shop, "big")) == 2


def test_who_reads_a_table_whose_columns_changed_follows(shop: Cli, pipe: Path) -> None:
    shop("apply", "pipe")
    shop("stream", "refresh")
    before = versions(shop)
    (pipe / "a.sql").write_text(BIG + TOTALS.replace(" FROM", ", count(*) AS orders FROM"))
    planned = shop("apply", "pipe", "--dry-run", "--json").document
    assert [(one["name"], one["action"], one["reason"]) for one in planned["changes"]] == [
        ("totals", "replace", "query changed"),
        ("big", "replace", "the columns of 'totals' changed"),
    ]
    shop("apply", "pipe")
    assert versions(shop) == before + 1
    shop("stream", "refresh")
    assert rows_of(shop, "big") == [{"customer": "grace", "total": "20.00", "orders": 1}]


def test_what_was_created_elsewhere_keeps_its_columns(shop: Cli, pipe: Path) -> None:
    shop("apply", "pipe")
    shop("stream", "create", "mine", "--query", "SELECT * FROM totals")
    before = versions(shop)
    (pipe / "a.sql").write_text(BIG + TOTALS.replace(" FROM", ", count(*) AS orders FROM"))
    assert "'mine', which was created elsewhere" in shop("apply", "pipe", code=3).err
    assert versions(shop) == before


def test_a_drop_needs_a_word(shop: Cli, pipe: Path) -> None:
    shop("apply", "pipe")
    shop("stream", "create", "mine", "--query", "SELECT * FROM totals")
    (pipe / "a.sql").write_text(TOTALS)
    assert "1 to drop" in shop("apply", "pipe", "--dry-run").out
    told = shop("apply", "pipe", code=3).err
    assert "'big' would be dropped" in told
    assert "--yes" in told
    assert streams(shop) == ["totals", "big", "mine"]
    shop("apply", "pipe", "--yes")
    assert streams(shop) == ["totals", "mine"]


@pytest.mark.parametrize(
    ("text", "place", "told"),
    [
        (f"{TOTALS}\n{BIG.replace('totals', 'totels')}", "a.sql:5", "Did you mean 'totals'?"),
        (BIG + BIG.replace("totals", "big").replace("VIEW big", "VIEW totals"), "a.sql:", "totals"),
        (f"\n{TOTALS.replace('customer,', 'nobody,')}", "a.sql:3", "nobody"),
        (f"{TOTALS}-- b\n\n/* c\n*/ {BIG.replace('15', 'nobody')}", "a.sql:7", "nobody"),
        (
            "CREATE MATERIALIZED VIEW a AS\r\n-- b\r\n/* c\r\nd */ SELECT id,\r\n  -- e\r\n"
            "  nobody\r\nFROM orders;\r\n",
            "a.sql:6",
            "nobody",
        ),
        (
            "CREATE TEMPORARY VIEW v AS\nSELECT id,\n nobody\nFROM orders;\n"
            "CREATE MATERIALIZED VIEW a AS\nSELECT id\nFROM v;\n",
            "a.sql:3",
            "nobody",
        ),
        (
            "CREATE MATERIALIZED VIEW a\nTBLPROPERTIES (refresh_mode = 'incremental_strict') AS\n"
            "SELECT id,\n  rand() AS r FROM orders",
            "a.sql:4",
            "cannot be kept by delta",
        ),
        (f"{TOTALS}CREATE MATERIALIZED VIEW x AS SELEC 1;", "a.sql:3", "SELEC"),
    ],
    ids=[
        "unknown table",
        "circle",
        "unknown column",
        "second statement",
        "comments and CRLF",
        "temporary view",
        "not incremental",
        "no SQL",
    ],
)
def test_what_cannot_be_used_is_told_with_file_and_line(
    shop: Cli, pipe: Path, text: str, place: str, told: str
) -> None:
    before = versions(shop)
    (pipe / "a.sql").write_text(text)
    for extra in ([], ["--dry-run"]):
        refused = shop("apply", "pipe", *extra, code=3).err
        assert f"pipe/{place}" in refused
        assert told in refused
    error = shop("apply", "pipe", "--json", code=3).error
    assert error["file"] == "pipe/a.sql"
    assert versions(shop) == before


def test_a_column_that_is_not_there_names_the_line_of_a_query_that_a_function_returned(
    shop: Cli, pipe: Path
) -> None:
    (pipe / "b.py").write_text(
        "import tidelock\n\n@tidelock.stream_table()\ndef t():\n    return '''\n"
        "        SELECT id,\n          nobody\n        FROM orders'''\n"
    )
    told = shop("apply", "pipe", code=3).err
    assert "pipe/b.py:3: line 3 of the query: 't': There is no column 'nobody'" in told


def test_a_python_file_that_defines_nothing_is_told(shop: Cli, pipe: Path) -> None:
    (pipe / "b.py").write_text("import nowhere\n")
    told = "pipe/b.py defines nothing: it does not use @tidelock.stream_table(), and was not exec"
    assert told in shop("apply", "pipe").out
    assert told in shop("apply", "pipe", "--json").document["notes"][0]


def test_a_python_file_that_cannot_be_loaded_stops_everything(shop: Cli, pipe: Path) -> None:
    (pipe / "b.py").write_text("import tidelock\nimport nowhere\ntidelock.stream_table()\n")
    told = shop("apply", "pipe", code=3).err
    assert "pipe/b.py:2: The file raised ModuleNotFoundError: No module named 'nowhere'" in told
    assert streams(shop) == []


def test_one_bad_definition_keeps_the_good_ones_back(shop: Cli, pipe: Path) -> None:
    (pipe / "b.sql").write_text("CREATE MATERIALIZED VIEW bad AS SELECT nobody FROM orders")
    assert "pipe/b.sql:1" in shop("apply", "pipe", code=3).err
    assert streams(shop) == []


def test_a_configuration_that_has_no_effect_is_warned_of(shop: Cli, pipe: Path) -> None:
    (pipe / "spark-pipeline.yml").write_text("name: pipe\nconfiguration: {spark.x: '1'}\n")
    told = shop("apply", "pipe").err
    assert told.startswith("warning: ")
    assert "spark.x" in told


def test_a_folder_that_there_is_not_is_wrong_input(shop: Cli) -> None:
    assert "'nowhere'" in shop("apply", "nowhere", code=3).err


def test_the_folder_in_the_documentation_gives_the_plan_that_it_shows(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "stream-tables.md").read_text("utf-8")
    files = re.findall(r"^`(shop/[^`]+)`.*?```\w+\n(.*?)```", page, re.DOTALL | re.MULTILINE)
    for name, text in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert len(files) == 3
    monkeypatch.setenv("TIDELOCK_ENGINE", "sail")
    monkeypatch.setenv("TIDELOCK_LAKE", "shop.lake")
    cli("init")
    cli("table", "create", "orders", "id BIGINT, customer_id BIGINT, amount DECIMAL(12,2)")
    cli("table", "create", "customers", "id BIGINT, region STRING")
    ((arguments, plan),) = re.findall(r"```console\n\$ tidelock (.*?)\n(.*?)```", page, re.DOTALL)
    assert cli(*arguments.split()).out == plan
    cli("apply", "shop")
    shown = cli("stream", "show", "totals", "--json").document
    assert (shown["schedule"], shown["refresh_mode"]) == ("5m", "incremental")
    assert cli("stream", "show", "best", "--json").document["schedule"] == "10m"
    assert cli("stream", "show", "customers_by_region", "--json").document["schedule"] is None
    assert "best" in cli("stream", "refresh", "--json").out
    names = [
        column["name"] for column in cli("table", "show", "best", "--json").document["columns"]
    ]
    assert names == ["customer", "highest"]
