"""Kinds of destinations: what a sink's `kind` means, and which options it takes.

A kind of one's own is named by where it is: `kind="package.module:name"`, a callable that takes the
definition and its options, with secrets filled in, and returns a `Sink`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from tidelock.deliver.files import FileSink
from tidelock.deliver.formats import FORMATS
from tidelock.deliver.http_settings import OPTIONS as HTTP_OPTIONS
from tidelock.deliver.secrets import resolve
from tidelock.deliver.sink import Sink
from tidelock.errors import InvalidOption
from tidelock.model.names import suggest
from tidelock.model.sinks import SinkDefinition

Open = Callable[[SinkDefinition, Mapping[str, Any]], Sink]

_FILES = frozenset({"rows_per_file", "storage_options"})
OPTIONS: dict[str, frozenset[str]] = {
    **dict.fromkeys(FORMATS, _FILES),
    "http": HTTP_OPTIONS,
    "iceberg": frozenset({"catalog", "identifier", "rows_per_commit"}),
    "delta": frozenset({"rows_per_commit", "storage_options"}),
}
"""The options that each kind takes."""
REQUIRED = ("rows_per_chunk", "plan", "write", "confirm", "close")
"""What every sink has."""
_EXTRAS = {
    "iceberg": "tidelock.deliver.iceberg:IcebergSink",
    "delta": "tidelock.deliver.delta:DeltaSink",
}
"""The kinds that need a library which is installed only for them."""


def check_kind(kind: str, options: Mapping[str, Any]) -> None:
    """InvalidOption for a kind or an option that there is not."""
    if ":" in kind:
        _imported(kind)
        return
    if kind not in OPTIONS:
        raise InvalidOption(
            f"There is no kind {kind!r} of sink. {suggest(kind, OPTIONS)} A kind of your own is "
            "written module:name.",
            kind=kind,
        )
    unknown = sorted(set(options) - OPTIONS[kind])
    if unknown:
        taken = sorted(OPTIONS[kind])
        raise InvalidOption(
            f"A sink of kind {kind!r} has no option {unknown[0]!r}. {suggest(unknown[0], taken)}",
            option=unknown[0],
        )
    if kind in _EXTRAS:
        _imported(kind)


def open_sink(definition: SinkDefinition) -> Sink:
    """The destination of a sink, ready to be written to."""
    kind = definition.kind
    if kind == "http":
        # Imported here and not above: every command would wait for a library that few need.
        from tidelock.deliver.http import HttpSink

        # It reads its secrets itself, whenever it needs them.
        return HttpSink.open(definition)
    options = resolve(definition.options)
    if kind in FORMATS:
        return FileSink.open(definition, options.get("storage_options") or {})
    opened = _imported(kind)(definition, options)
    missing = [name for name in REQUIRED if not hasattr(opened, name)]
    if missing:
        raise InvalidOption(
            f"What kind={kind!r} gives has no {', '.join(missing)}: a sink has "
            f"{', '.join(REQUIRED)} (see tidelock.deliver.sink.Sink).",
            kind=kind,
        )
    return opened


def _imported(kind: str) -> Open:
    module, _, name = _EXTRAS.get(kind, kind).partition(":")
    try:
        found: Open = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        if kind in _EXTRAS:
            raise InvalidOption(
                f"kind={kind!r} needs a library that is not installed: {error}. Run "
                f"`pip install 'tidelock[{kind}]'`.",
                kind=kind,
            ) from error
        raise InvalidOption(
            f"kind={kind!r} cannot be imported: {error}. It is written module:name, and must be "
            "importable by every process that delivers.",
            kind=kind,
        ) from error
    return found
