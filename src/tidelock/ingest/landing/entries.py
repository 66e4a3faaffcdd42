"""What the ledger remembers of each file, and what a mark says of it later.

    item      the name, below the folder or the bucket
    mark      the state that was taken (files/marks.py)
    entry     {"rows": …, "bad": …, "size": …, "taken": …}

Position: how many commits the source has made; with names="ascending" the last name that was taken
comes after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from tidelock.ingest.files.marks import doubted
from tidelock.ingest.landing.places import ListedFile
from tidelock.ingest.ledger import Entry, entries_table


@dataclass(frozen=True)
class Taken:
    """What was taken of one file."""

    file: ListedFile
    rows: int
    bad: int
    checksum: str | None = None


def entries_of(taken: Iterable[Taken], moment: datetime) -> pa.Table:
    """What the ledger is to keep of the files of one commit."""
    return entries_table(
        Entry(
            one.file.name,
            doubted(one.file.mark, one.checksum),
            {
                "rows": one.rows,
                **({"bad": one.bad} if one.bad else {}),
                "size": one.file.size,
                "taken": moment.isoformat(timespec="seconds"),
            },
        )
        for one in taken
    )


@dataclass(frozen=True)
class Position:
    """How far a source of files has come."""

    commits: int = 0
    last: str = ""

    @classmethod
    def parse(cls, text: str) -> Position:
        number, _, last = text.partition(" ")
        return cls(int(number or 0), last)

    def __str__(self) -> str:
        return f"{self.commits} {self.last}".rstrip()
