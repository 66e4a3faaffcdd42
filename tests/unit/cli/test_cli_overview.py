"""Which lake is meant, how one is made, and what its status tells."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest
from tests.unit.cli.command_line import Cli


def test_a_lake_is_made_once(cli: Cli, tmp_path: Path) -> None:
    made = cli("init", "shop.lake", "--json").document
    assert made == {"uri": str(tmp_path / "shop.lake"), "id": made["id"], "created": True}
    assert cli("init", "shop.lake", "--json", code=3).error["condition"] == "LAKE_EXISTS"
    again = cli("init", "shop.lake", "--exist-ok", "--json").document
    assert again == {**made, "created": False}


def test_a_lake_that_would_vanish_is_refused(cli: Cli) -> None:
    assert "would be gone" in cli("init", "memory://x", code=3).err


def test_the_lake_is_named_before_or_after_the_command(cli: Cli) -> None:
    cli("init", "shop.lake")
    assert cli("status", "--lake", "shop.lake", "--json").document["format"] == 1
    assert cli("-l", "shop.lake", "--json", "status").document["format"] == 1
    assert cli("-l", "other.lake", "status", "-l", "shop.lake").code == 0


def test_the_lake_is_named_by_the_environment(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("init", "shop.lake")
    monkeypatch.setenv("TIDELOCK_LAKE", "shop.lake")
    assert cli("log", "--json").document == []
    assert cli("--lake", "other.lake", "log", "--json", code=3).error["uri"].endswith("other.lake")


def test_the_current_directory_may_be_the_lake(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = cli("log", code=3).err
    assert "--lake" in told
    assert "tidelock init" in told
    cli("init")
    assert cli("status", "--json").document["uri"] == str(tmp_path)


def test_storage_options_are_pairs(cli: Cli) -> None:
    told = cli("init", "x.lake", "--storage-option", "nonsense", code=3).err
    assert "KEY=VALUE" in told


def test_a_path_that_is_a_file_is_wrong_input(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "afile").write_text("")
    for command in (("init", "afile"), ("status", "-l", "afile")):
        told = cli(*command, code=3).err
        assert "afile" in told
        assert "try again" not in told


def test_a_lake_that_there_is_not_is_told_in_the_words_of_the_shell(
    cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "a folder").mkdir()
    for name, quoted in (("none.lake", "none.lake"), ("a folder", "'a folder'")):
        told = cli("log", "-l", name, code=3).err
        assert told == f"error: There is no lake at '{name}'. Create one: tidelock init {quoted}\n"


def test_a_key_may_stand_in_the_columns_or_beside_them(shop: Cli) -> None:
    shop("table", "create", "u", "id INT PRIMARY KEY")
    assert shop("table", "show", "u", "--json").document["key"] == ["id"]
    twice = shop("table", "create", "v", "id INT PRIMARY KEY, b INT", "--key", "b", code=3).err
    assert "The key is given twice" in twice


def test_engines_that_contradict_are_told_in_the_words_of_the_shell(shop: Cli) -> None:
    both = ("--engine", "sail", "--master", "local[1]")
    assert "use --engine spark" in shop("sql", "SELECT 1", *both, code=3).err


def test_reading_writes_nothing(shop: Cli, tmp_path: Path) -> None:
    def files() -> set[Path]:
        return {path for path in (tmp_path / "shop.lake").rglob("*") if path.is_file()}

    before = files()
    shop("status")
    shop("log")
    shop("show", "1")
    shop("diff", "0")
    shop("table", "list")
    shop("table", "show", "orders", "--rows", "3")
    shop("branch", "list")
    shop("tag", "list")
    shop("recoveries")
    assert files() == before


def test_status_shows_the_whole_lake(shop: Cli) -> None:
    shop("load", "orders", "--format", "csv", stdin=b"id\n1\n2\n")
    shop("branch", "create", "dev", "--at", "1")
    shop("tag", "q1")
    status = shop("status", "--json").document
    assert [(b["name"], b["version"], b["rows"]) for b in status["branches"]] == [
        ("main", 2, 2),
        ("dev", 1, 0),
    ]
    assert [(t["name"], t["rows"], t["key"]) for t in status["tables"]] == [("orders", 2, ["id"])]
    assert (status["tags"], status["recoveries"]) == (1, 0)
    assert (status["intents"], status["unreadable_intents"], status["foreign_commits"]) == (
        [],
        [],
        [],
    )
    shown = shop("status").out
    assert "orders" in shown
    assert "dev" in shown


def test_the_status_of_an_empty_lake_says_how_to_go_on(cli: Cli) -> None:
    cli("init")
    assert "tidelock table create" in cli("status").out


def test_unreadable_intents_are_shown_by_file_and_discarded_on_a_word(
    shop: Cli, tmp_path: Path
) -> None:
    intents = tmp_path / "shop.lake" / "_tidelock" / "intents"
    intents.mkdir(exist_ok=True)
    (intents / "torn.json").write_text("{")
    (intents / "newer.json").write_text('{"format": 99}')
    status = shop("status", "--json").document
    assert status["unreadable_intents"] == [
        {"file": "newer.json", "cause": "NEWER_FORMAT"},
        {"file": "torn.json", "cause": "CORRUPT_OBJECT"},
    ]
    assert "tidelock repair --discard-intent torn.json" in shop("status").out
    refused = shop("load", "orders", "--format", "csv", "--json", code=7, stdin=b"id\n1\n").error
    assert refused["condition"] == "INTENT_UNREADABLE"
    assert "Reading works" in refused["message"]
    shop("repair", "--discard-intent", "none.json", code=3)
    shop("repair", "--discard-intent", "_tidelock/lake.json", code=3)
    shop("repair", "--discard-intent", "torn.json")
    removed = shop("repair", "--discard-intent", "newer.json", "--json").document
    assert removed["discarded"] == "_tidelock/intents/newer.json"
    shop("load", "orders", "--format", "csv", stdin=b"id\n1\n")


def test_a_foreign_commit_is_shown_and_discarded_on_a_word(shop: Cli) -> None:
    shop("load", "orders", "--format", "csv", stdin=b"id\n1\n2\n")
    mirror = shop("table", "mirror", "orders", "--json").document
    assert lance.dataset(mirror["path"]).count_rows() == 2
    lance.dataset(mirror["path"]).delete("id = 1")
    found = shop("status", "--json").document["foreign_commits"]
    assert [(f["table"], f["rows"]) for f in found] == [("orders", 1)]
    assert "tidelock repair orders --adopt" in shop("status").out
    assert shop("table", "mirror", "orders", "--json", code=4).error["condition"] == (
        "FOREIGN_COMMIT"
    )
    assert shop("repair", "--json").document["foreign_commits"] == found
    assert "Decide" in shop("repair").out
    assert shop("repair", "orders", "--discard", "--json").document["discarded"] == "orders"
    assert lance.dataset(mirror["path"]).count_rows() == 2
    assert "Nothing needs a decision." in shop("repair").out
