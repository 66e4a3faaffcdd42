"""Oracle: random graphs of stream tables, refreshed in every way, are right at every version.

Every query has a twin in Python, so that what an engine computed is checked without one. At every
version that was ever published: members of a group stand at one frontier, each table equals its
query at its frontier, and no table mixes two versions of what it is computed from.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.histories import Compute, Rows, check_every_version, check_groups
from tests.support.lakes import seed_of

import tidelock
from tidelock import Lake, Transaction

Nodes = dict[str, tuple[str, ...]]
BASES = ("b0", "b1", "b2")
STEPS = 5

GRAPHS: dict[str, Nodes] = {
    "a chain with a diamond and a shortcut at its end": {
        "c0": ("b0",),
        "c1": ("c0",),
        "l": ("c1",),
        "r": ("c1",),
        "top": ("l", "r"),
        "c2": ("top",),
        "tip": ("c2", "top"),
    },
    "a diamond in a diamond": {
        "l": ("b0",),
        "il": ("l",),
        "ir": ("l", "b1"),
        "core": ("il", "ir"),
        "r": ("b0",),
        "outer": ("core", "r"),
    },
    "diamonds in a row, and a table beside them": {
        "l1": ("b0",),
        "r1": ("b0", "b1"),
        "t1": ("l1", "r1"),
        "l2": ("t1",),
        "r2": ("t1",),
        "t2": ("l2", "r2"),
        "aside": ("l1",),
        "far": ("b2",),
    },
    "diamonds that overlap, with several tips": {
        "l": ("b0",),
        "m": ("b0", "b1"),
        "r": ("b1",),
        "t1": ("l", "m"),
        "t2": ("m", "r"),
        "t3": ("t2",),
        "t4": ("t1", "b2"),
    },
    "different roots that meet": {
        "x": ("b0",),
        "y": ("b1",),
        "xy": ("x", "y"),
        "z": ("b2",),
        "xyz": ("xy", "z"),
        "last": ("xyz",),
    },
}


def random_graph(chance: random.Random) -> Nodes:
    known = list(BASES)
    nodes: Nodes = {}
    for number in range(8):
        count = chance.choice([1, 1, 2, 2, 3])
        # What was made last is chosen more often: graphs get deep.
        chosen = {chance.choice([*known, *known[-3:]]) for _ in range(count)}
        nodes[f"s{number}"] = tuple(sorted(chosen))
        known.append(f"s{number}")
    return nodes


# Queries and their twins: every table has the columns id and v ------------------------------------


def shifted(one: Rows) -> Rows:
    return [(i, None if v is None else v + 1) for i, v in one]


def even(one: Rows) -> Rows:
    return [(i, v) for i, v in one if v is not None and v % 2 == 0]


def summed(one: Rows) -> Rows:
    groups: dict[int, list[int]] = {}
    for i, v in one:
        groups.setdefault(i % 3, []).extend([] if v is None else [v])
    return [(i, sum(values) if values else None) for i, values in groups.items()]


def distinct(one: Rows) -> Rows:
    return list(set(one))


def all_of(*many: Rows) -> Rows:
    return [row for one in many for row in one]


def greatest(one: Rows) -> dict[int, int | None]:
    found: dict[int, int | None] = {}
    for i, v in one:
        known = found.get(i)
        found[i] = known if v is None else v if known is None else max(known, v)
    return found


def added(first: Rows, *more: Rows) -> Rows:
    found = first
    for one in map(greatest, more):
        kept = [(i, v, one[i]) for i, v in found if i in one]
        found = [(i, None if v is None or w is None else v + w) for i, v, w in kept]
    return found


def added_if_there(first: Rows, *more: Rows) -> Rows:
    found = first
    for one in map(greatest, more):
        found = [(i, None if v is None else v + (one.get(i) or 0)) for i, v in found]
    return found


def not_in(first: Rows, *more: Rows) -> Rows:
    there = {i for one in more for i, v in one if v is not None and v > 3}
    return [(i, v) for i, v in first if i not in there]


def joined(inputs: tuple[str, ...], kind: str, value: Callable[[str], str]) -> str:
    first, *more = inputs
    text, total = f"{first} AS p", "p.v"
    for one in more:
        text += f" {kind} (SELECT id, MAX(v) AS v FROM {one} GROUP BY id) AS q_{one}"
        text += f" ON p.id = q_{one}.id"
        total += f" + {value(f'q_{one}.v')}"
    return f"SELECT p.id, {total} AS v FROM {text}"


def query_of(chance: random.Random, inputs: tuple[str, ...]) -> tuple[str, Compute]:
    first, *more = inputs
    if not more:
        return chance.choice(
            [
                (f"SELECT id, v + 1 AS v FROM {first}", shifted),
                (f"SELECT id, v FROM {first} WHERE v % 2 = 0", even),
                (
                    f"SELECT CAST(id % 3 AS INT) AS id, SUM(v) AS v FROM {first} GROUP BY id % 3",
                    summed,
                ),
                (f"SELECT DISTINCT id, v FROM {first}", distinct),
            ]
        )
    without = " AND ".join(
        f"NOT EXISTS (SELECT 1 FROM {one} q WHERE q.id = p.id AND q.v > 3)" for one in more
    )
    return chance.choice(
        [
            (" UNION ALL ".join(f"SELECT id, v FROM {one}" for one in inputs), all_of),
            (joined(inputs, "JOIN", str), added),
            (joined(inputs, "LEFT JOIN", lambda v: f"coalesce({v}, 0)"), added_if_there),
            (f"SELECT p.id, p.v FROM {first} p WHERE {without}", not_in),
        ]
    )


# Graphs in a lake ---------------------------------------------------------------------------------


def change(lake: Lake, chance: random.Random) -> None:
    def rows() -> list[dict[str, int | None]]:
        ids = chance.sample(range(8), chance.randint(1, 4))
        return [{"id": one, "v": chance.choice([None, *range(-4, 9)])} for one in ids]

    def write(tx: Transaction) -> None:
        for table in chance.sample(BASES, chance.randint(1, 3)):
            if table == "b2":
                tx.append(table, rows())
            else:
                tx.upsert(table, rows())
            if chance.random() < 0.4:
                tx.delete(table, where=f"id = {chance.randrange(8)}")

    lake.run(write, message="change")


def create(lake: Lake, chance: random.Random, nodes: Nodes) -> dict[str, Compute]:
    for table in BASES:
        lake.create_table(table, "id INT NOT NULL, v BIGINT", key=None if table == "b2" else "id")
    computations = {}
    for name, inputs in nodes.items():
        query, compute = query_of(chance, inputs)
        mode = chance.choice(["incremental", "incremental", "auto", "full"])
        lake.create_stream_table(name, query, refresh_mode=mode)
        kept = next(one for one in lake.stream_tables() if one.name == name)
        computations[name] = _in_order(compute, inputs, kept.inputs)
    return computations


def _in_order(compute: Compute, written: tuple[str, ...], read: tuple[str, ...]) -> Compute:
    """The twin takes rows as the query was written; frontiers list them as the table reads them."""
    return lambda *rows: compute(*(rows[read.index(one)] for one in written))


def refresh_somehow(lake: Lake, chance: random.Random, nodes: Nodes) -> None:
    """Everything or a part of it, in one commit or several, with commits coming in between."""
    roll = chance.random()
    options: dict[str, object] = {"parallel": chance.random() < 0.5}
    if roll < 0.2:
        options["names"] = chance.sample(sorted(nodes), 2)
    elif roll < 0.35:
        options["consistency"] = "lake"
    elif roll < 0.45:
        options["full"] = True
    if chance.random() < 0.5:
        # Units are begun in parallel, so each has a chance of its own.
        number = chance.random()
        options["begun"] = lambda unit: change_at_times(lake, random.Random(f"{number} {unit}"))
    report = lake.refresh(**options)  # type: ignore[arg-type]
    failed = [attempt for attempt in report if attempt.action == "failed"]
    assert not failed, failed


def change_at_times(lake: Lake, chance: random.Random) -> None:
    if chance.random() < 0.4:
        change(lake, chance)


@pytest.mark.parametrize("shape", [*GRAPHS, "random 0", "random 1", "random 2"])
def test_a_graph_that_is_refreshed_in_any_way_is_right_at_every_version(
    tmp_path: Path, shape: str
) -> None:
    with (
        seed_of() as seed,
        tidelock.open(tmp_path / "lake", create=True, engine="sail") as lake,
    ):
        chance = random.Random(f"{seed} {shape}")
        nodes = GRAPHS.get(shape) or random_graph(chance)
        computations = create(lake, chance, nodes)
        for _ in range(STEPS):
            change(lake, chance)
            refresh_somehow(lake, chance, nodes)
        lake.refresh()
        check_groups(lake)
        check_every_version(lake, computations)
        # Nothing is left behind: one more look finds nothing to do.
        assert {attempt.action for attempt in lake.refresh()} == {"none"}
