"""How long to wait before something that failed is tried again.

Invariants, for the n-th failure in a row, n >= 1:
    ceiling = min(WAIT_SECONDS_MAX, WAIT_SECONDS_FIRST * 2^(n-1));
    ceiling / 2 <= wait <= ceiling, spread at random so that those which failed together do not come
    back together.
"""

from __future__ import annotations

from random import Random

WAIT_SECONDS_FIRST = 1.0
WAIT_SECONDS_MAX = 60.0
ASKED_SECONDS_MAX = 86_400.0
"""The longest wait that somebody else may ask for, whatever was written."""
# Beyond this many doublings the longest wait is reached, whatever the count.
_DOUBLINGS_MAX = 16


def wait_seconds(failures: int, chance: Random) -> float:
    """How long to wait after this many failures in a row, at least one."""
    doublings = min(failures - 1, _DOUBLINGS_MAX)
    ceiling = min(WAIT_SECONDS_MAX, WAIT_SECONDS_FIRST * 2.0**doublings)
    return ceiling * chance.uniform(0.5, 1.0)
