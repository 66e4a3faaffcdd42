"""Kinds of destinations: what a sink's `kind` means, and which options it takes.

To add a kind:

1. Write a module, or a folder, in destinations/ with a subclass of `protocol.Sink`: how to plan,
   write, confirm and close, and of the rest whatever it can tell. Its class method
   `open(definition)` gives one that is ready, with its options checked and secrets read
   (`secrets.resolve`).
2. Enter it in KINDS below: its class, its options, the extra that installs its library, and what
   there is to know of it before its library is imported.

Nothing else in the code names a kind; docs/sinks.md and the help of `tidelock sink add` tell users
of it. `testing/sink_contract.py` tests that it keeps the law.

A kind of a user's own is named by where it is: `kind="package.module:name"`, a callable that takes
the definition and its options, with secrets filled in, and returns a `Sink`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tidelock.deliver.destinations.protocol import Sink
from tidelock.errors import InvalidOption
from tidelock.model.names import suggest
from tidelock.model.sinks import SinkDefinition
from tidelock.store.secrets import resolve


@dataclass(frozen=True, slots=True)
class Kind:
    """What is known of a kind before a sink of it is opened."""

    sink: str
    """Where its class is. It is imported when it is used: few processes need every library."""
    options: frozenset[str] = frozenset()
    extra: str | None = None
    """What is installed with `pip install 'tidelock[…]'` for it; None when nothing is."""
    address: Literal["files", "table", "elsewhere"] = "elsewhere"
    """What its `to` is: a folder of files, a folder or URI of one table, or what the kind says."""
    is_catalogued: bool = False
    """Whether a catalog may tell where its table is: options `catalog` and `identifier`."""
    mostly_waits: bool = False
    """Whether to deliver is mostly to wait for answers."""


_DESTINATIONS = "tidelock.deliver.destinations"
_FILES = Kind(
    f"{_DESTINATIONS}.files.destination:FileSink",
    frozenset({"rows_per_file", "storage_options"}),
    address="files",
)
KINDS: dict[str, Kind] = {
    "parquet": _FILES,
    "jsonl": _FILES,
    "csv": _FILES,
    "http": Kind(
        f"{_DESTINATIONS}.http.destination:HttpSink",
        frozenset(
            {"token", "basic_auth", "headers", "ca_file"}
            | {"allow_plain_http", "timeout", "rows_per_chunk"}
        ),
        mostly_waits=True,
    ),
    "iceberg": Kind(
        f"{_DESTINATIONS}.iceberg:IcebergSink",
        frozenset({"catalog", "identifier", "rows_per_commit"}),
        extra="iceberg",
        address="table",
        is_catalogued=True,
    ),
    "delta": Kind(
        f"{_DESTINATIONS}.delta_lake:DeltaSink",
        frozenset({"rows_per_commit", "storage_options"}),
        extra="delta",
        address="table",
    ),
}
_OWN = Kind("")
"""What is known of a kind of a user's own."""


def kind_of(name: str) -> Kind:
    return KINDS.get(name, _OWN)


def check_kind(name: str, options: Mapping[str, Any]) -> None:
    """InvalidOption for a kind or an option that there is not."""
    if ":" in name:
        _import(name, name)
        return
    if name not in KINDS:
        raise InvalidOption(
            f"There is no kind {name!r} of sink. {suggest(name, KINDS)} A kind of your own is "
            "written module:name.",
            kind=name,
        )
    kind = KINDS[name]
    unknown = sorted(set(options) - kind.options)
    if unknown:
        raise InvalidOption(
            f"A sink of kind {name!r} has no option {unknown[0]!r}. "
            f"{suggest(unknown[0], sorted(kind.options))}",
            option=unknown[0],
        )
    _import(name, kind.sink)


def open_sink(definition: SinkDefinition) -> Sink:
    """The destination of a sink, ready to be written to."""
    name = definition.kind
    if name in KINDS:
        opened: Sink = _import(name, KINDS[name].sink).open(definition)
        return opened
    make = _import(name, name)
    missing = sorted(getattr(make, "__abstractmethods__", ()))
    made = None if missing else make(definition, resolve(definition.options))
    if isinstance(made, Sink) and not hasattr(made, "rows_per_chunk"):
        missing = ["rows_per_chunk"]
    if missing or not isinstance(made, Sink):
        why = f"has no {', '.join(missing)}" if missing else f"is a {type(made).__name__}"
        raise InvalidOption(
            f"What kind={name!r} gives {why}: a sink is of a subclass of "
            "tidelock.deliver.destinations.protocol.Sink, and has what that asks for.",
            kind=name,
        )
    return made


def _import(name: str, where: str) -> Any:
    module, _, attribute = where.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        if kind_of(name).extra is not None:
            raise InvalidOption(
                f"kind={name!r} needs a library that is not installed: {error}. Run "
                f"`pip install 'tidelock[{kind_of(name).extra}]'`.",
                kind=name,
            ) from error
        raise InvalidOption(
            f"kind={name!r} cannot be imported: {error}. It is written module:name, and must be "
            "importable by every process that delivers.",
            kind=name,
        ) from error
