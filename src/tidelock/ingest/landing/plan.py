"""Which files go into which commit of a round.

Invariants: each file is in one commit; files are in the order that was asked for, through all
commits; a commit has at most so many files and bytes as were said, unless one file alone is larger,
which then is a commit of its own. The same files give the same plan.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidelock.ingest.landing.places import ListedFile

_ORDERS = {
    "name": [("name", "ascending")],
    "time": [("modified", "ascending"), ("name", "ascending")],
}


def plan_round(
    files: pa.Table, files_per_commit: int, bytes_per_commit: int
) -> list[tuple[int, int]]:
    """Of files in their order: where each commit starts, and how many it takes."""
    cuts: list[tuple[int, int]] = []
    start = size = 0
    for number, one in enumerate(files.column("size").to_pylist()):
        if number > start and (number - start == files_per_commit or size + one > bytes_per_commit):
            cuts.append((start, number - start))
            start, size = number, 0
        size += one
    if files.num_rows:
        cuts.append((start, files.num_rows - start))
    return cuts


def in_order(files: pa.Table, order: str) -> pa.Table:
    return files.sort_by(_ORDERS[order])


def before_unready(files: pa.Table, unready: pa.Table) -> pa.Table:
    """The files whose names come before those of all that are not ready: later ones wait, where
    nobody looks again at names that come before."""
    if not unready.num_rows:
        return files
    first = min(unready.column("name").to_pylist())
    return files.filter(pa.array([name < first for name in files.column("name").to_pylist()]))


def listed_files(files: pa.Table, cut: tuple[int, int]) -> Sequence[ListedFile]:
    """The files of one commit."""
    start, count = cut
    return [ListedFile(**row) for row in files.slice(start, count).to_pylist()]


def sample_of(files: pa.Table, files_max: int, bytes_max: int) -> Sequence[ListedFile]:
    """The first files by name that fit into a sample; the smallest of all, if none does."""
    fitting = in_order(files.filter(pc.less_equal(files.column("size"), bytes_max)), "name")
    if not fitting.num_rows:
        return listed_files(files.sort_by([("size", "ascending"), ("name", "ascending")]), (0, 1))
    start, count = plan_round(fitting.slice(0, files_max), files_max, bytes_max)[0]
    return listed_files(fitting, (start, count))
