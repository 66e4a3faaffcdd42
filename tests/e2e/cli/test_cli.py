"""The command line as a user and a shell meet it: processes, pipes, signals, Spark."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.postgres import installed, running

from tidelock.cli.main import run
from tidelock.cli.program import COMMANDS, load

TIDELOCK = [sys.executable, "-c", "from tidelock.cli.main import main; main()"]
ORDERS = "id BIGINT NOT NULL, customer STRING, amount DECIMAL(12,2), at TIMESTAMP"
ROWS = (
    "id,customer,amount,at\n"
    "1,ann,9.99,2026-03-01 12:00:00\n"
    '2,"two\nlines",,2026-03-01 12:00:00.5\n'
    '3,"",7.50,\n'
    "4,,1000000.25,2026-03-02\n"
)
Cli = Callable[..., str]


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with a lake named by the environment and four orders in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIDELOCK_LAKE", "shop.lake")
    (tmp_path / "orders.csv").write_text(ROWS)
    assert run(["init"]) == 0
    assert run(["table", "create", "orders", ORDERS, "--key", "id"]) == 0
    assert run(["load", "orders", "orders.csv"]) == 0
    return tmp_path


@pytest.fixture
def cli(lake: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Calls the command line in this process, which shares its Spark with the other tests."""

    def call(*arguments: object, code: int = 0) -> str:
        capsys.readouterr()
        ended = run([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert ended == code, err
        return err if code else out

    return call


def start(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*TIDELOCK, *arguments], stderr=subprocess.PIPE, stdout=subprocess.PIPE, **options
    )


# Processes


def test_only_queries_load_spark(lake: Path) -> None:
    code = "from tidelock.cli.main import run; run(['log']); import sys; print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "create table orders" in done.stdout
    assert "'pyspark'" not in done.stdout


def test_a_reader_that_leaves_early_is_not_an_error(lake: Path) -> None:
    with start("table", "show", "orders", "--rows", "100", "--json") as process:
        assert process.stdout is not None
        process.stdout.close()
        process.wait(60)
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_an_interrupted_load_leaves_nothing(lake: Path) -> None:
    with start("load", "orders", "--format", "jsonl", stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        for number in range(10, 200_000):
            process.stdin.write(b'{"id": %d}\n' % number)
        process.stdin.flush()
        # An impatient user, as patience is rare.
        for _ in range(3):
            process.send_signal(signal.SIGINT)
            time.sleep(0.01)
        process.wait(60)
        assert process.stderr is not None
        assert process.stderr.read() == b"interrupted\n"
    assert process.returncode == 130
    folder = lake / "shop.lake" / "_tidelock"
    assert not any((folder / "intents").glob("*"))
    assert not any((folder / "leases").glob("*"))
    done = subprocess.run([*TIDELOCK, "log", "--json"], capture_output=True, check=True)
    assert len(json.loads(done.stdout)) == 2


ENDLESS = "SELECT count(*) FROM range(100000000000) WHERE hash(id) % 7 = 1"


@pytest.mark.parametrize(
    ("engine", "seconds"),
    [("spark", 0.5), ("spark", 15), ("sail", 6)],
    ids=["while it loads", "while Spark works", "while Sail works"],
)
def test_an_interrupted_query_ends_with_one_line(lake: Path, engine: str, seconds: float) -> None:
    # As a terminal does, for the engine's own process too.
    with start("sql", ENDLESS, "--engine", engine, start_new_session=True) as process:
        time.sleep(seconds)
        os.killpg(process.pid, signal.SIGINT)
        try:
            _, told = process.communicate(timeout=60)
        finally:
            process.kill()
    assert told == b"interrupted\n"
    assert process.returncode == 130


def test_a_terminal_shows_what_is_waited_for(lake: Path) -> None:
    reader, writer = pty.openpty()
    query = subprocess.Popen(
        [*TIDELOCK, "sql", "SELECT 1", "--engine", "sail"],
        stdout=subprocess.DEVNULL,
        stderr=writer,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "80"},
    )
    os.close(writer)
    shown = b""
    # A terminal whose programs have all gone is an error to read from.
    with contextlib.suppress(OSError):
        while piece := os.read(reader, 65536):
            shown += piece
    os.close(reader)
    assert query.wait(60) == 0
    assert "Starting Sail…" in shown.decode()
    assert "Running the query…" in shown.decode()
    assert "1 row at version 2" in shown.decode()


def test_a_shell_loads_from_a_pipe_and_sees_exit_codes(lake: Path) -> None:
    tidelock = shlex.join(TIDELOCK)
    script = f"""
        printf '{{"id": 7}}\\n' | {tidelock} load orders --format jsonl --json > loaded.json
        echo $?
        printf '{{"id": "x"}}\\n' | {tidelock} load orders --format jsonl --json 2> failed.json
        echo $?
        {tidelock} log --nonsense 2> usage.txt
        echo $?
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "3", "2"]
    assert json.loads(Path("loaded.json").read_text())["read"] == 1
    failed = json.loads(Path("failed.json").read_text())
    assert (failed["file"], failed["line"], failed["column"]) == ("stdin", 1, "id")


# Queries


@pytest.mark.usefixtures("spark")
def test_a_query_is_shown_as_a_table_with_a_note_of_what_is_left(
    cli: Cli, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = cli("sql", "SELECT id, customer, amount FROM orders ORDER BY id").splitlines()
    assert [line.split() for line in shown[2:]] == [
        ["1", "ann", "9.99"],
        ["2", "two\\nlines", "NULL"],
        ["3", "''", "7.50"],
        ["4", "NULL", "1000000.25"],
    ]
    assert run(["sql", "SELECT id FROM orders ORDER BY id", "--limit", "1"]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 3
    assert err == "1 row at version 2; 3 more: --limit 0 shows all\n"


@pytest.mark.usefixtures("spark")
def test_a_query_answers_with_one_exact_document(cli: Cli) -> None:
    query = "SELECT id, amount, at, unhex('6869') AS raw FROM orders ORDER BY id LIMIT 2"
    document = json.loads(cli("sql", query, "--json"))
    assert (document["version"], document["complete"]) == (2, True)
    assert [column["type"] for column in document["columns"]] == [
        "BIGINT",
        "DECIMAL(12,2)",
        "TIMESTAMP",
        "BINARY",
    ]
    assert document["rows"] == [
        {"id": 1, "amount": "9.99", "at": "2026-03-01T12:00:00Z", "raw": "aGk="},
        {"id": 2, "amount": None, "at": "2026-03-01T12:00:00.500000Z", "raw": "aGk="},
    ]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("name", ["out.csv", "out.jsonl", "out.parquet"])
def test_what_a_query_writes_is_loaded_as_the_same_rows(cli: Cli, name: str) -> None:
    cli("sql", "SELECT * FROM orders", "-o", name)
    cli("load", "orders", name, "--mode", "overwrite")
    cli("sql", "SELECT * FROM orders ORDER BY id", "-o", "again.parquet")
    cli("sql", "SELECT * FROM orders ORDER BY id", "--version", 2, "-o", "first.parquet")
    assert pq.read_table("again.parquet").equals(pq.read_table("first.parquet"))


@pytest.mark.usefixtures("spark")
def test_a_query_is_written_to_stdout_in_every_form(cli: Cli) -> None:
    query = "SELECT id, customer FROM orders WHERE id > 2 ORDER BY id"
    assert cli("sql", query, "-F", "csv") == '"id","customer"\n3,""\n4,\n'
    assert json.loads(cli("sql", query, "-F", "json")) == [
        {"id": 3, "customer": ""},
        {"id": 4, "customer": None},
    ]
    assert cli("sql", query, "-F", "jsonl", "-n", 1) == '{"id":3,"customer":""}\n'


@pytest.mark.usefixtures("spark")
def test_a_query_reads_the_snapshot_that_is_named(cli: Cli) -> None:
    cli("tag", "empty", "--version", 1)
    cli("branch", "create", "dev")
    Path("more.jsonl").write_text('{"id": 10}\n')
    cli("load", "orders", "more.jsonl", "-b", "dev")
    Path("count.sql").write_text("SELECT count(*) AS n FROM orders;\n")

    def count(*where: object) -> int:
        rows = json.loads(cli("sql", "-f", "count.sql", "--json", *where))["rows"]
        return int(rows[0]["n"])

    first = json.loads(cli("show", 1, "--json"))["time"]
    assert count() == 4
    assert count("--tag", "empty") == 0
    assert count("--version", 1) == 0
    assert count("--at", first) == 0
    assert count("--at", "empty") == 0
    assert count("--at", 1) == 0
    assert count("--at", json.loads(cli("show", 1, "--json"))["id"]) == 0
    assert count("--branch", "dev") == 5
    cli("sql", "-f", "count.sql", "--tag", "empty", "--version", 1, code=3)


@pytest.mark.usefixtures("spark")
def test_a_query_that_fails_says_why_in_a_line(cli: Cli) -> None:
    told = cli("sql", "SELECT nothing FROM orders", code=8)
    assert "nothing" in told
    assert len(told.splitlines()) == 1
    assert "Traceback" not in told
    failed = json.loads(cli("sql", "SELECT 1 / 0", "--json", code=8))
    assert failed["condition"] == "QUERY_FAILED"
    assert "DIVIDE_BY_ZERO" in failed["message"]


@pytest.mark.usefixtures("spark")
def test_a_result_whose_columns_share_a_name_is_refused_where_it_would_lose_one(cli: Cli) -> None:
    query = "SELECT id, id FROM orders WHERE id = 1"
    assert "more than one column named 'id'" in cli("sql", query, "--json", code=3)
    assert cli("sql", query, "-F", "csv") == '"id","id"\n1,1\n'


def test_a_query_that_cannot_be_given_says_why(cli: Cli) -> None:
    assert "The query is empty." in cli("sql", " ; ", code=3)
    assert "one of them" in cli("sql", code=3)
    assert "cannot be read" in cli("sql", "-f", "none.sql", code=3)
    assert "cannot be told" in cli("sql", "SELECT 1", "-o", "out.txt", code=3)
    assert "on stdout" in cli("sql", "SELECT 1", "--json", "-o", "out.json", code=3)


def test_a_file_that_cannot_be_written_is_refused_before_the_query_runs(
    cli: Cli, lake: Path
) -> None:
    (lake / "folder.csv").mkdir()
    # Were it run, this engine would be missing.
    query = ("sql", "SELECT 1", "--remote", "sc://127.0.0.1:1")
    assert "there is no folder 'none'" in cli(*query, "-o", "none/x.csv", code=3)
    assert "it is a folder" in cli(*query, "-o", "folder.csv", code=3)
    cli(*query, "-o", "x.csv", code=8)


# Examples


def every_example() -> Iterator[str]:
    def walk(command: Any) -> Iterator[str]:
        children = getattr(command, "commands", None)
        if children is None:
            lines = str(command.epilog).replace(r"\[", "[").splitlines()
            yield from (line.strip() for line in lines[1:])
        for child in (children or {}).values():
            yield from walk(child)

    for command in COMMANDS:
        yield from walk(load(command))


# What the examples take for granted, and what has to come in between.
FIRST = ("init", "table create", "load", "sql", "log", "show", "diff", "stream create")
LAST = ("stream drop", "tag delete", "branch delete", "table drop")
TOTALS = "SELECT customer, COUNT(*) AS n FROM orders GROUP BY customer"


def _place(example: str) -> int:
    for places, names in ((range(len(FIRST)), FIRST), (range(900, 904), LAST)):
        for place, name in zip(places, names, strict=True):
            if f"tidelock {name}" in example:
                return place
    return 2 if "tidelock tag create" in example else 500


@pytest.fixture
def database() -> Iterator[str]:
    """Where a PostgreSQL database is that has a table."""
    with running(max(installed())) as server:
        server.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY)")
        yield server.dsn()


@pytest.mark.usefixtures("spark")
def test_every_example_in_the_help_works(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    database: str,
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "nobody asks for it")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIDELOCK_LAKE", "shop.lake")
    (tmp_path / "orders.csv").write_text("id,customer,amount\n1,ann,9.99\n")
    (tmp_path / "customers.csv").write_text("id,name\n2,bob\n")
    (tmp_path / "orders.jsonl").write_text('{"id": 2, "customer": "bob", "amount": 5}\n')
    (tmp_path / "report.sql").write_text("SELECT count(*) AS orders FROM orders")
    pq.write_table(pa.table({"id": [1], "name": ["ann"]}), tmp_path / "customers.parquet")
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "monday.json").write_text('{"id": 1}\nno JSON\n')
    (tmp_path / "pipelines" / "shop").mkdir(parents=True)
    (tmp_path / "totals.sql").write_text(TOTALS)
    (tmp_path / "schema").mkdir()
    people = "CREATE TABLE people (id BIGINT PRIMARY KEY, name STRING NOT NULL)"
    (tmp_path / "schema" / "people.sql").write_text(people)
    daily = tmp_path / "pipelines" / "shop" / "daily.sql"
    daily.write_text(f"CREATE MATERIALIZED VIEW daily AS {TOTALS}")
    examples = sorted(every_example(), key=_place)
    assert len(examples) > 20
    for example in examples:
        if "|" in example:
            shell = example.replace("tidelock", shlex.join(TIDELOCK))
            assert subprocess.run(["bash", "-c", shell], check=False).returncode == 0, example
        else:
            program, *arguments = shlex.split(example)
            assert program == "tidelock"
            if arguments[0] == "run":
                arguments.append("--once")
            if arguments[:2] == ["source", "add"]:
                given = (f"dsn={database}" if one.startswith("dsn=") else one for one in arguments)
                arguments = list(given)
            if arguments[:2] == ["source", "resnapshot"]:
                # It is for sources that can, which a database cannot yet.
                assert run(arguments) == 3
                continue
            if arguments[:2] == ["sink", "replay"]:
                # What is sent again was delivered before.
                assert run(["sink", "deliver", "archive"]) == 0
            if arguments[:2] == ["sink", "repair"]:
                # A manifest that can be read is not written anew.
                (manifest,) = tmp_path.rglob("_tidelock/archive/manifest.json")
                manifest.unlink()
            if arguments[:2] == ["table", "drop"]:
                # A table that a stream table reads cannot be dropped.
                assert run(["stream", "drop", "daily", "--cascade"]) == 0
            assert run(arguments) == 0, f"{example}: {capfd.readouterr().err}"


def test_the_console_script_is_installed(tmp_path: Path) -> None:
    script = Path(sys.executable).parent / "tidelock"
    if not script.exists():
        pytest.skip("the package is not installed here, only importable")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("tidelock ")
    assert os.access(script, os.X_OK)
