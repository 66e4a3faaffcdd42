"""Stream tables from the shell: defined, refreshed, watched, held and dropped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.cli.command_line import Cli, rows_of

TOTALS = "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer"
BIG = "SELECT customer FROM totals WHERE total > 15"
FAILING = "SELECT id, 1 / (id - 1) AS share FROM orders"


@pytest.fixture
def stream(shop: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The shop with two orders, and the quick engine."""
    monkeypatch.setenv("TIDELOCK_ENGINE", "sail")
    load(shop, "1,ada,10.00\n2,grace,20.00\n")
    return shop


def load(cli: Cli, rows: str) -> None:
    text = f"id,customer,amount\n{rows}".encode()
    cli("load", "orders", "--format", "csv", stdin=text)


def actions(cli: Cli, *arguments: object) -> dict[str, str]:
    done = cli("stream", "refresh", *arguments, "--json").document
    return {attempt["table"]: attempt["action"] for attempt in done}


def test_a_stream_table_follows_its_source(stream: Cli) -> None:
    stream("stream", "create", "totals", "--query", TOTALS, "--mode", "incremental")
    assert rows_of(stream, "totals") == []
    assert actions(stream) == {"totals": "full"}
    load(stream, "3,ada,1.00\n")
    assert actions(stream) == {"totals": "incremental"}
    assert rows_of(stream, "totals") == [
        {"customer": "ada", "total": "11.00"},
        {"customer": "grace", "total": "20.00"},
    ]
    assert actions(stream, "--due") == {"totals": "none"}


def test_what_reads_a_stream_table_is_refreshed_after_it_in_the_same_call(stream: Cli) -> None:
    stream("stream", "create", "totals", "--query", TOTALS)
    stream("stream", "create", "big", "--query", BIG)
    assert list(actions(stream)) == ["totals", "big"]
    load(stream, "3,ada,100.00\n")
    stream("stream", "refresh")
    assert rows_of(stream, "big") == [{"customer": "ada"}, {"customer": "grace"}]


def test_a_query_comes_from_a_file_or_from_stdin(stream: Cli, tmp_path: Path) -> None:
    (tmp_path / "totals.sql").write_text(f"{TOTALS};\n")
    stream("stream", "create", "totals", "--file", "totals.sql")
    stream("stream", "create", "piped", "-", stdin=TOTALS.encode())
    listed = stream("stream", "list", "--json").document
    assert [(one["name"], one["query"]) for one in listed] == [
        ("piped", TOTALS),
        ("totals", TOTALS),
    ]


@pytest.mark.parametrize(
    "given", [[], ["--query", TOTALS, "--file", "totals.sql"], ["totals.sql"], ["--query", " "]]
)
def test_a_query_is_given_in_one_way(stream: Cli, given: list[str]) -> None:
    assert "query" in stream("stream", "create", "totals", *given, code=3).err
    assert stream("stream", "list", "--json").document == []


def test_options_are_kept_shown_and_altered(stream: Cli) -> None:
    stream("stream", "create", "totals", "-q", TOTALS, "--schedule", "5m", "--mode", "full")
    shown = stream("stream", "show", "TOTALS", "--json").document
    assert (shown["schedule"], shown["refresh_mode"], shown["consistency"]) == (
        "5m",
        "full",
        "atomic",
    )
    stream("stream", "alter", "totals", "--schedule", "manual", "--mode", "auto")
    shown = stream("stream", "show", "totals", "--json").document
    assert (shown["schedule"], shown["refresh_mode"]) == (None, "auto")
    assert actions(stream, "--due") == {"totals": "none"}
    assert actions(stream, "totals") == {"totals": "full"}
    assert "manual" in stream("stream", "list").out


def test_options_that_make_no_sense_are_told_in_the_words_of_the_shell(stream: Cli) -> None:
    told = stream("stream", "create", "t", "-q", TOTALS, "--schedule", "never", code=3).err
    assert "'manual' is for only when asked" in told
    told = stream("stream", "create", "t", "-q", TOTALS, "--schedule", "30", code=3).err
    assert "'30' cannot be a schedule: it has no unit, which is s, m, h, d or w" in told
    stream("stream", "create", "t", "-q", TOTALS, "--mode", "quick", code=2)
    stream("stream", "create", "t", "-q", TOTALS)
    assert "--schedule 5m" in stream("stream", "alter", "t", code=3).err
    assert "--replace" in stream("stream", "create", "t", "-q", TOTALS, code=3).err


def test_an_option_without_effect_is_warned_of(stream: Cli) -> None:
    told = stream("stream", "create", "totals", "-q", TOTALS, "--policy", "slowest").err
    assert told.startswith("warning: ")
    assert "has no effect" in told


def test_a_stream_table_is_replaced_on_a_word(stream: Cli) -> None:
    stream("stream", "create", "totals", "--query", TOTALS)
    stream("stream", "refresh")
    counted = "SELECT customer, count(*) AS orders FROM orders GROUP BY customer"
    stream("stream", "create", "totals", "--query", counted, "--replace")
    stream("stream", "refresh")
    assert rows_of(stream, "totals")[0] == {"customer": "ada", "orders": 1}


def test_show_tells_how_far_it_is_behind(stream: Cli) -> None:
    stream("stream", "create", "totals", "--query", TOTALS)
    stream("stream", "refresh")
    shown = stream("stream", "show", "totals")
    assert TOTALS in shown.out
    assert "nothing that it is computed from has changed" in shown.out
    load(stream, "3,ada,1.00\n")
    assert "1 commit of orders" in stream("stream", "show", "totals").out
    freshness = stream("stream", "show", "totals", "--json").document["freshness"]
    assert (freshness["current"], freshness["waiting_for"]) == (False, ["orders"])


def test_what_is_no_stream_table_is_told(stream: Cli) -> None:
    assert "not a stream table" in stream("stream", "show", "orders", code=3).err
    error = stream("stream", "history", "none", "--json", code=3).error
    assert error["condition"] == "TABLE_NOT_FOUND"


def test_a_failed_refresh_ends_with_nine_and_is_in_the_history(stream: Cli) -> None:
    stream("stream", "create", "shares", "--query", FAILING)
    stream("stream", "create", "totals", "--query", TOTALS)
    done = stream("stream", "refresh", "--json", code=9, answers=True)
    assert {one["table"]: one["action"] for one in done.document} == {
        "shares": "failed",
        "totals": "full",
    }
    assert done.error["condition"] == "REFRESH_FAILED"
    assert done.error["tables"] == ["shares"]
    newest = stream("stream", "history", "shares", "--json").document[0]
    assert newest["action"] == "failed"
    assert "zero" in newest["reason"]


def test_the_history_has_every_refresh_newest_first(stream: Cli) -> None:
    stream("stream", "create", "totals", "--query", TOTALS)
    assert "tidelock stream refresh totals" in stream("stream", "history", "totals").out
    stream("stream", "refresh")
    stream("stream", "refresh", "totals", "--full")
    found = stream("stream", "history", "totals", "--json").document
    assert [(one["action"], one["epoch"]) for one in found] == [("full", 2), ("full", 1)]
    assert len(stream("stream", "history", "totals", "--limit", 1, "--json").document) == 1


def test_a_suspended_table_waits_until_it_is_resumed(stream: Cli) -> None:
    stream("stream", "create", "totals", "--query", TOTALS)
    stream("stream", "suspend", "totals", "--reason", "bad data")
    assert "suspended: bad data" in stream("stream", "list").out
    for named in ([], ["totals"]):
        refused = stream("stream", "refresh", *named, code=9, answers=True)
        assert "could not be refreshed: totals" in refused.err
    stream("stream", "resume", "totals")
    assert actions(stream, "totals") == {"totals": "full"}


def test_to_suspend_or_resume_twice_changes_nothing_and_says_so(stream: Cli) -> None:
    stream("stream", "create", "totals", "--query", TOTALS)
    assert (
        "totals is not suspended. Nothing was changed." in stream("stream", "resume", "totals").out
    )
    assert stream("stream", "resume", "totals", "--json").document is None
    stream("stream", "suspend", "totals", "--reason", "bad data")
    before = stream("log", "--json").document
    again = stream("stream", "suspend", "totals", "--reason", "other")
    assert again.out == "totals is suspended already: tidelock stream show totals\n"
    assert stream("log", "--json").document == before
    assert "suspended: bad data" in stream("stream", "list").out
    assert stream("stream", "history", "totals", "--json").document == []


def test_the_log_names_what_was_done_to_which_stream_table(stream: Cli) -> None:
    stream("stream", "create", "Totals", "--query", TOTALS)
    stream("stream", "create", "big", "--query", BIG)
    stream("stream", "refresh")
    stream("stream", "alter", "totals", "--schedule", "5m", "--mode", "full")
    stream("stream", "suspend", "totals", "--reason", "bad data")
    stream("stream", "resume", "totals")
    stream("stream", "create", "totals", "--query", f"{TOTALS} HAVING count(*) > 1", "--replace")
    stream("stream", "drop", "totals", "--cascade")
    found = stream("log", "--json").document
    assert [(one["kind"], one["message"]) for one in found][:8] == [
        ("schema", "drop stream tables big, Totals"),
        ("schema", "replace stream table Totals"),
        ("schema", "resume stream table Totals"),
        ("schema", "suspend stream table Totals: bad data"),
        ("schema", "alter stream table Totals: schedule upstream → 5m, refresh_mode auto → full"),
        ("data", "refresh big"),
        ("data", "refresh Totals"),
        ("schema", "create stream table big"),
    ]


def test_a_table_that_is_read_is_dropped_with_its_readers_or_not_at_all(stream: Cli) -> None:
    stream("stream", "create", "totals", "--query", TOTALS)
    stream("stream", "create", "big", "--query", BIG)
    assert "--cascade" in stream("stream", "drop", "totals", code=3).err
    refused = stream("table", "drop", "orders", code=3).err
    assert "'orders' is read by 'totals'" in refused
    assert "tidelock stream drop" in refused
    assert "big, totals" in stream("stream", "drop", "totals", "--cascade").out
    assert stream("stream", "list", "--json").document == []


@pytest.fixture
def diamond(stream: Cli) -> Cli:
    """Two paths from orders that meet in `shares`."""
    stream("stream", "create", "totals", "--query", TOTALS)
    stream("stream", "create", "whole", "-q", "SELECT sum(amount) AS amount FROM orders")
    query = "SELECT customer, total, amount FROM totals CROSS JOIN whole"
    stream("stream", "create", "shares", "--query", query)
    return stream


def test_a_group_is_one_commit_and_says_what_it_waits_for(diamond: Cli) -> None:
    done = diamond("stream", "refresh", "--json").document
    assert {one["table"] for one in done} == {"totals", "whole", "shares"}
    assert len({one["commit"] for one in done}) == 1
    (group,) = diamond("stream", "groups", "--json").document
    assert (group["name"], group["epoch"]) == ("shares", 1)
    assert group["not_due_because"]
    load(diamond, "3,ada,1.00\n")
    (group,) = diamond("stream", "groups", "--json").document
    assert group["not_due_because"] is None
    assert "shares" in diamond("stream", "groups").out


def test_together_is_one_commit_for_all(stream: Cli) -> None:
    stream("stream", "create", "totals", "--query", TOTALS)
    stream("stream", "create", "big", "--query", BIG)
    done = stream("stream", "refresh", "--together", "--json").document
    assert len({one["commit"] for one in done}) == 1
    assert len(done) == 2


def test_the_graph_is_drawn_in_three_ways(diamond: Cli) -> None:
    assert "totals <- orders" in diamond("stream", "graph").out
    assert diamond("stream", "graph", "--format", "mermaid").out.startswith("flowchart LR")
    assert diamond("stream", "graph", "--format", "dot").out.startswith("digraph")
    drawn = diamond("stream", "graph", "--json").document
    assert ["orders", "totals"] in drawn["edges"]
    assert drawn["groups"][0]["name"] == "shares"


def test_explain_says_how_the_next_refresh_is_done(stream: Cli) -> None:
    stream("stream", "create", "totals", "--query", TOTALS)
    explained = stream("stream", "explain", "totals", "--json").document
    assert (explained["incremental"], explained["mode"]) == (True, "full")
    assert "first refresh" in stream("stream", "explain", "totals").out
    assert len(stream("log", "--json").document) == 3


def test_explain_shows_what_spark_is_asked_only_on_demand(stream: Cli) -> None:
    stream("stream", "create", "totals", "--query", TOTALS)
    short = stream("stream", "explain", "totals").out
    assert "sum(`c3`) by c2" in short
    assert "changes(orders)" not in short
    assert "changes(orders)" in stream("stream", "explain", "totals", "--sql").out
    (asked,) = stream("stream", "explain", "totals", "--json").document["sql"]
    assert (asked["segment"], asked["input"]) == (0, "orders")
    assert "changes(orders)" in asked["sql"]


def test_explain_says_that_there_is_nothing_to_do(stream: Cli) -> None:
    stream("stream", "create", "totals", "--query", TOTALS, "--mode", "incremental")
    stream("stream", "create", "big", "--query", BIG)
    stream("stream", "refresh")
    told = stream("stream", "explain", "totals").out
    assert told.startswith("totals: current at version 6; nothing to do\n")
    assert stream("stream", "explain", "totals", "--json").document["mode"] == "none"
    load(stream, "3,ada,1.00\n")
    told = stream("stream", "explain", "totals").out
    assert told.startswith("totals: the next refresh is made by delta: 1 change\nEstimated 0.")
    assert "; by delta in any case, for refresh_mode is incremental\n" in told
    assert "The estimates follow what the last took (" in told
    assert " s in full), up to 4 times what the model says" in told
    assert "before 'totals' is refreshed" in stream("stream", "explain", "big").out


def test_explain_says_that_a_table_or_its_group_is_suspended(diamond: Cli) -> None:
    diamond("stream", "suspend", "whole", "--reason", "bad data")
    told = diamond("stream", "explain", "whole").out.splitlines()[0]
    assert "it is suspended: bad data" in told
    assert told.endswith("tidelock stream resume whole")
    explained = diamond("stream", "explain", "totals", "--json").document
    assert explained["mode"] == "skipped"
    assert "'whole' of its group is suspended: bad data" in explained["reason"]


def test_branches_have_their_own_stream_tables(stream: Cli) -> None:
    stream("branch", "create", "dev")
    stream("stream", "create", "totals", "--query", TOTALS, "--branch", "dev")
    assert actions(stream, "--branch", "dev") == {"totals": "full"}
    assert stream("stream", "list", "--json").document == []


def test_run_once_refreshes_what_is_due_and_ends(stream: Cli) -> None:
    stream("stream", "create", "totals", "--query", TOTALS, "--mode", "incremental")
    told = stream("run", "--once").out
    assert "totals  full, " in told
    assert stream("run", "--once").out == ""
    load(stream, "3,ada,1.00\n")
    assert stream("run", "--once", "--json").document["action"] == "incremental"


def test_run_once_ends_with_nine_when_a_table_failed(stream: Cli) -> None:
    stream("stream", "create", "shares", "--query", FAILING)
    done = stream("run", "--once", code=9, answers=True)
    assert "shares  failed: " in done.out
    assert "tidelock stream history shares" in done.err
    assert stream("stream", "history", "shares", "--json").document[0]["seconds"] > 0


def test_run_once_says_what_it_passes_over(stream: Cli) -> None:
    stream("stream", "create", "totals", "--query", TOTALS)
    stream("stream", "suspend", "totals", "--reason", "bad data")
    told = stream("run", "--once", code=9, answers=True).out
    assert told.count("\n") == 1
    assert "totals  skipped: 'totals' is suspended: bad data" in told
    as_json = stream("run", "--once", "--json", code=9, answers=True)
    assert as_json.document["action"] == "skipped"


def test_long_reasons_are_cut_between_words_and_shown_whole_elsewhere(stream: Cli) -> None:
    reason = "the upstream system " + "sends what nobody expected " * 6 + "again"
    stream("stream", "create", "totals", "--query", TOTALS)
    stream("stream", "suspend", "totals", "--reason", reason)
    listed = stream("stream", "list")
    assert reason not in listed.out
    assert "nobody…" in listed.out
    assert listed.err == "What ends with … is shown whole by: tidelock stream show NAME\n"
    assert reason in stream("stream", "show", "totals").out
    refreshed = stream("stream", "refresh", code=9, answers=True)
    assert refreshed.err.startswith(listed.err)
    logged = stream("log")
    assert reason not in logged.out
    assert logged.err == "What ends with … is shown whole by: tidelock show VERSION\n"


def test_a_graph_without_stream_tables_says_what_to_do(stream: Cli) -> None:
    assert (
        "No stream tables yet. Create one: tidelock stream create" in stream("stream", "graph").out
    )
    assert stream("stream", "graph", "--format", "dot").out.startswith("digraph")


def test_a_stream_table_that_is_taken_for_a_table_is_refused_in_the_words_of_the_shell(
    stream: Cli,
) -> None:
    stream("stream", "create", "totals", "--query", TOTALS)
    assert "`tidelock stream drop` removes it" in stream("table", "drop", "totals", code=3).err
    assert "lake." not in stream("table", "drop", "orders", code=3).err


def test_an_engine_that_is_not_there_fails_the_command_and_no_table(
    stream: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream("stream", "create", "totals", "--query", TOTALS)
    monkeypatch.delenv("TIDELOCK_ENGINE")
    for command in (["stream", "refresh"], ["run", "--once"], ["run"]):
        error = stream(*command, "--remote", "sc://127.0.0.1:1", "--json", code=8, answers=True)
        assert json.loads(error.err)["condition"] == "ENGINE_UNAVAILABLE"
    assert stream("stream", "history", "totals", "--json").document == []
