"""A command imports what it needs: most take less time than the libraries that others need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.line_source import KIND
from tests.unit.cli.command_line import Cli

# A parser, other engines' tables, clients of servers: what no command needs but those about queries
# and sinks. Pandas is what PyArrow would look for.
OF_OTHERS = ("sqlglot", "pyspark", "pysail", "pandas", "yaml", "urllib3", "obstore")
OF_ROWS = ("pyarrow", "numpy", "lance")

PROGRAM = """
import shlex, sys
from tidelock.cli import main
sys.meta_path.insert(0, main.PandasWithSpark())
for line in sys.argv[2:]:
    code = main.run(shlex.split(line))
    found = [name for name in sys.argv[1].split() if name in sys.modules]
    print(line, code, found, file=sys.stderr)
"""


def told_imports(modules: tuple[str, ...], *lines: str, place: Path) -> list[str]:
    """For each command line that is run, one after the other: how it ended, and which of the
    modules had been imported by then."""
    environment = {key: text for key, text in os.environ.items() if key != "TIDELOCK_LAKE"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, " ".join(modules), *lines],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return [told for told in done.stderr.splitlines() if told.endswith("]")]


@pytest.fixture
def lake(shop: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lake that has something of everything."""
    monkeypatch.setenv("TIDELOCK_ENGINE", "sail")
    shop("load", "orders", "--format", "csv", stdin=b"id\n1\n")
    shop("branch", "create", "dev")
    shop("tag", "q1")
    shop("stream", "create", "ids", "--query", "SELECT id FROM orders")
    shop("stream", "refresh")
    shop("sink", "add", "out", "--table", "orders", "--kind", "jsonl", "--to", tmp_path / "out")
    where = ("--into", "lines", "-o", f"path={tmp_path / 'lines.jsonl'}")
    shop("source", "add", "lines", "--kind", KIND, *where)
    return tmp_path


HISTORY = [
    "log",
    "log --table orders",
    "log --json",
    "show 2",
    "show q1",
    "table list",
    "table list --at q1",
    "branch list",
    "branch create next",
    "branch delete next",
    "tag list",
    "tag q2",
    "tag delete q2",
    "status",
    "status --json",
    "stream list",
    "stream show ids",
    "stream history ids",
    "stream graph",
    "source list",
    "source status lines",
    "source suspend lines",
    "recoveries",
]


def test_what_asks_for_the_history_imports_nothing_that_reads_rows(lake: Path) -> None:
    lines = [f"{line} --lake shop.lake" for line in HISTORY]
    told = told_imports((*OF_ROWS, *OF_OTHERS), *lines, place=lake)
    assert told == [f"{line} 0 []" for line in lines]


def test_what_reads_and_writes_rows_imports_nothing_that_queries(lake: Path) -> None:
    (lake / "more.csv").write_text("id\n2\n")
    (lake / "more.jsonl").write_text('{"id": 3}\n')
    lines = [
        f"{line} --lake shop.lake"
        for line in (
            "load orders more.csv",
            "load orders more.jsonl --mode upsert",
            "table show orders --rows 5",
            "diff 1",
            "branch diff main dev --json",
            "changes orders 1",
            "sink list",
        )
    ]
    told = told_imports(OF_OTHERS, *lines, place=lake)
    assert told == [f"{line} 0 []" for line in lines]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("--version", 0),
        ("--help", 0),
        ("load --help", 0),
        ("stream create --help", 0),
        ("log --limt", 2),
        ("log", 3),
        ("log -l none", 3),
    ],
)
def test_help_and_refusals_import_no_library_of_the_store(
    line: str, code: int, tmp_path: Path
) -> None:
    told = told_imports((*OF_ROWS, *OF_OTHERS), line, place=tmp_path)
    assert told == [f"{line} {code} []"]


@pytest.mark.parametrize(
    ("line", "imported"), [("--version", []), ("--help", []), ("log --help", ["history"])]
)
def test_only_the_command_that_is_called_is_imported(
    line: str, imported: list[str], tmp_path: Path
) -> None:
    home = "tidelock.cli.commands."
    commands = tuple(f"{home}{name}" for name in ("history", "table", "stream", "sink", "sql"))
    told = told_imports(commands, line, place=tmp_path)
    assert told == [f"{line} 0 {[f'{home}{name}' for name in imported]}"]
