"""Entries: which of the things in a folder of a lake are Tidelock's.

File managers, editors and people leave things where they should not: `.DS_Store`, `main.json~`,
`main (copy).json`, folders. None has a name that Tidelock gives, so that they are passed over, and
never read, counted or removed. `verify` names them.
"""

from __future__ import annotations

import re

from tidelock.store.objects.protocol import ObjectInfo, Objects

_OURS = re.compile(r"[A-Za-z0-9_=~-][A-Za-z0-9_=~.-]*\.json")
_NUMBERED = re.compile(r"([0-9]+)\.json")


def entries(objects: Objects, folder: str, depth: int = 1) -> list[ObjectInfo]:
    """The objects so far down in a folder whose names may be Tidelock's, by key."""
    return [info for info in objects.list(folder) if is_entry(info.key, folder, depth)]


def is_entry(key: str, folder: str, depth: int = 1) -> bool:
    parts = key.removeprefix(f"{folder}/").split("/")
    within = key.startswith(f"{folder}/") and len(parts) == depth
    return within and _OURS.fullmatch(parts[-1]) is not None


def numbered(objects: Objects, folder: str) -> list[ObjectInfo]:
    """The objects directly in a folder whose names are numbers, lowest first."""
    return [info for info in entries(objects, folder) if number_of(info.key) is not None]


def number_of(key: str) -> int | None:
    """The number that the name of an object is."""
    found = _NUMBERED.fullmatch(key.rsplit("/", 1)[-1])
    return None if found is None else int(found[1])
