"""What changing a schema costs: columns that come, are renamed and go, in a large table."""

from __future__ import annotations

from collections.abc import Iterator

from bench.lakes import filled_lake
from bench.measure import Claim, folder, in_turns, middle

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
        large, small = filled_lake(path / "large", MANY), filled_lake(path / "small", FEW)
        for what, step in STEPS.items():

            def alter(name: str, number: int, step: str = step) -> None:
                lake = {"large": large, "small": small}[name]
                lake.alter_table("a", step.format(n=number, lake=name))

            many, few = in_turns(
                lambda n, alter=alter: alter("large", n),
                lambda n, alter=alter: alter("small", n),
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
