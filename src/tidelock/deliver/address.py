"""The address of a new sink: one that means the same to every process, and is the sink's own.

Invariant: of the sinks of one lake, no two write to the same files or the same table. What another
lake or a dropped sink has left is found by looking there; if nobody answers, the first delivery
says so, and looks again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path

from tidelock.deliver.destinations.files.folder import OWN, divide
from tidelock.deliver.destinations.kinds import kind_of
from tidelock.deliver.destinations.lake_table import uri_of
from tidelock.deliver.destinations.protocol import Sink
from tidelock.errors import InvalidOption, SinkStopped
from tidelock.model.sinks import SinkDefinition
from tidelock.store.objects.kinds.location import Location, locate

logger = logging.getLogger("tidelock")

_LEFT = "What a dropped sink has delivered stays, and a new one does not go on with it."


def find_address(lake: Location, kind: str, to: str) -> str:
    """Where to deliver, in a form that means the same to every process."""
    if not to:
        raise InvalidOption("to='' is no address to deliver to. Name one.", to=to)
    holds = kind_of(kind).address
    if holds == "elsewhere":
        return to
    is_uri = "://" in to
    if is_uri and not to.lower().startswith("file://"):
        if lake.kind == "s3" and f"{to.rstrip('/')}/".startswith(f"{lake.uri}/"):
            raise _inside_the_lake(to)
        if holds == "files":
            divide(to)
        return to
    path = Path(locate(to).uri if is_uri else to).absolute()
    if lake.kind == "file" and path.is_relative_to(Path(lake.uri).absolute()):
        raise _inside_the_lake(to)
    if holds == "files":
        _refuse_without_room(to, path)
    for folder in (path, *path.parents):
        try:
            is_file = folder.is_file()
        except OSError as error:
            raise InvalidOption(
                f"{to!r} is no address for files: {error.strerror}.", to=to
            ) from error
        if is_file:
            raise InvalidOption(
                f"{folder} is a file. Name a folder to deliver to, which need not exist yet.", to=to
            )
    return to if is_uri else str(path)


def _inside_the_lake(to: str) -> InvalidOption:
    return InvalidOption(
        f"{to} is inside the lake, whose folders are its own. Choose another address.", to=to
    )


def _refuse_without_room(to: str, path: Path) -> None:
    """InvalidOption when nothing can be kept beside a folder of files."""
    parent, name = divide(str(path))
    there = next(folder for folder in (Path(parent), *Path(parent).parents) if folder.exists())
    if Path(parent, name).is_mount():
        why = "it is the root of a file system of its own"
    elif not os.access(there, os.W_OK):
        why = f"{there} cannot be written to"
    else:
        return
    raise InvalidOption(
        f"{to} is no address for files: the manifest of what is delivered is kept beside it, in "
        f"{parent}/{OWN}/{name}, and {why}. Name a folder in it, such as {path}/rows.",
        to=to,
    )


def refuse_shared(definition: SinkDefinition, others: Iterable[SinkDefinition]) -> None:
    """InvalidOption when another sink of the lake writes there, above it or below it."""
    for other in others:
        if _meet(definition, other):
            raise InvalidOption(
                f"Sink {other.name!r} delivers to {other.to}, and two sinks would overwrite each "
                "other's files there. Choose an address beside it.",
                to=definition.to,
                other=other.name,
            )


def _meet(mine: SinkDefinition, other: SinkDefinition) -> bool:
    if mine.kind == other.kind and kind_of(mine.kind).is_catalogued:
        same = mine.options.get("catalog") == other.options.get("catalog")
        return same and _table(mine) == _table(other) and (_is_named(mine) or mine.to == other.to)
    if "elsewhere" in (kind_of(mine.kind).address, kind_of(other.kind).address):
        # A receiver of requests, or a kind of a user's own, tells sinks apart by their ids.
        return False
    folder, other_folder = _folder(mine), _folder(other)
    return folder.startswith(other_folder) or other_folder.startswith(folder)


def _is_named(definition: SinkDefinition) -> bool:
    """Whether a catalog tells where the table is, whatever `to` says."""
    return bool(definition.options.get("catalog"))


def _table(definition: SinkDefinition) -> str:
    return str(definition.options.get("identifier", f"tidelock.{definition.name}"))


def _folder(definition: SinkDefinition) -> str:
    uri = uri_of(definition)
    return (os.path.realpath(uri) if uri.startswith("/") else uri).rstrip("/") + "/"


def refuse_occupied(sink: Sink) -> None:
    """InvalidOption when what a sink of another lake, or a dropped one, delivered is there."""
    try:
        sink.refuse_occupied()
    except SinkStopped as stopped:
        raise InvalidOption(f"{stopped.message} {_LEFT}", **stopped.evidence) from stopped
    except Exception as error:  # noqa: BLE001 - a delivery tells it, and is tried again
        logger.debug("a new destination did not answer: %s", error)
