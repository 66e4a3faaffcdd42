"""PostgreSQL's types as its catalog describes them, and what comes of texts of theirs."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidelock.ingest.postgres.types import (
    PgColumn,
    PgType,
    convert,
    keep_beside,
    kept_beside,
    map_column,
    text_of,
)

BOOL = PgType(16, "boolean")
INT2 = PgType(21, "smallint")
INT4 = PgType(23, "integer")
INT8 = PgType(20, "bigint")
OID = PgType(26, "oid")
FLOAT4 = PgType(700, "real")
FLOAT8 = PgType(701, "double precision")
DATE = PgType(1082, "date")
TIMESTAMP = PgType(1114, "timestamp without time zone")
TIMESTAMPTZ = PgType(1184, "timestamp with time zone")
BYTEA = PgType(17, "bytea")
TEXT = PgType(25, "text")
NUMERIC = PgType(1700, "numeric")
BOX = PgType(603, "box", delimiter=";")


def numeric(precision: int, scale: int) -> PgType:
    typmod = ((precision << 16) | (scale & 0x7FF)) + 4
    return PgType(1700, f"numeric({precision},{scale})", typmod)


def array(element: PgType) -> PgType:
    # The oid of an array type is not looked at.
    return PgType(1, f"{element.name}[]", element.typmod, "array", element=element)


def domain(base: PgType) -> PgType:
    return PgType(90_001, "shop.price", kind="domain", base=base)


def column(type_: PgType, name: str = "c") -> PgColumn:
    return PgColumn(name, 1, type_)


def converted(
    type_: PgType, *texts: str | None, override: str | None = None
) -> tuple[list[Any], list[bool]]:
    """The values of some texts, and which are kept; after all that is kept was given back."""
    mapped = map_column(column(type_), override)
    given = pa.array(texts, pa.string())
    values, kept = convert(given, mapped)
    values.validate(full=True)
    assert values.type == mapped.type
    assert (values.null_count, len(values)) == (
        values.is_null().to_numpy(zero_copy_only=False).sum(),
        len(given),
    )
    beside = keep_beside({"c": (given, kept)}, len(given))
    assert text_of(values, mapped, kept_beside(beside, "c")).equals(given)
    # A slice of an array is like a new one.
    part, of_part = convert(pa.concat_arrays([given, given]).slice(len(given)), mapped)
    assert part.equals(values) or "nan" in str(part.to_pylist())
    assert kept is None or kept.equals(of_part)
    return values.to_pylist(), [False] * len(given) if kept is None else kept.to_pylist()


def values_of(type_: PgType, *texts: str | None, override: str | None = None) -> list[Any]:
    """The values of texts that are all held exactly."""
    values, kept = converted(type_, *texts, override=override)
    assert not any(kept), (texts, kept)
    return values


def is_lost(type_: PgType, text: str, override: str | None = None) -> bool:
    """Whether a text among others has no value, and alone is kept."""
    values, kept = converted(type_, None, text, override=override)
    return values == [None, None] and kept == [False, True]
