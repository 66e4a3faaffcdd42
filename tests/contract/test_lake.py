"""One lake, every kind of place: what a user may rely on holds on files, memory and S3 alike."""

from __future__ import annotations

import datetime as dt
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelock
from tidelock import errors

Open = Callable[..., tidelock.Lake]
ORDERS = "id BIGINT NOT NULL, customer_id BIGINT, amount DECIMAL(12,2), at TIMESTAMP"


@pytest.fixture(params=["file", "fsync", "memory", "s3"])
def open_lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens handles on one lake; each test has a lake of its own."""
    options: dict[str, Any] = {}
    if request.param == "s3":
        server, bucket = request.getfixturevalue("s3_server"), request.getfixturevalue("s3_bucket")
        uri = f"s3://{bucket}/some prefix/lake"
        options["storage_options"] = server.storage_options
    elif request.param == "memory":
        uri = f"memory://{uuid.uuid4().hex}"
    else:
        uri = str(tmp_path / "une forêt" / "shop.lake")
        if request.param == "fsync":
            options["durability"] = "fsync"
    handles = []

    def open_(**more: Any) -> tidelock.Lake:
        lake = tidelock.open(uri, **{"actor": "test", **options, **more})
        handles.append(lake)
        return lake

    yield open_
    for lake in handles:
        lake.close()


@pytest.fixture
def lake(open_lake: Open) -> tidelock.Lake:
    lake = open_lake(create=True)
    lake.create_table("orders", ORDERS, key=["id"])
    lake.create_table("customers", "id BIGINT NOT NULL, name STRING", key="id")
    lake.create_table("notes", "text STRING, tags ARRAY<STRING>, m MAP<STRING, INT>")
    return lake


def order(number: int, amount: str = "1.00", customer: int = 1) -> dict[str, Any]:
    return {"id": number, "customer_id": customer, "amount": Decimal(amount), "at": None}


def rows(table: Any) -> Counter[tuple[Any, ...]]:
    data = table if isinstance(table, pa.Table) else table.to_arrow()
    return Counter(tuple(map(repr, row.values())) for row in data.to_pylist())


def test_opening_where_there_is_no_lake_says_so(open_lake: Open) -> None:
    with pytest.raises(errors.LakeNotFound, match="create=True"):
        open_lake()


def test_a_transaction_over_several_tables_is_one_commit(lake: tidelock.Lake) -> None:
    before = lake.snapshot()
    with lake.transaction(message="first load") as tx:
        tx.append("orders", [order(1), order(2, "2.50")])
        tx.upsert("customers", [{"id": 1, "name": "Ada"}])
        tx.append("notes", [{"text": "x", "tags": ["a", None], "m": {"k": 1}}])
        assert tx.table("orders").count() == 2
        assert lake.snapshot().table("orders").count() == 0
    assert tx.commit is not None
    assert tx.commit.version == before.version + 1 == lake.snapshot().version
    assert tx.commit.message == "first load"
    assert tx.commit.actor == "test"
    assert {change.table for change in tx.commit.tables} == {"orders", "customers", "notes"}
    assert tx.commit.table("orders").inserted == 2
    assert before.table("orders").count() == 0
    assert lake.snapshot().table("orders").count() == 2


def test_a_block_that_raises_leaves_nothing(lake: tidelock.Lake) -> None:
    version = lake.snapshot().version
    tx = lake.transaction()

    def fail() -> None:
        with tx:
            tx.append("orders", [order(1)])
            assert tx.table("orders").count() == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert lake.snapshot().version == version
    assert lake.snapshot().table("orders").count() == 0
    with pytest.raises(errors.TransactionClosed):
        tx.append("orders", [order(2)])


def test_any_mix_of_operations_is_seen_by_the_transaction_itself(lake: tidelock.Lake) -> None:
    with lake.transaction() as tx:
        tx.append("orders", [order(n, f"{n}.00") for n in range(10)])
        assert tx.update("orders", {"amount": "amount + 1"}, where="id < 3") == 3
        assert tx.delete("orders", where="id >= 8") == 2
        tx.upsert("orders", [order(2, "99.00"), order(20, "5.00")])
        tx.append("orders", [order(30)])
        seen = {row["id"]: row["amount"] for row in tx.table("orders").to_arrow().to_pylist()}
    expected = {n: Decimal(n) for n in range(3, 8)}
    expected |= {0: Decimal(1), 1: Decimal(2), 2: Decimal(99), 20: Decimal(5), 30: Decimal(1)}
    assert seen == expected
    stored = lake.snapshot().table("orders").to_arrow().to_pylist()
    assert {row["id"]: row["amount"] for row in stored} == expected
    with lake.transaction() as tx:
        tx.overwrite("orders", [order(7)])
    assert [row["id"] for row in lake.snapshot().table("orders").to_arrow().to_pylist()] == [7]


def test_an_append_is_refused_when_a_key_is_there_already(lake: tidelock.Lake) -> None:
    with lake.transaction() as tx:
        tx.append("orders", [order(1)])
    with pytest.raises(errors.DuplicateKey, match="already") as caught, lake.transaction() as tx:
        tx.append("orders", [order(2), order(1)])
    assert caught.value.values == [(1,)]
    with lake.transaction() as tx:
        tx.append("orders", [order(3)])
        with pytest.raises(errors.DuplicateKey):
            tx.append("orders", [order(3)])
    with pytest.raises(errors.DuplicateKey), lake.transaction() as tx:
        tx.upsert("orders", [order(4), order(4)])
    assert lake.snapshot().table("orders").count() == 2


def test_concurrent_appends_to_one_table_both_succeed(open_lake: Open, lake: tidelock.Lake) -> None:
    other = open_lake()
    first, second = lake.transaction(), other.transaction()
    first.append("orders", [order(1)])
    second.append("orders", [order(2)])
    second.append("notes", [{"text": "n"}])
    assert first.publish().version + 1 == second.publish().version
    assert lake.snapshot().table("orders").count() == 2
    assert other.snapshot().table("notes").count() == 1


def test_concurrent_appends_of_one_key_leave_one(open_lake: Open, lake: tidelock.Lake) -> None:
    first, second = lake.transaction(), open_lake().transaction()
    first.append("orders", [order(1)])
    second.append("orders", [order(1)])
    first.publish()
    with pytest.raises(errors.DuplicateKey):
        second.publish()
    assert lake.snapshot().table("orders").count() == 1


def test_concurrent_upserts_both_apply(open_lake: Open, lake: tidelock.Lake) -> None:
    with lake.transaction() as tx:
        tx.append("orders", [order(1), order(2)])
    first, second = lake.transaction(), open_lake().transaction()
    first.upsert("orders", [order(1, "10.00"), order(3, "30.00")])
    second.upsert("orders", [order(1, "11.00"), order(3, "31.00"), order(4)])
    first.publish()
    second.publish()
    found = {row["id"]: row["amount"] for row in lake.table("orders").to_arrow().to_pylist()}
    assert found == {1: Decimal(11), 2: Decimal(1), 3: Decimal(31), 4: Decimal(1)}


@pytest.mark.parametrize("operation", ["update", "delete", "overwrite"])
def test_what_read_rows_conflicts_when_they_changed(
    open_lake: Open, lake: tidelock.Lake, operation: str
) -> None:
    with lake.transaction() as tx:
        tx.append("orders", [order(1)])
    base = lake.snapshot().version
    late = open_lake().transaction()
    if operation == "update":
        late.update("orders", {"amount": "amount + 1"}, where="id = 1")
    elif operation == "delete":
        late.delete("orders", where="id = 1")
    else:
        late.overwrite("orders", [order(9)])
    late.append("notes", [{"text": "never"}])
    with lake.transaction() as tx:
        tx.upsert("orders", [order(1, "2.00")])
    with pytest.raises(errors.CommitConflict) as caught:
        late.publish()
    assert (caught.value.table, caught.value.expected, caught.value.actual) == (
        "orders",
        base,
        base + 1,
    )
    assert lake.snapshot().version == base + 1
    assert lake.snapshot().table("notes").count() == 0


def test_changes_of_different_rows_are_all_published(open_lake: Open, lake: tidelock.Lake) -> None:
    with lake.transaction() as tx:
        tx.append("orders", [order(number) for number in range(1, 5)])
    late = open_lake().transaction()
    late.append("orders", [order(9)])
    late.update("orders", {"amount": "amount + 1"}, where="id IN (1, 9)")
    late.delete("orders", where="id = 2")
    with lake.transaction() as tx:
        tx.append("orders", [order(7), order(8)])
        tx.update("orders", {"amount": "amount + 2"}, where="id = 3")
    lake.optimize("orders")
    late.publish()
    found = {row["id"]: row["amount"] for row in lake.table("orders").to_arrow().to_pylist()}
    amounts = {1: 2, 3: 3, 4: 1, 7: 1, 8: 1, 9: 2}
    assert found == {number: Decimal(amount) for number, amount in amounts.items()}


def test_what_a_serializable_transaction_read_must_hold(
    open_lake: Open, lake: tidelock.Lake
) -> None:
    with lake.transaction() as tx:
        tx.append("orders", [order(number) for number in range(1, 5)])
    other = open_lake()
    for row, outcome in ((4, "published"), (2, "conflict")):
        late = other.transaction(isolation="serializable")
        assert late.table("orders").count("id <= 2") == 2
        late.append("notes", [{"text": outcome}])
        with lake.transaction() as tx:
            tx.update("orders", {"amount": "amount + 2"}, where=f"id = {row}")
        if outcome == "published":
            late.publish()
            continue
        with pytest.raises(errors.CommitConflict, match="has read the rows where id <= 2"):
            late.publish()
    assert lake.table("notes").to_arrow()["text"].to_pylist() == ["published"]


def test_run_retries_on_the_newest_snapshot(open_lake: Open, lake: tidelock.Lake) -> None:
    with lake.transaction() as tx:
        tx.append("orders", [order(1)])
    other = open_lake()
    calls = []

    def add(tx: tidelock.Transaction) -> int:
        calls.append(tx.base_version)
        tx.update("orders", {"amount": "amount + 1"}, where="id = 1")
        if len(calls) == 1:
            other.run(lambda rival: rival.update("orders", {"amount": "amount * 10"}))
        return len(calls)

    assert lake.run(add, retries=5) == 2
    assert lake.table("orders").to_arrow()["amount"].to_pylist() == [Decimal(11)]


def test_an_operation_id_is_published_once(open_lake: Open, lake: tidelock.Lake) -> None:
    with lake.transaction(operation_id="load 1/a") as first:
        first.append("orders", [order(1)])
    with open_lake().transaction(operation_id="load 1/a") as again:
        again.append("orders", [order(1)])
    assert first.commit == again.commit
    assert lake.find_operation("load 1/a") == first.commit
    assert lake.find_operation("never") is None
    assert lake.snapshot().table("orders").count() == 1


def test_streams_are_staged_under_an_intent_and_leave_none(lake: tidelock.Lake) -> None:
    schema = pa.schema([("id", pa.int64()), ("customer_id", pa.int64())])

    def batches(repeat: bool) -> Iterator[pa.RecordBatch]:
        for start in (0, 100, 0 if repeat else 200):
            ids = list(range(start, start + 100))
            yield pa.RecordBatch.from_pydict({"id": ids, "customer_id": ids}, schema=schema)
            assert len(lake.intents()) == 1

    for call in ("append", "upsert", "overwrite"):
        with lake.transaction() as tx:
            reader = pa.RecordBatchReader.from_batches(schema, batches(False))
            getattr(tx, call)("orders", reader)
        assert lake.snapshot().table("orders").count() == 300
        with pytest.raises(errors.DuplicateKey), lake.transaction() as tx:
            getattr(tx, call)("orders", pa.RecordBatchReader.from_batches(schema, batches(True)))
        assert lake.snapshot().table("orders").count() == 300
        assert len(lake.intents()) == 0
    assert len(lake.recoveries()) == 0


def test_snapshots_by_version_commit_time_and_tag(lake: tidelock.Lake) -> None:
    commits = []
    for number in range(4):
        with lake.transaction() as tx:
            tx.append("orders", [order(number)])
        commits.append(tx.commit)
    lake.tag("two", version=commits[1].version)
    assert lake.snapshot(version=commits[2].version).table("orders").count() == 3
    assert lake.snapshot(commit=commits[0].id).table("orders").count() == 1
    assert lake.snapshot(tag="two").table("orders").count() == 2
    assert lake.snapshot(at=commits[2].time).table("orders").count() == 3
    past = commits[0].time - dt.timedelta(days=1)
    with pytest.raises(errors.VersionNotFound, match="first commit"):
        lake.snapshot(at=past)
    assert lake.snapshot(version=0).tables() == ()
    with pytest.raises(errors.VersionNotFound):
        lake.snapshot(version=10**6)
    with pytest.raises(errors.CommitNotFound):
        lake.snapshot(commit="main-4711")
    with pytest.raises(errors.TagExists):
        lake.tag("two", version=1)


def test_branches_are_written_apart_and_come_back_as_another(
    open_lake: Open, lake: tidelock.Lake
) -> None:
    with lake.transaction() as tx:
        tx.append("orders", [order(1)])
    fork = lake.snapshot().version
    lake.create_branch("feature/été")
    old = open_lake().transaction(branch="feature/été")
    old.append("orders", [order(7)])
    with lake.transaction(branch="feature/été") as tx:
        tx.append("orders", [order(2)])
    assert tx.commit.version == fork + 1
    assert lake.snapshot("feature/été").table("orders").count() == 2
    assert lake.snapshot().table("orders").count() == 1
    assert [c.version for c in lake.log("feature/été")] == list(range(fork + 1, 0, -1))
    lake.delete_branch("feature/été")
    with pytest.raises(errors.BranchNotFound):
        lake.snapshot("feature/été")
    lake.create_branch("feature/été", at=1)
    with pytest.raises(errors.BranchDeleted):
        old.publish()
    assert lake.snapshot("feature/été").version == 1
    assert "feature/été" in lake.branches()


def test_changes_add_up_to_the_difference(lake: tidelock.Lake) -> None:
    with lake.transaction() as tx:
        tx.append("orders", [order(n) for n in range(5)])
    start = lake.snapshot()
    with lake.transaction() as tx:
        tx.update("orders", {"amount": "amount * 2"}, where="id = 1")
    with lake.transaction() as tx:
        tx.delete("orders", where="id = 2")
        tx.upsert("orders", [order(3, "7.00"), order(9)])
    lake.optimize()
    end = lake.snapshot()
    changes = lake.changes("orders", since=start.version, until=end.version).read_all()
    weights: Counter[tuple[Any, ...]] = Counter()
    for row in changes.to_pylist():
        weight, version = row.pop("_weight"), row.pop("_version")
        assert start.version < version <= end.version
        weights[tuple(map(repr, row.values()))] += weight
    total = rows(start.table("orders"))
    for row, weight in weights.items():
        total[row] += weight
    assert +total == rows(end.table("orders"))


def test_optimize_and_garbage_collection_change_no_row(lake: tidelock.Lake) -> None:
    for number in range(20):
        with lake.transaction() as tx:
            tx.append("orders", [order(number)])
            tx.append("notes", [{"text": str(number), "tags": [], "m": {}}])
    before = {name: rows(lake.table(name)) for name in ("orders", "notes")}
    old = lake.snapshot(version=5)
    seen = rows(old.table("orders"))
    lake.optimize()
    if lake.uri.startswith("s3:"):
        # S3 tells times by the second, and what is as young as the lease is left alone.
        time.sleep(2)
    expected = lake.collect_garbage(older_than=0, dry_run=True)
    report = lake.collect_garbage(older_than=0)
    assert (report.files, report.size_bytes) == (expected.files, expected.size_bytes)
    assert report.files > 0
    assert report.errors == ()
    assert lake.collect_garbage(older_than=0).files == 0
    assert {name: rows(lake.table(name)) for name in before} == before
    assert rows(old.table("orders")) == seen
    del old
    assert lake.collect_garbage(older_than="0s").files > 0
    with pytest.raises(errors.SnapshotExpired):
        lake.snapshot(version=5).table("orders").to_arrow()


def test_a_read_only_handle_reads_and_refuses_to_write(
    open_lake: Open, lake: tidelock.Lake
) -> None:
    reader = open_lake(read_only=True)
    with lake.transaction() as tx:
        tx.append("orders", [order(1)])
    assert reader.snapshot().table("orders").count() == 1
    for write in (
        lambda: reader.transaction(),
        lambda: reader.create_table("t", "a INT"),
        lambda: reader.create_branch("b"),
        lambda: reader.tag("t", version=1),
        lambda: reader.collect_garbage(),
        lambda: reader.optimize(),
    ):
        with pytest.raises(errors.ReadOnlyLake):
            write()


def test_dropped_tables_are_gone_and_stay_in_earlier_snapshots(lake: tidelock.Lake) -> None:
    with lake.transaction() as tx:
        tx.append("orders", [order(1)])
    before = lake.snapshot().version
    lake.drop_table("orders")
    assert "orders" not in lake.tables()
    lake.create_table("orders", "other STRING")
    assert lake.snapshot().table("orders").schema.names == ("other",)
    assert lake.snapshot(version=before).table("orders").count() == 1
