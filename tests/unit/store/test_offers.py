"""Offers: what waits for its turn, seen and taken by another process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tidelock.store.offers import FILES_MAX, OFFER_BYTES_MAX, Found, Offer, Offers, Outcome


@pytest.fixture
def mine(tmp_path: Path) -> Offers:
    return Offers(str(tmp_path / "offers"))


@pytest.fixture
def theirs(tmp_path: Path) -> Offers:
    return Offers(str(tmp_path / "offers"))


def offer(offers: Offers, data: bytes = b"rows") -> Offer:
    made = offers.make(data)
    assert made is not None
    return made


def only(offers: Offers) -> Found:
    (found,) = offers.others()
    return found


def test_an_offer_is_seen_by_others_until_it_ends(mine: Offers, theirs: Offers) -> None:
    assert list(theirs.others()) == []
    made = offer(mine)
    assert list(mine.others()) == []
    assert only(theirs).data == b"rows"
    assert mine.end(made, in_turn=True) == Outcome(untouched=True)
    assert list(theirs.others()) == []


@pytest.mark.parametrize("size", [0, 1, 4064, 4065, 5000, OFFER_BYTES_MAX])
def test_an_offer_of_any_size_is_seen_whole(mine: Offers, theirs: Offers, size: int) -> None:
    offer(mine, bytes(number % 251 for number in range(size)))
    assert only(theirs).data == bytes(number % 251 for number in range(size))


def test_what_is_too_large_is_not_offered(mine: Offers) -> None:
    assert mine.make(b"x" * (OFFER_BYTES_MAX + 1)) is None
    assert Offers(None).make(b"x") is None
    assert list(Offers(None).others()) == []


def test_whoever_offered_learns_where_it_was_published(mine: Offers, theirs: Offers) -> None:
    made = offer(mine)
    found = only(theirs)
    assert found.take()
    assert not made.is_published()
    assert list(theirs.others()) == [], "it is taken once"
    found.answer(41)
    assert made.is_published()
    assert mine.end(made, in_turn=False) == Outcome(record=41)


@pytest.mark.parametrize("in_turn", [True, False])
def test_what_was_taken_and_not_answered_may_be_published(
    mine: Offers, theirs: Offers, in_turn: bool
) -> None:
    made = offer(mine)
    assert only(theirs).take()
    assert mine.end(made, in_turn) == Outcome()


def test_without_a_turn_nothing_is_certain(mine: Offers) -> None:
    assert mine.end(offer(mine), in_turn=False) == Outcome()


def test_an_answer_to_an_earlier_offer_is_not_one_to_this(mine: Offers, theirs: Offers) -> None:
    first = offer(mine)
    found = only(theirs)
    mine.end(first, in_turn=False)
    second = offer(mine)
    assert second.file == first.file
    found.take()
    assert mine.end(second, in_turn=True) == Outcome()
    third = offer(mine)
    found.answer(7)
    assert not third.is_published()
    assert mine.end(third, in_turn=True) == Outcome()


def test_what_a_dead_process_offered_is_not_taken(tmp_path: Path, theirs: Offers) -> None:
    script = (
        "import sys; from tidelock.store.offers import Offers; offers = Offers(sys.argv[1]); "
        "made = offers.make(b'rows'); print('made', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "offers")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"made\n"
    assert only(theirs).data == b"rows"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert list(theirs.others()) == []
    # Its file is the next one's.
    offer(theirs, b"others")
    assert len(os.listdir(tmp_path / "offers")) == 1


@pytest.mark.parametrize("content", [b"", b"tlo1", b"x" * 100, b"tlo1o" + b"\xff" * 40])
def test_a_file_with_anything_in_it_is_no_offer(
    mine: Offers, theirs: Offers, tmp_path: Path, content: bytes
) -> None:
    made = offer(mine)
    (path,) = (tmp_path / "offers").iterdir()
    path.write_bytes(content)
    assert list(theirs.others()) == []
    assert mine.end(made, in_turn=True) == Outcome()


def test_an_offer_that_is_half_written_is_none(
    mine: Offers, theirs: Offers, tmp_path: Path
) -> None:
    offer(mine, b"a" * 3000)
    (path,) = (tmp_path / "offers").iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"b")
    assert list(theirs.others()) == []
    path.write_bytes(whole[:-1])
    assert list(theirs.others()) == []
    path.write_bytes(whole)
    assert only(theirs).data == b"a" * 3000


def test_there_is_room_for_so_many_and_no_more(mine: Offers, theirs: Offers) -> None:
    made = [offer(mine) for _ in range(FILES_MAX)]
    assert mine.make(b"rows") is None
    assert theirs.make(b"rows") is None
    assert len(list(theirs.others())) == FILES_MAX
    mine.end(made[0], in_turn=True)
    assert mine.make(b"rows") is not None


def test_files_are_closed_with_their_owner(tmp_path: Path) -> None:
    def opened() -> int:
        return sum(
            os.readlink(f"/proc/self/fd/{fd}").startswith(str(tmp_path))
            for fd in os.listdir("/proc/self/fd")
            if os.path.islink(f"/proc/self/fd/{fd}")
        )

    first, second = (Offers(str(tmp_path / "offers")) for _ in range(2))
    first.make(b"rows")
    assert len(list(second.others())) == 1
    assert opened() == 2
    del first, second
    assert opened() == 0
