"""Rows as lines of CSV, made column by column.

Numbers, booleans, dates and decimals are as they are, decimals without exponents; text is always in
quotes, and what is none of these is text in the form that JSON gives it. NULL is nothing between
two commas, the empty text is `""`.

Law: the same rows give the same bytes, whatever batches they come in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelock.store.rows.json_values import TEXT, decimal_texts, encode_values, join_lines


def encode_header(names: Sequence[str]) -> bytes:
    return join_lines(_lines([_quoted(pa.array([name], TEXT)) for name in names]))


def encode_csv(batch: pa.RecordBatch) -> bytes:
    if not batch.num_columns:
        return b"\n" * int(batch.num_rows)
    return join_lines(_lines([pc.fill_null(_texts(column), "") for column in batch.columns]))


def _lines(columns: list[pa.Array]) -> pa.Array:
    comma, end = pa.scalar(",", TEXT), pa.scalar("\n", TEXT)
    lines = columns[0] if len(columns) == 1 else pc.binary_join_element_wise(*columns, comma)
    return pc.binary_join_element_wise(lines, end, pa.scalar("", TEXT))


def _texts(column: pa.Array) -> pa.Array:
    """The values of a column as they are written; NULL as NULL."""
    kind = column.type
    if pa.types.is_decimal(kind):
        return decimal_texts(column)
    if (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_date(kind)
    ):
        return column.cast(TEXT)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _quoted(column.cast(TEXT))
    texts: list[Any] = encode_values(column).to_pylist()
    known = column.is_valid().to_pylist()
    # Moments and binary without the quotes that they have in JSON; lists and structs as JSON.
    plain = [_unquoted(one) if valid else None for one, valid in zip(texts, known, strict=True)]
    return _quoted(pa.array(plain, TEXT))


def _quoted(texts: pa.Array) -> pa.Array:
    quote, nothing = pa.scalar('"', TEXT), pa.scalar("", TEXT)
    doubled = pc.replace_substring(texts, '"', '""')
    return pc.binary_join_element_wise(quote, doubled, quote, nothing)


def _unquoted(text: str) -> str:
    return text[1:-1] if text.startswith('"') and text.endswith('"') else text
