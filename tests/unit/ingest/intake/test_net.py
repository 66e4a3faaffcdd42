"""What changes come to is what is left when they are made one by one."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidelock.ingest.intake.changes import (
    Carried,
    TableChanges,
    join,
    since_emptied,
    without_parts,
)
from tidelock.ingest.intake.net import UnknownRow, net_by_key

SCHEMA = pa.schema({"a": pa.int64(), "b": pa.string(), "v": pa.int64(), "w": pa.string()})
KEY = ["a", "b"]


class Story:
    """Changes made one by one to a plain dictionary, and told as columns."""

    def __init__(self, rows: dict[tuple[int, str], dict[str, Any]]) -> None:
        self.before = dict(rows)
        self.rows = dict(rows)
        self.puts: list[dict[str, Any]] = []
        self.put_parts: list[int] = []
        self.removes: list[tuple[int, str]] = []
        self.remove_parts: list[int] = []
        self.after: list[int] = []
        self.carried: list[tuple[int, tuple[int, str], list[str]]] = []
        self.emptied: list[tuple[int, int]] = []

    def put(
        self, row: dict[str, Any], part: int, lacking: list[str], old: tuple[int, str] | None
    ) -> None:
        key = (row["a"], row["b"])
        if old is not None and old != key:
            self.remove(old, part, gone=False)
        source = self.rows.get(old or key)
        whole = {**row, **{name: source[name] for name in lacking}} if lacking else row  # type: ignore[index]
        if lacking:
            self.carried.append((len(self.puts), old or key, lacking))
        self.puts.append({name: None if name in lacking else row[name] for name in SCHEMA.names})
        self.put_parts.append(part)
        if old is not None and old != key:
            del self.rows[old]
        self.rows[key] = whole

    def remove(self, key: tuple[int, str], part: int, *, gone: bool = True) -> None:
        self.removes.append(key)
        self.remove_parts.append(part)
        self.after.append(len(self.puts))
        if gone:
            del self.rows[key]

    def empty(self, part: int) -> None:
        self.emptied.append((len(self.puts), part))
        self.rows.clear()

    def told(self) -> TableChanges:
        names = dict.fromkeys(name for _, _, lacking in self.carried for name in lacking)
        carried = None
        if self.carried:
            carried = Carried(
                np.array([put for put, _, _ in self.carried], np.int64),
                keys_table([key for _, key, _ in self.carried]),
                {name: np.array([name in some for _, _, some in self.carried]) for name in names},
            )
        return TableChanges(
            pa.Table.from_pylist(self.puts, SCHEMA),
            keys_table(self.removes),
            np.array(self.after, np.int64),
            np.array(self.put_parts, np.uint32),
            np.array(self.remove_parts, np.uint32),
            carried,
            tuple(self.emptied),
        )


def keys_table(keys: list[tuple[int, str]]) -> pa.Table:
    schema = pa.schema([SCHEMA.field("a"), SCHEMA.field("b")])
    return pa.Table.from_pylist([{"a": a, "b": b} for a, b in keys], schema)


def net_of(before: dict[tuple[int, str], dict[str, Any]], changes: TableChanges) -> Any:
    def rows_before(keys: pa.Table) -> tuple[pa.Table, Any]:
        found = [
            (number, before[row["a"], row["b"]])
            for number, row in enumerate(keys.to_pylist())
            if (row["a"], row["b"]) in before
        ]
        rows = pa.Table.from_pylist([row for _, row in found], SCHEMA)
        return rows, np.array([number for number, _ in found], np.int64)

    changes, emptied = since_emptied(changes)
    net = net_by_key(changes, KEY, rows_before, emptied=emptied)
    rows = {} if emptied else dict(before)
    for row in net.removes.to_pylist():
        rows.pop((row["a"], row["b"]), None)
    for row in net.puts.to_pylist():
        rows[row["a"], row["b"]] = row
    return rows, net


def tell(seed: int, steps: int) -> Story:
    chance = random.Random(seed)
    keys = [(a, b) for a in range(3) for b in ("x", "", "ü")]
    start = {
        key: {"a": key[0], "b": key[1], "v": chance.randrange(9), "w": "old"}
        for key in chance.sample(keys, 4)
    }
    story = Story(start)
    for _ in range(steps):
        what = chance.random()
        known = list(story.rows)
        free = [key for key in keys if key not in story.rows]
        row = {"v": chance.choice([None, *range(99)]), "w": chance.choice([None, "long"])}
        if what < 0.02:
            story.empty(1)
        elif known and what < 0.25:
            story.remove(chance.choice(known), 1)
        elif known and what < 0.75:
            old = chance.choice(known)
            new = chance.choice([old, *free])
            lacking = [name for name in ("v", "w") if chance.random() < 0.4]
            story.put({"a": new[0], "b": new[1], **row}, 1, lacking, old)
        elif free:
            new = chance.choice(free)
            story.put({"a": new[0], "b": new[1], **row}, 1, [], None)
    return story


@pytest.mark.parametrize("seed", range(200))
def test_the_net_of_changes_is_what_they_come_to_one_by_one(seed: int) -> None:
    story = tell(seed, steps=seed % 40)
    rows, net = net_of(story.before, story.told())
    assert rows == story.rows
    keys = [(row["a"], row["b"]) for row in net.puts.to_pylist()]
    assert len(set(keys)) == len(keys)
    assert not set(keys) & {(row["a"], row["b"]) for row in net.removes.to_pylist()}


@pytest.mark.parametrize("seed", range(40))
def test_changes_in_pieces_come_to_the_same(seed: int) -> None:
    first = tell(seed, steps=12)
    second = Story(first.rows)
    other = tell(seed + 1000, steps=0)
    assert other.rows
    for key in list(first.rows)[:2]:
        second.put({"a": key[0], "b": key[1], "v": 5, "w": None}, 1, ["w"], key)
        second.remove(key, 1)
    rows, _ = net_of(first.before, join([first.told(), second.told()]))
    assert rows == second.rows


def test_what_a_subtransaction_did_that_was_undone_is_as_if_it_had_not_been() -> None:
    story = Story({(1, "x"): {"a": 1, "b": "x", "v": 1, "w": "toast"}})
    story.put({"a": 1, "b": "x", "v": 2, "w": None}, 1, ["w"], (1, "x"))
    told = Story(dict(story.rows))
    undone = Story(dict(story.rows))
    undone.put({"a": 1, "b": "x", "v": 3, "w": "other"}, 7, [], None)
    undone.put({"a": 2, "b": "x", "v": 3, "w": "other"}, 7, [], None)
    undone.remove((1, "x"), 7)
    undone.empty(7)
    told.put({"a": 1, "b": "x", "v": 4, "w": None}, 1, ["w"], (1, "x"))
    changes = join([story.told(), undone.told(), told.told()])
    rows, net = net_of(story.before, without_parts(changes, np.array([7], np.uint32)))
    assert rows == {(1, "x"): {"a": 1, "b": "x", "v": 4, "w": "toast"}}
    assert net.removes.num_rows == 0


def test_a_row_that_came_and_went_leaves_no_trace_but_its_key() -> None:
    story = Story({})
    story.put({"a": 1, "b": "x", "v": 1, "w": None}, 1, [], None)
    story.remove((1, "x"), 1)
    rows, net = net_of({}, story.told())
    assert rows == {}
    assert net.puts.num_rows == 0


def test_values_of_a_row_that_nobody_knows_are_not_made_up() -> None:
    story = Story({(1, "x"): {"a": 1, "b": "x", "v": 1, "w": "toast"}})
    story.put({"a": 1, "b": "x", "v": 2, "w": None}, 1, ["w"], (1, "x"))
    with pytest.raises(UnknownRow):
        net_of({}, story.told())
