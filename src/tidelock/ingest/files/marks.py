"""Marks: what tells one state of a file from any other, without reading it.

    size:mtime        of a folder, to the nanosecond
    size:ETag         of a bucket
    …~checksum        of a file that was read so young that its mark alone is in doubt

A folder may date two states of a file the same, if they follow each other within the grain of its
clock. So of a file that is younger than that when it is read the checksum is remembered too, and
looked at once, when it is seen again.
"""

from __future__ import annotations

import hashlib
import os

import pyarrow as pa
import pyarrow.compute as pc

GRAIN_NANOSECONDS = 2_000_000_000
"""The coarsest clock of a file system, which is that of FAT."""
IN_DOUBT = "~"


def mark_of(status: os.stat_result) -> str:
    return f"{status.st_size}:{status.st_mtime_ns}"


def is_in_doubt(modified: int, now: int) -> bool:
    """Whether a later state of a file could have the mark that one of this time has."""
    return now - modified < GRAIN_NANOSECONDS


def doubted(mark: str, checksum: str | None) -> str:
    return mark if checksum is None else f"{mark}{IN_DOUBT}{checksum}"


def plain_marks(marks: pa.ChunkedArray) -> pa.ChunkedArray:
    """Marks without their checksums."""
    return pc.replace_substring_regex(marks, f"{IN_DOUBT}.*$", "")


def checksums(marks: pa.ChunkedArray) -> pa.ChunkedArray:
    """The checksums of marks that have one."""
    return pc.replace_substring_regex(marks, f"^[^{IN_DOUBT}]*{IN_DOUBT}", "")


def checksum_of(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
