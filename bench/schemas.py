"""What changing a schema costs: columns that come, are renamed and go, in a large table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import tidelock
from bench.lakes import SCHEMA, new_lake
from bench.measure import Claim, folder, in_turns, middle

FEW, MANY = 10_000, 10_000_000
ROUNDS = 31
STEPS = {
    "adding a column": "ADD COLUMN c{n} STRING",
    "renaming it": "RENAME COLUMN c{n} TO d{n}",
    "dropping it": "DROP COLUMN d{n}",
}


def filled(path: Path, count: int) -> tidelock.Lake:
    lake = new_lake(path, ["a"], key="id")
    with lake.transaction() as tx:
        for start in range(0, count, 1_000_000):
            ids = np.arange(start, min(start + 1_000_000, count))
            columns = {"id": ids, "v": ids * 0.5, "s": pa.repeat("x", len(ids))}
            tx.append("a", pa.table(columns, schema=SCHEMA))
    lake.optimize()
    assert lake._store.chores.finish(300)
    return lake


def columns() -> Iterator[Claim]:
    """Ten million rows against ten thousand."""
    with folder(steady=True) as path:
        large, small = filled(path / "large", MANY), filled(path / "small", FEW)
        for what, step in STEPS.items():

            def alter(lake: tidelock.Lake, number: int, step: str = step) -> None:
                lake.alter_table("a", step.format(n=number))

            many, few = in_turns(
                lambda n, alter=alter: alter(large, n),
                lambda n, alter=alter: alter(small, n),
                ROUNDS,
            )
            yield Claim(
                f"{what} at 10 million rows against 10 thousand (medians)",
                middle(many) / middle(few),
                1.2,
                detail=f"{middle(many) * 1e3:.2f} ms against {middle(few) * 1e3:.2f} ms",
            )
        large.close()
        small.close()


CLAIMS = [columns]
