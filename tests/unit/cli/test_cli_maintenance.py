"""Keeping a lake quick, small and whole."""

from __future__ import annotations

from command_line import Cli, rows_of


def load(shop: Cli, *numbers: int, mode: str = "append") -> None:
    text = "id\n" + "".join(f"{number}\n" for number in numbers)
    shop("load", "orders", "--mode", mode, "--format", "csv", stdin=text.encode())


def test_optimize_changes_no_row(shop: Cli) -> None:
    for number in range(3):
        load(shop, number)
    before = rows_of(shop, "orders")
    commits = shop("optimize", "--json").document["commits"]
    assert {commit["kind"] for commit in commits} == {"maintenance"}
    assert rows_of(shop, "orders") == before
    assert shop("table", "show", "orders", "--json").document["fragments"] == 1
    assert shop("optimize", "orders").out == "Nothing to do in 1 table.\n"
    shop("optimize", "nothing", code=3)


def test_a_dry_run_says_what_a_real_one_removes(shop: Cli) -> None:
    load(shop, 1, 2, 3)
    load(shop, 4, mode="overwrite")
    planned = shop("gc", "--older-than", "0s", "--dry-run", "--json").document
    assert planned["dry_run"]
    assert planned["files"] > 0
    assert planned["tables"][0]["table"] == "orders"
    assert shop("gc", "-n", "--older-than", "0s").out.splitlines()[-1].startswith("Would remove")
    done = shop("gc", "--older-than", "0s", "--json").document
    assert (done["files"], done["bytes"]) == (planned["files"], planned["bytes"])
    assert [row["id"] for row in rows_of(shop, "orders")] == [4]
    assert shop("gc", "--older-than", "0s").out.startswith("Removed 0 files, 0 bytes")


def test_what_is_tagged_is_not_removed(shop: Cli) -> None:
    load(shop, 1)
    shop("tag", "kept")
    load(shop, 2, mode="overwrite")
    shop("gc", "--older-than", "0s")
    shop("branch", "create", "old", "--at", "kept")
    shown = shop("table", "show", "orders", "-b", "old", "-r", 9, "--json").document
    assert [row["id"] for row in shown["sample"]] == [1]


def test_an_age_that_is_none_is_refused(shop: Cli) -> None:
    shop("gc", "--older-than", "soon", code=3)


def test_nothing_to_recover_or_repair_is_said(shop: Cli) -> None:
    assert shop("recoveries", "--json").document == []
    assert shop("recoveries").out == "No writer has died here.\n"
    assert shop("repair", "--json").document == {
        "recovered": [],
        "foreign_commits": [],
        "adopted": None,
        "discarded": None,
    }
    shop("repair", "--adopt", code=3)
