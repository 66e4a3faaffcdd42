"""Columns of texts into typed ones, and back: what the rest of ingest asks of types.

Owns: that whatever goes wrong in a column is said with its name and the value.
Law, for texts that PostgreSQL sends under our settings, where `kept` is what of them was kept:

    text_of(convert(texts, mapped), mapped, kept) = texts
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tidelock.errors import WrongType
from tidelock.ingest.postgres.types.converters import Converted, Malformed
from tidelock.ingest.postgres.types.mapping import Mapped

SETTINGS = {
    "timezone": "UTC",
    "datestyle": "ISO",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "intervalstyle": "postgres",
}
"""What the session is set to, so that a value has one text."""
_SHOWN_MAX = 60


def convert(texts: pa.Array, mapped: Mapped) -> Converted:
    """The values of a column, and which rows' texts must be kept beside; None if no row's must.

    Where a row is kept and its value is NULL, the lake's type cannot hold it; where it has a value,
    that is right, and printed otherwise. WrongType, if PostgreSQL would never send a text. Batches
    are the caller's to cut: of one column they hold less than 2 GiB of text, as Arrow's arrays do.
    """
    if not pa.types.is_string(texts.type):
        texts = texts.cast(pa.string())
    if not _is_utf8(texts):
        raise _not_utf8(texts, mapped)
    try:
        return mapped.converter.convert(texts)
    except Malformed as error:
        shown = error.text if len(error.text) <= _SHOWN_MAX else error.text[: _SHOWN_MAX - 1] + "…"
        raise WrongType(
            f"Column {mapped.name!r} is {mapped.column.type_name} in PostgreSQL, and was sent as "
            f"{shown!r}, which is not {error.expected}. Leave the session's settings to Tidelock, "
            "or hold the column as STRING.",
            column=mapped.name,
            expected=error.expected,
            type=mapped.column.type_name,
            values=[error.text],
        ) from error


def text_of(values: pa.Array, mapped: Mapped, kept: pa.Array | None = None) -> pa.Array:
    """PostgreSQL's text of each value; `kept` has the texts that were kept, and NULL elsewhere."""
    told = mapped.converter.texts(values)
    return told if kept is None or kept.null_count == len(kept) else pc.coalesce(kept, told)


def _is_utf8(texts: pa.Array) -> bool:
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _not_utf8(texts: pa.Array, mapped: Mapped) -> WrongType:
    octets = texts.cast(pa.binary())
    row = next(i for i in range(len(texts)) if not _is_utf8(pa.concat_arrays([texts.slice(i, 1)])))
    return WrongType(
        f"Column {mapped.name!r} was sent as {octets[row].as_py()[:_SHOWN_MAX]!r}, which is not "
        "UTF-8. The database is of encoding SQL_ASCII, which takes anything: mend it there.",
        column=mapped.name,
        expected="UTF-8",
        type=mapped.column.type_name,
        values=[octets[row].as_py()],
    )
