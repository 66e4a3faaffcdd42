"""What changing a schema costs: columns that come, are renamed and go, in a large table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import partial

from bench.lakes import filled_lake
from bench.measure import Claim, folder, middle, seconds

FEW, MANY = 10_000, 10_000_000
ROUNDS = 101
STEPS = {
    "adding a column": "ADD COLUMN {lake}{n} STRING",
    "renaming it": "RENAME COLUMN {lake}{n} TO {lake}_{n}",
    "dropping it": "DROP COLUMN {lake}_{n}",
}
"""In each lake by other names: one process reads equal schemas once."""


def columns() -> Iterator[Claim]:
    """Ten million rows against ten thousand."""
    with folder(steady=True) as path:
        lakes = {
            "large": filled_lake(path / "large", MANY),
            "small": filled_lake(path / "small", FEW),
        }
        took: dict[tuple[str, str], list[float]] = defaultdict(list)
        for number in range(ROUNDS):
            for what, step in STEPS.items():
                for name, lake in lakes.items():
                    said = step.format(n=number, lake=name)
                    took[what, name].append(seconds(partial(lake.alter_table, "a", said)))
        for what in STEPS:
            many, few = middle(took[what, "large"]), middle(took[what, "small"])
            yield Claim(
                f"{what} at 10 million rows against 10 thousand (medians)",
                many / few,
                1.2,
                detail=f"{many * 1e3:.2f} ms against {few * 1e3:.2f} ms",
            )
        for lake in lakes.values():
            lake.close()


CLAIMS = [columns]
