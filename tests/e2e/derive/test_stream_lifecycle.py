"""Stream tables while others drop, alter, suspend and refresh at the same time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.lakes import age, copy_lake, run, wait_until
from tests.support.streams import check

import tidelock
from tidelock.errors import TableInUse, TableNotFound
from tidelock.model.streams import Definition
from tidelock.run.lake import Lake
from tidelock.store.objects.failpoints import armed

TOTALS = "SELECT g, SUM(v) AS total, COUNT(*) AS n FROM a GROUP BY g"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True, engine="sail") as lake:
        lake.create_table("a", "id INT NOT NULL, g INT, v INT", key="id")
        add(lake, 1, 2, 3)
        yield lake


def add(lake: Lake, *ids: int, v: int = 1) -> None:
    lake.run(lambda tx: tx.upsert("a", [{"id": one, "g": one % 2, "v": v} for one in ids]))


def only(report: Any) -> Any:
    (attempt,) = report
    return attempt


def rows(lake: Lake, name: str) -> list[dict[str, Any]]:
    return sorted(lake.table(name).to_arrow().to_pylist(), key=repr)


# Dropping what is read


@pytest.mark.parametrize("refreshed", [False, True])
def test_a_table_that_is_read_cannot_be_dropped(lake: Lake, refreshed: bool) -> None:
    lake.create_stream_table("totals", TOTALS, refresh_mode="incremental")
    lake.create_stream_table("big", "SELECT id FROM A WHERE v > 10")
    if refreshed:
        lake.refresh()
    version = lake.snapshot().version
    with pytest.raises(TableInUse, match=r"'a' is read by .*'totals'") as caught:
        lake.drop_table("a")
    assert set(caught.value.dependents) == {"totals", "big"}
    with pytest.raises(TableInUse), lake.transaction() as tx:
        tx.drop_table("A")
    assert lake.snapshot().version == version
    lake.drop_stream_table("totals")
    lake.drop_stream_table("big")
    lake.drop_table("a")


def test_a_table_that_is_dropped_and_created_in_one_transaction_is_read_anew(lake: Lake) -> None:
    lake.create_stream_table("totals", TOTALS, refresh_mode="incremental")
    lake.refresh()
    with lake.transaction() as tx:
        tx.drop_table("a")
        tx.create_table("a", "id INT NOT NULL, g INT, v INT", key="id")
        tx.append("a", [{"id": 9, "g": 9, "v": 9}])
    attempt = only(lake.refresh())
    assert (attempt.action, attempt.reason) == (
        "full",
        "in full: 'a' was replaced by another table",
    )
    assert rows(lake, "totals") == [{"g": 9, "total": 9, "n": 1}]


def test_who_drops_a_table_loses_to_a_stream_table_that_came_meanwhile(lake: Lake) -> None:
    tx = lake.transaction()
    tx.drop_table("a")
    lake.create_stream_table("totals", TOTALS, refresh_mode="incremental")
    with pytest.raises(TableInUse, match="totals"):
        tx.publish()
    assert only(lake.refresh()).action == "full"


def test_who_defines_a_stream_table_loses_to_a_drop_that_came_meanwhile(lake: Lake) -> None:
    other = tidelock.open(lake.uri, engine="sail")
    with other, lake.transaction() as tx:
        lake._definitions.staging.define(tx, "totals", Definition(TOTALS))
        other.drop_table("a")
        with pytest.raises(TableInUse, match="totals"):
            tx.publish()
    with pytest.raises(TableNotFound):
        lake.table("totals")


@pytest.mark.parametrize(
    ("columns", "query"),
    [
        ("id INT NOT NULL, h INT, v INT", TOTALS),
        ("id INT NOT NULL, g INT, v INT, w INT", "SELECT * FROM a"),
        ("id INT NOT NULL, g INT, v STRING", "SELECT g, v FROM a"),
    ],
)
def test_a_source_with_other_columns_stops_the_stream_table(
    lake: Lake, columns: str, query: str
) -> None:
    lake.create_stream_table("s", query)
    lake.refresh()
    before = rows(lake, "s")
    with lake.transaction() as tx:
        tx.drop_table("a")
        tx.create_table("a", columns, key="id")
        tx.append("a", [{"id": 1}])
    attempt = only(lake.refresh())
    assert (attempt.action, attempt.condition) == ("failed", "DEFINITION_BROKEN")
    assert "Replace its definition" in attempt.reason
    assert rows(lake, "s") == before
    assert "DEFINITION_BROKEN" in lake.stream_tables()[0].status
    lake.create_or_replace_stream_table("s", "SELECT id FROM a")
    lake.refresh()
    assert rows(lake, "s") == [{"id": 1}]


# Explaining


def test_explaining_writes_nothing_and_works_read_only(lake: Lake) -> None:
    lake.create_stream_table("totals", TOTALS, refresh_mode="incremental")
    defined = lake.snapshot().version
    lake.refresh()
    add(lake, 4)
    version, intents = lake.snapshot().version, list(lake.intents())
    with tidelock.open(lake.uri, read_only=True, engine="sail") as reader:
        told = reader.explain("totals")
        assert told.incremental
        assert told.mode == "incremental"
        assert reader.explain("totals", at=defined).reason == "in full: first refresh"
        with pytest.raises(TableNotFound):
            reader.explain("totals", at=defined - 1)
    assert (lake.snapshot().version, list(lake.intents())) == (version, intents)


# Time


def test_a_view_of_the_time_follows_its_schedule_though_nothing_was_written(lake: Lake) -> None:
    lake.create_stream_table("now", "SELECT id, current_timestamp() AS t FROM a", schedule="1s")
    lake.create_stream_table("plain", "SELECT id FROM a", schedule="1s")
    lake.create_stream_table("lazy", "SELECT id, current_timestamp() AS t FROM a")
    lake.create_stream_table("manual", "SELECT id, now() AS t FROM a", schedule=None)
    lake.refresh()
    first = {name: rows(lake, name) for name in ("now", "lazy", "manual")}
    assert {one.action for one in lake.refresh(due=True)} == {"none"}
    time.sleep(1.1)
    actions = {one.table: one.action for one in lake.refresh(due=True)}
    assert actions == {"now": "full", "plain": "none", "lazy": "none", "manual": "none"}
    assert rows(lake, "now") != first["now"]
    assert only(lake.refresh("lazy")).action == "none"
    assert only(lake.refresh("manual")).action == "full"
    add(lake, 5)
    lake.refresh()
    assert rows(lake, "lazy") != first["lazy"]


def test_everything_is_brought_up_to_date_and_what_is_due_only_when_that_is_asked(
    lake: Lake,
) -> None:
    lake.create_stream_table("always", TOTALS, refresh_mode="incremental")
    lake.create_stream_table("hourly", TOTALS, schedule="1h", refresh_mode="incremental")
    lake.create_stream_table("manual", TOTALS, schedule=None, refresh_mode="incremental")
    due = {one.table: one for one in lake.refresh(due=True)}
    assert {name: one.action for name, one in due.items()} == {
        "always": "full",
        "hourly": "full",
        "manual": "none",
    }
    assert due["manual"].reason == "'manual' is refreshed only when asked"
    assert {one.table for one in lake.refresh() if one.action == "full"} == {"manual"}
    add(lake, 4)
    due = {one.table: one for one in lake.refresh(due=True)}
    assert [name for name, one in due.items() if one.action != "none"] == ["always"]
    assert only(lake.refresh("hourly", due=True)).action == "none"
    done = {one.table: (one.action, one.reason) for one in lake.refresh()}
    by_delta = ("incremental", "by delta: 1 change")
    assert done == {
        "always": ("none", "no input changed"),
        "hourly": by_delta,
        "manual": by_delta,
    }
    check(lake)


# Others at the same time


@contextmanager
def refreshed_late(lake: Lake, folder: Path) -> Iterator[list[Any]]:
    """A refresh of `totals` that has computed everything, and publishes at the end of the block.

    What becomes of it is in the list then.
    """
    gate = folder / "gate"
    found: list[Any] = []
    late = threading.Thread(target=lambda: found.append(only(lake.refresh("totals"))), daemon=True)
    with armed("refresh.before_publish", f"pause:{gate}@1"):
        late.start()
        try:
            wait_until(Path(f"{gate}.reached").exists)
            yield found
        finally:
            gate.touch()
            late.join(timeout=60)


def test_a_refresh_that_another_made_unnecessary_does_nothing(lake: Lake, tmp_path: Path) -> None:
    lake.create_stream_table("totals", TOTALS, refresh_mode="incremental")
    lake.refresh()
    add(lake, 4)
    with tidelock.open(lake.uri, engine="sail") as other, refreshed_late(lake, tmp_path) as found:
        assert only(other.refresh("totals")).action == "incremental"
    assert (found[0].action, found[0].reason) == ("none", "no input changed")
    assert [one.action for one in lake.history("totals")] == ["incremental", "full"]
    assert [one.epoch for one in lake.history("totals")] == [2, 1]
    check(lake)


def test_a_refresh_that_changes_no_row_still_goes_before_an_older_one(
    lake: Lake, tmp_path: Path
) -> None:
    lake.create_stream_table("totals", TOTALS, refresh_mode="incremental")
    lake.refresh()
    add(lake, 4)
    with tidelock.open(lake.uri, engine="sail") as other, refreshed_late(lake, tmp_path):
        other.run(lambda tx: tx.delete("a", where="id = 4"))
        other.refresh("totals")
        newest = other.stream_tables()[0].as_of
    assert lake.stream_tables()[0].as_of == newest
    assert [one.epoch for one in lake.history("totals")] == [2, 1]
    check(lake)


def test_refreshes_of_one_group_at_once_publish_each_change_once(lake: Lake) -> None:
    lake.create_stream_table("b", "SELECT id, v FROM a")
    lake.create_stream_table("c", TOTALS)
    lake.create_stream_table("d", "SELECT b.id, c.total FROM b JOIN c ON b.id % 2 = c.g")
    lake.refresh()
    rounds = 6
    with tidelock.open(lake.uri, engine="sail") as other:
        for number in range(rounds):
            add(lake, 10 + number)
            threads = [
                threading.Thread(target=handle.refresh) for handle in (lake, other, lake, other)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert {one.epoch for one in lake.stream_tables()} == {number + 2}
    for name in "bcd":
        assert {one.action for one in lake.history(name)} <= {"full", "incremental"}
        assert len(lake.history(name)) == rounds + 1
    check(lake)


@pytest.mark.parametrize("what", ["suspend", "alter"])
def test_what_is_said_of_a_table_while_it_is_refreshed_is_kept(
    lake: Lake, tmp_path: Path, what: str
) -> None:
    lake.create_stream_table("totals", TOTALS, refresh_mode="incremental")
    lake.refresh()
    add(lake, 4)
    with refreshed_late(lake, tmp_path) as found:
        if what == "suspend":
            lake.suspend("totals", reason="looked at")
        else:
            lake.alter_stream_table("totals", schedule="1h")
    (table,) = lake.stream_tables()
    if what == "suspend":
        assert table.status.startswith("suspended: looked at")
        assert found[0].action == "skipped"
        assert "looked at" in found[0].reason
    else:
        assert table.schedule == "1h"
        assert found[0].action == "incremental"
        check(lake)


def refresh(uri: str) -> None:
    with tidelock.open(uri, engine="sail") as lake:
        lake.refresh()


def test_a_refresh_that_is_published_for_its_dead_writer_knows_its_version(
    lake: Lake, tmp_path: Path
) -> None:
    lake.create_table("other", "id INT")
    lake.create_stream_table("b", "SELECT id, v FROM a")
    lake.create_stream_table("c", TOTALS)
    lake.create_stream_table("d", "SELECT b.id, c.total FROM b JOIN c ON b.id % 2 = c.g")
    uri = copy_lake(lake.uri, tmp_path / "copy")
    assert run(refresh, uri, failpoints="intent.after_seal=kill") == -9
    with tidelock.open(uri, engine="sail") as writer:
        writer.run(lambda tx: tx.append("other", [{"id": 1}]))
        between = writer.snapshot().version
    age(uri)
    with tidelock.open(uri, engine="sail") as healed:
        assert [one.outcome for one in healed.recoveries()] == ["rolled_forward"]
        (published,) = healed.log(limit=1)
        assert published.version == between + 1
        for name in "bcd":
            assert [one.commit for one in healed.history(name)] == [published.id]
        assert {one.action for one in healed.refresh()} == {"none"}
        add(healed, 5)
        assert {one.action for one in healed.refresh(parallel=False)} <= {"incremental", "full"}
        check(healed)


# Failures of data


def test_a_table_that_failed_on_its_data_says_what_to_do_and_goes_on_once_resumed(
    lake: Lake,
) -> None:
    lake.create_stream_table("s", "SELECT id, 100 / v AS share FROM a")
    lake.refresh()
    add(lake, 7, v=0)
    assert only(lake.refresh()).action == "failed"
    told = lake.stream_tables()[0].status
    assert "resumed" in told
    assert told.lower().count("zero") == 1
    assert lake.history("s")[0].reason.endswith("it goes on once it is resumed")
    again = only(lake.refresh("s"))
    assert (again.action, again.reason) == ("skipped", f"'s' is {told}")
    lake.run(lambda tx: tx.delete("a", where="v = 0"))
    assert only(lake.refresh()).action == "skipped"
    lake.resume("s")
    assert lake.stream_tables()[0].status == "refreshed"
    add(lake, 8)
    assert only(lake.refresh()).action in ("incremental", "full")
    assert [one.action for one in lake.history("s")][:3] in (
        ["incremental", "resumed", "failed"],
        ["full", "resumed", "failed"],
    )
    check(lake)


# Change feeds


def changed(lake: Lake, name: str, since: int) -> list[tuple[Any, ...]]:
    rows = lake.changes(name, since=since).read_all().to_pylist()
    return [tuple(value for key, value in row.items() if key != "_version") for row in rows]


@pytest.mark.parametrize("mode", ["incremental", "full"])
def test_a_feed_does_not_show_rows_whose_hidden_sums_alone_changed(lake: Lake, mode: Any) -> None:
    query = "SELECT g, SUM(v) AS total FROM a GROUP BY g"
    lake.create_stream_table("sums", query, refresh_mode="incremental")
    lake.refresh()
    before = lake.snapshot().version
    with lake.transaction() as tx:
        tx.append("a", [{"id": 10, "g": 1, "v": 5}, {"id": 11, "g": 1, "v": -5}])
        tx.append("a", [{"id": 12, "g": 0, "v": 7}])
    lake.refresh(full=mode == "full")
    assert changed(lake, "sums", before) == [(0, 1, -1), (0, 8, 1)]
    assert rows(lake, "sums") == [{"g": 0, "total": 8}, {"g": 1, "total": 2}]
