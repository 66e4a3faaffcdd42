"""How many rows are compared with rules in which way."""

from __future__ import annotations

from dataclasses import dataclass

AGAIN_ROWS_MAX = 10_000
"""So few rows of its own a transaction compares with a new head as it did with the one before."""
DRIVER_ROWS_MAX = 100_000
"""Changes of more rows are left to Spark's executors, where there is a session."""
ALONE_ROWS_MAX = 1_000_000
"""Changes of more rows are worth starting one."""


@dataclass(frozen=True)
class Limits:
    again_rows: int = AGAIN_ROWS_MAX
    driver_rows: int = DRIVER_ROWS_MAX
    alone_rows: int = ALONE_ROWS_MAX


LIMITS = Limits()
