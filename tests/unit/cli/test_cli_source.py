"""Sources from the shell: added, read, watched, suspended, loaded anew and dropped."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.line_source import KIND, KIND_ANEW, mood, rows, say
from tests.unit.cli.command_line import Cli, rows_of

import tidelock
from tidelock.ingest import registry
from tidelock.model.sources import Reading


@pytest.fixture
def lines(shop: Cli, tmp_path: Path) -> Path:
    """The shop with a source that has said two transactions."""
    path = tmp_path / "lines.jsonl"
    shop("source", "add", "lines", "--kind", KIND_ANEW, "--into", "numbers", "-o", f"path={path}")
    say(path, rows(1, 2), rows(3))
    return path


def test_a_source_is_added_and_reads_what_there_is_once(shop: Cli, lines: Path) -> None:
    (report,) = shop("source", "ingest", "--json").document
    assert (report["action"], report["rows"], report["transactions"]) == ("ingested", 3, 2)
    assert report["tables"] == [{"table": "numbers", "puts": 3, "removes": 0}]
    assert [row["id"] for row in rows_of(shop, "numbers")] == [1, 2, 3]
    (again,) = shop("source", "ingest", "lines", "--json").document
    assert (again["action"], again["rows"], again["position"]) == ("idle", 0, "2")
    assert "ingested" not in shop("source", "ingest").out


def test_where_it_stands_is_told_in_a_list_alone_and_as_a_document(shop: Cli, lines: Path) -> None:
    (new,) = shop("source", "list", "--json").document
    assert (new["state"], new["commit"]) == ("new", None)
    shop("source", "ingest")
    told = shop("source", "status", "lines").out
    assert "idle" in told
    assert "version" in told
    shown = shop("source", "status", "lines", "--json").document
    assert shown["options"] == {"path": str(lines)}
    assert {"lag_seconds", "rows_per_second", "open", "tables", "retry_at"} <= set(shown)
    assert "No sources yet" in shop("source", "list", "--lake", _other(shop, lines)).out


def _other(shop: Cli, lines: Path) -> Path:
    shop("init", lines.parent / "other.lake")
    return lines.parent / "other.lake"


def test_one_that_cannot_be_read_ends_with_its_exit_code_and_is_told_of(
    shop: Cli, lines: Path
) -> None:
    mood(lines, "stopped")
    failed = shop("source", "ingest", "--json", code=11, answers=True)
    assert failed.document[0]["state"] == "stopped"
    assert shop("source", "ingest", "lines", code=11).err == "error: the slot is gone.\n"
    assert "lines: stopped: the slot is gone." in shop("status").out
    (told,) = shop("status", "--json").document["sources"]
    assert (told["state"], told["far_behind"]) == ("stopped", False)
    mood(lines)
    shop("source", "ingest")
    assert "1 source: tidelock source list" in shop("status").out


def test_one_that_is_far_behind_is_told_of(shop: Cli, lines: Path) -> None:
    with tidelock.open("shop.lake") as lake:
        notes = registry.Registry(lake._store.objects)
        notes.tell(notes.definition("lines"), Reading("idle", lag_seconds=3600.0))
    assert "1 source, of which 1 far behind" in shop("status").out
    assert "3600.0 s" in shop("source", "list").out


def test_it_is_suspended_resumed_loaded_anew_and_dropped(shop: Cli, lines: Path) -> None:
    shop("source", "suspend", "lines", "--reason", "a pause")
    (report,) = shop("source", "ingest", "--json").document
    assert (report["action"], report["reason"]) == ("suspended", "a pause")
    assert "of which 1 suspended" in shop("status").out
    shop("source", "resume", "lines")
    shop("source", "ingest")
    shop("sql", "DELETE FROM numbers WHERE id = 1")
    assert "2 commits" not in shop("source", "resnapshot", "lines", "--table", "rows").err
    assert [row["id"] for row in rows_of(shop, "numbers")] == [1, 2, 3]
    refused = shop("source", "resnapshot", "lines", "--table", "nope", code=3)
    assert "no table 'nope'" in refused.err
    assert shop("source", "drop", "lines", "--json").document == {"dropped": "lines"}
    assert len(rows_of(shop, "numbers")) == 3
    shop("source", "status", "lines", code=3)


def test_options_become_numbers_lists_and_entries(shop: Cli, lines: Path) -> None:
    given = ["-o", "path=x", "-o", "n=5", "-o", "t=a", "-o", "t=b", "-o", "m.k=1", "-o", "f=true"]
    made = shop("source", "add", "odd", "--kind", KIND, *given, "--schedule", "manual", "--json")
    assert made.document["schedule"] is None
    options = {"path": "x", "n": 5, "t": ["a", "b"], "m": {"k": "1"}, "f": True}
    assert made.document["options"] == options
    assert shop("source", "add", "bad", "--kind", KIND, "-o", "path", code=3).code == 3


def test_what_is_due_is_read_by_a_run_that_ends(shop: Cli, lines: Path) -> None:
    told = shop("run", "--once")
    assert "lines  ingested, 3 rows in 2 transactions, version" in told.out
    mood(lines, "unreachable")
    failed = shop("run", "--once", code=11, answers=True)
    assert "lines  unreachable: nobody is at home." in failed.out
