"""Columns that files have and their table does not.

Owns: what each kind of file tells of its columns. Parquet says their types; CSV says nothing but
names, so that such a column is a STRING, unless another file knows better; of JSON lines all rows
are looked at:

    true, false    BOOLEAN            "…"      STRING
    1              BIGINT, or DECIMAL(38,0) beyond    [ … ]    ARRAY of what all elements are
    1.5            DOUBLE, also where others are whole    { … }    STRUCT of all fields that occur

A column of which no value tells the type is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from tidelock.errors import InvalidSchema
from tidelock.ingest.files.csv import delimiter_of
from tidelock.ingest.files.jsonl import read_blocks
from tidelock.ingest.files.row_file import RowFile, unreadable
from tidelock.ingest.files.text import Utf8Stream
from tidelock.model.names import fold
from tidelock.model.schema.schema import Column, TableSchema
from tidelock.model.schema.widening import is_widening
from tidelock.model.types import inner_fields, list_type, normal_type, type_name

_BIGINT = range(-(2**63), 2**63)
_NULL = pa.null()


def new_columns(files: tuple[RowFile, ...], schema: TableSchema, table: str) -> list[Column]:
    """The columns of all files that the table does not have, in the order in which they occur."""
    found: dict[str, tuple[str, pa.DataType, RowFile]] = {}
    for file in files:
        for name, type_ in _columns_of(file):
            if schema.find(name) is not None:
                continue
            known = found.get(fold(name))
            if known is None:
                found[fold(name)] = (name, type_, file)
                continue
            joined = _both(known[1], type_, weak=_weak(known[2]) or _weak(file))
            if joined is None:
                raise InvalidSchema(
                    f"Column {name!r}, which table {table!r} does not have, is "
                    f"{type_name(known[1])} in {known[2].shown} and {type_name(type_)} in "
                    f"{file.shown}. Add the column with its type first. Nothing was loaded.",
                    table=table,
                    column=name,
                )
            found[fold(name)] = (known[0], joined, file if joined == type_ else known[2])
    return [Column(name, _settled(name, type_, table)) for name, type_, _ in found.values()]


def _columns_of(file: RowFile) -> list[tuple[str, pa.DataType]]:
    try:
        with file.open() as stream:
            if file.format == "csv":
                return [(name, pa.string()) for name in _header(file, stream)]
            if file.format == "jsonl":
                return _fields_of_lines(Utf8Stream(stream))
        schema = pq.read_schema(file.place)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise unreadable(file.shown, error) from error
    return [(field.name, normal_type(field.type, field.name)) for field in schema]


def _weak(file: RowFile) -> bool:
    """Whether the file does not tell the types of its columns."""
    return file.format == "csv"


def _header(file: RowFile, stream: Any) -> list[str]:
    if file.reading.columns is not None:
        return list(file.reading.columns)
    reader = pyarrow.csv.open_csv(
        Utf8Stream(stream),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=delimiter_of(file), newlines_in_values=True
        ),
        convert_options=pyarrow.csv.ConvertOptions(default_column_type=pa.string()),
    )
    return list(reader.schema.names)


def _fields_of_lines(stream: Any) -> list[tuple[str, pa.DataType]]:
    types: dict[str, pa.DataType] = {}
    decode = msgspec.json.Decoder().decode
    for block in read_blocks(stream):
        for line in block:
            if not line or line.isspace():
                continue
            try:
                row = decode(line)
            except msgspec.DecodeError:
                # It is refused with its line when it is loaded.
                continue
            if isinstance(row, dict):
                for name, value in row.items():
                    types[name] = _joined(types.get(name, _NULL), _type_of(value), name)
    return list(types.items())


def _type_of(value: Any) -> pa.DataType:
    match value:
        case None:
            return _NULL
        case bool():
            return pa.bool_()
        case int():
            return pa.int64() if value in _BIGINT else pa.decimal128(38, 0)
        case float():
            return pa.float64()
        case str():
            return pa.string()
        case list():
            item = _NULL
            for one in value:
                item = _joined(item, _type_of(one), "an element")
            return list_type(item)
    return pa.struct([(name, _type_of(one)) for name, one in value.items()])


def _joined(one: pa.DataType, other: pa.DataType, name: str) -> pa.DataType:
    """The type of values of both types, or InvalidSchema."""
    found = _both(one, other)
    if found is None:
        raise InvalidSchema(
            f"The values of {name!r} are {type_name(one)} and {type_name(other)}. Add the column "
            "with its type first. Nothing was loaded.",
            column=name,
        )
    return found


def _both(one: pa.DataType, other: pa.DataType, *, weak: bool = False) -> pa.DataType | None:
    """A type that holds the values of both; `weak`: a text may say any value."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if weak and pa.types.is_string(one):
        return other
    if weak and pa.types.is_string(other):
        return one
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if pa.types.is_nested(one) and one.id == other.id:
        return _both_inside(one, other)
    if is_widening(one, other):
        return other
    return one if is_widening(other, one) else None


def _both_inside(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if not pa.types.is_struct(one):
        (mine,), (theirs,) = inner_fields(one), inner_fields(other)
        found = _both(mine.type, theirs.type)
        return None if found is None else list_type(found)
    fields = {field.name: field.type for field in one}
    for field in other:
        found = _both(fields.get(field.name, _NULL), field.type)
        if found is None:
            return None
        fields[field.name] = found
    return pa.struct(list(fields.items()))


def _settled(name: str, type_: pa.DataType, table: str) -> pa.DataType:
    """The type of a column, or InvalidSchema if a part of it is NULL everywhere."""
    if any(pa.types.is_null(inner) for inner in _inside(type_)):
        raise InvalidSchema(
            f"Table {table!r} has no column {name!r}, and no value in the files tells its type. "
            "Add the column with its type first. Nothing was loaded.",
            table=table,
            column=name,
        )
    return normal_type(type_, name)


def _inside(type_: pa.DataType) -> Iterator[pa.DataType]:
    yield type_
    for field in inner_fields(type_):
        yield from _inside(field.type)
