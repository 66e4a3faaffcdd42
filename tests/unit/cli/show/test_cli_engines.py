"""Whoever waits is told for what."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelock.cli.show.engines import starting


@pytest.fixture(autouse=True)
def _plain_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("TIDELOCK_ENGINE", "TIDELOCK_SPARK_MASTER", "TIDELOCK_SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)


def test_spark_is_waited_for_and_the_quicker_engine_is_named() -> None:
    told = starting()
    assert told.startswith("Starting Spark…")
    assert "--engine sail" in told


def test_an_engine_that_is_not_installed_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelock.cli.show.engines.find_spec", lambda name: None)
    assert starting(master="local[2]") == "Starting Spark…"


def test_the_engine_that_was_chosen_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert starting(engine="sail") == "Starting Sail…"
    assert starting(remote="sc://host:15002") == "Connecting to sc://host:15002…"
    monkeypatch.setenv("TIDELOCK_ENGINE", "sail")
    assert starting() == "Starting Sail…"
