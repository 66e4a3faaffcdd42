"""Sinks over HTTP, against a receiver that misbehaves: every row arrives once, whatever happens."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import lakes
from tests.support.sinks.receivers import (
    KEEP,
    Do,
    Receiver,
    Request,
    add,
    busy,
    check_equal,
    receiving,
)

import tidelock
from tidelock import Lake
from tidelock.deliver.destinations.http import destination as http
from tidelock.deliver.destinations.http import retry_after
from tidelock.errors import DestinationFailed
from tidelock.model.time.durations import show_moment

SECRET = "hunter2-hunter2"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = tidelock.open(tmp_path / "lake", create=True)
    lake.create_table("t", "id BIGINT NOT NULL, place STRING")
    return lake


def deliver_all(lake: Lake, name: str, ticks: int = 200) -> int:
    """Deliver until nothing is left; how many ticks that took."""
    for tick in range(1, ticks):
        lake.deliver(name)
        if lake.sink_status(name).state in ("current", "quarantined"):
            return tick
    raise AssertionError(f"{name} is not through: {lake.sink_status(name)}")


# What is sent


def test_rows_arrive_in_order_in_chunks_that_say_what_they_are(
    lake: Lake, receiver: Receiver
) -> None:
    lake.create_sink("hook", table="t", kind="http", to=receiver.url, rows_per_chunk=40)
    add(lake, 0, 100)
    report = lake.deliver("hook")
    assert (report.action, report.rows, report.chunks) == ("delivered", 100, 3)
    assert report.size_bytes == sum(len(request.body) for request in receiver.requests)
    assert [row["_sequence"] for row in receiver.rows()] == list(range(100))
    headers = receiver.requests[0].headers
    sink_id = lake.sink_status("hook").id
    numbers = f"{0:019d}-{39:019d}"
    pin = lake._store.branches.head("main").tables["t"].pin
    assert headers["idempotency-key"] == f"{sink_id}//{numbers}@{pin:x}"
    assert headers["content-type"] == "application/x-ndjson"
    shown = {name: value for name, value in headers.items() if name.startswith("tidelock-")}
    assert shown == {
        "tidelock-sink": "hook",
        "tidelock-table": "t",
        "tidelock-feed": "inserts",
        "tidelock-partition": "",
        "tidelock-range": numbers,
        "tidelock-rows": "40",
        "tidelock-generation": "1",
    }
    assert lake.deliver("hook").action == "idle"
    assert len(receiver.requests) == 3
    check_equal(lake, receiver)


def test_names_and_partitions_of_any_letters_make_keys_of_ascii(
    tmp_path: Path, receiver: Receiver
) -> None:
    places = [None, "", " ", "a/b", "Zürich", "%2F", "a=b", "..", 'q"uote', "新", " x "]
    lake = tidelock.open(tmp_path / "lake", create=True)
    lake.create_table("täble", "id BIGINT, `plätz` STRING")
    lake.run(lambda tx: tx.append("täble", [{"id": 1, "plätz": place} for place in places]))
    lake.create_sink("sénk", table="täble", kind="http", to=receiver.url, partition_by="plätz")
    assert lake.deliver("sénk").rows == len(places)
    assert len({request.key for request in receiver.requests}) == len(places)
    assert len({request.partition for request in receiver.requests}) == len(places)
    assert all(" " not in request.key and request.key.isascii() for request in receiver.requests)
    assert Counter(row["plätz"] for row in receiver.rows()) == Counter(places)


def test_values_survive_the_way(tmp_path: Path, receiver: Receiver) -> None:
    lake = tidelock.open(tmp_path / "lake", create=True)
    lake.create_table(
        "v",
        "i BIGINT, f DOUBLE, s STRING, b BINARY, d DECIMAL(38, 10), at TIMESTAMP, "
        "plain TIMESTAMP_NTZ, day DATE, ok BOOLEAN, l ARRAY<STRING>, "
        "st STRUCT<a: BIGINT, b: ARRAY<DECIMAL(9, 2)>>, m MAP<STRING, BIGINT>",
    )
    moment = dt.datetime(2024, 2, 29, 23, 59, 59, 999999)
    rows: list[dict[str, Any]] = [
        {
            "i": -(2**63),
            "f": 0.1,
            "s": 'a"b\\c\nd\te\x00\x1f\x7f\u2028 Zürich 新 😀',
            "b": b"\x00\xff\n",
            "d": decimal.Decimal("1234567890123456789012345678.0000000001"),
            "at": moment.replace(tzinfo=dt.UTC),
            "plain": moment,
            "day": dt.date(1, 1, 1),
            "ok": True,
            "l": ["", None, '"'],
            "st": {"a": None, "b": [decimal.Decimal("1.50")]},
            "m": [("k", 1), ("", None)],
        },
        dict.fromkeys(["i", "f", "s", "b", "d", "at", "plain", "day", "ok", "l", "st", "m"]),
        {"i": 0, "f": float("nan"), "s": "", "b": b"", "l": [], "st": {"a": 1, "b": []}, "m": []},
        {"i": 0, "f": float("nan"), "s": "", "b": b"", "l": [], "st": {"a": 1, "b": []}, "m": []},
    ]
    lake.run(lambda tx: tx.append("v", rows))
    lake.create_sink("hook", table="v", kind="http", to=receiver.url)
    lake.deliver("hook")
    first, nulls, *twins = receiver.rows()
    assert first == {
        "i": -(2**63),
        "f": 0.1,
        "s": rows[0]["s"],
        "b": base64.b64encode(b"\x00\xff\n").decode(),
        "d": "1234567890123456789012345678.0000000001",
        "at": "2024-02-29T23:59:59.999999Z",
        "plain": "2024-02-29T23:59:59.999999",
        "day": "0001-01-01",
        "ok": True,
        "l": ["", None, '"'],
        "st": {"a": None, "b": ["1.50"]},
        "m": {"k": 1, "": None},
        "_sequence": 0,
    }
    assert all(value is None for name, value in nulls.items() if name != "_sequence")
    assert [twin.pop("_sequence") for twin in twins] == [2, 3]
    assert twins[0] == twins[1]
    assert (twins[0]["f"], twins[0]["s"], twins[0]["b"], twins[0]["l"]) == ("NaN", "", "", [])


def test_a_chunk_that_is_too_large_goes_in_pieces_and_a_large_row_alone(
    lake: Lake, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "BODY_BYTES_MAX", 1000)
    rows = [{"id": one, "place": "x" * (5000 if one == 30 else 50)} for one in range(100)]
    lake.run(lambda tx: tx.append("t", rows))
    lake.create_sink("hook", table="t", kind="http", to=receiver.url)
    # The third piece is refused, the fifth is lost: the others are there nevertheless.
    receiver.then(KEEP, KEEP, Do(422, body=b"no"), KEEP, Do(500))
    assert lake.deliver("hook").action == "failed"
    assert lake.deliver("hook").action == "delivered"
    keys = [request.key for request in receiver.requests]
    base = keys[0].removesuffix(".1")
    pieces = sorted({int(key.removeprefix(f"{base}.")) for key in keys})
    assert pieces == list(range(1, len(pieces) + 1))
    large = [request for request in receiver.requests if len(request.body) > 1000]
    assert [request.headers["tidelock-rows"] for request in large] == ["1"] * len(large) != []
    lake.retry_quarantined("hook")
    check_equal(lake, receiver)


def test_a_feed_of_changes_is_delivered_with_its_operations(lake: Lake, receiver: Receiver) -> None:
    lake.create_table("k", "id BIGINT NOT NULL, v BIGINT", key="id")
    lake.create_sink("hook", table="k", kind="http", to=receiver.url, feed="changes")
    lake.run(lambda tx: tx.append("k", [{"id": 1, "v": 1}, {"id": 2, "v": 2}]))
    lake.run(lambda tx: tx.update("k", {"v": "v + 1"}, where="id = 1"))
    lake.run(lambda tx: tx.delete("k", where="id = 2"))
    lake.deliver("hook")
    weights: Counter[tuple[int, int]] = Counter()
    for row in receiver.rows():
        weights[row["id"], row["v"]] += -1 if row["_op"] in ("delete", "update_before") else 1
    assert +weights == Counter({(1, 2): 1})
    assert -weights == Counter()


# What is answered


def test_the_whole_table_of_answers_thousands_of_times(
    lake: Lake, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lakes.seed_of() as seed:
        chance = random.Random(seed)
        monkeypatch.setattr(retry_after, "PAUSE_SECONDS_FIRST", 0.001)
        monkeypatch.setattr(retry_after, "UNASKED_SECONDS_FIRST", 0.001)
        faults = [
            busy("0"),
            busy("0", 503),
            busy(None),
            busy("soon"),
            busy("Thu, 01 Jan 1970 00:00:00 GMT", 503),
            Do(429, (("Retry-After", "0"),), keeps=True),
            Do(408),
            Do(425),
            Do(500, keeps=True),
            Do(500),
            Do(502),
            Do(504, keeps=True),
            Do(302, (("Location", "/rows"),)),
            Do(307, (("Location", "/rows"),)),
            Do(308, (("Location", receiver.url),), keeps=True),
            Do(drop="unread"),
            Do(drop="read"),
            Do(drop="read", keeps=True),
            Do(400, body=b"not now"),
            Do(413, keeps=True),
            Do(204),
            Do(202, body=b"x" * 100_000),
        ]
        receiver.rule = lambda request: chance.choice(faults) if chance.random() < 0.15 else None
        lake.create_sink(
            "hook", table="t", kind="http", to=receiver.url, partition_by="place", rows_per_chunk=1
        )
        first = 0
        for _ in range(12):
            count = chance.randrange(100, 300)
            add(lake, first, count)
            first += count
            lake.deliver("hook")
        deliver_all(lake, "hook")
        while lake.quarantine("hook"):
            try:
                lake.retry_quarantined("hook")
            except DestinationFailed:
                continue
        assert len(receiver.requests) > first
        check_equal(lake, receiver)


def test_lost_answers_are_repeated_to_the_byte_also_when_rows_came_meanwhile(
    lake: Lake, receiver: Receiver
) -> None:
    lake.create_sink("hook", table="t", kind="http", to=receiver.url, rows_per_chunk=30)
    add(lake, 0, 100)
    receiver.then(KEEP, Do(drop="read", keeps=True))
    assert lake.deliver("hook").action == "failed"
    add(lake, 100, 100)
    lake.optimize()
    lake.run(lambda tx: tx.update("t", {"place": "'elsewhere'"}, where="id = 31"))
    receiver.then(Do(500, keeps=True))
    assert lake.deliver("hook").action == "failed"
    deliver_all(lake, "hook")
    again = [request for request in receiver.requests if request.key == receiver.requests[1].key]
    assert len(again) == 3
    assert len({request.body for request in again}) == 1
    assert receiver.sequences() == Counter(range(200))
    assert receiver.unequal == []


def test_a_partition_that_is_refused_time_does_not_stop_the_others(
    lake: Lake, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelock.deliver.destinations.http.retry_after.INLINE_SECONDS_MAX", 0.5)
    lake.create_sink("hook", table="t", kind="http", to=receiver.url, partition_by="place")
    add(lake, 0, 40)

    def fail_one(request: Request) -> Do | None:
        return busy("1") if request.partition == "place=p1" else None

    receiver.rule = fail_one
    began = time.monotonic()
    report = lake.deliver("hook")
    assert time.monotonic() - began < 5
    assert {one.path for one in report.partitions if one.trouble} == {"place=p1"}
    assert len(receiver.rows()) == 30
    status = lake.sink_status("hook")
    assert [one.path for one in status.lagging] == ["place=p1"]
    add(lake, 40, 40)
    report = lake.deliver("hook")
    # The others went on; the one that waits is told, and its destination left alone.
    assert (report.action, report.rows) == ("delivered", 30)
    assert report.reason.startswith("partition place=p1 is tried again at ")
    assert len([one for one in receiver.requests if one.partition == "place=p1"]) == 1
    assert len(receiver.rows()) == 60
    receiver.rule = lambda request: None
    assert status.retry_at is not None
    time.sleep(max(0.0, (status.retry_at - dt.datetime.now(dt.UTC)).total_seconds()))
    deliver_all(lake, "hook")
    check_equal(lake, receiver)


def test_a_time_that_the_destination_named_is_waited_for_also_when_asked_by_hand(
    lake: Lake, receiver: Receiver
) -> None:
    lake.create_sink("hook", table="t", kind="http", to=receiver.url)
    add(lake, 0, 10)
    receiver.then(Do(500), busy("86400"))
    assert lake.deliver("hook").action == "failed"
    # What failed by itself is tried at once, for somebody asked for it.
    assert lake.deliver("hook").action == "failed"
    for _ in range(2):
        report = lake.deliver("hook")
        assert (report.action, report.rows, report.is_incomplete) == ("waiting", 0, True)
        tomorrow = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
        assert report.reason.startswith(f"it is tried again at {tomorrow:%Y-%m-%d} ")
    assert len(receiver.requests) == 2
    status = lake.sink_status("hook")
    assert status.retry_at is not None
    # As every command writes it.
    assert report.reason.startswith(f"it is tried again at {show_moment(status.retry_at)}: ")
    wait = status.retry_at - dt.datetime.now(dt.UTC)
    assert dt.timedelta(hours=23) < wait <= dt.timedelta(hours=24)


def test_a_destination_that_is_busy_for_a_moment_is_waited_for(
    lake: Lake, receiver: Receiver
) -> None:
    lake.create_sink("hook", table="t", kind="http", to=receiver.url)
    add(lake, 0, 10)
    receiver.then(busy("1"), busy("0", 503), busy(None))
    assert lake.deliver("hook").action == "delivered"
    times = [request.time for request in receiver.requests]
    assert len(times) == 4
    assert times[1] - times[0] >= 1
    check_equal(lake, receiver)


def test_waits_of_a_chunk_are_bounded_and_then_the_partition_waits(
    lake: Lake, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelock.deliver.destinations.http.retry_after.INLINE_SECONDS_MAX", 0.5)
    lake.create_sink("hook", table="t", kind="http", to=receiver.url)
    add(lake, 0, 10)
    receiver.rule = lambda request: busy("0.2")
    report = lake.deliver("hook")
    assert report.action == "failed"
    assert "429 Too Many Requests" in report.reason
    assert len(receiver.requests) == 3
    receiver.rule = lambda request: None
    time.sleep(0.2)
    assert lake.deliver("hook").action == "delivered"


def test_a_wait_ends_at_once_when_delivering_is_to_stop(lake: Lake, receiver: Receiver) -> None:
    lake.create_sink("hook", table="t", kind="http", to=receiver.url)
    add(lake, 0, 10)
    receiver.rule = lambda request: busy("9")
    stop = threading.Event()
    reports: list[Any] = []
    tick = threading.Thread(
        target=lambda: reports.append(lake.deliver("hook", stop=stop)), daemon=True
    )
    tick.start()
    while not receiver.requests:
        time.sleep(0.01)
    began = time.monotonic()
    stop.set()
    tick.join(timeout=5)
    assert time.monotonic() - began < 1
    assert [report.action for report in reports] == ["interrupted"]
    assert lake.sink_status("hook").retry_at is None
    receiver.rule = lambda request: None
    assert lake.deliver("hook").action == "delivered"
    check_equal(lake, receiver)


def test_a_slow_answer_is_given_up_after_the_timeout(lake: Lake, receiver: Receiver) -> None:
    lake.create_sink("hook", table="t", kind="http", to=receiver.url, timeout="0.2s")
    add(lake, 0, 10)
    receiver.then(Do(seconds=1.0))
    report = lake.deliver("hook")
    assert report.action == "failed"
    assert "within 0.2 s" in report.reason
    assert lake.deliver("hook").action == "delivered"
    check_equal(lake, receiver)


def test_nobody_listening_is_a_failure_that_is_tried_again(lake: Lake) -> None:
    with receiving() as gone:
        url = gone.url
    lake.create_sink("hook", table="t", kind="http", to=url)
    add(lake, 0, 10)
    report = lake.deliver("hook")
    assert report.action == "failed"
    assert "refused" in report.reason
    assert "0x" not in report.reason
    assert lake.sink_status("hook").state == "failing"


# Crashes


def deliver_hook(uri: str) -> None:
    with tidelock.open(uri) as lake:
        lake.deliver("hook")


@pytest.mark.parametrize(
    "failpoint",
    [
        "deliver.after_intent=kill",
        "deliver.mid_chunk=kill@2",
        "deliver.after_chunk=kill@3",
        "deliver.before_watermark=kill",
        "deliver.after_watermark=kill",
        "deliver.before_clear=kill",
    ],
)
def test_a_delivery_that_is_killed_goes_on_with_the_same_keys_and_bytes(
    lake: Lake, receiver: Receiver, tmp_path: Path, failpoint: str
) -> None:
    lake.create_sink("hook", table="t", kind="http", to=receiver.url, rows_per_chunk=10)
    add(lake, 0, 60)
    uri = str(tmp_path / "lake")
    assert lakes.run(deliver_hook, uri, failpoints=failpoint, lease_seconds=0.5) == -9
    sent = {request.key: request.body for request in receiver.requests}
    add(lake, 60, 25)
    lake.optimize()
    time.sleep(0.6)
    assert lake.deliver("hook").action == "delivered"
    assert all(receiver.kept[key] == body for key, body in sent.items())
    check_equal(lake, receiver)
