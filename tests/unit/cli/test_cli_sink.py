"""Sinks from the shell: added, delivered to, watched, suspended, replayed and dropped."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.unit.cli.command_line import Cli

import tidelock


@pytest.fixture
def sink(shop: Cli) -> Cli:
    """The shop with two orders, and a sink that follows them."""
    load(shop, "1,ada,10.00\n2,grace,20.00\n")
    shop("sink", "add", "files", "--table", "orders", "--kind", "jsonl", "--to", "files")
    return shop


def load(cli: Cli, rows: str) -> None:
    cli("load", "orders", "--format", "csv", stdin=f"id,customer,amount\n{rows}".encode())


def delivered(folder: str = "files") -> list[int]:
    """The keys of all delivered rows, in the order of the files."""
    files = sorted(Path(folder).rglob("*.jsonl"))
    return [json.loads(line)["id"] for file in files for line in file.read_text().splitlines()]


def deliver(cli: Cli, *arguments: object) -> tuple[str, int]:
    (report,) = cli("sink", "deliver", *arguments, "--json").document
    return report["action"], report["rows"]


def test_a_sink_gets_what_is_new_once(sink: Cli) -> None:
    assert deliver(sink) == ("delivered", 2)
    assert deliver(sink, "files") == ("idle", 0)
    load(sink, "3,ada,1.00\n")
    assert deliver(sink, "files") == ("delivered", 1)
    assert delivered() == [1, 2, 3]


@pytest.mark.parametrize(
    ("feed", "said"),
    [("inserts", "later updates, deletions and retention do not reach it"), ("changes", "_op")],
)
def test_what_a_sink_will_and_will_not_hold_is_said_when_it_is_added(
    shop: Cli, feed: str, said: str
) -> None:
    where = ["--table", "orders", "--kind", "jsonl", "--to", "files", "--feed", feed]
    told = " ".join(shop("sink", "add", "files", *where).err.split())
    assert "It will hold " in told
    assert said in told


def test_what_was_delivered_and_is_gone_is_noticed_and_a_manifest_is_repaired(sink: Cli) -> None:
    deliver(sink)
    assert (
        "All that files has delivered is there" in sink("sink", "status", "files", "--verify").err
    )
    (file,) = Path("files").glob("*.jsonl")
    content = file.read_bytes()
    file.unlink()
    assert "current" in sink("sink", "status", "files").out
    done = sink("sink", "status", "files", "--verify", code=10, answers=True)
    assert f"{file.name} with 2 rows is gone" in " ".join(done.out.split())
    file.write_bytes(content)
    manifest = Path("_tidelock", "files", "manifest.json")
    manifest.write_bytes(b"")
    load(sink, "3,ada,1.00\n")
    sink("sink", "deliver", "files", code=10, answers=True)
    failed = sink("sink", "status", "files").out
    assert "tidelock sink repair files" in " ".join(failed.split())
    assert sink("sink", "repair", "files", "--json").document == {
        "sink": "files",
        "files": 1,
        "rows": 2,
        "missing": [],
    }
    assert deliver(sink, "files") == ("delivered", 1)
    assert json.loads(manifest.read_text())["watermark"] == 2


def test_sinks_are_listed_with_where_they_stand(sink: Cli) -> None:
    (before,) = sink("sink", "list", "--json").document
    assert (before["state"], before["watermark"], before["newest"]) == ("behind", -1, 1)
    deliver(sink)
    assert "current" in sink("sink", "list").out
    assert "watermark    1 of 1" in sink("sink", "status", "files").out


def test_a_suspended_sink_gets_nothing_until_it_is_resumed(sink: Cli) -> None:
    sink("sink", "suspend", "files", "--reason", "disk is full")
    assert deliver(sink) == ("suspended", 0)
    assert "disk is full" in sink("sink", "status", "files").out
    sink("sink", "resume", "files")
    assert deliver(sink) == ("delivered", 2)
    sink("sink", "suspend", "files")
    # Also when there is nothing to deliver.
    assert deliver(sink) == ("suspended", 0)


def test_the_status_of_the_lake_tells_how_many_sinks_need_a_look(sink: Cli) -> None:
    assert "1 sink, of which 1 behind: tidelock sink list" in sink("status").out
    sink("sink", "add", "other", "--table", "orders", "--kind", "csv", "--to", "other")
    sink("sink", "suspend", "other")
    assert "2 sinks, of which 1 behind, 1 suspended: tidelock sink list" in sink("status").out
    found = sink("status", "--json").document["sinks"]
    assert found == [{"name": "files", "state": "behind"}, {"name": "other", "state": "suspended"}]


def test_a_replay_that_takes_rows_away_wants_a_word(sink: Cli) -> None:
    deliver(sink)
    with tidelock.open("shop.lake") as lake:
        lake.run(lambda tx: tx.delete("orders", where="id = 1"))
    refused = sink("sink", "replay", "files", code=3)
    assert "1 row that sink 'files' delivered" in refused.err
    sink("sink", "replay", "files", "--lose-rows")
    assert deliver(sink) == ("delivered", 1)
    assert delivered() == [2]


def test_a_replay_writes_the_same_files_again(sink: Cli) -> None:
    deliver(sink)
    (file,) = Path("files").glob("*.jsonl")
    content = file.read_bytes()
    file.unlink()
    sink("sink", "replay", "files")
    assert deliver(sink) == ("delivered", 2)
    assert file.read_bytes() == content


def test_partitions_and_options_are_given_on_the_command_line(shop: Cli) -> None:
    load(shop, "1,ada,10.00\n2,grace,20.00\n3,ada,30.00\n")
    given = ["--partition-by", "customer", "--option", "rows_per_file=1"]
    place = ["--table", "orders", "--kind", "jsonl", "--to", "parts"]
    shop("sink", "add", "parts", *place, *given)
    (report,) = shop("sink", "deliver", "parts", "--json").document
    paths = {part["path"]: part["chunks"] for part in report["partitions"]}
    assert paths == {"customer=ada": 2, "customer=grace": 1}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--kind", "parqet"], "Did you mean 'parquet'?"),
        (["--option", "token=abc"], "no option 'token'"),
        (["--option", "token"], "NAME=VALUE"),
        (["--start", "yesterday"], "none of beginning, now, version:N"),
        (["--schedule", "often"], "often"),
        (["--partition-by", "colour"], "colour"),
        (["--table", "ordres"], "Did you mean 'orders'?"),
    ],
)
def test_what_is_wrong_is_named(shop: Cli, wrong: list[str], said: str) -> None:
    given = {"--table": "orders", "--kind": "parquet", "--to": "x"}
    given.update({wrong[0]: wrong[1]})
    arguments = [part for pair in given.items() for part in pair]
    done = shop("sink", "add", "x", *arguments, code=3)
    assert said in done.err
    assert shop("sink", "list", "--json").document == []


def test_unknown_and_dropped_sinks_are_told(sink: Cli) -> None:
    assert "Did you mean 'files'?" in sink("sink", "status", "file", code=3).err
    again = ["--table", "orders", "--kind", "csv", "--to", "other"]
    assert "already" in sink("sink", "add", "files", *again, code=3).err
    sink("sink", "drop", "files")
    assert "No sinks yet" in sink("sink", "list").out


def test_a_sink_whose_table_is_gone_says_so(sink: Cli) -> None:
    sink("table", "drop", "orders")
    assert "was dropped" in sink("sink", "deliver", "files", code=10).err
    done = sink("sink", "deliver", "--json", code=10, answers=True)
    assert done.document[0]["action"] == "failed"


def test_a_run_delivers_too(sink: Cli) -> None:
    done = sink("run", "--once")
    assert re.search(r"\d:\d\dZ  files  delivered, 2 rows in 1 chunk", done.out)
    assert delivered() == [1, 2]
