"""The live view tells what runs, how fast it was, and when it will end."""

from __future__ import annotations

import io
import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from rich.console import Console

from tidelock.cli.show.refresh_view import RefreshView
from tidelock.derive.attempts.attempts import Attempt
from tidelock.derive.graph.groups import Unit
from tidelock.derive.reports import StreamTable

TABLE = StreamTable(
    name="b",
    query="SELECT 1",
    schedule="upstream",
    refresh_mode="auto",
    consistency="atomic",
    schedule_policy="fastest",
    inputs=("a",),
    rows=0,
    as_of=1,
    epoch=1,
    group="d",
    status="refreshed",
    origin=None,
    expected_seconds=20.0,
)


def drawn(view: RefreshView) -> str:
    console = Console(file=io.StringIO(), width=200)
    with console.capture() as capture:
        console.print(view._draw())
    return capture.get()


def test_a_group_that_runs_says_how_long_it_still_will(monkeypatch: pytest.MonkeyPatch) -> None:
    view = RefreshView()
    view.follow([TABLE, replace(TABLE, name="c", expected_seconds=10.0)])
    view.begun(Unit("d", ("b", "c"), None, 0))
    began = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: began + 12.0)
    assert drawn(view).count("running 12 s, about 18 s left") == 2
    monkeypatch.setattr(time, "monotonic", lambda: began + 40.0)
    assert "running 40 s, late" in drawn(view)


def test_a_table_that_was_never_refreshed_promises_nothing() -> None:
    view = RefreshView()
    view.follow([TABLE, replace(TABLE, name="c", expected_seconds=None)])
    view.begun(Unit("d", ("b", "c"), None, 0))
    assert "running 0 s" in drawn(view)
    assert "left" not in drawn(view)


def test_a_table_that_is_done_shows_its_rows_and_its_rate() -> None:
    view = RefreshView()
    view.follow([TABLE])
    view.begun(Unit("b", ("b",), None, 0))
    moment = datetime.now(UTC)
    view.attempted(
        Attempt("b", "b-1", "incremental", moment, seconds=2.0, rows_in=5_000, rows_out=40)
    )
    shown = drawn(view)
    assert "running" not in shown
    assert "2,500" in shown
    assert "40" in shown
    assert "on change" in shown
