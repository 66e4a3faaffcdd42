"""Nesting: a lake has its folder for itself.

Whatever lies in the folders of a lake may be removed by its garbage collection, and whatever is
below its root is copied, moved and removed with it. So no lake is made inside of another, nor in a
folder that has something where a lake keeps its tables.
"""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import islice
from pathlib import Path

from tidelock.errors import InvalidOption, StoreError
from tidelock.store.objects import layout
from tidelock.store.objects.kinds.location import Location, locate
from tidelock.store.objects.protocol import Objects

LEVELS_LOOKED_AT = 3
FOLDERS_LOOKED_AT = 1000
FOLDERS_LOOKED_AT_S3 = 20


def is_lake(location: Location, objects: Objects) -> bool:
    """Whether there is a lake; InvalidOption when there is none and none can be made here."""
    if objects.info(layout.LAKE) is not None:
        return True
    if location.kind == "memory":
        return False
    outer = _outer_file(location.uri) if location.kind == "file" else _outer_s3(location)
    if outer is not None:
        raise InvalidOption(
            f"{location.uri!r} lies inside the lake {outer!r}, which has its folder for itself. "
            "Choose a place outside of it.",
            uri=location.uri,
            outer=outer,
        )
    inner = _inner_file(location.uri) if location.kind == "file" else _inner_s3(objects)
    if inner is not None:
        raise InvalidOption(
            f"There is a lake inside of {location.uri!r}: {inner!r}. A lake has its folder for "
            "itself. Choose a place beside it.",
            uri=location.uri,
            inner=inner,
        )
    if objects.list(layout.TABLES) and not objects.list(layout.LOG):
        # Somebody else may have made the lake just now.
        if objects.info(layout.LAKE) is not None:
            return True
        raise InvalidOption(
            f"There are files in {location.uri}/{layout.TABLES} already, where a lake keeps its "
            "tables and removes what it does not know. Choose an empty place.",
            uri=location.uri,
        )
    return False


def _outer_file(path: str) -> str | None:
    above = [*Path(path).parents, *Path(os.path.realpath(path)).parents]
    return next((str(one) for one in above if (one / layout.LAKE).is_file()), None)


def _inner_file(path: str) -> str | None:
    """A lake not far below a folder: of folders there may be any number."""
    level = [path]
    for _ in range(LEVELS_LOOKED_AT):
        below: list[str] = []
        for folder in level:
            with suppress(OSError), os.scandir(folder) as found:
                entries = islice(found, FOLDERS_LOOKED_AT)
                below += [one.path for one in entries if one.is_dir(follow_symlinks=False)]
        level = below[:FOLDERS_LOOKED_AT]
        for folder in level:
            if os.path.isfile(f"{folder}/{layout.LAKE}"):
                return folder
    return None


def _inner_s3(objects: Objects) -> str | None:
    for folder in objects.list_folders("")[:FOLDERS_LOOKED_AT_S3]:
        if objects.info(f"{folder}/{layout.LAKE}") is not None:
            return folder
    return None


def _outer_s3(location: Location) -> str | None:
    bucket, _, prefix = location.uri.removeprefix("s3://").partition("/")
    parts = prefix.split("/")[:-1] if prefix else []
    above = [f"s3://{'/'.join([bucket, *parts[:end]])}" for end in range(len(parts) + 1)]
    for uri in above if prefix else []:
        # Who may write here need not be allowed to look there.
        with suppress(StoreError):
            if locate(uri, location.storage_options).objects().info(layout.LAKE) is not None:
                return uri
    return None
