"""What the ledger remembers of each file, and what a mark says of it later.

    item      the name, below the folder or the bucket
    mark      size:ETag in a bucket, size:mtime in a folder; followed by ~checksum while in doubt
    entry     {"rows": …, "bad": …, "size": …, "taken": …}

A folder may date two states of a file the same, if they follow each other within the grain of its
clock. A file that was taken so young is in doubt: its checksum is kept too, and looked at again
once, when it is old enough to be told by its mark alone.
Position: how many commits the source has made; with names="ascending" the last name that was taken
comes after it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from tidelock.ingest.landing.places import ListedFile
from tidelock.ingest.ledger import Entry, entries_table

GRAIN_NANOSECONDS = 2_000_000_000
"""The coarsest clock of a file system, which is that of FAT."""
IN_DOUBT = "~"


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
            one.file.mark if one.checksum is None else f"{one.file.mark}{IN_DOUBT}{one.checksum}",
            {
                "rows": one.rows,
                **({"bad": one.bad} if one.bad else {}),
                "size": one.file.size,
                "taken": moment.isoformat(timespec="seconds"),
            },
        )
        for one in taken
    )


def is_in_doubt(file: ListedFile, now: int) -> bool:
    """Whether a later state of a file could have the mark that this one has."""
    return now - file.modified < GRAIN_NANOSECONDS


def plain_marks(marks: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Marks without their checksums."""
    return pc.replace_substring_regex(marks, f"{IN_DOUBT}.*$", "")


def checksum_of(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


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
