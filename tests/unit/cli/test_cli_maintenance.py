"""Keeping a lake quick, small and whole."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.unit.cli.command_line import Cli, rows_of

import tidelock
from tidelock.store.leases.intents import Intent
from tidelock.store.objects import layout
from tidelock.store.objects.records import encode


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


@pytest.mark.parametrize("age", ["soon", "7", "7.5", "", "-3d"])
def test_an_age_that_is_none_or_has_no_unit_is_refused(shop: Cli, age: str) -> None:
    told = shop("gc", f"--older-than={age}", code=3).err
    assert "'7d'" in told
    assert "timedelta" not in told


def leave_intent(lake: Path, operation: str, age_seconds: float) -> None:
    """What a writer leaves that died so long ago, before it had staged everything."""
    with tidelock.open(lake, read_only=True) as opened:
        branch = opened.branches()[0]
    intent = Intent(
        operation_id=operation,
        branch=branch.name,
        branch_id=branch.id,
        base_version=1,
        actor="night-job",
        kind="data",
        message="nightly load",
        owner="host:1",
        created=datetime.now(UTC),
        lease_seconds=60,
    )
    file = lake / layout.intent(operation, "1")
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(encode(intent))
    died = time.time() - age_seconds
    os.utime(file, (died, died))


def test_a_dead_writer_is_told_from_one_that_may_live(shop: Cli, tmp_path: Path) -> None:
    leave_intent(tmp_path / "shop.lake", "one", age_seconds=30)
    (intent,) = shop("status", "--json").document["intents"]
    assert (intent["operation_id"], intent["lease_ended"]) == ("one", False)
    assert "ends in 2" in shop("status").out
    assert "tidelock repair" not in shop("status").out
    leave_intent(tmp_path / "shop.lake", "two", age_seconds=60 + 200)
    ended = {
        i["operation_id"]: i["lease_ended"] for i in shop("status", "--json").document["intents"]
    }
    assert ended == {"one": False, "two": True}
    told = shop("status").out
    assert "ended 3 min ago" in told
    assert "by the next write, or now by: tidelock repair" in told


def test_recoveries_mention_who_is_still_to_be_settled(shop: Cli, tmp_path: Path) -> None:
    leave_intent(tmp_path / "shop.lake", "one", age_seconds=90)
    told = shop("recoveries").out
    assert "Nothing has been settled yet." in told
    assert "ended 30 s ago" in told
    assert shop("recoveries", "--json").document == []


def test_repair_says_what_it_settled_and_who_may_live(shop: Cli, tmp_path: Path) -> None:
    leave_intent(tmp_path / "shop.lake", "dead", age_seconds=90)
    leave_intent(tmp_path / "shop.lake", "alive", age_seconds=0)
    done = shop("repair", "--json").document
    assert [(r["operation_id"], r["outcome"]) for r in done["recovered"]] == [("dead", "discarded")]
    assert [i["operation_id"] for i in done["intents"]] == ["alive"]
    leave_intent(tmp_path / "shop.lake", "dead too", age_seconds=90)
    told = shop("repair").out
    assert "Settled 1 operation:" in told
    assert "dead too" in told
    assert "lease has not ended" in told
    assert "Nothing needs a decision." in shop("repair").out
    settled = [r["operation_id"] for r in shop("recoveries", "--json").document]
    assert sorted(settled) == ["dead", "dead too"]


def test_nothing_to_recover_or_repair_is_said(shop: Cli) -> None:
    assert shop("recoveries", "--json").document == []
    assert shop("recoveries").out == "No writer has died here.\n"
    assert shop("repair", "--json").document == {
        "recovered": [],
        "foreign_commits": [],
        "adopted": None,
        "discarded": None,
        "mended": [],
        "damaged": [],
        "strangers": [],
        "intents": [],
    }
    shop("repair", "--adopt", code=3)


def test_verify_names_what_is_damaged_and_how_to_mend_it(shop: Cli, tmp_path: Path) -> None:
    assert shop("verify").out.startswith("Verified ")
    assert shop("verify", "--json").document["ok"] is True
    hint = tmp_path / "shop.lake" / "_tidelock" / "tags" / "broken.json"
    hint.parent.mkdir(exist_ok=True)
    hint.write_bytes(b"")
    (tmp_path / "shop.lake" / "_tidelock" / ".DS_Store").write_bytes(b"x")
    told = shop("verify", code=7, answers=True)
    assert "damaged: _tidelock/tags/broken.json: it is empty" in told.out
    assert "tidelock repair --discard-object _tidelock/tags/broken.json" in told.out
    assert "foreign: _tidelock/.DS_Store" in told.out
    assert "damaged or gone" in told.err
    found = shop("verify", "--json", code=7, answers=True).document["findings"]
    assert {(one["key"], one["what"]) for one in found} == {
        ("_tidelock/tags/broken.json", "damaged"),
        ("_tidelock/.DS_Store", "foreign"),
    }
    told = shop("repair")
    assert "--discard-object" in told.out
    assert "foreign: _tidelock/.DS_Store" in told.out
    done = shop("repair", "--discard-object", "_tidelock/tags/broken.json").out
    assert "Discarded _tidelock/tags/broken.json" in done
    shop("verify")


def test_repair_says_what_it_mended(shop: Cli, tmp_path: Path) -> None:
    lease = tmp_path / "shop.lake" / "_tidelock" / "leases" / "host-1-ab.json"
    lease.parent.mkdir(exist_ok=True)
    lease.write_bytes(b"")
    assert "Mended _tidelock/leases/host-1-ab.json: it is empty" in shop("repair").out
    assert not lease.exists()
