"""Every command explains itself, answers in JSON, and shows an example."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.cli.command_line import Cli

from tidelock.cli.failures import EXIT_CODES
from tidelock.cli.program import COMMANDS, Command, load

EXPECTED = {
    "init", "status", "load", "sql", "log", "show", "changes", "diff", "optimize", "gc",
    "recoveries", "repair", "verify", "schema show", "schema plan", "schema apply",
    "schema history",
    "table create", "table list", "table show", "table mirror", "table drop",
    "branch create", "branch list", "branch diff", "branch merge", "branch delete",
    "tag create", "tag list", "tag delete",
    "stream create", "stream alter", "stream drop", "stream list", "stream show", "stream refresh",
    "stream explain", "stream history", "stream suspend", "stream resume", "stream graph",
    "stream groups", "apply", "run",
    "source add", "source list", "source status", "source ingest", "source suspend",
    "source resume", "source resnapshot", "source drop",
    "sink add", "sink list", "sink status", "sink deliver", "sink suspend", "sink resume",
    "sink repair", "sink replay", "sink resync", "sink drop", "sink quarantine",
}  # fmt: skip


def every_command() -> dict[str, Any]:
    def walk(command: Any, path: str) -> Iterator[tuple[str, Any]]:
        children = getattr(command, "commands", None)
        if children is None:
            yield path, command
        for name, child in (children or {}).items():
            yield from walk(child, f"{path} {name}".strip())

    commands = ((command.name, load(command)) for command in COMMANDS)
    return dict(leaf for name, command in commands for leaf in walk(command, name))


def test_these_are_the_commands() -> None:
    assert set(every_command()) == EXPECTED


@pytest.mark.parametrize("listed", COMMANDS, ids=lambda command: command.name)
def test_the_list_of_commands_says_what_each_says_of_itself(listed: Command) -> None:
    first, _, _ = load(listed).help.partition("\n\n")
    assert listed.help == " ".join(first.split())


@pytest.mark.parametrize("path", sorted(EXPECTED))
def test_a_command_explains_itself(cli: Cli, path: str) -> None:
    told = cli(*path.split(), "--help").out
    assert "--json" in told
    assert "--lake" in told
    assert f"tidelock {path}" in told.split("Example")[1]


def test_the_program_shows_its_exit_codes(cli: Cli) -> None:
    told = cli("--help").out
    for code, meaning in EXIT_CODES:
        assert f"{code}  {meaning}" in told


def test_the_program_shows_its_version(cli: Cli) -> None:
    assert cli("--version").out == "tidelock 0.1.0\n"


@pytest.mark.parametrize("arguments", [["lgo"], ["log", "--limt", "3"], ["show"], ["load"]])
def test_a_wrong_command_line_ends_with_two(cli: Cli, arguments: list[str]) -> None:
    told = cli(*arguments, code=2).err
    assert told.startswith("error: ")
    assert "Try 'tidelock" in told
    error = cli(*arguments, "--json", code=2).error
    assert error["condition"] == "USAGE"


def test_a_choice_that_there_is_not_is_told_with_those_there_are(cli: Cli) -> None:
    told = cli("load", "orders", "--mode", "replace", code=2).err
    assert told.splitlines() == [
        "error: Invalid value for '--mode': 'replace' is not one of 'append', 'upsert', "
        "'overwrite'.",
        "Try 'tidelock load --help'.",
    ]


# Their help lists what they take.
CHOICES = {"feed", "mode", "on_bad_row", "format_", "consistency", "policy", "granularity"}


@pytest.mark.parametrize("path", sorted(EXPECTED))
def test_what_an_option_takes_is_named_for_what_it_is(path: str) -> None:
    for parameter in every_command()[path].params:
        if not getattr(parameter, "is_flag", False) and parameter.name not in CHOICES:
            assert parameter.metavar, parameter.name


def test_upsert_says_that_it_replaces_whole_rows(cli: Cli) -> None:
    told = " ".join(cli("load", "--help").out.replace("│", " ").split())
    assert "upsert replaces their whole rows" in told
    assert "gets its default" in told


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    from tidelock.cli.main import run

    assert run([]) == 2
    assert "Usage" in "".join(capsys.readouterr())


def test_an_interrupt_ends_with_130(shop: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tidelock.ingest.files.load.read_file", interrupt)
    told = shop("load", "orders", "--format", "csv", code=130, stdin=b"id\n1\n").err
    assert told == "interrupted\n"
    assert len(shop("log", "--json").document) == 1


def test_an_unexpected_error_ends_with_one(shop: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("by accident")

    monkeypatch.setattr("tidelock.cli.reach.find_commit", fail)
    assert shop("show", "1", code=1).err.startswith("error: ZeroDivisionError: by accident")
    assert shop("show", "1", "--json", code=1).error["condition"] == "UNEXPECTED"
    assert "Traceback" in shop("show", "1", "--debug", code=1).err
