"""Objects whose bytes were changed: each change is noticed, and named by the object's key."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime

import pytest
from tests.support.lakes import seed_of

from tidelock.errors import CorruptObject, FormatError, NewerFormat
from tidelock.model.history.commit import Commit, TableChange, TableState
from tidelock.store.objects.checksums import stamped, unstamped
from tidelock.store.objects.records import COMPRESS_ABOVE_BYTES, Record, decode, encode


def record(tables: int) -> Record:
    states = tuple(TableState(f"t{n}", f"t{n}-ab", n, n, 1, ("id",)) for n in range(tables))
    changes = tuple(TableChange(None, state) for state in states[:1])
    moment = datetime(2026, 3, 1, tzinfo=UTC)
    commit = Commit(1, "main-1", (), "main", "me", "0-a", "data", "ä", moment, changes)
    return Record(0, (commit,), states)


def test_an_object_stays_json_for_whoever_looks_into_it() -> None:
    data = encode(record(2))
    assert json.loads(data)["tables"][1]["name"] == "t1"
    assert decode(data, Record, "key") == record(2)


def test_no_bit_of_an_object_can_change_without_notice() -> None:
    data = encode(record(1))
    for place in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        with pytest.raises(CorruptObject, match="'the key'"):
            decode(bytes(flipped), Record, "the key")


def test_no_bit_of_a_large_object_can_change_without_notice() -> None:
    data = encode(record(200))
    assert data[:4] == b"\x28\xb5\x2f\xfd"
    assert len(json.dumps([state.name for state in record(200).tables])) < COMPRESS_ABOVE_BYTES
    with seed_of() as seed:
        chance = random.Random(seed)
        for place in chance.sample(range(len(data) * 8), 2000):
            flipped = bytearray(data)
            flipped[place // 8] ^= 1 << place % 8
            try:
                found = decode(bytes(flipped), Record, "the key")
            except FormatError:
                continue
            # Some bits of a compressed frame mean nothing.
            assert found == record(200)


@pytest.mark.parametrize("tables", [1, 200], ids=["plain", "compressed"])
def test_an_object_that_was_cut_off_is_noticed(tables: int) -> None:
    data = encode(record(tables))
    ends = {0, 1, 3, 4, 5, 8, 20, len(data) // 2, *range(len(data) - 30, len(data))}
    for end in ends:
        with pytest.raises(CorruptObject):
            decode(data[:end], Record, "the key")
    with pytest.raises(CorruptObject):
        decode(data + b"\n", Record, "the key")


def test_an_object_of_a_newer_format_is_told_from_a_damaged_one() -> None:
    data = encode(record(1))
    with pytest.raises(NewerFormat):
        decode(b'{"format": 7, "checksum": {"sha": "of another kind"}}', Record, "the key")
    with pytest.raises(CorruptObject):
        decode(data.replace(b'"format":1', b'"format":7'), Record, "the key")


def test_no_bit_of_other_bytes_can_change_without_notice() -> None:
    data = stamped(b"some bytes of another form")
    assert unstamped(data, "key") == b"some bytes of another form"
    for place in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        with pytest.raises(CorruptObject, match="'the key'"):
            unstamped(bytes(flipped), "the key")
    for end in range(len(data)):
        with pytest.raises(CorruptObject):
            unstamped(data[:end], "the key")
