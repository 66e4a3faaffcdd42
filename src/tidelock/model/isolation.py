"""Isolation: what a transaction is protected from while others publish.

snapshot        no row that it updates or deletes was touched by another commit since it began
serializable    nothing that it read was changed either: as if it had run alone, at the moment
                of its commit
"""

from __future__ import annotations

from typing import Literal, get_args

from tidelock.errors import InvalidOption

Isolation = Literal["snapshot", "serializable"]
CHOICES: tuple[Isolation, ...] = get_args(Isolation)


def check_isolation(value: object) -> Isolation:
    for choice in CHOICES:
        if value == choice:
            return choice
    named = " or ".join(repr(choice) for choice in CHOICES)
    raise InvalidOption(f"isolation is {named}, not {value!r}.", isolation=str(value))
