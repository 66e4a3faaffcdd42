"""A branch of a whole pipeline: what was defined and refreshed there, compared with main's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelock
from tidelock import Lake

TOTALS = "SELECT customer, SUM(amount) AS total, COUNT(*) AS n FROM orders GROUP BY customer"
LARGE = "SELECT id, customer FROM orders WHERE amount >= {least}"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True, engine="sail") as lake:
        lake.create_table("orders", "id BIGINT NOT NULL, customer STRING, amount INT", key="id")
        rows = [{"id": n, "customer": "abc"[n % 3], "amount": n} for n in range(12)]
        with lake.transaction() as tx:
            tx.append("orders", rows)
        lake.create_stream_table("totals", TOTALS)
        lake.create_stream_table("large", LARGE.format(least=5))
        lake.refresh()
        lake.create_branch("dev")
        yield lake


def test_rows_of_groups_are_told_before_and_after(lake: Lake) -> None:
    with lake.transaction(branch="dev") as tx:
        tx.update("orders", {"amount": "amount + 100"}, where="id = 0")
        tx.append("orders", [{"id": 50, "customer": "d", "amount": 1}])
    lake.refresh(branch="dev")
    found = lake.diff("main", "dev").table("totals")
    assert (found.inserted, found.updated, found.deleted) == (1, 1, 0)
    updated, inserted = found.examples
    assert updated.columns == ("total",)
    assert updated.before is not None
    assert updated.after is not None
    assert (updated.before["total"], updated.after["total"]) == (18, 118)
    assert inserted.after == {"customer": "d", "total": 1, "n": 1}
    assert found.stream is not None
    assert (found.stream.before, found.stream.after) == ("current", "current")


def test_the_same_results_of_separate_refreshes_do_not_differ(lake: Lake) -> None:
    row = {"id": 60, "customer": "a", "amount": 9}
    for branch in ("main", "dev"):
        with lake.transaction(branch=branch) as tx:
            tx.append("orders", [row])
        lake.refresh(branch=branch)
    assert not lake.diff("main", "dev")
    lake.refresh("large", branch="dev", full=True)
    assert not lake.diff("main", "dev")


def test_a_definition_that_was_changed_is_told_with_its_rows(lake: Lake) -> None:
    lake.create_or_replace_stream_table("large", LARGE.format(least=7), schedule="1h", branch="dev")
    lake.refresh("large", branch="dev")
    found = lake.diff("main", "dev").table("large")
    assert found.stream is not None
    assert {(one.name, one.before, one.after) for one in found.stream.definition} == {
        ("query", LARGE.format(least=5), LARGE.format(least=7)),
        ("schedule", "upstream", "1h"),
    }
    assert (found.inserted, found.updated, found.deleted) == (0, 0, 2)
    assert "query: SELECT" in lake.diff("main", "dev").to_text()


def test_a_result_that_is_not_current_is_said_to_be_so(lake: Lake) -> None:
    with lake.transaction(branch="dev") as tx:
        tx.delete("orders", where="id = 0")
    diff = lake.diff("main", "dev")
    assert [(one.name, one.rows_differ) for one in diff.tables] == [
        ("large", 0),
        ("orders", 1),
        ("totals", 0),
    ]
    stream = diff.table("totals").stream
    assert stream is not None
    assert (stream.before, stream.after) == ("current", "not current: orders changed since")
    lake.create_stream_table("later", TOTALS, branch="dev")
    assert lake.diff("main", "dev").table("later").stream.after == "never refreshed"  # type: ignore[union-attr]


def test_an_engine_is_not_needed(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    with lake.transaction(branch="dev") as tx:
        tx.delete("orders", where="id = 0")
    lake.refresh(branch="dev")

    def refuse(*_: object) -> None:
        raise AssertionError("an engine was asked for")

    monkeypatch.setattr(type(lake._engine), "get", refuse)
    assert lake.diff("main", "dev").table("totals").updated == 1
