"""Branches compared and merged by command line."""

from __future__ import annotations

import pytest
from tests.unit.cli.command_line import Cli, rows_of


def load(cli: Cli, rows: str, branch: str = "main") -> None:
    text = f"id,customer,amount\n{rows}".encode()
    cli("load", "orders", "--mode", "upsert", "--format", "csv", "-b", branch, stdin=text)


@pytest.fixture
def branches(shop: Cli) -> Cli:
    """Version 2: two orders. On dev, one of them was changed and one came."""
    load(shop, "1,ada,1\n2,grace,2\n")
    shop("branch", "create", "dev")
    load(shop, "2,grace,5\n3,mary,3\n", "dev")
    return shop


def test_a_branch_is_compared_with_main(branches: Cli) -> None:
    told = branches("branch", "diff", "main", "dev").out
    assert told.startswith("From main (version 2) to dev (version 3): 1 table differs\n")
    assert "~ id=2: amount 2.00 → 5.00" in told
    assert branches("diff", "main", "dev").out == told
    (table,) = branches("branch", "diff", "dev", "main", "--json").document["tables"]
    assert (table["updated"], table["deleted"]) == (1, 1)


def test_a_branch_is_merged_and_deleted(branches: Cli) -> None:
    preview = branches("branch", "merge", "dev", "--dry-run")
    assert preview.out.startswith("dev into main: would be fast-forward\n")
    assert len(branches("log", "--json").document) == 2
    merged = branches("branch", "merge", "dev", "-m", "orders of mary", "--delete-branch", "--json")
    document = merged.document
    assert (document["outcome"], document["version"]) == ("fast-forward", 3)
    assert document["deleted_branch"] is True
    assert branches("show", 3, "--json").document["message"] == "orders of mary"
    assert [row["amount"] for row in rows_of(branches, "orders")] == ["1.00", "5.00", "3.00"]
    assert len(branches("branch", "list", "--json").document) == 1
    branches("branch", "merge", "dev", code=3)


def test_what_is_merged_already_is_told_so(branches: Cli) -> None:
    branches("branch", "merge", "dev")
    assert branches("branch", "merge", "dev").out == "main is up to date with dev\n"
    branches("branch", "merge", "main", "--into", "dev")
    branches("branch", "merge", "dev", "--into", "dev", code=3)


def test_conflicts_are_listed_and_nothing_is_written(branches: Cli) -> None:
    load(branches, "2,grace,6\n3,anna,3\n")
    refused = branches("branch", "merge", "dev", code=4)
    lines = [line.split() for line in refused.err.splitlines()]
    assert lines[0] == ["table", "key", "kind", "columns", "base", "source", "target"]
    assert lines[2] == [
        *("orders", "id=2", "divergent", "update", "amount"),
        *("amount=2.00", "amount=5.00", "amount=6.00"),
    ]
    assert lines[3] == [
        *("orders", "id=3", "divergent", "insert", "customer"),
        *("customer='mary'", "customer='anna'"),
    ]
    assert "--on-conflict TABLE=source" in refused.err
    assert "error: Branch 'dev' cannot be merged into 'main': 2 conflicts." in refused.err
    assert len(branches("log", "--json").document) == 3


def test_a_dry_run_lists_conflicts_as_its_answer_and_fails(branches: Cli) -> None:
    load(branches, "2,grace,6\n")
    shown = branches("branch", "merge", "dev", "--dry-run", code=4, answers=True)
    assert shown.out.startswith("dev into main: would be refused, 1 conflict\n")
    assert "divergent update" in shown.out
    told = branches("branch", "merge", "dev", "--dry-run", "--json", code=4, answers=True).document
    (conflict,) = told["conflicts"]
    assert (conflict["key"], conflict["base"]["amount"]) == ({"id": 2}, "2.00")


def test_a_dry_run_compares_rules(branches: Cli) -> None:
    branches("sql", "ALTER TABLE orders ADD CHECK (amount < 3)")
    shown = branches("branch", "merge", "dev", "--dry-run", code=4, answers=True)
    assert "rule against data" in shown.out
    assert len(branches("log", "--json").document) == 3


def test_conflicts_are_told_as_json(branches: Cli) -> None:
    load(branches, "2,grace,6\n")
    error = branches("branch", "merge", "dev", "--json", code=4).error
    assert (error["condition"], error["count"]) == ("MERGE_CONFLICT", 1)
    assert error["conflicts"][0]["target"]["amount"] == "6.00"


@pytest.mark.parametrize(("choice", "amount"), [("orders=source", "5.00"), ("target", "6.00")])
def test_conflicts_are_resolved_by_a_side(branches: Cli, choice: str, amount: str) -> None:
    load(branches, "2,grace,6\n")
    merged = branches("branch", "merge", "dev", "--on-conflict", choice)
    assert "resolved" in merged.out
    assert rows_of(branches, "orders")[1]["amount"] == amount


def test_different_columns_merge_unless_rows_are_to_be_whole(branches: Cli) -> None:
    load(branches, "2,hopper,2\n")
    branches("branch", "merge", "dev", "--granularity", "row", code=4)
    branches("branch", "merge", "dev")
    merged = rows_of(branches, "orders")[1]
    assert (merged["customer"], merged["amount"]) == ("hopper", "5.00")


@pytest.mark.parametrize("wrong", [["orders=mine"], ["mine"], ["source", "target"]])
def test_a_side_that_there_is_not_is_refused(branches: Cli, wrong: list[str]) -> None:
    options = [one for side in wrong for one in ("--on-conflict", side)]
    assert "--on-conflict" in branches("branch", "merge", "dev", *options, code=3).err
