"""Views whose inputs are altered under them: their queries, and the same queries in other names.

A view is created once, in the names that its inputs have at first. What it must show is asked anew
by a query that is written in the names of the moment, with every column spelled out.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from tests.support.streams import multiset

from tidelock.run.lake import Lake

COLUMNS = {"T": ("id", "g", "x", "s", "spare"), "U": ("k", "ug", "name")}
NAMES = {
    "T": "t",
    "U": "u",
    **{one: one for one in (*COLUMNS["T"], *COLUMNS["U"])},
    "ug": "g",
}
"""What everything is called at first, by what it is called here."""
DDL = {
    "T": ("id BIGINT NOT NULL, g INT, x INT, s STRING NOT NULL, spare STRING", "id"),
    "U": ("k INT NOT NULL, g INT, name STRING", "k"),
}


@dataclass(frozen=True)
class View:
    """A query as it was written first, and what must come of it, in names to be filled in."""

    query: str
    told: str
    mode: str = "auto"


VIEWS = {
    "projection": View(
        "SELECT id, x + 1 AS y FROM t WHERE x > 2",
        "SELECT `{id}`, `{x}` + 1 FROM `{T}` WHERE `{x}` > 2",
    ),
    "star": View("SELECT * FROM u", "SELECT `{k}`, `{ug}`, `{name}` FROM `{U}`"),
    "starred": View(
        "SELECT * FROM (SELECT u.*, t.x FROM t JOIN u ON t.g = u.g) WHERE x > 0",
        "SELECT b.`{k}`, b.`{ug}`, b.`{name}`, a.`{x}` FROM `{T}` a JOIN `{U}` b "
        "ON a.`{g}` = b.`{ug}` WHERE a.`{x}` > 0",
    ),
    "joined": View(
        "SELECT t.id, u.name FROM t JOIN u ON t.g = u.g AND t.x < u.k",
        "SELECT a.`{id}`, b.`{name}` FROM `{T}` a JOIN `{U}` b "
        "ON a.`{g}` = b.`{ug}` AND a.`{x}` < b.`{k}`",
    ),
    "using_one": View(
        "SELECT g, id, name FROM t JOIN u USING (g)",
        "SELECT a.`{g}`, a.`{id}`, b.`{name}` FROM `{T}` a JOIN `{U}` b ON a.`{g}` = b.`{ug}`",
    ),
    "naturally": View(
        "SELECT k, g, name, id FROM t NATURAL JOIN u",
        "SELECT b.`{k}`, b.`{ug}`, b.`{name}`, a.`{id}` FROM `{T}` a JOIN `{U}` b "
        "ON a.`{g}` = b.`{ug}`",
    ),
    "lefts": View(
        "SELECT t.id, u.name FROM t LEFT JOIN u ON t.g = u.g",
        "SELECT a.`{id}`, b.`{name}` FROM `{T}` a LEFT JOIN `{U}` b ON a.`{g}` = b.`{ug}`",
    ),
    "sums": View(
        "SELECT g, count(*) AS n, sum(x) AS total, min(s) AS least FROM t GROUP BY g",
        "SELECT `{g}`, count(*), sum(`{x}`), min(`{s}`) FROM `{T}` GROUP BY `{g}`",
    ),
    "named": View(
        "WITH big AS (SELECT * FROM u WHERE k > 1) SELECT g, name FROM big",
        "SELECT `{ug}`, `{name}` FROM `{U}` WHERE `{k}` > 1",
    ),
    "found": View(
        "SELECT id FROM t WHERE g IN (SELECT g FROM u WHERE name <> 'q')",
        "SELECT `{id}` FROM `{T}` WHERE `{g}` IN (SELECT `{ug}` FROM `{U}` WHERE `{name}` <> 'q')",
    ),
    "not_found": View(
        "SELECT s FROM t WHERE s NOT IN (SELECT string(k) FROM u)",
        "SELECT `{s}` FROM `{T}` WHERE `{s}` NOT IN (SELECT string(`{k}`) FROM `{U}`)",
    ),
    "numbered": View(
        "SELECT id, row_number() OVER (PARTITION BY g ORDER BY id) AS r FROM t",
        "SELECT `{id}`, row_number() OVER (PARTITION BY `{g}` ORDER BY `{id}`) FROM `{T}`",
    ),
    "structs": View(
        "SELECT id, struct(x, s) AS both FROM t",
        "SELECT `{id}`, named_struct('x', `{x}`, 's', `{s}`) FROM `{T}`",
    ),
    "values": View("SELECT DISTINCT g, s FROM t", "SELECT DISTINCT `{g}`, `{s}` FROM `{T}`"),
    "first": View(
        "SELECT id, x FROM t ORDER BY id LIMIT 5",
        "SELECT `{id}`, `{x}` FROM `{T}` ORDER BY `{id}` LIMIT 5",
    ),
    "anew": View(
        "SELECT id, upper(s) AS up FROM t WHERE x >= 0 AND s <> 'zz'",
        "SELECT `{id}`, upper(`{s}`) FROM `{T}` WHERE `{x}` >= 0 AND `{s}` <> 'zz'",
        mode="full",
    ),
    "over": View(
        "SELECT g, n FROM sums WHERE n > 1",
        "SELECT `{g}`, count(*) FROM `{T}` GROUP BY `{g}` HAVING count(*) > 1",
    ),
    "met": View(
        "SELECT a.g, a.n, p.id FROM sums a JOIN projection p ON p.y = a.n",
        "SELECT a.g, a.n, p.id FROM (SELECT `{g}` AS g, count(*) AS n FROM `{T}` GROUP BY `{g}`) a "
        "JOIN (SELECT `{id}` AS id, `{x}` + 1 AS y FROM `{T}` WHERE `{x}` > 2) p ON p.y = a.n",
    ),
}


@dataclass
class AlteredLake:
    """Two tables and the views over them, whatever they are called by now."""

    lake: Lake
    chance: random.Random
    names: dict[str, str] = field(default_factory=lambda: dict(NAMES))
    views: dict[str, View] = field(default_factory=lambda: dict(VIEWS))
    types: dict[str, str] = field(default_factory=dict)
    """Of columns that were widened."""
    nullable: set[str] = field(default_factory=set)

    def create(self) -> None:
        with self.lake.transaction() as tx:
            for one, (ddl, key) in DDL.items():
                tx.create_table(NAMES[one], ddl, key=key)
        self.write(12)
        for name, view in self.views.items():
            self.lake.create_stream_table(name, view.query, refresh_mode=view.mode)
        self.refresh()

    def refresh(self, *, adopting: bool = False, full: bool = False) -> None:
        """Everything, and nothing may fail. With `adopting`, nothing may be computed."""
        attempts = self.lake.refresh(full=full)
        wrong = [a for a in attempts if a.action in ("failed", "skipped")]
        assert not wrong, wrong
        if adopting:
            anew = [a for a in attempts if a.action != "none"]
            assert not anew, anew

    def write(self, count: int = 4) -> None:
        """One transaction of random rows, in the names of the moment."""
        chance = self.chance
        keyed = {"T": bool(self._key("T")), "U": bool(self._key("U"))}
        with self.lake.transaction() as tx:
            for one, size, row in (("T", 20, self._t), ("U", 8, self._u)):
                keys = chance.sample(range(size), min(size, count))
                key = self.names[COLUMNS[one][0]]
                if not keyed[one]:
                    listed = ", ".join(map(str, keys))
                    tx.delete(self.names[one], f"`{key}` IN ({listed})")
                    tx.append(self.names[one], [row(k) for k in keys])
                else:
                    tx.upsert(self.names[one], [row(k) for k in keys])
                tx.delete(self.names[one], f"`{key}` % 5 = {chance.randint(0, 4)}")

    def _key(self, one: str) -> tuple[str, ...]:
        table = self.lake.snapshot().states().find(self.names[one])
        return () if table is None else table.key

    def _t(self, key: int) -> dict[str, Any]:
        chance = self.chance
        values = {
            "id": key,
            "g": chance.choice([None, 0, 1, 2]),
            "x": chance.choice([None, *range(6)]),
            "s": chance.choice(["a", "b", "zz", "3", *([None] if "s" in self.nullable else [])]),
        }
        return {self.names[one]: value for one, value in values.items()}

    def _u(self, key: int) -> dict[str, Any]:
        chance = self.chance
        values = {
            "k": key,
            "ug": chance.choice([None, 0, 1, 3]),
            "name": chance.choice([None, "p", "q"]),
        }
        return {self.names[one]: value for one, value in values.items()}

    def check(self) -> None:
        """Every view shows what its query gives now."""
        snapshot = self.lake.snapshot()
        for name, view in self.views.items():
            found = multiset(snapshot.table(name).to_arrow().to_pylist())
            told = snapshot.sql(view.told.format(**self.names)).toArrow()
            told = told.rename_columns([f"c{n}" for n in range(told.num_columns)])
            expected = multiset(told.to_pylist())
            assert found == expected, f"{name}: {found - expected} instead of {expected - found}"
