"""What stands still is told: by exit codes, by `status`, by `stream list` and by `apply`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.unit.cli.command_line import Cli

import tidelock
from tidelock.store.leases.scheduler_post import post_of

TOTALS = "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer"
FAILING = "SELECT id, 1 / (id - 1) AS share FROM orders"
SOUND = "SELECT id, 1 / (id + 1) AS share FROM orders"


@pytest.fixture
def stream(shop: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setenv("TIDELOCK_ENGINE", "sail")
    shop("load", "orders", "--format", "csv", stdin=b"id,customer,amount\n1,ada,10\n2,grace,20\n")
    return shop


@pytest.fixture
def group(stream: Cli) -> Cli:
    """Two paths from orders that meet in `shares`, and a table apart."""
    stream("stream", "create", "totals", "--query", TOTALS)
    stream("stream", "create", "whole", "-q", "SELECT sum(amount) AS amount FROM orders")
    stream("stream", "create", "shares", "-q", "SELECT * FROM totals CROSS JOIN whole")
    stream("stream", "create", "apart", "-q", "SELECT id FROM orders")
    return stream


def statuses(cli: Cli) -> dict[str, str]:
    return {one["name"]: one["status"] for one in cli("stream", "list", "--json").document}


def actions(cli: Cli, *arguments: object, code: int = 0) -> dict[str, str]:
    done = cli("stream", "refresh", *arguments, "--json", code=code, answers=True).document
    return {attempt["table"]: attempt["action"] for attempt in done}


def test_everything_is_refreshed_when_nothing_is_named(stream: Cli) -> None:
    stream("stream", "create", "totals", "--query", TOTALS, "--mode", "incremental")
    stream("stream", "create", "asked", "--query", TOTALS, "--schedule", "manual")
    stream("stream", "create", "rare", "--query", "SELECT * FROM totals", "--schedule", "1d")
    assert actions(stream, "--due") == {"totals": "full", "asked": "none", "rare": "full"}
    assert actions(stream) == {"totals": "none", "asked": "full", "rare": "none"}
    assert set(actions(stream).values()) == {"none"}
    assert actions(stream, "--full") == {"totals": "full", "asked": "full", "rare": "full"}


def test_commands_end_with_nine_while_a_suspended_table_stands_still(group: Cli) -> None:
    group("stream", "suspend", "whole", "--reason", "bad data")
    still = {"totals": "skipped", "whole": "skipped", "shares": "skipped"}
    assert actions(group, code=9) == {**still, "apart": "full"}
    once = group("run", "--once", code=9, answers=True)
    assert "could not be refreshed: totals, whole, shares. The reason is told by: " in once.err
    assert "whole  skipped: 'whole' is suspended: bad data" in once.out
    assert actions(group, "--full", code=9) == {**still, "apart": "full"}
    group("stream", "resume", "whole")
    group("run", "--once")


def test_members_that_wait_for_another_are_held_back_and_not_called_refreshed(group: Cli) -> None:
    group("stream", "refresh")
    group("stream", "suspend", "whole", "--reason", "bad data")
    found = statuses(group)
    assert found["whole"].startswith("suspended: bad data")
    held = "held back: 'whole' of its group is suspended"
    assert (found["totals"], found["shares"], found["apart"]) == (held, held, "refreshed")


def test_status_tells_what_is_not_kept_up_to_date_and_that_nobody_does(group: Cli) -> None:
    group("stream", "refresh")
    group("stream", "suspend", "whole", "--reason", "bad data")
    group("sink", "add", "files", "--table", "orders", "--kind", "csv", "--to", "files")
    told = group("status").out
    assert "4 stream tables, of which 1 suspended, 2 held back: tidelock stream list\n" in told
    assert "whole: suspended: bad data" in told
    assert "1 sink, of which 1 behind: tidelock sink list\n" in told
    assert "No process refreshes and delivers on main by itself. Start one: tidelock run\n" in told
    document = group("status", "--json").document
    assert document["scheduler"] is None
    assert {one["name"] for one in document["stream_tables"]} == {
        *("totals", "whole", "shares", "apart")
    }


def test_status_names_who_refreshes_and_delivers(group: Cli) -> None:
    with tidelock.open("shop.lake") as lake:
        assert lake.scheduler() is None
        post = post_of(lake._store, "main")
        assert post.take() is None
        told = group("status").out
        assert f"-{os.getpid()}" in told or f":{os.getpid()}" in told
        assert " refreshes and delivers on main since 20" in told
        assert "No process" not in told
        post.release()
    assert group("status", "--json").document["scheduler"] is None


def test_a_lake_without_stream_tables_wants_no_scheduler(shop: Cli) -> None:
    assert "refreshes" not in shop("status").out


def test_a_definition_that_was_repaired_shows_no_failure_of_the_old_one(stream: Cli) -> None:
    stream("stream", "create", "shares", "--query", FAILING)
    assert actions(stream, code=9) == {"shares": "failed"}
    assert statuses(stream)["shares"].startswith("suspended: ")
    stream("stream", "create", "shares", "--query", SOUND, "--replace")
    assert statuses(stream) == {"shares": "never refreshed"}
    assert "suspended" not in stream("status").out
    assert actions(stream) == {"shares": "full"}
    assert statuses(stream) == {"shares": "refreshed"}
    # The attempts themselves stay in the history.
    history = stream("stream", "history", "shares", "--json").document
    assert [one["action"] for one in history] == ["full", "failed"]


@pytest.fixture
def applied(stream: Cli, tmp_path: Path) -> Path:
    folder = tmp_path / "pipe"
    folder.mkdir()
    (folder / "a.sql").write_text(f"CREATE STREAM TABLE totals AS\n{TOTALS};\n")
    stream("apply", "pipe")
    return folder


def recreate(columns: str) -> None:
    """Put another table in the place of the orders."""
    with tidelock.open("shop.lake") as lake, lake.transaction() as tx:
        tx.drop_table("orders")
        tx.create_table("orders", columns)


@pytest.mark.parametrize("refreshed", [True, False])
def test_a_folder_whose_queries_can_no_longer_be_computed_is_refused(
    stream: Cli, applied: Path, refreshed: bool
) -> None:
    if refreshed:
        stream("stream", "refresh")
    assert "nothing to do, 1 unchanged" in stream("apply", "pipe").out
    recreate("id BIGINT, customer STRING, price DOUBLE")
    for how in ([], ["--dry-run"]):
        refused = stream("apply", "pipe", *how, code=3)
        assert "pipe/a.sql:2: 'totals': There is no column 'amount'" in refused.err


def test_a_table_whose_source_got_other_types_is_replaced(stream: Cli, applied: Path) -> None:
    stream("stream", "refresh")
    recreate("id BIGINT, customer STRING, amount DOUBLE")
    told = stream("apply", "pipe").out
    assert "~ replace    totals  the columns of 'orders' changed" in told
    assert actions(stream) == {"totals": "full"}


def test_apply_says_of_what_is_unchanged_that_it_is_suspended(stream: Cli, applied: Path) -> None:
    stream("stream", "suspend", "totals", "--reason", "bad data")
    told = stream("apply", "pipe").out
    assert "nothing to do, 1 unchanged" in told
    assert "note: 'totals' is suspended: bad data; it goes on once it is resumed" in told


def test_a_dry_run_leaves_nothing_in_the_lake(stream: Cli, applied: Path) -> None:
    stream("stream", "refresh")
    (applied / "b.sql").write_text(
        "CREATE STREAM TABLE best AS SELECT max(total) AS t FROM totals;\n"
        "CREATE STREAM TABLE best_name AS SELECT DISTINCT t.customer FROM totals t JOIN best b\n"
        "ON t.total = b.t;\n"
    )

    def kept() -> list[Path]:
        return sorted(one for one in Path("shop.lake").rglob("*") if "leases" not in one.parts)

    before = kept()
    assert "2 to create" in stream("apply", "pipe", "--dry-run").out
    assert kept() == before
    assert "2 to create" in stream("apply", "pipe").out


def test_tables_that_are_kept_for_stream_tables_are_not_named(stream: Cli) -> None:
    kept = "SELECT n, count(*) AS m FROM (SELECT count(*) AS n FROM orders GROUP BY customer)"
    stream("stream", "create", "counts", "-q", f"{kept} GROUP BY n", "--mode", "incremental")
    stream("stream", "refresh")
    stream("load", "orders", "--format", "csv", stdin=b"id,customer\n3,ada\n")
    stream("stream", "refresh")
    collected = stream("gc", "--dry-run", "--older-than", "0s").out
    assert "counts" in collected
    assert "tidelock" not in collected
    assert "on no branch" not in collected
    query = "SELECT * FROM nothing_like_it"
    for command in (["sql", query], ["stream", "create", "x", "-q", query], ["table", "show", "x"]):
        refused = stream(*command, code=3)
        assert "There are: counts, orders." in refused.err
    assert "Did you mean" not in stream("table", "show", "__tidelock_counts_0", code=3).err
    version = stream("log", "--json").document[0]["version"]
    with tidelock.open("shop.lake") as lake, pytest.raises(tidelock.errors.TableNotFound) as told:
        lake.log()[0].table("nothing")
    assert "tidelock_" not in str(told.value), version


def test_numbers_and_times_are_written_in_one_way(stream: Cli) -> None:
    rows = "".join(f"{n},c{n},1\n" for n in range(10, 2010))
    text = f"id,customer,amount\n{rows}".encode()
    stream("load", "orders", "--format", "csv", stdin=text)
    stream("stream", "create", "totals", "-q", TOTALS, "--schedule", "1d")
    stream("stream", "refresh")
    listings = [
        stream("stream", "list").out,
        stream("stream", "history", "totals").out,
        stream("table", "list").out,
        stream("status").out,
    ]
    assert all("2,002" in one and "2002" not in one for one in listings)
    refused = stream("stream", "refresh", "--due").out
    for out in (stream("log").out, listings[1], refused):
        assert "Z" in out
        assert not any(mark in out for mark in ("T0", "T1", "T2", "+00:00"))
