"""The types a column may have: Spark's names for them, and one Arrow layout for each.

Owns: which types exist, how a foreign Arrow type is normalized to one of them, and their names.
Invariant: `normal_type` is idempotent, and its results are exactly what Lance stores and returns
unchanged, nulls and empty values of nested types included.

    TINYINT SMALLINT INT BIGINT    int8 int16 int32 int64
    FLOAT DOUBLE                   float32 float64
    DECIMAL(p, s)                  decimal128(p, s), 0 <= s <= p <= 38
    STRING BINARY BOOLEAN DATE     string binary bool date32
    TIMESTAMP TIMESTAMP_NTZ        timestamp[us, UTC], timestamp[us]
    ARRAY MAP STRUCT               list<item>, map<key, value>, struct
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from tidelock.errors import InvalidName, InvalidSchema, UnsupportedType
from tidelock.model.names import check_name, fold, quote

DECIMAL_PRECISION_MAX = 38
# Arrow's C interface stops at 64 levels, and a map takes two.
NESTING_MAX = 30

TIMESTAMP = pa.timestamp("us", tz="UTC")
TIMESTAMP_NTZ = pa.timestamp("us")

_NAMES: dict[pa.DataType, str] = {
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.bool_(): "BOOLEAN",
    pa.date32(): "DATE",
    TIMESTAMP: "TIMESTAMP",
    TIMESTAMP_NTZ: "TIMESTAMP_NTZ",
}

# What another layout of the same values, or a smaller unsigned type, is stored as.
_STORED_AS: dict[pa.DataType, pa.DataType] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
}

_REFUSED: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_null, "give the column a type, such as STRING"),
    (pa.types.is_duration, "use BIGINT with a unit of your choice"),
    (pa.types.is_interval, "use BIGINT with a unit of your choice"),
    (pa.types.is_time, "use STRING, or BIGINT microseconds since midnight"),
    (pa.types.is_decimal256, f"use DECIMAL({DECIMAL_PRECISION_MAX}, s)"),
    (pa.types.is_union, "use a STRUCT with one field per case"),
)


def normal_type(type_: pa.DataType, column: str) -> pa.DataType:
    """The type that `type_` is stored as, or UnsupportedType that names `column`."""
    return _normal(type_, column, 0)


def _normal(type_: pa.DataType, path: str, depth: int) -> pa.DataType:
    if type_ in _NAMES:
        return type_
    if type_ in _STORED_AS:
        return _STORED_AS[type_]
    if pa.types.is_nested(type_) and depth >= NESTING_MAX:
        raise nested_too_deep(path)
    kinds = pa.types
    if isinstance(type_, pa.BaseExtensionType):
        raise refusal(path, str(type_), f"use its storage type {type_name(type_.storage_type)}")
    if kinds.is_timestamp(type_):
        return TIMESTAMP_NTZ if type_.tz is None else TIMESTAMP
    if kinds.is_decimal(type_) and not kinds.is_decimal256(type_):
        return decimal_type(type_.precision, type_.scale, path)
    if kinds.is_dictionary(type_) or kinds.is_run_end_encoded(type_):
        return _normal(type_.value_type, path, depth)
    if kinds.is_fixed_size_binary(type_):
        return pa.binary()
    if is_list_like(type_):
        return list_type(
            _normal(type_.value_type, f"{path}.item", depth + 1), _item_nullable(type_)
        )
    if kinds.is_map(type_):
        return map_type(
            _normal(type_.key_type, f"{path}.key", depth + 1),
            _normal(type_.item_type, f"{path}.value", depth + 1),
            type_.item_field.nullable,
            path,
        )
    if kinds.is_struct(type_):
        fields = [
            pa.field(f.name, _normal(f.type, f"{path}.{f.name}", depth + 1), f.nullable)
            for f in type_
        ]
        return struct_type(fields, path)
    for matches, instead in _REFUSED:
        if matches(type_):
            raise refusal(path, str(type_), instead)
    raise refusal(path, str(type_), "use one of Spark SQL's types")


def refusal(column: str, type_: str, instead: str) -> UnsupportedType:
    return UnsupportedType(
        f"Column {column!r} cannot have the type {type_}: {instead}.",
        column=column,
        type=type_,
        instead=instead,
    )


def nested_too_deep(path: str) -> InvalidSchema:
    column = path.split(".")[0]
    return InvalidSchema(
        f"Column {column!r} is nested deeper than {NESTING_MAX} levels. Make it flatter.",
        column=column,
    )


def decimal_type(precision: int, scale: int, column: str) -> pa.DataType:
    if not 1 <= precision <= DECIMAL_PRECISION_MAX or not 0 <= scale <= precision:
        raise refusal(
            column,
            f"DECIMAL({precision}, {scale})",
            f"use DECIMAL(p, s) with 0 <= s <= p <= {DECIMAL_PRECISION_MAX}",
        )
    return pa.decimal128(precision, scale)


def list_type(item: pa.DataType, nullable: bool = True) -> pa.DataType:
    return pa.list_(pa.field("item", item, nullable))


def map_type(
    key: pa.DataType, value: pa.DataType, value_nullable: bool, column: str
) -> pa.DataType:
    if any(pa.types.is_map(inner) for inner in walk(key)):
        raise refusal(column, "MAP with a MAP in its key", "use an ARRAY of STRUCT")
    return pa.map_(key, pa.field("value", value, value_nullable))


def struct_type(fields: list[pa.Field], column: str) -> pa.DataType:
    """A struct whose field names are usable, and unique without regard to case."""
    if not fields:
        raise refusal(column, "STRUCT<>", "give the struct a field, or use BOOLEAN")
    seen: dict[str, str] = {}
    for field in fields:
        try:
            name = check_name(field.name, "field")
        except InvalidName as error:
            raise InvalidSchema(
                f"Column {column!r}: {error.message}", column=column, field=field.name
            ) from error
        if fold(name) in seen:
            raise InvalidSchema(
                f"Column {column!r} has two fields named {name!r}; names are compared without "
                "regard to case. Rename one.",
                column=column,
                field=name,
            )
        seen[fold(name)] = name
    return pa.struct([field.with_name(check_name(field.name, "field")) for field in fields])


def is_list_like(type_: pa.DataType) -> bool:
    """Whether values of the type are lists, in any of Arrow's layouts. A map is not one."""
    return bool(
        pa.types.is_list(type_)
        or pa.types.is_large_list(type_)
        or pa.types.is_fixed_size_list(type_)
        or pa.types.is_list_view(type_)
        or pa.types.is_large_list_view(type_)
    )


def _item_nullable(type_: Any) -> bool:
    return bool(type_.value_field.nullable)


def walk(type_: pa.DataType) -> Iterator[pa.DataType]:
    """The type and every type inside it."""
    yield type_
    for field in inner_fields(type_):
        yield from walk(field.type)


def inner_fields(type_: pa.DataType) -> list[pa.Field]:
    """The fields directly inside a nested type; empty for others."""
    if pa.types.is_struct(type_):
        return list(type_)
    if pa.types.is_map(type_):
        return [type_.key_field, type_.item_field]
    if is_list_like(type_):
        return [type_.value_field]
    return []


def type_name(type_: pa.DataType) -> str:
    """Spark's name of the type; Arrow's where Spark has none."""
    return spell_type(type_)


def spell_type(type_: pa.DataType, *, for_spark: bool = False) -> str:
    """The type in DDL. `for_spark` quotes every field name, and says NOT NULL of nothing inside.

    Spark's grammar cannot say that an element of an ARRAY or a value of a MAP is NOT NULL; here it
    is `ARRAY<INT NOT NULL>`, which `parse_schema` reads. Of the fields of a STRUCT it can, but then
    PySpark's `toArrow` fails on a NULL struct.
    """

    def inner(field: pa.Field) -> str:
        return spell(field.type) + ("" if field.nullable or for_spark else " NOT NULL")

    def spell(type_: pa.DataType) -> str:
        kinds = pa.types
        if type_ in _NAMES:
            return _NAMES[type_]
        if type_ in _STORED_AS and not kinds.is_unsigned_integer(type_):
            return _NAMES[_STORED_AS[type_]]
        if kinds.is_decimal(type_):
            return f"DECIMAL({type_.precision},{type_.scale})"
        if kinds.is_timestamp(type_):
            return "TIMESTAMP_NTZ" if type_.tz is None else "TIMESTAMP"
        if kinds.is_dictionary(type_) or kinds.is_run_end_encoded(type_):
            return spell(type_.value_type)
        if kinds.is_fixed_size_binary(type_):
            return "BINARY"
        if is_list_like(type_):
            return f"ARRAY<{inner(type_.value_field)}>"
        if kinds.is_map(type_):
            return f"MAP<{spell(type_.key_type)}, {inner(type_.item_field)}>"
        if kinds.is_struct(type_):
            return "STRUCT<" + ", ".join(spell_field(f) for f in type_) + ">"
        return str(type_).upper()

    def spell_field(field: pa.Field) -> str:
        return f"{quote(field.name) if for_spark else spell_name(field.name)}: {inner(field)}"

    return spell(type_)


def spell_name(name: str) -> str:
    """The name as it is written in DDL: in backticks only where it must be."""
    return name if name.isascii() and name.isidentifier() else quote(name)
