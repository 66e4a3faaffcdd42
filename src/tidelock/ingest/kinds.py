"""Kinds of sources: what a source's `kind` means, and which options it takes.

To add a kind: a folder in ingest/ with a subclass of `protocol.Source`, and an entry in KINDS.
Nothing else in the code names a kind. A kind of a user's own is named by where it is:
`kind="package.module:Class"`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidelock.errors import InvalidOption
from tidelock.ingest.protocol import Source
from tidelock.model.names import suggest
from tidelock.model.sources import SourceDefinition


@dataclass(frozen=True, slots=True)
class Kind:
    """What is known of a kind before a source of it is opened."""

    source: str
    """Where its class is. It is imported when it is used."""
    options: frozenset[str] = frozenset()
    alterable: frozenset[str] = frozenset()
    """Those that may be given another value later."""
    extra: str | None = None
    """What is installed with `pip install 'tidelock[…]'` for it; None when nothing is."""


_OF_FILES = frozenset(
    {"format", "delimiter", "nulls", "columns", "zone", "storage_options"}
    | {"evolve", "order", "settle", "on_error", "on_change", "files_per_commit", "bytes_per_commit"}
)

KINDS: dict[str, Kind] = {
    "postgres": Kind(
        "tidelock.ingest.postgres.source:PostgresSource",
        frozenset(
            {"dsn", "password", "tables", "slot", "publication", "columns", "work_memory"}
            | {"fragment_bytes"}
        ),
        extra="postgres",
    ),
    "files": Kind(
        "tidelock.ingest.landing.source:FilesSource",
        frozenset({"path", "table", "schema", "key", "mode", "names"}) | _OF_FILES,
        alterable=_OF_FILES,
    ),
}


def check_kind(name: str, options: Mapping[str, Any]) -> type[Source]:
    """The class of a kind; InvalidOption for a kind or an option that there is not."""
    kind = KINDS.get(name)
    if kind is None:
        if ":" not in name:
            raise InvalidOption(
                f"There is no kind {name!r} of source. {suggest(name, KINDS)} A kind of your own "
                "is written module:Class.",
                kind=name,
            )
        return _import(name, name, None)
    _refuse_unknown(name, kind, options)
    return _import(name, kind.source, kind.extra)


def check_alterable(name: str, options: Mapping[str, Any]) -> None:
    """InvalidOption for an option that a source of a kind does not have, or has for good."""
    kind = KINDS.get(name)
    if kind is None:
        return
    _refuse_unknown(name, kind, options)
    fixed = sorted(set(options) - kind.alterable)
    if fixed:
        raise InvalidOption(
            f"{fixed[0]!r} of a source of kind {name!r} stays as it is. Drop the source, and "
            "create another.",
            option=fixed[0],
        )


def _refuse_unknown(name: str, kind: Kind, options: Mapping[str, Any]) -> None:
    unknown = sorted(set(options) - kind.options)
    if unknown:
        raise InvalidOption(
            f"A source of kind {name!r} has no option {unknown[0]!r}. "
            f"{suggest(unknown[0], sorted(kind.options))}",
            option=unknown[0],
        )


def open_source(definition: SourceDefinition) -> Source:
    """A source, ready to be read."""
    kind = KINDS.get(definition.kind)
    where, extra = (definition.kind, None) if kind is None else (kind.source, kind.extra)
    return _import(definition.kind, where, extra).open(definition)


def _import(name: str, where: str, extra: str | None) -> type[Source]:
    module, _, attribute = where.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        if extra is not None:
            raise InvalidOption(
                f"kind={name!r} needs a library that is not installed: {error}. Run "
                f"`pip install 'tidelock[{extra}]'`.",
                kind=name,
            ) from error
        raise InvalidOption(
            f"kind={name!r} cannot be imported: {error}. It is written module:Class, and must be "
            "importable by every process that reads the source.",
            kind=name,
        ) from error
    if not (isinstance(found, type) and issubclass(found, Source)):
        raise InvalidOption(
            f"kind={name!r} is not a subclass of tidelock.ingest.protocol.Source.", kind=name
        )
    missing = sorted(getattr(found, "__abstractmethods__", ()))
    if missing:
        raise InvalidOption(f"kind={name!r} has no {', '.join(missing)}.", kind=name)
    return found
