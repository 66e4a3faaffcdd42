"""Partitions: which rows belong together, and the logical path that names them.

A path is `column=value` for each partition column, joined by slashes, as Hive and Spark write it:
values as text, with everything but letters, digits and a few signs percent-encoded, and NULL as
`__HIVE_DEFAULT_PARTITION__`.
Invariant: two partitions have the same path only if their values are equal; the path depends on
nothing else, so that compaction, pruning and moving the lake do not change it.

A path is ASCII, and may be longer than a file system allows. `folder_of` is what folders are
called: letters beyond ASCII as they are, for Spark does not read them when they are encoded, and a
digest in place of the end of each segment that is too long.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc

from tidelock.errors import InvalidOption
from tidelock.model.schema.schema import TableSchema

WHOLE = ""
"""The path of a sink without partitions."""
NULL = "__HIVE_DEFAULT_PARTITION__"
SAFE = " !'()+,-.;@[]^_`{}~$&"
NAME_BYTES_MAX = 255
"""What file systems allow for the name of one folder."""
_BEYOND_ASCII = re.compile("(?:%[89A-F][0-9A-F])+")
_ASCII = "".join(map(chr, range(0x20, 0x7F)))
DIGEST_SIGN = "%~"
"""Comes before a digest. No encoded text has it, for `%` is always followed by two digits."""


def check_partition_by(columns: Sequence[str] | str | None, schema: TableSchema) -> tuple[str, ...]:
    """The partition columns as the schema writes them, or an error that says what is wrong."""
    if columns is None:
        return ()
    named = [columns] if isinstance(columns, str) else list(columns)
    names = tuple(schema.column(name).name for name in named)
    if len(set(names)) < len(names):
        raise InvalidOption(f"partition_by={named!r} names a column twice.", partition_by=named)
    for name in names:
        kind = schema.arrow.field(name).type
        if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_floating(kind):
            raise InvalidOption(
                f"Column {name!r} is of type {kind} and cannot partition a sink. Use one whose "
                "values are numbers, text, dates or times.",
                column=name,
            )
    return names


def path_of(columns: Sequence[str], values: Sequence[str | None]) -> str:
    return "/".join(f"{_text(c)}={_value(v)}" for c, v in zip(columns, values, strict=True))


def column_prefix(column: str) -> str:
    """How the folders of a column's values begin when encoded, those with shortened names too."""
    return f"{_text(column)}="[: NAME_BYTES_MAX // 2]


def values_of(path: str) -> tuple[str | None, ...]:
    """The values that a path was made of."""
    if not path:
        return ()
    texts = [segment.split("=", 1)[1] for segment in path.split("/")]
    return tuple(None if text == NULL else unquote(text) for text in texts)


def folder_of(path: str) -> str:
    """The folder of a partition. Two partitions have the same one only if they are the same."""
    return "/".join(map(_name_of, path.split("/")))


def path_of_folder(folder: str) -> str | None:
    """The path that a folder was named after; None when its name was shortened."""
    return None if DIGEST_SIGN in folder else encoded(folder)


def encoded(folder: str) -> str:
    """A folder as a path has it: letters beyond ASCII are encoded."""
    return quote(folder, safe=_ASCII)


def _name_of(segment: str) -> str:
    readable = _BEYOND_ASCII.sub(lambda encoded: unquote(encoded[0]), segment)
    # Letters in two spellings are the same name to some file systems: one of them stays encoded.
    if not readable.isprintable() or not unicodedata.is_normalized("NFC", readable):
        readable = segment
    return readable if len(readable.encode()) <= NAME_BYTES_MAX else shorten(segment)


def shorten(segment: str) -> str:
    """A name that is ASCII, unchanged if it fits; else its beginning and a digest of all of it."""
    if len(segment) <= NAME_BYTES_MAX:
        return segment
    end = DIGEST_SIGN + hashlib.sha256(segment.encode()).hexdigest()[:32]
    begin = segment[: NAME_BYTES_MAX - len(end)]
    # An escape that was cut apart would mean something else.
    return re.sub("%[0-9A-F]?$", "", begin) + end


def _value(value: str | None) -> str:
    if value is None:
        return NULL
    # A value that looks like the sign for NULL is told apart by an encoded first letter.
    return "%5F" + _text(value)[1:] if value == NULL else _text(value)


def _text(text: str) -> str:
    encoded = quote(text, safe=SAFE)
    # A segment of dots alone would mean another folder.
    return encoded.replace(".", "%2E") if set(text) <= {"."} else encoded


def group_rows(rows: pa.Table, columns: Sequence[str]) -> list[tuple[tuple[Any, ...], pa.Table]]:
    """The rows of each partition, in the order in which they come; partitions by their path."""
    texts = pa.table({f"c{n}": texts_of(rows.column(c)) for n, c in enumerate(columns)})
    numbered = texts.append_column("_row", pa.array(range(rows.num_rows), pa.int64()))
    grouped = numbered.group_by(texts.column_names, use_threads=False).aggregate([("_row", "list")])
    groups = []
    for row in grouped.to_pylist():
        values = tuple(row[name] for name in texts.column_names)
        groups.append((values, rows.take(pa.array(row["_row_list"], pa.int64()))))
    return sorted(groups, key=lambda group: path_of(columns, group[0]))


def texts_of(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values of a partition column as text."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.cast(pa.string())
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pc.strftime(column.cast(pa.timestamp("us", "UTC")), "%Y-%m-%dT%H:%M:%SZ")
    return column.cast(pa.string())
