"""Positions: numbers that order everything that a feed delivers.

inserts    a row's sequence
changes    the version in the upper bits, and the number within it in the lower
"""

from __future__ import annotations

NOTHING = -1
"""The position before the first."""
ORDINAL_BITS = 32
"""How many bits of a position in a `changes` feed tell the number within its version."""


def position_of(version: int, ordinal: int) -> int:
    """The position of a change, by its number within its version."""
    return version << ORDINAL_BITS | ordinal


def end_of(version: int) -> int:
    """The position at which everything up to and with a version is delivered."""
    return position_of(version + 1, 0) - 1


def version_of(position: int) -> int:
    return position >> ORDINAL_BITS
