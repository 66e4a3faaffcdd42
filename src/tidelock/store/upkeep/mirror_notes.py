"""Notes on mirrors: for each mirrored table, which Lance HEAD was made from which pin; and commits
that others made there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidelock.errors import CorruptObject, ObjectMissing
from tidelock.model.history.commit import TableState
from tidelock.model.listing import Listing
from tidelock.store.objects import layout
from tidelock.store.objects.entries import entries
from tidelock.store.objects.protocol import Objects
from tidelock.store.objects.records import decode, encode

FIRST_VERSION = 1
"""The HEAD that creating a table leaves: it is empty, and ours."""
UNKNOWN = 0
"""No version of Lance's has this number."""


@dataclass(frozen=True, slots=True)
class Mirror:
    table_id: str
    head: int
    pin: int
    moving: tuple[int, str] | None = None
    """The pin that HEAD is being moved to, and a digest of its files."""
    format: int = 1


def _key(table_id: str) -> str:
    return f"{layout.MIRRORS}/{table_id}.json"


def known_mirror(objects: Objects, table_id: str) -> Mirror:
    try:
        return decode(objects.get(_key(table_id)), Mirror, _key(table_id))
    except ObjectMissing:
        return Mirror(table_id, FIRST_VERSION, FIRST_VERSION)
    except CorruptObject:
        # Whatever HEAD is, nobody knows that it is ours.
        return Mirror(table_id, UNKNOWN, UNKNOWN)


def note_mirror(objects: Objects, mirror: Mirror) -> None:
    objects.put(_key(mirror.table_id), encode(mirror))


def mirrored(objects: Objects, states: Iterable[TableState]) -> list[TableState]:
    """Those of the tables that have been mirrored."""
    keys = entries(objects, layout.MIRRORS)
    ids = {info.key.rsplit("/", 1)[1].removesuffix(".json") for info in keys}
    return [state for state in states if state.id in ids]


@dataclass(frozen=True, slots=True)
class Foreign:
    """A commit that somebody else made on a table's Lance HEAD."""

    table: str
    path: str
    expected: int
    actual: int
    rows: int


def list_foreign(found: Iterable[Foreign]) -> Listing[Foreign]:
    return Listing.of(
        "Foreign commits",
        found,
        {
            "table": lambda f: f.table,
            "expected": lambda f: f.expected,
            "actual": lambda f: f.actual,
            "rows": lambda f: f.rows,
            "path": lambda f: f.path,
        },
    )
