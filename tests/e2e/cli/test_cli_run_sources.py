"""`tidelock run` as a process that reads sources: killed and resumed, told to end, and watched."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.e2e.cli.test_cli_run import SECONDS_MAX, TIDELOCK, Runner, until
from tests.support.line_source import KIND, mood, rows, say, times

import tidelock

ROOT = Path(__file__).parents[3]


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tidelock.Lake]:
    """A lake on files with a source, which other processes can import."""
    monkeypatch.setenv("TIDELOCK_LAKE", str(tmp_path / "shop.lake"))
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'src'}")
    with tidelock.open(tmp_path / "shop.lake", create=True, engine="sail") as opened:
        opened.create_source("a", kind=KIND, into="numbers", path=str(tmp_path / "a.jsonl"))
        yield opened


@pytest.fixture
def runner(tmp_path: Path, lake: tidelock.Lake) -> Iterator[Callable[[], Runner]]:
    with contextlib.ExitStack() as started:

        def start() -> Runner:
            one = Runner(tmp_path)
            started.callback(one.close)
            return one

        yield start


def ids(lake: tidelock.Lake) -> list[int]:
    return sorted(lake.table("numbers").to_arrow()["id"].to_pylist())


def test_a_runner_that_is_killed_is_resumed_without_a_row_lost_or_repeated(
    lake: tidelock.Lake, runner: Callable[[], Runner], tmp_path: Path
) -> None:
    path, said = tmp_path / "a.jsonl", 0
    for _ in range(3):
        one = runner()
        until(lambda one=one: one.events("started"))
        for _ in range(40):
            said += 1
            say(path, {"rows": [{"id": said, "v": said}]})
        until(lambda enough=said - 35: len(ids(lake)) > enough)
        assert one.end(signal.SIGKILL) == -signal.SIGKILL
    last = runner()
    until(lambda: ids(lake) == list(range(1, said + 1)))
    commits = [one for one in lake.log(limit=None) if "source" in one.properties]
    assert len(commits) == said, "each transaction is one commit"
    assert [one.properties["source"]["position"] for one in commits[::-1]] == [
        str(n + 1) for n in range(said)
    ]
    until(lambda: last.events("ingest"))
    assert last.end(signal.SIGTERM) == 0
    assert {one["source"] for one in last.events("ingest")} == {"a"}
    assert all(one["action"] == "ingested" for one in last.events("ingest"))


def test_a_signal_ends_it_in_seconds_though_a_source_hangs(
    lake: tidelock.Lake, runner: Callable[[], Runner], tmp_path: Path
) -> None:
    hanging = tmp_path / "a.jsonl"
    mood(hanging, "hang")
    one = runner()
    until(lambda: times(hanging, "polled") == 1)
    began = time.monotonic()
    assert one.end(signal.SIGTERM) == 0
    assert time.monotonic() - began < 15
    mood(hanging)
    say(hanging, rows(1))
    assert lake.ingest("a").rows == 1, "whoever comes next need not wait"


def test_what_others_do_is_noticed_within_five_seconds(
    lake: tidelock.Lake, runner: Callable[[], Runner], tmp_path: Path
) -> None:
    one = runner()
    until(lambda: one.events("started"))
    path = tmp_path / "b.jsonl"
    say(path, rows(1))

    def within(happened: Callable[[], bool]) -> None:
        ends = time.monotonic() + 7
        while not happened():
            assert time.monotonic() < ends
            time.sleep(0.05)

    lake.create_source("b", kind=KIND, into="more", path=str(path))
    within(lambda: lake.table("more").count() == 1)
    lake.suspend_source("b")
    within(lambda: not lake.source_status("b").reader)
    say(path, rows(2))
    lake.resume_source("b")
    within(lambda: lake.table("more").count() == 2)
    lake.drop_source("b")
    assert "b" not in lake.sources()
    assert one.end(signal.SIGTERM) == 0


def test_a_terminal_shows_a_line_for_each_source(lake: tidelock.Lake, tmp_path: Path) -> None:
    say(tmp_path / "a.jsonl", rows(1, 2))
    reader, writer = pty.openpty()
    process = subprocess.Popen(
        [*TIDELOCK, "run", "--engine", "sail"],
        stdin=writer,
        stdout=writer,
        stderr=writer,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(writer)
    shown, asked = b"", False
    try:
        # A terminal whose programs have all gone is an error to read from.
        with contextlib.suppress(OSError):
            while piece := os.read(reader, 65536):
                shown += piece
                if b"2 rows 1 s ago" in shown and b"streaming" in shown and not asked:
                    asked = True
                    process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS_MAX) == 0
    finally:
        process.kill()
        process.wait()
        os.close(reader)
    assert "rows/s" in shown.decode()
