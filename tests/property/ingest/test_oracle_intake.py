"""Oracle: transactions of a source, in memory or spilled at any point, come to what a model has.

A story is told to a plain model and to an `Incoming` at once: puts, removes, tables that are
emptied, keys that change, values that updates did not send, and subtransactions of which some are
rolled back. After each transaction the tables of the lake equal the model's, as multisets.
"""

from __future__ import annotations

import copy
import random
import time
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.support.lakes import fault_seconds, seed_of

import tidelock
from tidelock import Lake
from tidelock.ingest.intake.changes import Carried, TableChanges
from tidelock.ingest.intake.incoming import Incoming
from tidelock.ingest.intake.staging import stage_incoming
from tidelock.model.schema.schema import TableSchema

ROUNDS_MIN = 25
DDL = {
    "keyed": "a BIGINT, b STRING, v BIGINT, w STRING",
    "bag": "a BIGINT, f DOUBLE, t TIMESTAMP, w STRING",
}
KEYS = {"keyed": ("a", "b"), "bag": ()}
KEY_VALUES = [(a, b) for a in range(4) for b in ("x", "", "ü'`")]
FLOATS = [None, 0.0, -0.0, float("nan"), float("inf"), 1.5]


def plain(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(repr(value) if isinstance(value, float) else value for value in row.values())


class Model:
    def __init__(self) -> None:
        self.keyed: dict[tuple[int, str], dict[str, Any]] = {}
        self.bag: list[dict[str, Any]] = []

    def rows(self, table: str) -> Counter[Any]:
        return Counter(map(plain, self.keyed.values() if table == "keyed" else self.bag))


class Teller:
    """Tells one transaction to the model and to an Incoming."""

    def __init__(
        self,
        chance: random.Random,
        model: Model,
        incoming: Incoming,
        schemas: dict[str, TableSchema],
    ) -> None:
        self.chance = chance
        self.model = model
        self.incoming = incoming
        self.schemas = schemas
        self.part = 1
        self.parts = 1
        self.saved: list[tuple[int, Model, list[int]]] = []

    def tell(self, steps: int) -> None:
        for _ in range(steps):
            what = self.chance.random()
            if what < 0.08:
                self.begin_part()
            elif what < 0.16 and self.saved:
                self.end_part(undo=self.chance.random() < 0.5)
            elif what < 0.18:
                self.empty(self.chance.choice(list(DDL)))
            elif what < 0.7:
                self.change_keyed()
            else:
                self.change_bag()
            if self.chance.random() < 0.1:
                self.incoming.spill()
        while self.saved:
            self.end_part(undo=self.chance.random() < 0.3)

    def begin_part(self) -> None:
        self.saved.append((self.part, copy.deepcopy(self.model), []))
        self.parts += 1
        self.part = self.parts
        for _, _, inner in self.saved:
            inner.append(self.part)

    def end_part(self, *, undo: bool) -> None:
        part, before, inner = self.saved.pop()
        self.part = part
        if undo:
            for one in inner:
                self.incoming.undo(one)
            self.model.keyed, self.model.bag = before.keyed, before.bag

    def empty(self, table: str) -> None:
        self.add(table, emptied=True)
        if table == "keyed":
            self.model.keyed.clear()
        else:
            self.model.bag.clear()

    def change_keyed(self) -> None:
        known = sorted(self.model.keyed)
        free = [key for key in KEY_VALUES if key not in self.model.keyed]
        what = self.chance.random()
        if known and what < 0.25:
            key = self.chance.choice(known)
            self.add("keyed", removes=[{"a": key[0], "b": key[1]}])
            del self.model.keyed[key]
        elif known and (what < 0.75 or not free):
            self.update(self.chance.choice(known), free)
        else:
            key = self.chance.choice(free)
            row = {"a": key[0], "b": key[1], **self.values()}
            self.add("keyed", puts=[row])
            self.model.keyed[key] = row

    def update(self, old: tuple[int, str], free: list[tuple[int, str]]) -> None:
        new = self.chance.choice([old, old, *free])
        lacking = [name for name in ("v", "w") if self.chance.random() < 0.3]
        row = {"a": new[0], "b": new[1], **self.values()}
        before = self.model.keyed.pop(old)
        whole = {**row, **{name: before[name] for name in lacking}}
        told = {**row, **dict.fromkeys(lacking)}
        removes = [] if new == old else [{"a": old[0], "b": old[1]}]
        self.add("keyed", puts=[told], removes=removes, lacking=lacking, old=old)
        self.model.keyed[new] = whole

    def values(self) -> dict[str, Any]:
        return {
            "v": self.chance.choice([None, 1, 2, -(2**63)]),
            "w": self.chance.choice([None, "", "long" * 3]),
        }

    def change_bag(self) -> None:
        if self.model.bag and self.chance.random() < 0.5:
            row = self.model.bag.pop(self.chance.randrange(len(self.model.bag)))
            self.add("bag", removes=[row])
        else:
            row = {
                "a": self.chance.choice([None, 1, 2]),
                "f": self.chance.choice(FLOATS),
                "t": None,
                "w": self.chance.choice([None, "", "same"]),
            }
            self.model.bag.append(row)
            self.add("bag", puts=[row])

    def add(
        self,
        table: str,
        puts: list[dict[str, Any]] | None = None,
        removes: list[dict[str, Any]] | None = None,
        lacking: list[str] | None = None,
        old: tuple[int, str] | None = None,
        *,
        emptied: bool = False,
    ) -> None:
        schema = self.schemas[table]
        told = schema.arrow.empty_table().select(list(schema.key or schema.arrow.names)).schema
        carried = None
        if lacking:
            assert old is not None
            keys = pa.Table.from_pylist([{"a": old[0], "b": old[1]}], told)
            carried = Carried(np.array([0]), keys, {one: np.array([True]) for one in lacking})
        self.incoming.add(
            table,
            TableChanges(
                pa.Table.from_pylist(puts or [], schema.arrow),
                pa.Table.from_pylist(removes or [], told),
                np.zeros(len(removes or []), np.int64),
                np.full(len(puts or []), self.part, np.uint32),
                np.full(len(removes or []), self.part, np.uint32),
                carried,
                ((0, self.part),) if emptied else (),
            ),
        )


def check(lake: Lake, model: Model) -> None:
    for table in DDL:
        rows = lake.table(table).to_arrow().to_pylist()
        assert Counter(map(plain, rows)) == model.rows(table), table


def walk(lake: Lake, chance: random.Random) -> None:
    store = lake._store
    model = Model()
    for name, ddl in DDL.items():
        lake.create_table(name, ddl, key=KEYS[name] or None)
    schemas = {name: lake.table(name).schema for name in DDL}
    for _ in range(chance.randrange(2, 6)):
        spill_bytes = chance.choice([0, 200, 1 << 30])
        incoming = Incoming(store, "main", lambda name: (name, schemas[name]), spill_bytes)
        before = copy.deepcopy(model)
        Teller(chance, model, incoming, schemas).tell(chance.randrange(1, 40))
        if chance.random() < 0.15:
            incoming.drop()
            model = before
        else:
            with store.begin("main") as transaction:
                stage_incoming(incoming, transaction)
            incoming.drop()
        check(lake, model)
        if chance.random() < 0.2:
            lake.optimize()


@pytest.mark.timeout(0)
def test_transactions_of_sources_come_to_what_they_did() -> None:
    with seed_of() as seed:
        ends = time.monotonic() + fault_seconds(4)
        done = 0
        while done < ROUNDS_MIN or time.monotonic() < ends:
            with tidelock.open(f"memory://intake-{seed}-{done}", create=True) as lake:
                walk(lake, random.Random(seed + done))
            done += 1
