"""Tables with keys against a plain dict: whatever the key is made of, and however rows are found.

Bounds are small here, so that a few dozen rows take every way: looked up through an index, by a
pass, by several ranges, in slabs, waiting in memory, as a stream that is matched when it is
written. A row that is replaced keeps its sequence, and a new one has a later one.
"""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.lakes import fresh_seed

import tidelock
from tidelock import Lake, errors
from tidelock.store.lookup import by_key, key_numbers, wanted_keys
from tidelock.store.staging import unique_keys, writes

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
TEXTS = ["", "a", "A", "a'b", 'a"b', "a`b", "a\\", "a\n", "\0", "\u00e9", "%", "_", " a", "a "]

COUNTED = ("inserted", "updated", "deleted")

Values = Callable[[random.Random], Any]
KEYS: dict[str, tuple[str, dict[str, Values]]] = {
    "numbers": ("id BIGINT", {"id": lambda r: r.choice([r.randrange(60), -(2**63), 2**63 - 1])}),
    "numbers far apart": ("id BIGINT", {"id": lambda r: r.randrange(-30, 30) << 32}),
    "small numbers": ("id TINYINT", {"id": lambda r: r.randrange(-128, 128)}),
    "text": ("id STRING", {"id": lambda r: r.choice(TEXTS) + r.choice(["", "x" * 70, "x"])}),
    "bytes": ("id BINARY", {"id": lambda r: bytes(r.choices([0, 39, 255], k=r.randrange(5)))}),
    "decimals": (
        "id DECIMAL(38, 2)",
        {"id": lambda r: Decimal(r.randrange(-40, 40)) * r.choice([1, 10**30]) / 4},
    ),
    "dates": ("id DATE", {"id": lambda r: dt.date(1969, 12, 1) + dt.timedelta(r.randrange(60))}),
    "instants": (
        "id TIMESTAMP",
        {"id": lambda r: EPOCH + dt.timedelta(microseconds=r.randrange(-30, 30))},
    ),
    "local times": (
        "id TIMESTAMP_NTZ",
        {"id": lambda r: dt.datetime(1, 1, 1) + dt.timedelta(microseconds=r.randrange(60))},
    ),
    "pairs": (
        "a STRING, b INT",
        {"a": lambda r: r.choice(TEXTS[:6]), "b": lambda r: r.randrange(12)},
    ),
    "triples": (
        "a BOOLEAN, b DECIMAL(5, 1), c BINARY",
        {
            "a": lambda r: r.random() < 0.5,
            "b": lambda r: Decimal(r.randrange(5)) / 2,
            "c": lambda r: bytes([r.randrange(5)]),
        },
    ),
}
Key = tuple[Any, ...]
Rows = dict[Key, tuple[int | None, str | None, int | None]]
"""What each key has, and the row's sequence; None while the row is new."""


@pytest.fixture(params=["few rows at a time", "as it is"])
def bounds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "few rows at a time":
        for module, name, value in (
            (by_key, "LOOKUP_KEYS_MAX", 3),
            (by_key, "LOOKUP_PART_KEYS", 2),
            (by_key, "PASS_BATCH_ROWS", 8),
            (wanted_keys, "KEYS_AT_ONCE", 7),
            (wanted_keys, "SAMPLE_ROWS", 16),
            (wanted_keys, "PASS_BATCH_ROWS", 5),
            (key_numbers, "SLAB_ROWS_MIN", 4),
            (unique_keys, "AT_ONCE_ROWS", 2),
            (writes, "FEW_ROWS_MAX", 4),
            (writes, "WAITING_KEYS_MAX", 6),
        ):
            monkeypatch.setattr(module, name, value)


class Machine:
    """One table, and the dict that it should be."""

    def __init__(self, lake: Lake, kind: str, seed: int) -> None:
        ddl, self.values = KEYS[kind]
        self.lake = lake
        self.chance = random.Random(seed)
        self.key = list(self.values)
        lake.create_table("t", f"{ddl}, x INT, s STRING", key=self.key)
        self.schema = lake.snapshot().table("t").schema.arrow
        self.counts = Counter[str]()
        self.refused = False

    def rows(self, count: int) -> list[dict[str, Any]]:
        return [
            {
                **{name: value(self.chance) for name, value in self.values.items()},
                "x": self.chance.choice([None, self.chance.randrange(100)]),
                "s": self.chance.choice([None, "", "some text"]),
            }
            for _ in range(count)
        ]

    def key_of(self, row: dict[str, Any]) -> Key:
        return tuple(row[name] for name in self.key)

    def data(self, rows: list[dict[str, Any]]) -> Any:
        table = pa.Table.from_pylist(rows, schema=self.schema)
        form = self.chance.choice(["list", "table", "chunks", "reader"])
        if form == "list":
            return rows
        if form == "table":
            return table
        parts = [table.slice(start, 3) for start in range(0, table.num_rows, 3)]
        whole = pa.concat_tables(parts) if parts else table
        return whole if form == "chunks" else whole.to_reader()

    def step(self) -> None:
        before = self.found()
        expected = dict(before)
        self.counts = Counter[str]()
        self.refused = False
        try:
            with self.lake.transaction() as tx:
                for _ in range(self.chance.choice([1, 1, 2, 4])):
                    self.operate(tx, expected)
        except errors.DuplicateKey:
            assert self.refused
            assert self.found() == before
            return
        assert not self.refused
        newest = max((sequence or 0 for *_, sequence in before.values()), default=-1)
        found = self.found()
        assert found.keys() == expected.keys()
        for key, (x, s, sequence) in found.items():
            assert (x, s) == expected[key][:2]
            kept = expected[key][2]
            assert sequence == kept if kept is not None else sequence > newest
        if tx.commit is not None and tx.commit.tables:
            (change,) = tx.commit.tables
            assert {name: getattr(change, name) for name in COUNTED} == {
                name: self.counts[name] for name in COUNTED
            }

    def operate(self, tx: tidelock.Transaction, expected: Rows) -> None:
        """One operation on the table and on the model."""
        kind = self.chance.choice(["append", "upsert", "upsert", "delete", "update", "overwrite"])
        if kind in ("delete", "update"):
            self.change(tx, expected, kind)
            return
        rows = self.rows(self.chance.choice([1, 2, 9, 40]))
        if self.chance.random() < 0.8:
            rows = list({self.key_of(row): row for row in rows}.values())
        if kind == "append" and self.chance.random() < 0.7:
            rows = [row for row in rows if self.key_of(row) not in expected]
        given = {self.key_of(row): row for row in rows}
        there = given.keys() & expected.keys()
        self.refused = len(rows) > len(given) or (kind == "append" and bool(there))
        getattr(tx, kind)("t", self.data(rows))
        if kind == "overwrite":
            self.counts["deleted"] += len(expected)
            expected.clear()
            there = set()
        self.counts["inserted"] += len(given) - len(there)
        self.counts["updated"] += len(there)
        for key, row in given.items():
            kept = expected[key][2] if key in there else None
            expected[key] = (row["x"], row["s"], kept)

    def change(self, tx: tidelock.Transaction, expected: Rows, kind: str) -> None:
        """Delete or update rows that a condition finds: by a list of keys, or by another column."""
        if len(self.key) == 1 and isinstance(next(iter(expected), (None,))[0], int):
            chosen = [key for key in expected if self.chance.random() < 0.3]
            listed = ", ".join(str(value) for (value,) in [*chosen, *chosen[:2]])
            where = f"{self.key[0]} IN ({listed})" if chosen else "false"
        else:
            text = self.chance.choice([None, "", "some text"])
            chosen = [key for key in expected if expected[key][1] == text]
            where = "s IS NULL" if text is None else f"s IN ('{text}', 'another')"
        if kind == "delete":
            assert tx.delete("t", where) == len(chosen)
        else:
            assert tx.update("t", {"x": "x + 1"}, where=where) == len(chosen)
        self.counts[f"{kind}d"] += len(chosen)
        for key in chosen:
            x, s, sequence = expected.pop(key)
            if kind == "update":
                expected[key] = (None if x is None else x + 1, s, sequence)

    def found(self) -> Rows:
        """Each row and its sequence, by key."""
        found = self.lake.read_since("t", -1, limit=10_000).rows.to_pylist()
        by_key = {self.key_of(row): (row["x"], row["s"], row["_sequence"]) for row in found}
        assert len(by_key) == len(found), "two rows have one key"
        return by_key


@pytest.mark.parametrize("kind", KEYS)
def test_a_table_with_a_key_is_what_a_dict_would_be(
    tmp_path: Path, kind: str, bounds: None
) -> None:
    seed = fresh_seed()
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        machine = Machine(lake, kind, seed)
        for number in range(12):
            try:
                machine.step()
            except BaseException as error:
                error.add_note(f"TIDELOCK_SEED={seed} replays this")
                raise
            if number % 5 == 4:
                lake.optimize()
