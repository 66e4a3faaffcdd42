"""Measuring: medians of interleaved runs, and how a claim is reported.

Machines are noisy, so both sides of a ratio are measured in turns within one run, and a ratio is
that of their means or medians, as each claim says.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

STEADY_BYTES_MIN = 4 * 1024**3


@dataclass(frozen=True)
class Claim:
    """One measured figure and what it must reach."""

    what: str
    measured: float
    limit: float
    at_least: bool = False
    detail: str = ""

    @property
    def holds(self) -> bool:
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit


def seconds(function: Callable[[], object]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def in_turns(
    one: Callable[[int], object], other: Callable[[int], object], times: int
) -> tuple[list[float], list[float]]:
    """Run two things in turns; the seconds of each run."""
    ones, others = [], []
    for number in range(times):
        ones.append(seconds(lambda n=number: one(n)))
        others.append(seconds(lambda n=number: other(n)))
    return ones, others


def middle(values: list[float]) -> float:
    return statistics.median(values)


def steady_place() -> str | None:
    """A folder in memory, where there is one with room: a disk's moods exceed what small ratios
    tell. None leaves the choice to the system, as TMPDIR does."""
    shared = Path("/dev/shm")
    if "TMPDIR" in os.environ or not os.access(shared, os.W_OK):
        return None
    return str(shared) if shutil.disk_usage(shared).free > STEADY_BYTES_MIN else None


@contextmanager
def folder(*, steady: bool = False) -> Iterator[Path]:
    """A new folder; `steady` when milliseconds are to be compared in it."""
    place = steady_place() if steady else None
    path = Path(tempfile.mkdtemp(prefix="tidelock-bench-", dir=place))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def folder_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
