"""Every command explains itself, answers in JSON, and shows an example."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from command_line import Cli

from tidelock.cli.failures import EXIT_CODES
from tidelock.cli.main import app

EXPECTED = {
    "init", "status", "load", "sql", "log", "show", "diff", "optimize", "gc", "recoveries",
    "repair", "table create", "table list", "table show", "table mirror", "table drop",
    "branch create", "branch list", "branch delete", "tag create", "tag list", "tag delete",
}  # fmt: skip


def every_command() -> dict[str, Any]:
    def walk(command: Any, path: str) -> Iterator[tuple[str, Any]]:
        children = getattr(command, "commands", None)
        if children is None:
            yield path, command
        for name, child in (children or {}).items():
            yield from walk(child, f"{path} {name}".strip())

    return dict(walk(typer.main.get_command(app), ""))


def test_these_are_the_commands() -> None:
    assert set(every_command()) == EXPECTED


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
    assert "Try 'tidelock" in cli(*arguments, code=2).err
    error = cli(*arguments, "--json", code=2).error
    assert error["condition"] == "USAGE"


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    from tidelock.cli.main import run

    assert run([]) == 2
    assert "Usage" in "".join(capsys.readouterr())


def test_an_interrupt_ends_with_130(shop: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tidelock.cli.files.read_file", interrupt)
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
