"""The command line called in this process, in a directory of its own."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from tests.unit.cli.command_line import ORDERS, Cli, Result

from tidelock.cli.main import run


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Calls the command line; checks that it ends with `code`, and that a failure says nothing on
    stdout, unless it `answers` with what it did all the same."""
    monkeypatch.chdir(tmp_path)

    def call(
        *arguments: object, code: int = 0, stdin: bytes = b"", answers: bool = False
    ) -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        ended = run([str(argument) for argument in arguments])
        result = Result(ended, *capsys.readouterr())
        assert result.code == code, result.err or result.out
        if code and not answers:
            assert result.out == ""
        return result

    return call


@pytest.fixture
def shop(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A lake named by the environment, with an empty table of orders."""
    monkeypatch.setenv("TIDELOCK_LAKE", "shop.lake")
    monkeypatch.setenv("TIDELOCK_ACTOR", "ann")
    cli("init")
    cli("table", "create", "orders", ORDERS, "--key", "id")
    return cli
