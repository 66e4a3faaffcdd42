"""What happened, in the words of `log`, `show`, `changes`, `diff`; and names for places in it."""

from __future__ import annotations

import pytest
from tests.unit.cli.command_line import ORDERS, Cli


@pytest.fixture
def history(shop: Cli) -> Cli:
    """1: orders created. 2: two orders. 3: customers created. 4: an order replaced, one added."""
    shop("load", "orders", "-m", "first", "--format", "csv", stdin=b"id,amount\n1,1\n2,2\n")
    shop("table", "create", "customers", "id INT NOT NULL", "--key", "id")
    load = ("load", "orders", "--mode", "upsert", "-m", "second", "--format", "csv")
    shop(*load, stdin=b"id,amount\n2,5\n3,3\n")
    return shop


def test_the_log_is_newest_first(history: Cli) -> None:
    commits = history("log", "--json").document
    assert [(c["version"], c["kind"], c["message"]) for c in commits] == [
        (4, "data", "second"),
        (3, "schema", "create table customers"),
        (2, "data", "first"),
        (1, "schema", "create table orders"),
    ]
    assert {c["actor"] for c in commits} == {"ann"}
    assert all(c["time"].endswith("Z") for c in commits)
    lines = history("log").out.splitlines()
    assert "orders +1 ~1" in lines[2]
    assert "customers created" in lines[3]


def test_the_log_is_limited_and_of_one_table(history: Cli) -> None:
    def versions(*arguments: object) -> list[int]:
        commits = history("log", "--json", *arguments).document
        return [commit["version"] for commit in commits]

    assert versions("-n", 2) == [4, 3]
    assert versions("-n", 0) == [4, 3, 2, 1]
    assert versions("--table", "ORDERS") == [4, 2, 1]
    assert versions("--table", "orders", "-n", 1) == [4]
    history("log", "--table", "nothing", code=3)


def test_the_log_of_an_empty_lake_says_so(cli: Cli) -> None:
    cli("init")
    assert cli("log").out == "No commits on main yet.\n"


def test_a_commit_is_shown_by_version_tag_and_id(history: Cli) -> None:
    history("tag", "q1", "--version", 2)
    by_version = history("show", 2, "--json").document
    assert by_version == history("show", "q1", "--json").document
    assert by_version == history("show", by_version["id"], "--json").document
    assert by_version["tables"] == [
        {
            "table": "orders",
            "id": by_version["tables"][0]["id"],
            "inserted": 2,
            "updated": 0,
            "deleted": 0,
            "rows": 2,
            "created": False,
            "dropped": False,
            "altered": False,
        }
    ]
    assert "first" in history("show", 2).out


@pytest.mark.parametrize("commit", ["0", "9", "nothing", "main-9", "2026-03-01T00:00:00Z"])
def test_a_commit_that_there_is_not_is_refused(history: Cli, commit: str) -> None:
    history("show", commit, code=3)


def test_diff_counts_rows_by_table(history: Cli) -> None:
    document = history("diff", 1, "--json").document
    told = [(t["table"], t["what"], t["inserted"], t["updated"]) for t in document["tables"]]
    assert told == [("customers", "created", 0, 0), ("orders", "changed", 3, 0)]
    assert (document["before"]["version"], document["after"]["version"]) == (1, 4)
    assert [t["table"] for t in history("diff", 1, 2, "--json").document["tables"]] == ["orders"]
    assert history("diff", 4).out == "From version 4 to main (version 4): no difference\n"


def test_diff_shows_rows_before_and_after(history: Cli) -> None:
    document = history("diff", 2, "--table", "Orders", "--json").document
    (table,) = document["tables"]
    assert (table["inserted"], table["updated"], table["by_column"]) == (1, 1, {"amount": 1})
    updated, inserted = table["examples"]
    assert (updated["what"], updated["key"], updated["columns"]) == (
        "updated",
        {"id": 2},
        ["amount"],
    )
    assert (updated["before"]["amount"], updated["after"]["amount"]) == ("2.00", "5.00")
    assert (inserted["what"], inserted["before"], inserted["after"]["id"]) == ("inserted", None, 3)
    shown = history("diff", 2).out
    assert "~ id=2: amount 2.00 → 5.00" in shown
    assert "+ id=3: customer=NULL, amount=3.00, at=NULL" in shown


def test_diff_shows_so_many_rows_and_all_on_request(history: Cli) -> None:
    limited = history("diff", 1, "--table", "orders", "-n", 1).out
    assert (limited.count("  + "), "… and 2 more rows" in limited) == (1, True)
    assert history("diff", 1, "--table", "orders", "-n", 0).out.count("  + ") == 3


def test_diff_goes_either_way(history: Cli) -> None:
    forth, back = (history("diff", *way, "--json").document["tables"] for way in [(2, 4), (4, 2)])
    assert [t["inserted"] for t in forth] == [t["deleted"] for t in back] == [0, 1]
    assert [t["what"] for t in back] == ["dropped", "changed"]
    assert "~ id=2: amount 5.00 → 2.00" in history("diff", 4, 2).out


def test_diff_takes_branches_tags_and_ids(history: Cli) -> None:
    history("tag", "q1", "--version", 2)
    history("branch", "create", "dev", "--at", "1")
    commit = history("show", 4, "--json").document["id"]
    assert history("diff", "q1", commit, "--json").document["before"]["version"] == 2
    told = history("diff", "dev", "q1", "--json").document
    assert (told["before"]["branch"], told["tables"][0]["inserted"]) == ("dev", 2)
    assert history("branch", "diff", "dev", "q1", "--json").document == told
    assert "There is no branch, tag or commit 'q2'" in history("diff", "q2", code=3).err
    assert "There is no table 'order'" in history("diff", 1, "-t", "order", code=3).err
    history("branch", "create", "q1")
    assert "is a branch and a tag" in history("diff", "q1", code=3).err


def test_changes_are_shown_commit_by_commit(history: Cli) -> None:
    document = history("changes", "Orders", 2, "--json").document
    changes = sorted(
        (row["_version"], row["_weight"], row["id"], row["amount"]) for row in document["rows"]
    )
    assert changes == [(4, -1, 2, "2.00"), (4, 1, 2, "5.00"), (4, 1, 3, "3.00")]
    assert (document["table"], document["more"]) == ("orders", 0)
    limited = history("changes", "orders", 1, "-n", 2)
    assert limited.out.count("+") == 2
    assert "3 more changes" in limited.err
    assert "No row of orders changed" in history("changes", "orders", 4).out


def test_changes_backwards_are_refused(history: Cli) -> None:
    told = history("changes", "orders", 4, 2, code=3).err
    assert "tidelock changes orders 2 4" in told
    history("tag", "q1", "--at", 2)
    told = history("changes", "orders", 4, "q1", code=3).err
    assert "version 4, is after UNTIL, version 2" in told


def test_changes_are_of_one_branch(history: Cli) -> None:
    history("tag", "q1", "--version", 2)
    history("branch", "create", "dev", "--at", "1")
    told = history("changes", "orders", "q1", "--branch", "dev", code=3).err
    assert "not in the history of branch 'dev'" in told


def test_a_branch_has_a_history_of_its_own(history: Cli) -> None:
    made = history("branch", "create", "dev", "--at", "2", "--json").document
    assert (made["name"], made["version"], made["fork_version"]) == ("dev", 2, 2)
    history("load", "orders", "-b", "dev", "--format", "csv", stdin=b"id\n7\n")
    assert [b["version"] for b in history("branch", "list", "--json").document] == [4, 3]
    assert history("diff", 2, "-b", "dev", "--json").document["tables"][0]["inserted"] == 1
    history("branch", "create", "dev", code=3)
    history("branch", "delete", "dev")
    history("branch", "delete", "dev", code=3)
    history("branch", "delete", "main", code=3)
    assert len(history("branch", "list", "--json").document) == 1


def test_a_branch_starts_at_a_tag_an_id_or_a_moment(history: Cli) -> None:
    history("tag", "q1", "--version", 2)
    commit = history("show", 3, "--json").document
    assert history("branch", "create", "a", "--at", "q1", "--json").document["version"] == 2
    assert history("branch", "create", "b", "--at", commit["id"], "--json").document["version"] == 3
    at = ("--at", commit["time"])
    assert history("branch", "create", "c", *at, "--json").document["version"] == 3
    history("branch", "create", "d", "--at", "nothing", code=3)


POINTS = ["version", "id", "tag", "time"]


@pytest.mark.parametrize("kind", POINTS)
def test_a_point_is_taken_alike_everywhere(history: Cli, kind: str) -> None:
    """Version 2: there is one table, with two rows."""
    history("tag", "q1", "--at", 2)
    commit = history("show", 2, "--json").document
    point = {**commit, "tag": "q1"}[kind]
    assert history("show", point, "--json").document == commit
    assert history("diff", 0, point, "--json").document["after"]["version"] == 2
    assert history("diff", point, "--json").document["before"]["version"] == 2
    assert history("changes", "orders", point, "--json").document["since"] == 2
    assert len(history("table", "list", "--at", point, "--json").document) == 1
    shown = history("table", "show", "orders", "--at", point, "-r", 9, "--json").document
    assert (shown["version"], len(shown["sample"])) == (2, 2)
    assert history("branch", "create", "b", "--at", point, "--json").document["version"] == 2
    assert history("tag", "t", "--at", point, "--json").document["version"] == 2


@pytest.mark.parametrize(
    "command",
    [
        ("show",),
        ("changes", "orders"),
        ("table", "list", "--at"),
        ("table", "show", "orders", "--at"),
        ("branch", "create", "b", "--at"),
        ("tag", "t", "--at"),
        ("sql", "SELECT 1", "--at"),
    ],
)
def test_a_point_that_there_is_not_is_refused_alike_everywhere(
    history: Cli, command: tuple[str, ...]
) -> None:
    told = history(*command, "nothing", code=3).err
    assert told.startswith("error: There is no commit and no tag called 'nothing'.")


def test_a_tag_needs_no_branch_and_contradicts_another(history: Cli) -> None:
    history("branch", "create", "dev")
    history("load", "orders", "-b", "dev", "--format", "csv", stdin=b"id\n7\n")
    history("tag", "on-dev", "-b", "dev")
    shown = ("table", "show", "orders", "--at", "on-dev", "--json")
    assert history(*shown).document["rows"] == 4
    assert history(*shown, "-b", "dev").document["rows"] == 4
    assert "not in the history of branch 'main'" in history(*shown, "-b", "main", code=3).err


def test_a_time_before_the_first_commit_is_called_so(history: Cli) -> None:
    told = history("table", "list", "--at", "2020-01-01T00:00Z", code=3).err
    assert "Nothing had been committed to branch 'main' at '2020-01-01T00:00Z'" in told


def test_times_are_spelt_for_people_and_for_programs(history: Cli) -> None:
    at = b"id,at\n9,2026-03-01 12:00:00\n"
    history("load", "orders", "--format", "csv", stdin=at)
    assert "2026-03-01 12:00:00Z" in history("table", "show", "orders", "-r", 9).out
    assert "2026-03-01 12:00:00Z" in history("changes", "orders", 4).out
    shown = history("changes", "orders", 4, "--json").document["rows"]
    assert shown[0]["at"] == "2026-03-01T12:00:00Z"
    time = history("show", 4, "--json").document["time"]
    assert time.endswith("Z")
    assert "T" in time
    assert time.replace("T", " ") in history("show", 4).out
    assert time[:19].replace("T", " ") + "Z" in history("log").out


def test_a_small_table_says_from_when_on_its_key_is_indexed(shop: Cli) -> None:
    assert "none yet (from 32,768 rows)" in shop("table", "show", "orders").out


def test_tags_are_made_in_two_ways(history: Cli) -> None:
    assert history("tag", "newest", "--json").document["version"] == 4
    history("tag", "create", "list", "--commit", history("show", 2, "--json").document["id"])
    tags = history("tag", "list", "--json").document
    assert sorted((tag["name"], tag["version"]) for tag in tags) == [("list", 2), ("newest", 4)]
    assert "newest" in history("tag", "list").out
    history("tag", "newest", "--version", 2, code=3)
    history("tag", "x", "--version", 1, "--commit", "main-1", code=3)
    history("tag", "delete", "newest")
    history("tag", "delete", "newest", code=3)


def test_tables_are_created_listed_shown_and_dropped(shop: Cli) -> None:
    shop("table", "create", "orders", ORDERS, code=3)
    shop("table", "create", "other", code=3)
    shown = shop("table", "show", "Orders", "--json").document
    assert shown["columns"][0] == {"name": "id", "type": "BIGINT", "nullable": False}
    assert (shown["rows"], shown["fragments"], shown["bytes"]) == (0, 0, 0)
    told = shop("table", "show", "orders").out
    assert "DECIMAL(12,2)" in told
    assert "NOT NULL" in told
    assert "Did you mean 'orders'?" in shop("table", "show", "ordrs", code=3).err
    assert [t["name"] for t in shop("table", "list", "--json").document] == ["orders"]
    shop("table", "drop", "orders", "-m", "not needed")
    assert shop("table", "list", "--json").document == []
    assert shop("show", 2, "--json").document["tables"][0]["dropped"]
