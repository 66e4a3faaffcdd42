"""Where a new sink delivers to: a place that means the same to every process, and is its own.

Invariant: of the sinks of one lake, no two write to the same files or the same table. What another
lake or a dropped sink has left is found by looking there; if nobody answers, the first delivery
says so, and looks again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path

from tidelock.deliver.files import FileSink
from tidelock.deliver.formats import FORMATS
from tidelock.deliver.sink import Sink
from tidelock.deliver.tables import TableSink, uri_of
from tidelock.errors import InvalidOption, SinkStopped
from tidelock.model.sinks import SinkDefinition
from tidelock.store.location import Location, locate

logger = logging.getLogger("tidelock")

_LEFT = "What a dropped sink has delivered stays, and a new one does not go on with it."


def find_place(lake: Location, kind: str, to: str) -> str:
    """Where to deliver, in a form that means the same to every process."""
    if not to:
        raise InvalidOption("to='' is no place to deliver to. Name one.", to=to)
    if kind == "http" or ":" in kind:
        return to
    is_uri = "://" in to
    if is_uri and not to.lower().startswith("file://"):
        return to
    path = Path(locate(to).uri if is_uri else to).absolute()
    if lake.kind == "file" and path.is_relative_to(Path(lake.uri).absolute()):
        raise InvalidOption(
            f"{to} is inside the lake, whose folders are its own. Choose another place.", to=to
        )
    for one in (path, *path.parents):
        try:
            occupied = one.is_file()
        except OSError as error:
            raise InvalidOption(
                f"{to!r} is no place for files: {error.strerror}.", to=to
            ) from error
        if occupied:
            raise InvalidOption(
                f"{one} is a file. Name a folder to deliver to, which need not exist yet.", to=to
            )
    return to if is_uri else str(path)


def refuse_shared(definition: SinkDefinition, others: Iterable[SinkDefinition]) -> None:
    """InvalidOption when another sink of the lake writes there, above it or below it."""
    for other in others:
        if _meet(definition, other):
            raise InvalidOption(
                f"Sink {other.name!r} delivers to {other.to}, and two sinks would overwrite each "
                "other's files there. Choose a place beside it.",
                to=definition.to,
                other=other.name,
            )


def _meet(one: SinkDefinition, other: SinkDefinition) -> bool:
    if one.kind == other.kind == "iceberg":
        same = one.options.get("catalog") == other.options.get("catalog")
        return same and _table(one) == _table(other) and (_is_named(one) or one.to == other.to)
    if not {one.kind, other.kind} <= {*FORMATS, "iceberg", "delta"}:
        # Whoever receives requests, or wrote a kind, tells sinks apart by their ids.
        return False
    mine, theirs = _folder(one), _folder(other)
    return mine.startswith(theirs) or theirs.startswith(mine)


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
        if isinstance(sink, FileSink):
            sink.manifest()
            return
        found = sink.load() if isinstance(sink, TableSink) else None
    except SinkStopped as stopped:
        raise InvalidOption(f"{stopped.message} {_LEFT}", **stopped.evidence) from stopped
    except Exception as error:  # noqa: BLE001 - a delivery tells it, and is tried again
        logger.debug("a new destination did not answer: %s", error)
        return
    if isinstance(sink, TableSink) and found is not None and found.owner is not None:
        raise InvalidOption(
            f"{sink.place} belongs to another sink, {found.owner}. Choose another place, or drop "
            f"that table first. {_LEFT}",
            owner=found.owner,
        )
