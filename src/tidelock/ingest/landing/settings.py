"""The options of a source of files, checked once and read by all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tidelock.errors import Advice, InvalidOption
from tidelock.ingest.files.find import format_of_name
from tidelock.ingest.files.load import reading_of
from tidelock.ingest.files.quarantine import quarantine_of
from tidelock.ingest.files.row_file import Reading
from tidelock.ingest.landing.pattern import Pattern, parse_path
from tidelock.model.ddl import parse_schema, to_ddl
from tidelock.model.names import check_table_name, names_of
from tidelock.model.sources import SourceDefinition
from tidelock.model.time.durations import parse_duration
from tidelock.model.time.zones import zone_of
from tidelock.store.secrets import resolve

FILES_PER_COMMIT = 1_000
BYTES_PER_COMMIT = 256 * 1024 * 1024
_CHOICES = {
    "mode": ("append", "upsert"),
    "order": ("name", "time"),
    "names": ("any", "ascending"),
    "on_error": ("fail", "quarantine"),
    "on_change": ("fail", "ignore", "again"),
}


@dataclass(frozen=True)
class Settings:
    """What a source of files does. The defaults are those of the options."""

    source: str
    pattern: Pattern
    table: str
    reading: Reading
    format: str
    schema: str | None
    key: tuple[str, ...]
    mode: str
    evolve: bool
    order: str
    names: str
    settle_seconds: float
    on_error: str
    on_change: str
    files_per_commit: int
    bytes_per_commit: int
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def quarantine(self) -> str:
        """The table of records that were put aside."""
        return quarantine_of(self.source)


def settle(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as they are kept: what depends on where a process runs is made absolute."""
    kept = {name: value for name, value in options.items() if value is not None}
    if "path" not in kept:
        raise InvalidOption("Say which files: path='s3://landing/events/**/*.json', say.")
    kept["path"] = parse_path(kept["path"]).text
    if "schema" in kept:
        kept["schema"] = to_ddl(parse_schema(kept["schema"]))
    for name in ("key", "columns"):
        if name in kept:
            kept[name] = names_of(kept[name], name)
    kept["nulls"] = [kept["nulls"]] if isinstance(kept.get("nulls"), str) else kept.get("nulls")
    return {name: value for name, value in kept.items() if value is not None}


def read_settings(definition: SourceDefinition) -> Settings:
    """The options of a source, checked, with its secrets read."""
    options = resolve(definition.options)
    pattern = parse_path(options["path"])
    key = tuple(options.get("key", ()))
    if "table" not in options:
        raise InvalidOption("Say which table the files feed: table='events', say.", option="table")
    mode = _choice(options, "mode", "upsert" if key else "append")
    if key and mode == "append":
        raise InvalidOption(
            "Files are appended to a table without a key; one with a key is upserted. Leave key= "
            "out, or say mode='upsert'.",
            option="mode",
        )
    on_change = _choice(options, "on_change", "fail")
    if on_change == "again" and mode == "append":
        raise InvalidOption(
            "A file that is taken again would append the rows again that it had before. Use a "
            "table with a key, or on_change='ignore'.",
            option="on_change",
        )
    order, names = _choice(options, "order", "name"), _choice(options, "names", "any")
    if names == "ascending" and order != "name":
        raise InvalidOption(
            "names='ascending' says that new names come after all that were taken, so that files "
            "are taken in their order: order='name'.",
            option="names",
        )
    format = options.get("format") or format_of_name(pattern.text)
    if format is None:
        raise InvalidOption(
            f"The format of the files cannot be told from {pattern.text!r}. Say "
            "format='parquet', 'csv' or 'jsonl'.",
            option="format",
        )
    zone = options.get("zone", "UTC")
    zone_of(zone)
    reading = reading_of(
        format, options.get("delimiter"), options.get("nulls", ("",)), options.get("columns"), zone
    )
    return Settings(
        source=definition.name,
        pattern=pattern,
        table=check_table_name(options["table"]),
        # Mixtures of JSON are inferred to be STRING, so a STRING takes them.
        reading=replace(reading, as_text=True),
        format=format,
        schema=options.get("schema"),
        key=key,
        mode=mode,
        evolve=_flag(options, "evolve"),
        order=order,
        names=names,
        settle_seconds=parse_duration(options.get("settle", "2s"), "settle").total_seconds(),
        on_error=_choice(options, "on_error", "fail"),
        on_change=on_change,
        files_per_commit=_count(options, "files_per_commit", FILES_PER_COMMIT),
        bytes_per_commit=_count(options, "bytes_per_commit", BYTES_PER_COMMIT),
        storage_options=options.get("storage_options", {}),
    )


def _choice(options: Mapping[str, Any], name: str, default: str) -> str:
    value = options.get(name, default)
    if value not in _CHOICES[name]:
        raise InvalidOption(
            f"{name}={value!r} is none of: {', '.join(map(repr, _CHOICES[name]))}.", option=name
        )
    return str(value)


def _flag(options: Mapping[str, Any], name: str) -> bool:
    value = options.get(name, False)
    if not isinstance(value, bool):
        raise InvalidOption(
            f"{name} is True or False, not {value!r}.",
            Advice("", f"Write --option {name}=true."),
            option=name,
        )
    return value


def _count(options: Mapping[str, Any], name: str, default: int) -> int:
    value = options.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidOption(f"{name} is a whole number from 1 on, not {value!r}.", option=name)
    return value
