"""What an http destination refuses: put aside in sight, sent once more, or given up."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.sinks.receivers import KEEP, Do, Receiver, add, check_equal, receiving

import tidelock
from tidelock import Lake
from tidelock.errors import DestinationFailed, InvalidOption, SinkBusy


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = tidelock.open(tmp_path / "lake", create=True)
    lake.create_table("t", "id BIGINT NOT NULL, place STRING")
    return lake


def test_what_is_refused_is_put_aside_and_the_rest_goes_on(lake: Lake, receiver: Receiver) -> None:
    lake.create_sink("hook", table="t", kind="http", to=receiver.url, rows_per_chunk=10)
    add(lake, 0, 50)
    receiver.then(KEEP, Do(422, body=b"bad \x00 rows"), KEEP, Do(404))
    report = lake.deliver("hook")
    assert (report.action, report.rows, report.quarantined) == ("delivered", 30, 2)
    assert report.reason == "2 chunks were refused (404) and put in quarantine"
    status = lake.sink_status("hook")
    assert (status.state, status.quarantined) == ("quarantined", 2)
    assert len(receiver.rows()) == 30
    first, second = lake.quarantine("hook")
    assert (first.status, first.answer, first.rows) == (422, "bad   rows", 10)
    refused = [receiver.requests[1], receiver.requests[3]]
    assert [first.id, second.id] == [request.key for request in refused]
    assert lake.deliver("hook").action == "idle"

    # Refused again: kept, with the new answer.
    receiver.then(Do(409, body=b"still"))
    resent = lake.retry_quarantined("hook", first.number)
    assert (resent.taken, [one.status for one in resent.refused]) == ((), [409])
    assert [one.answer for one in lake.quarantine("hook")] == ["still", ""]
    # The destination fails: nothing is lost.
    receiver.then(Do(500))
    with pytest.raises(DestinationFailed):
        lake.retry_quarantined("hook")
    assert len(lake.quarantine("hook")) == 2
    assert [one.number for one in lake.retry_quarantined("hook").taken] == [
        first.number,
        second.number,
    ]
    assert len(lake.quarantine("hook")) == 0
    assert lake.sink_status("hook").state == "current"
    assert receiver.requests[-1].headers == refused[1].headers
    check_equal(lake, receiver)


def test_what_is_discarded_is_gone_and_unknown_numbers_are_refused(
    lake: Lake, receiver: Receiver
) -> None:
    lake.create_sink("hook", table="t", kind="http", to=receiver.url, rows_per_chunk=10)
    add(lake, 0, 30)
    receiver.rule = lambda request: Do(400)
    lake.deliver("hook")
    first, *others = lake.quarantine("hook")
    with pytest.raises(InvalidOption, match="nothing"):
        lake.discard_quarantined("hook", "nothing")
    assert [one.id for one in lake.discard_quarantined("hook", first.number)] == [first.id]
    assert list(lake.quarantine("hook")) == others
    assert len(lake.discard_quarantined("hook")) == 2
    assert lake.retry_quarantined("hook").taken == ()
    assert lake.sink_status("hook").quarantined == 0


def test_a_chunk_is_not_sent_again_while_somebody_delivers(lake: Lake, receiver: Receiver) -> None:
    lake.create_sink("hook", table="t", kind="http", to=receiver.url)
    add(lake, 0, 10)
    receiver.then(Do(400))
    lake.deliver("hook")
    add(lake, 10, 10)
    receiver.then(Do(seconds=1.0))
    tick = threading.Thread(target=lake.deliver, args=("hook",))
    tick.start()
    while len(receiver.requests) < 2:
        time.sleep(0.01)
    with pytest.raises(SinkBusy):
        lake.retry_quarantined("hook")
    tick.join()
    assert len(lake.retry_quarantined("hook").taken) == 1
    check_equal(lake, receiver)


@pytest.mark.parametrize("status", [403, 404])
def test_a_destination_that_refuses_everything_has_delivered_nothing(
    lake: Lake, receiver: Receiver, status: int
) -> None:
    lake.create_sink("hook", table="t", kind="http", to=receiver.url, rows_per_chunk=10)
    add(lake, 0, 30)
    receiver.rule = lambda request: Do(status, body=b"go away")
    report = lake.deliver("hook")
    assert (report.action, report.rows, report.quarantined) == ("refused", 0, 3)
    assert report.reason == f"3 chunks were refused ({status}: go away) and put in quarantine"
    found = lake.sink_status("hook")
    assert (found.state, found.quarantined) == ("quarantined", 3)
    assert "tidelock sink quarantine hook" in found.reason
    assert [(one.name, one.state) for one in lake.sinks(newest=False)] == [("hook", "quarantined")]
    receiver.rule = lambda request: None
    lake.retry_quarantined("hook")
    check_equal(lake, receiver)


def test_rows_that_are_in_quarantine_alone_are_not_lost_by_a_replay(
    lake: Lake, receiver: Receiver
) -> None:
    lake.create_sink("hook", table="t", kind="http", to=receiver.url, rows_per_chunk=10)
    add(lake, 0, 30)
    receiver.then(KEEP, Do(400))
    lake.deliver("hook")
    lake.run(lambda tx: tx.delete("t", where="id = 3 OR id = 12 OR id = 13"))
    with pytest.raises(InvalidOption, match=r"^2 rows that sink 'hook'"):
        lake.replay("hook")
    assert len(lake.quarantine("hook")) == 1
    lake.replay("hook", since=19)
    lake.replay("hook", lose_rows=True)
    assert len(lake.quarantine("hook")) == 0
    assert lake.deliver("hook").rows == 27
