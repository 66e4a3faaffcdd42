"""Views against their queries while tables and columns are renamed, added, dropped and widened.

After every refresh each view equals its query in the names of the moment, and what only relabels
the inputs makes nothing be computed anew. The seed is printed when a run fails; `TIDELOCK_SEED`
replays it.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from tests.support.altered import COLUMNS, DDL, NAMES, AlteredLake
from tests.support.lakes import fault_seconds, seed_of

import tidelock
from tidelock.model.names import fold
from tidelock.model.schema.alterations import (
    AddColumn,
    Alteration,
    ChangeType,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SetComment,
    SetRequired,
)
from tidelock.model.schema.schema import Column

STEPS = 14
SPARE_NAMES = [
    "x",
    "g",
    "s",
    "name",
    "k",
    "id",
    "spare",
    "note",
    "a b",
    "ünï",
    "SELECT",
    "c1",
    "d1",
]
WIDER = {"x": pa.int64(), "g": pa.int64(), "ug": pa.decimal128(12, 1)}
KINDS = [pa.string(), pa.int32(), pa.list_(pa.int64()), pa.struct([("a", pa.int32())])]


class Altering:
    """Random alterations of the inputs of an AlteredLake."""

    def __init__(self, altered: AlteredLake) -> None:
        self.altered = altered
        self.chance = altered.chance
        self.widened: set[str] = set()
        self.relabelled = True
        """Whether all that was done since the last refresh leaves the rows as they are."""

    @property
    def steps(self) -> list[Callable[[], None]]:
        return [
            self.rename, self.rename, self.swap, self.add, self.add, self.drop, self.move,
            self.tell, self.relax, self.rename_table, self.swap_tables, self.widen, self.replace,
        ]  # fmt: skip

    def rename(self) -> None:
        one = self._table()
        column = self.chance.choice(COLUMNS[one])
        name = self._free(one)
        if column == "spare" or name is None:
            return
        self._alter(one, RenameColumn(self._name(column), name))
        self.altered.names[column] = name

    def swap(self) -> None:
        one = self._table()
        first, second = self.chance.sample([c for c in COLUMNS[one] if c != "spare"], 2)
        names = self.altered.names
        self._alter(
            one,
            RenameColumn(names[first], "tmp tmp"),
            RenameColumn(names[second], names[first]),
            RenameColumn("tmp tmp", names[second]),
        )
        names[first], names[second] = names[second], names[first]

    def add(self) -> None:
        one = self._table()
        name = self._free(one)
        if name is not None:
            column = Column(name, self.chance.choice(KINDS))
            after = self.chance.choice([None, *self._columns(one)])
            self._alter(one, AddColumn(column, after=after, first=self.chance.random() < 0.2))

    def drop(self) -> None:
        """A column that no view reads, and perhaps another comes under its name."""
        one = self._table()
        read = {self._name(column) for column in COLUMNS[one] if column != "spare"}
        rest = [name for name in self._columns(one) if name not in read]
        if rest:
            gone = self.chance.choice(rest)
            again = AddColumn(Column(gone, self.chance.choice(KINDS)))
            self._alter(one, DropColumn(gone), *([again] if self.chance.random() < 0.5 else []))

    def move(self) -> None:
        one = self._table()
        first, second = self.chance.sample(self._columns(one), 2)
        self._alter(one, MoveColumn(first, self.chance.choice([None, second])))

    def tell(self) -> None:
        one = self._table()
        self._alter(one, SetComment(self.chance.choice(self._columns(one)), "a comment"))

    def relax(self) -> None:
        self._alter("T", SetRequired(self._name("s"), False))
        self.altered.nullable.add("s")
        self.relabelled = False

    def rename_table(self) -> None:
        one = self._table()
        name = self.chance.choice(["orders", "t", "u", "sales", "c2"])
        if fold(name) in map(fold, self.altered.lake.snapshot().states()):
            return
        with self.altered.lake.transaction() as tx:
            tx.rename_table(self.altered.names[one], name)
        self.altered.names[one] = name

    def swap_tables(self) -> None:
        names = self.altered.names
        with self.altered.lake.transaction() as tx:
            tx.rename_table(names["T"], "tmp tmp")
            tx.rename_table(names["U"], names["T"])
            tx.rename_table("tmp tmp", names["U"])
        names["T"], names["U"] = names["U"], names["T"]

    def widen(self) -> None:
        column = self.chance.choice(list(WIDER))
        if column in self.widened:
            return
        self.widened.add(column)
        one = "U" if column == "ug" else "T"
        with self.altered.lake.transaction() as tx:
            change = ChangeType(self._name(column), WIDER[column])
            tx.alter_table(self.altered.names[one], change, cascade=True)
        self.relabelled = False

    def replace(self) -> None:
        """Another table in the place of one that has its first name, as that was at first."""
        one = self._table()
        names = self.altered.names
        taken = fold(names["U" if one == "T" else "T"]) == NAMES[one]
        renamed = names[one] != NAMES[one]
        if taken or renamed or self.chance.random() < 0.5 or self.widened & set(COLUMNS[one]):
            return
        ddl, key = DDL[one]
        with self.altered.lake.transaction() as tx:
            tx.drop_table(names[one])
            tx.create_table(NAMES[one], ddl, key=key)
        for column in (one, *COLUMNS[one]):
            names[column] = NAMES[column]
        if one == "T":
            self.altered.nullable.clear()
        self.relabelled = False

    def _alter(self, one: str, *alterations: Alteration) -> None:
        with self.altered.lake.transaction() as tx:
            tx.alter_table(self.altered.names[one], *alterations)

    def _table(self) -> str:
        return self.chance.choice(list(COLUMNS))

    def _name(self, column: str) -> str:
        return self.altered.names[column]

    def _columns(self, one: str) -> list[str]:
        return list(self.altered.lake.table(self.altered.names[one]).schema.names)

    def _free(self, one: str) -> str | None:
        taken = set(map(fold, self._columns(one)))
        free = [name for name in SPARE_NAMES if fold(name) not in taken]
        return self.chance.choice(free) if free else None


def test_views_follow_whatever_their_inputs_become(tmp_path: Path) -> None:
    ends = time.monotonic() + fault_seconds(0)
    for number in itertools.count():
        with seed_of() as seed:
            _run(tmp_path / str(number), random.Random(seed))
        if time.monotonic() >= ends:
            break


def _run(folder: Path, chance: random.Random) -> None:
    with tidelock.open(folder, create=True, engine="sail") as lake:
        altered = AlteredLake(lake, chance)
        altered.create()
        altering = Altering(altered)
        written = False
        for _ in range(STEPS):
            for _ in range(chance.randint(1, 3)):
                chance.choice(altering.steps)()
            if chance.random() < 0.6:
                altered.write()
                written = True
            if chance.random() < 0.15:
                lake.optimize()
            if chance.random() < 0.7:
                altered.refresh(adopting=altering.relabelled and not written)
                altered.check()
                altering.relabelled, written = True, False
        altered.refresh()
        altered.check()
        altered.refresh(full=True)
        altered.check()
