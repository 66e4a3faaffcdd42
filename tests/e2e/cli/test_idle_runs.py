"""`tidelock run` while nothing happens, and while destinations hang."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.e2e.cli.test_cli_run import Runner, lake, order, runner, until
from tests.support.sinks.receivers import Do, receiving
from tests.unit.run.test_schedule_of_sinks import HEAD, asked, looks_of

import tidelock
from tidelock.deliver import deliveries
from tidelock.ingest.schedule import readings
from tidelock.run import scheduler

__all__ = ["asked", "lake", "runner"]


def test_stream_tables_and_sinks_that_are_current_cost_one_look_at_the_head(
    lake: tidelock.Lake,
    tmp_path: Path,
    asked: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake.create_stream_table("hourly", "SELECT count(*) AS n FROM orders", schedule="1h")
    for name in ("totals", "hourly"):
        lake.create_sink(name, table=name, kind="jsonl", to=str(tmp_path / name))
    order(lake, 1, "ada", 20)
    monkeypatch.setattr(deliveries, "LEDGER_SECONDS", 0.3)
    stop = threading.Event()
    serving = threading.Thread(target=lambda: lake.serve_schedule(stop=stop))
    serving.start()
    try:
        until(lambda: all(lake.sink_status(name).plan for name in ("totals", "hourly")))
        time.sleep(1.5)
        monkeypatch.setattr(deliveries, "LEDGER_SECONDS", 3600)
        monkeypatch.setattr(scheduler, "AGENDA_SECONDS", 3600)
        monkeypatch.setattr(readings, "LIST_SECONDS", 3600)
        until(lambda: len(quiet(lake, asked)) == 1)
        done = quiet(lake, asked)
    finally:
        stop.set()
        serving.join()
    assert done == {HEAD: done[HEAD]}
    assert 1 <= done[HEAD] <= 6


def quiet(lake: tidelock.Lake, asked: list[tuple[str, str]]) -> Counter[str]:
    """What is asked for in two and a half seconds, but to renew leases."""
    found = looks_of(lake, asked, 2.5)
    renewed = ("/posts/", "/leases/")
    return Counter({one: n for one, n in found.items() if not any(r in one for r in renewed)})


def test_a_signal_ends_it_in_seconds_though_receivers_hang_in_the_middle_of_a_request(
    lake: tidelock.Lake, runner: Callable[[], Runner], tmp_path: Path
) -> None:
    with receiving() as receiver:
        receiver.rule = lambda request: Do(seconds=300)
        for number in range(6):
            lake.create_sink(f"hook{number}", table="orders", kind="http", to=receiver.url)
        lake.create_sink("files", table="orders", kind="jsonl", to=str(tmp_path / "files"))
        order(lake, 1, "ada", 20)
        first = runner()
        until(lambda: len(receiver.requests) == 6)
        order(lake, 2, "grace", 30)
        until(lambda: lake.sink_status("files").watermark == 1)
        began = time.monotonic()
        assert first.end(signal.SIGTERM) == 0
        assert time.monotonic() - began < 30
        assert first.events("stopped")
        receiver.rule = lambda request: None
        # Whoever comes next on this machine need not wait, and sends the same under the same keys.
        report = lake.deliver("hook0")
        assert report.action == "delivered"
        keys = [r.key for r in receiver.requests if "hook0" in r.headers["tidelock-sink"]]
        assert keys[0] == keys[1]
