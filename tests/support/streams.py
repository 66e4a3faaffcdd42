"""Stream tables under test: tables with NULLs and duplicates, random changes, and the oracle.

The oracle is recomputation: after every refresh, every stream table equals its query over the
snapshot that it stands for, as multisets.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

from tidelock.derive.reports import StreamTable
from tidelock.run.lake import Lake

QUERIES_AT_ONCE = 4

SCHEMAS = {
    "t": ("id BIGINT NOT NULL, g INT, x INT, amount DECIMAL(12,2), s STRING, f DOUBLE", "id"),
    "u": ("k INT NOT NULL, g INT, v INT, name STRING", "k"),
    "d": ("a INT, b STRING", None),
    "n": ("id INT NOT NULL, tags ARRAY<STRING>, parent INT", "id"),
}


def create_tables(lake: Lake) -> None:
    with lake.transaction("create tables") as tx:
        for name, (ddl, key) in SCHEMAS.items():
            tx.create_table(name, ddl, key=key)


def maybe(chance: random.Random, values: list[Any]) -> Any:
    return None if chance.random() < 0.15 else chance.choice(values)


def row_of(chance: random.Random, table: str, key: int) -> dict[str, Any]:
    if table == "t":
        return {
            "id": key,
            "g": maybe(chance, [0, 1, 2, 3]),
            "x": maybe(chance, list(range(-3, 7))),
            "amount": maybe(chance, [Decimal(n) / 4 for n in range(-8, 20)]),
            "s": maybe(chance, ["a", "b", "", "é"]),
            "f": maybe(chance, [0.1, 0.2, -1.5, 3.0]),
        }
    if table == "u":
        return {
            "k": key,
            "g": maybe(chance, [0, 1, 2, 4]),
            "v": maybe(chance, list(range(5))),
            "name": maybe(chance, ["p", "q", "r"]),
        }
    if table == "d":
        return {"a": maybe(chance, [1, 2, 3]), "b": maybe(chance, ["x", "y"])}
    tags = maybe(chance, [[], ["one"], ["one", "two"], ["two", None], ["two", "two"]])
    return {"id": key, "tags": tags, "parent": maybe(chance, list(range(6)))}


KEYS = {"t": ("id", 30), "u": ("k", 8), "n": ("id", 10)}


def change_tables(lake: Lake, chance: random.Random) -> None:
    """One transaction of random inserts, updates and deletes over some of the tables."""
    with lake.transaction("change") as tx:
        for table in chance.sample(list(SCHEMAS), chance.randint(1, len(SCHEMAS))):
            if table == "d":
                tx.append("d", [row_of(chance, "d", 0) for _ in range(chance.randint(0, 4))])
                if chance.random() < 0.4:
                    tx.delete("d", where=f"a = {chance.randint(1, 3)}")
                if chance.random() < 0.2:
                    tx.update("d", {"b": "concat(b, b)"}, where="a = 1")
                continue
            key, size = KEYS[table]
            chosen = chance.sample(range(size), chance.randint(1, max(2, size // 3)))
            tx.upsert(table, [row_of(chance, table, one) for one in chosen])
            if chance.random() < 0.6:
                tx.delete(table, where=f"{key} % 5 = {chance.randint(0, 4)}")
            if chance.random() < 0.1:
                tx.delete(table, where="true")
            if chance.random() < 0.1:
                rows = tx.table(table).to_arrow().to_pylist()
                tx.overwrite(table, rows[: len(rows) // 2])


def multiset(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(_shown(value) for value in row.values()) for row in rows)


def _shown(value: Any) -> Any:
    """Sums of DOUBLE depend on the order in which an engine adds: compare what all agree on."""
    if isinstance(value, float):
        return "nan" if value != value else round(value, 6) + 0.0
    if isinstance(value, list | dict):
        return repr(value)
    return value


def check(lake: Lake, branch: str = "main") -> None:
    """Every stream table equals its query over the snapshot of its frontier."""
    now = lake.snapshot(branch)
    streams = lake.stream_tables(branch=branch)
    names = {stream.name for stream in streams}
    snapshots = {version: lake.snapshot(branch, version=version) for version in _frontiers(streams)}

    def compare(stream: StreamTable) -> str:
        # What a stream table reads of its own group was published with it, not before it.
        read = now if names & set(stream.inputs) else snapshots[stream.as_of]
        found = multiset(now.table(stream.name).to_arrow().to_pylist())
        expected = multiset(read.sql(stream.query).toArrow().to_pylist())
        if found == expected:
            return ""
        return (
            f"{stream.name}: {stream.query}\n"
            f"too many: {dict(found - expected)}\nmissing: {dict(expected - found)}"
        )

    # An engine answers several small queries at a time in less than they take in turn.
    with ThreadPoolExecutor(QUERIES_AT_ONCE) as pool:
        wrong = [told for told in pool.map(compare, streams) if told]
    assert not wrong, "\n".join(wrong)


def _frontiers(streams: Iterable[StreamTable]) -> set[int | None]:
    return {stream.as_of for stream in streams}
