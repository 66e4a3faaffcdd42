"""`tidelock run` as a process: it follows commits, stops when asked, and another takes over."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tidelock

TIDELOCK = [sys.executable, "-c", "from tidelock.cli.main import main; main()"]
TOTALS = "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer"
BIG = "SELECT customer FROM totals WHERE total > 15"
SECONDS_MAX = 60.0


class Runner:
    """One process of `tidelock run --json`, and what it said so far."""

    def __init__(self, folder: Path) -> None:
        self._said = (folder / f"said-{time.monotonic_ns()}.jsonl").open("w+")
        self.process = subprocess.Popen(
            [*TIDELOCK, "run", "--json", "--engine", "sail"],
            cwd=folder,
            stdout=self._said,
            stderr=subprocess.PIPE,
            text=True,
        )

    def events(self, kind: str) -> list[dict[str, Any]]:
        lines = Path(self._said.name).read_text("utf-8").splitlines()
        return [event for event in map(json.loads, lines) if event["event"] == kind]

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        self.process.communicate(timeout=SECONDS_MAX)
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        self._said.close()


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tidelock.Lake]:
    """A lake on files with orders and two stream tables, one above the other."""
    monkeypatch.setenv("TIDELOCK_LAKE", str(tmp_path / "shop.lake"))
    with tidelock.open(tmp_path / "shop.lake", create=True, engine="sail") as opened:
        opened.create_table("orders", "id BIGINT NOT NULL, customer STRING, amount INT", key="id")
        opened.create_stream_table("totals", TOTALS)
        opened.create_stream_table("big", BIG)
        yield opened


@pytest.fixture
def runner(tmp_path: Path, lake: tidelock.Lake) -> Iterator[Callable[[], Runner]]:
    with contextlib.ExitStack() as started:

        def start() -> Runner:
            one = Runner(tmp_path)
            started.callback(one.close)
            return one

        yield start


def order(lake: tidelock.Lake, number: int, customer: str, amount: int) -> None:
    with lake.transaction() as tx:
        tx.append("orders", [{"id": number, "customer": customer, "amount": amount}])


def until(happened: Callable[[], object]) -> None:
    ends = time.monotonic() + SECONDS_MAX
    while not happened():
        assert time.monotonic() < ends, "it did not happen in time"
        time.sleep(0.1)


def big(lake: tidelock.Lake) -> list[str]:
    return sorted(lake.table("big").to_arrow()["customer"].to_pylist())


def epochs_have_no_holes(lake: tidelock.Lake) -> bool:
    found = [attempt.epoch for attempt in lake.history("totals", None) if attempt.commit]
    return found == list(range(len(found), 0, -1))


def test_a_commit_is_followed_and_a_signal_ends_it_in_order(
    lake: tidelock.Lake, runner: Callable[[], Runner]
) -> None:
    first = runner()
    order(lake, 1, "ada", 20)
    until(lambda: big(lake) == ["ada"])
    order(lake, 2, "grace", 30)
    until(lambda: big(lake) == ["ada", "grace"])
    assert first.end(signal.SIGTERM) == 0
    assert {event["table"] for event in first.events("refresh")} == {"totals", "big"}
    assert first.events("stopped")
    # It left its post, so that the next one need not wait.
    second = runner()
    order(lake, 3, "mary", 40)
    until(lambda: big(lake) == ["ada", "grace", "mary"])
    assert not second.events("waiting")
    assert second.end(signal.SIGINT) == 0


def test_a_runner_that_was_killed_is_resumed_by_the_next(
    lake: tidelock.Lake, runner: Callable[[], Runner]
) -> None:
    first = runner()
    order(lake, 1, "ada", 20)
    until(lambda: first.events("refresh"))
    assert first.end(signal.SIGKILL) == -signal.SIGKILL
    order(lake, 2, "grace", 30)
    second = runner()
    until(lambda: big(lake) == ["ada", "grace"])
    assert second.end(signal.SIGTERM) == 0
    assert epochs_have_no_holes(lake)


def test_a_second_runner_waits_and_takes_over_when_the_first_dies(
    lake: tidelock.Lake, runner: Callable[[], Runner]
) -> None:
    first = runner()
    until(lambda: first.events("started"))
    second = runner()
    until(lambda: second.events("waiting"))
    assert second.events("waiting")[0]["for"].endswith(f":{first.process.pid}")
    order(lake, 1, "ada", 20)
    until(lambda: big(lake) == ["ada"])
    assert not second.events("started")
    # The first has renewed its lease by then, which is no news.
    time.sleep(6)
    assert len(second.events("waiting")) == 1
    first.end(signal.SIGKILL)
    order(lake, 2, "grace", 30)
    until(lambda: big(lake) == ["ada", "grace"])
    assert second.events("started")
    assert second.end(signal.SIGTERM) == 0
    assert epochs_have_no_holes(lake)


def test_who_waits_ends_when_asked(lake: tidelock.Lake, runner: Callable[[], Runner]) -> None:
    first = runner()
    until(lambda: first.events("started"))
    second = runner()
    until(lambda: second.events("waiting"))
    assert second.end(signal.SIGTERM) == 0
    assert first.end(signal.SIGTERM) == 0


def test_a_second_signal_ends_it_at_once(lake: tidelock.Lake, tmp_path: Path) -> None:
    # Nothing but a refresh that takes long keeps the first signal from ending it.
    lake.create_stream_table("slow", "SELECT count(*) AS n FROM range(100000000000)")
    process = subprocess.Popen(
        [*TIDELOCK, "run", "--engine", "sail"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert "Refreshing main" in process.stderr.readline()
        time.sleep(5)
        process.send_signal(signal.SIGTERM)
        assert "Finishing what has begun" in process.stderr.readline()
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=10)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 128 + signal.SIGTERM


def test_an_interrupted_refresh_finishes_what_has_begun(
    lake: tidelock.Lake, tmp_path: Path
) -> None:
    order(lake, 1, "ada", 20)
    gate, reached = tmp_path / "gate", tmp_path / "gate.reached"
    process = subprocess.Popen(
        [*TIDELOCK, "stream", "refresh", "--json", "--engine", "sail"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TIDELOCK_FAILPOINTS": f"refresh.before_publish=pause:{gate}@1"},
    )
    try:
        until(reached.exists)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert "Finishing what has begun" in process.stderr.readline()
        gate.touch()
        out, told = process.communicate(timeout=SECONDS_MAX)
    finally:
        process.kill()
        process.communicate()
    done = {attempt["table"]: attempt["action"] for attempt in json.loads(out)}
    assert done == {"totals": "full", "big": "skipped"}
    assert told == "interrupted\n"
    assert process.returncode == 130


def test_a_terminal_shows_what_each_table_does(lake: tidelock.Lake) -> None:
    order(lake, 1, "ada", 20)
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
                if b"full 1 s ago" in shown and not asked:
                    asked = True
                    process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS_MAX) == 0
    finally:
        process.kill()
        process.wait()
        os.close(reader)
    text = shown.decode()
    assert "totals" in text
    assert "on change" in text
