"""Which type of the lake holds a column of PostgreSQL, and how its texts become values of it.

Owns: the table of types; what a column may be held as instead.
Law: every type is mapped. What Spark has no type for, and what nobody knows here, is STRING with
PostgreSQL's text. So no column is refused but one that was to be held as what cannot hold it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from tidelock.errors import InvalidOption, TidelockError, UnsupportedType
from tidelock.ingest.postgres.types.arrays import Arrays
from tidelock.ingest.postgres.types.columns import NO_TYPMOD, PgColumn, PgType, taken_columns
from tidelock.ingest.postgres.types.converters import Converter
from tidelock.ingest.postgres.types.numbers import Decimals, Floats, Integers
from tidelock.ingest.postgres.types.texts import Booleans, Bytes, Strings
from tidelock.ingest.postgres.types.times import Dates, LocalMoments, Moments
from tidelock.model.ddl import parse_type
from tidelock.model.names import suggest
from tidelock.model.types import DECIMAL_PRECISION_MAX, spell_type

NUMERIC = 1700
_VECTORS = frozenset({22, 30})
"""int2vector and oidvector, which the catalog calls arrays, and whose text is `1 2 3`."""
WIDE_PRECISION, WIDE_SCALE = DECIMAL_PRECISION_MAX, 18
"""Of a numeric that says neither, and of one that says what no DECIMAL has."""


@dataclass(frozen=True)
class Mapped:
    """One column: as which type the lake holds it, and what converts it."""

    column: PgColumn
    converter: Converter

    @property
    def name(self) -> str:
        return self.column.name

    @property
    def type(self) -> pa.DataType:
        return self.converter.type

    @property
    def lake_type(self) -> str:
        """The type as Spark spells it."""
        return spell_type(self.type)


@dataclass(frozen=True)
class Entry:
    """One type of PostgreSQL's own; what `document` says of it is beside what is done."""

    name: str
    oid: int
    converter: Callable[[PgType], Converter]
    kept: str = ""
    text: str = ""


def numeric_limits(typmod: int) -> tuple[int, int] | None:
    """The precision and the scale of a numeric, None if it has none; a scale may be negative."""
    if typmod == NO_TYPMOD:
        return None
    declared = typmod - 4
    return (declared >> 16) & 0xFFFF, ((declared & 0x7FF) ^ 0x400) - 0x400


def _decimals(type_: PgType) -> Decimals:
    limits = numeric_limits(type_.typmod)
    wide = pa.decimal128(WIDE_PRECISION, WIDE_SCALE)
    if limits is None:
        return Decimals(wide, None)
    precision, scale = limits
    if 0 <= scale <= precision <= DECIMAL_PRECISION_MAX:
        return Decimals(pa.decimal128(precision, scale), scale)
    return Decimals(wide, max(scale, 0))


def _integers(bits: int) -> Callable[[PgType], Converter]:
    converter = Integers({16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[bits])
    return lambda _: converter


def _always(converter: Converter) -> Callable[[PgType], Converter]:
    return lambda _: converter


_FAR = "`infinity`, `-infinity`, before year 1, after year 9999"
_LONG = "beside its value, one that PostgreSQL prints longer than it must: `9.999999999999999e+22`"
_TEXT = _always(Strings())
ENTRIES: tuple[Entry, ...] = (
    Entry("boolean", 16, _always(Booleans()), text="`t`, `f`"),
    Entry("smallint", 21, _integers(16)),
    Entry("integer", 23, _integers(32)),
    Entry("bigint", 20, _integers(64)),
    Entry("oid", 26, _integers(64)),
    Entry(
        "real",
        700,
        _always(Floats(pa.float32())),
        _LONG,
        "`0.1`, `-0`, `1e+06`, `NaN`, `-Infinity`",
    ),
    Entry(
        "double precision",
        701,
        _always(Floats(pa.float64())),
        _LONG,
        "`0.1`, `-0`, `1e+300`, `NaN`, `-Infinity`",
    ),
    Entry("date", 1082, _always(Dates()), _FAR, "`2024-07-01`"),
    Entry(
        "timestamp without time zone",
        1114,
        _always(LocalMoments()),
        _FAR,
        "`2024-07-01 10:00:00.12`",
    ),
    Entry(
        "timestamp with time zone",
        1184,
        _always(Moments()),
        _FAR,
        "`2024-07-01 10:00:00.12+00`, in UTC",
    ),
    Entry("bytea", 17, _always(Bytes()), text=r"`\xdeadbeef`"),
    Entry("uuid", 2950, _TEXT, text="in lower case"),
    Entry("text", 25, _TEXT),
    Entry("character varying(n)", 1043, _TEXT),
    Entry("character(n)", 1042, _TEXT, text="with the spaces that fill it"),
    Entry("name", 19, _TEXT),
    Entry('"char"', 18, _TEXT),
    Entry("json", 114, _TEXT, text="as written"),
    Entry("jsonb", 3802, _TEXT, text='`{"a": 3, "b": 1}`'),
    Entry("jsonpath", 4072, _TEXT),
    Entry("xml", 142, _TEXT, text="as written"),
    Entry("interval", 1186, _TEXT, text="`1 year 2 mons -3 days +04:05:06.789`"),
    Entry("time without time zone", 1083, _TEXT, text="`24:00:00`"),
    Entry("time with time zone", 1266, _TEXT, text="`10:00:00+02`"),
    Entry("money", 790, _TEXT, text="as the server's lc_monetary has it: `$1.50`"),
    Entry("inet", 869, _TEXT, text="`192.168.0.1/24`"),
    Entry("cidr", 650, _TEXT, text="`192.168.0.0/24`"),
    Entry("macaddr", 829, _TEXT, text="`08:00:2b:01:02:03`"),
    Entry("macaddr8", 774, _TEXT, text="`08:00:2b:01:02:03:04:05`"),
    Entry("bit(n)", 1560, _TEXT, text="`101`"),
    Entry("bit varying(n)", 1562, _TEXT, text="`101`"),
    Entry("tsvector", 3614, _TEXT, text="`'a':1 'b':2`"),
    Entry("tsquery", 3615, _TEXT, text="`'a' & 'b'`"),
    Entry("point", 600, _TEXT, text="`(1,2)`"),
    Entry("lseg", 601, _TEXT, text="`[(0,0),(1,1)]`"),
    Entry("path", 602, _TEXT, text="`((0,0),(1,1))`"),
    Entry("box", 603, _TEXT, text="`(1,1),(0,0)`"),
    Entry("polygon", 604, _TEXT, text="`((0,0),(1,1))`"),
    Entry("line", 628, _TEXT, text="`{1,-1,0}`"),
    Entry("circle", 718, _TEXT, text="`<(0,0),1>`"),
    Entry("pg_lsn", 3220, _TEXT, text="`0/16B3748`"),
    Entry("xid", 28, _TEXT),
    Entry("xid8", 5069, _TEXT),
)
_BY_OID = {entry.oid: entry.converter for entry in ENTRIES} | {NUMERIC: _decimals}


def map_column(column: PgColumn, override: str | None = None) -> Mapped:
    """How the lake holds a column: as its type asks, or as the type in Spark's DDL that is given.

    UnsupportedType, if that type cannot hold the column's values as they are.
    """
    if override is None:
        return Mapped(column, _converter(column.type))
    try:
        asked = parse_type(override, column.name)
    except TidelockError as error:
        raise InvalidOption(
            f"Column {column.name!r} ({column.type_name}) cannot be held as {override!r}: "
            f"{error.message}",
            column=column.name,
            type=override,
            source_type=column.type_name,
        ) from error
    found = _instead(column.type, asked)
    if found is None:
        usual = spell_type(_converter(column.type).type)
        raise UnsupportedType(
            f"Column {column.name!r} is {column.type_name} in PostgreSQL, whose values "
            f"{spell_type(asked)} cannot hold as they are: use {usual} or STRING.",
            column=column.name,
            type=spell_type(asked),
            source_type=column.type_name,
            instead=usual,
        )
    return Mapped(column, found)


def map_columns(
    columns: Iterable[PgColumn], overrides: Mapping[str, str] | None = None
) -> tuple[Mapped, ...]:
    """How the lake holds the columns of a table that are taken; `overrides` by their names."""
    given = dict(overrides or {})
    taken = taken_columns(columns)
    for name in given:
        if name in taken.notes:
            raise InvalidOption(taken.notes[name], column=name, type=given[name])
        if not any(column.name == name for column in taken.columns):
            known = [column.name for column in taken.columns]
            raise InvalidOption(
                f"There is no column {name!r} to be held as {given[name]}. {suggest(name, known)}",
                column=name,
                type=given[name],
            )
    return tuple(map_column(column, given.get(column.name)) for column in taken.columns)


def _converter(type_: PgType) -> Converter:
    if type_.base is not None:
        return _converter(type_.base)
    if type_.element is not None and type_.oid not in _VECTORS:
        return Arrays(_converter(type_.element), type_.element.delimiter)
    return _BY_OID.get(type_.oid, _TEXT)(type_)


def _instead(type_: PgType, asked: pa.DataType) -> Converter | None:
    """What converts to the type that is asked for, if each text of the source is exactly a value of
    it, or can be kept where it is none."""
    if type_.base is not None:
        return _instead(type_.base, asked)
    usual = _converter(type_)
    if asked == usual.type:
        return usual
    if pa.types.is_string(asked):
        return Strings()
    if type_.element is not None and isinstance(usual, Arrays) and pa.types.is_list(asked):
        inner = _instead(type_.element, asked.value_type) if asked.value_field.nullable else None
        return inner and Arrays(inner, type_.element.delimiter)
    for is_source, is_asked, make in _INSTEAD:
        if isinstance(usual, is_source) and is_asked(asked):
            return make(usual, asked)
    return None


def _decimals_instead(usual: Converter, asked: pa.DataType) -> Converter:
    return Decimals(asked, usual.digits if isinstance(usual, Decimals) else 0)


_INSTEAD: tuple[
    tuple[
        type[Converter],
        Callable[[pa.DataType], bool],
        Callable[[Converter, pa.DataType], Converter],
    ],
    ...,
] = (
    (Integers, pa.types.is_integer, lambda _, asked: Integers(asked)),
    (Integers, pa.types.is_decimal, _decimals_instead),
    (Decimals, pa.types.is_decimal, _decimals_instead),
)
