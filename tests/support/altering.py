"""Processes that load, refresh and deliver a table while others alter it, and die doing so.

Its rows are `id` and three times as much, in a column that is called `x` or `y` by turns.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import tidelock
from tidelock import Lake, Transaction, errors

NAMES = ("x", "y")
PLACES = 1_000_000
"""Each loader has so many ids for itself."""


def make(uri: str, folder: str) -> None:
    with tidelock.open(uri, create=True, engine="sail") as lake:
        lake.create_table("o", "id BIGINT, x BIGINT", key="id")
        lake.create_stream_table("sums", "SELECT COUNT(*) AS n, SUM(x) AS total FROM o")
        lake.create_stream_table("same", "SELECT * FROM o")
        lake.create_sink("w", table="o", kind="jsonl", to=str(Path(folder, "out")), feed="inserts")
        lake.refresh()


def value_of(lake_names: tuple[str, ...]) -> str:
    """What the column of values is called now."""
    (name,) = (one for one in lake_names if one in NAMES)
    return name


def load_on(uri: str, number: int, journal: str) -> None:
    """Append rows, and load files of them, until killed; what was acknowledged is told."""
    lake = tidelock.open(uri, actor=f"loader {number}")
    file = Path(journal).with_suffix(".jsonl")
    for one in range(number * PLACES, (number + 1) * PLACES, 2):
        try:
            lake.run(lambda tx, one=one: tx.append("o", [_row(tx, one)]), retries=100)
            _note(journal, one)
            file.write_text(f'{{"id": {one + 1}}}\n')
            lake.load("o", str(file))
            _note(journal, one + 1)
        except errors.ConflictError:
            continue


def _row(tx: Transaction, number: int) -> dict[str, int]:
    return {"id": number, value_of(tx.table("o").schema.names): number * 3}


def _note(journal: str, number: int) -> None:
    log = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(log, f"{number}\n".encode())
    os.close(log)


def alter_on(uri: str, seed: int) -> None:
    """Alter the table until killed, by plans and by single steps."""
    chance = random.Random(seed)
    lake = tidelock.open(uri, actor=f"altering {seed}")
    while True:
        try:
            chance.choice(STEPS)(lake, chance)
        except (errors.ConflictError, errors.PlanOutdated, errors.InputError):
            # Somebody else altered it first.
            continue
        time.sleep(chance.uniform(0.0, 0.1))


def _rename(lake: Lake, chance: random.Random) -> None:
    old = value_of(lake.table("o").schema.names)
    (new,) = set(NAMES) - {old}
    lake.alter_table("o", f"RENAME COLUMN {old} TO {new}")


def _add(lake: Lake, chance: random.Random) -> None:
    more = chance.choice(["", "DEFAULT 7", "NOT NULL DEFAULT 7"])
    lake.alter_table("o", f"ADD COLUMN e{chance.randrange(3)} INT {more}")


def _drop(lake: Lake, chance: random.Random) -> None:
    lake.alter_table("o", f"DROP COLUMN e{chance.randrange(3)}")


def _move(lake: Lake, chance: random.Random) -> None:
    lake.alter_table("o", f"ALTER COLUMN e{chance.randrange(3)} FIRST")


def _rule(lake: Lake, chance: random.Random) -> None:
    change = chance.choice(["ADD CONSTRAINT c CHECK (id >= 0)", "DROP CONSTRAINT c"])
    lake.alter_table("o", change)


def _plan(lake: Lake, chance: random.Random) -> None:
    name = value_of(lake.table("o").schema.names)
    more = chance.choice(["", ", e0 INT", ", e1 INT, e2 INT DEFAULT 7"])
    plan = lake.plan_schema(f"CREATE TABLE o (id BIGINT PRIMARY KEY, {name} BIGINT{more})")
    lake.apply_schema(plan, allow_data_loss=True)


STEPS = (_rename, _rename, _add, _add, _drop, _move, _rule, _plan)


def refresh_on(uri: str, seed: int) -> None:
    """Refresh and deliver until killed."""
    lake = tidelock.open(uri, engine="sail", actor=f"refresher {seed}")
    while True:
        refresh_with(lake)
        try:
            lake.deliver("w")
        except errors.SinkBusy:
            time.sleep(0.05)


def refresh_with(lake: Lake) -> None:
    failed = [one for one in lake.refresh() if one.action in ("failed", "skipped")]
    assert not failed, [one.reason for one in failed]
