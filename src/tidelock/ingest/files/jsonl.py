"""The rows of a file of JSON lines: one object per line, blank lines between them allowed.

Owns: which JSON values a column takes. Numbers, strings, true and false, arrays and objects are
what they are; where JSON has no value of a type it is a string, read as text.py says: DECIMAL (a
number will do), DATE, TIMESTAMP, BINARY, and NaN and the infinities. A MAP is an object, or an
array of [key, value] pairs. A field that is missing is the column's default.

Law: what store/rows/json_values.py writes is read back as the same value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from tidelock.errors import InputError, WrongType
from tidelock.ingest.files.text import (
    NOT_UTF8,
    TextMisfit,
    array_from_text,
    misfit_error,
    parser,
)
from tidelock.model.names import fold, suggest
from tidelock.model.time.zones import UTC
from tidelock.model.types import is_list_like, type_name, walk
from tidelock.store.rows.arrow_values import Misfit, UnknownField
from tidelock.store.rows.defaults import NO_DEFAULTS, Defaults
from tidelock.store.rows.python_values import ValuesMisfit, array_of
from tidelock.store.rows.refusals import unknown_columns

if TYPE_CHECKING:
    from tidelock.model.schema.schema import Column, TableSchema

BLOCK_BYTES = 4 << 20

_ENCODER = msgspec.json.Encoder(decimal_format="number")

Read = Callable[[Any], Any]

_WORDS = {
    "str": "a string",
    "bool": "true or false",
    "int": "a number",
    "float": "a number",
    "Decimal": "a number",
    "dict": "an object",
    "list": "an array",
}


class JsonlRows:
    def __init__(
        self,
        stream: Any,
        schema: TableSchema,
        table: str,
        zone: str,
        defaults: Defaults = NO_DEFAULTS,
        *,
        as_text: bool = False,
    ) -> None:
        self._stream = stream
        self._as_text = as_text
        self._defaults = defaults
        self._zone = zone
        self._schema = schema
        self._table = table
        self._decode = _decoder(column.type for column in schema.columns)
        self._lines: list[int] = []
        self._first_row = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        line = 1
        for block in read_blocks(self._stream):
            rows: list[dict[str, Any]] = []
            self._first_row += len(self._lines)
            self._lines = []
            for number, text in enumerate(block, start=line):
                if text and not text.isspace():
                    rows.append(self._row(text, number))
                    self._lines.append(number)
            line += len(block)
            if rows:
                yield self._batch(rows)
        if not self._lines and not self._first_row:
            raise WrongType("It is empty: it has no row.", table=self._table, empty=True)

    def line_of(self, row: int) -> int | None:
        position = row - self._first_row
        return self._lines[position] if 0 <= position < len(self._lines) else None

    def _row(self, text: bytes, line: int) -> dict[str, Any]:
        try:
            value = self._decode(text)
        except UnicodeDecodeError as error:
            raise WrongType(NOT_UTF8, table=self._table, line=line) from error
        except msgspec.DecodeError as error:
            raise WrongType(
                f"It is not JSON: {error}.", table=self._table, line=line, text=_shown(text)
            ) from error
        if isinstance(value, dict):
            return value
        hint = ""
        if isinstance(value, list):
            hint = " An array of objects becomes lines with: jq -c '.[]'."
        raise WrongType(
            f"It is not a JSON object: {_shown(text)!r}.{hint}", table=self._table, line=line
        )

    def _batch(self, rows: list[dict[str, Any]]) -> pa.RecordBatch:
        names = dict.fromkeys(name for row in rows for name in row)
        columns = {name: self._known(name, self._schema.find(name), rows) for name in names}
        # A required column that no row has is NULL in every row, and refused with the first line.
        given = {column.name for column in columns.values()}
        for column in self._schema.columns:
            absent = column.name not in given and column.name not in self._defaults
            if absent and (not column.nullable or not columns):
                columns[column.name] = column
        arrays = [self._values(rows, name, column) for name, column in columns.items()]
        if not columns:
            # Every column has a default, and no row names one.
            first = self._schema.columns[0]
            columns = {first.name: first}
            arrays = [self._defaults.column(first.name, first.type, len(rows))]
        return pa.RecordBatch.from_arrays(arrays, names=list(columns))

    def _values(self, rows: list[dict[str, Any]], name: str, column: Column) -> pa.Array:
        named = [name in row for row in rows]
        if column.name not in self._defaults or all(named):
            return self._column([row.get(name) for row in rows], column)
        # A field that is NULL stays so, and one that is missing has the column's default.
        given = self._column([row[name] for row in rows if name in row], column, named)
        return self._defaults.scattered(column.name, given, named)

    def _known(self, name: str, column: Column | None, rows: list[dict[str, Any]]) -> Column:
        if column is not None:
            return column
        row = next(number for number, each in enumerate(rows) if name in each)
        names = dict.fromkeys(each for one in rows for each in one)
        unknown = [each for each in names if self._schema.find(each) is None]
        raise unknown_columns(unknown, self._schema.names, self._table, line=self._lines[row])

    def _column(
        self, values: list[Any], column: Column, named: Sequence[bool] | None = None
    ) -> pa.Array:
        """`named` says which rows the values are of, if not of all."""
        try:
            return array_from_json(
                values, column.type, column.name, self._zone, as_text=self._as_text
            )
        except TextMisfit as misfit:
            misfit.position = _row_of(misfit.position, named)
            raise misfit_error(misfit, column, self._table, self._first_row) from misfit
        except ValuesMisfit as misfit:
            row, value, reason = misfit.offenders[0]
            raise self._misfit(_row_of(row, named), value, _in_json(reason), column) from misfit

    def _misfit(self, row: int, value: Any, reason: str, column: Column) -> InputError:
        expected = type_name(column.type)
        shown = _shown(msgspec.json.encode(value))
        return WrongType(
            f"Column {column.name!r} of table {self._table!r} is {expected}, and {shown} does not "
            f"fit: {reason}.",
            table=self._table,
            column=column.name,
            expected=expected,
            values=[shown],
            rows=[self._first_row + row],
        )


def _row_of(position: int, named: Sequence[bool] | None) -> int:
    """Which row a value is of, that is at a position among those that are given."""
    if named is None:
        return position
    return [row for row, one in enumerate(named) if one][position]


def read_blocks(stream: Any) -> Iterator[list[bytes]]:
    """The lines of a stream, some at a time."""
    rest = b""
    while piece := stream.read(BLOCK_BYTES):
        lines = (rest + piece).split(b"\n")
        rest = lines.pop()
        if lines:
            yield lines
    if rest:
        yield [rest]


def _decoder(types: Any) -> Callable[[bytes], Any]:
    """Numbers with a point stay as they are written where a DECIMAL wants them exactly."""
    exact = any(pa.types.is_decimal(inner) for type_ in types for inner in walk(type_))
    return msgspec.json.Decoder(float_hook=Decimal if exact else None).decode


def _in_json(reason: str) -> str:
    """The reason in the words of JSON."""
    for name, word in _WORDS.items():
        reason = reason.replace(f"it is a Python {name}", f"it is {word}")
    return reason


def _shown(text: bytes) -> str:
    told = text.decode("utf-8", "replace").strip()
    return told if len(told) <= 80 else told[:79] + "…"


def array_from_json(
    values: Sequence[Any],
    type_: pa.DataType,
    path: str,
    zone: str = UTC,
    *,
    as_text: bool = False,
) -> pa.Array:
    """JSON values, or None, as an array of the type; `as_text` lets a STRING take a value that is
    no string, as its JSON."""
    if not pa.types.is_nested(type_) and not pa.types.is_string(type_):
        if takes_text(type_) and all(value is None or type(value) is str for value in values):
            return array_from_text(pa.array(values, pa.string()), type_, zone)
        if not takes_text(type_):
            return array_of(values, type_, path)
    read = _reader(type_, zone, as_text)
    fitted: list[Any] = []
    for position, value in enumerate(values):
        try:
            fitted.append(read(value))
        except (Misfit, ValueError) as error:
            raise ValuesMisfit([(position, value, str(error))]) from error
    try:
        return array_of(fitted, type_, path)
    except UnknownField as error:
        raise _unknown_field(error, fitted, type_, path) from error
    except ValuesMisfit as misfit:
        position, _, reason = misfit.offenders[0]
        raise ValuesMisfit([(position, values[position], reason)]) from misfit


def _unknown_field(
    error: UnknownField, values: list[Any], type_: pa.DataType, path: str
) -> ValuesMisfit:
    for position, value in enumerate(values):
        try:
            array_of([value], type_, path)
        except UnknownField:
            reason = f"it has no field {error.name!r}. {suggest(error.name, error.known)}"
            return ValuesMisfit([(position, value, reason.rstrip("."))])
    raise AssertionError("unreachable")


def array_from_json_text(
    texts: pa.Array, type_: pa.DataType, path: str, zone: str = UTC
) -> pa.Array:
    """JSON in text, or NULL, as an array of a nested type."""
    decode = _decoder([type_])
    values: list[Any] = []
    for position, text in enumerate(texts.to_pylist()):
        try:
            values.append(None if text is None else decode(text.encode()))
        except msgspec.DecodeError as error:
            raise TextMisfit(position, text, f"it is not JSON: {error}") from error
    try:
        return array_from_json(values, type_, path, zone)
    except ValuesMisfit as misfit:
        position, _, reason = misfit.offenders[0]
        raise TextMisfit(position, texts[position].as_py(), reason) from misfit


def takes_text(type_: pa.DataType) -> bool:
    """Whether a value of the type is, or may be, a string in JSON."""
    kinds = pa.types
    return bool(
        kinds.is_decimal(type_)
        or kinds.is_floating(type_)
        or kinds.is_date(type_)
        or kinds.is_timestamp(type_)
        or kinds.is_binary(type_)
    )


def _reader(type_: pa.DataType, zone: str, as_text: bool) -> Read:
    """A function that makes a JSON value a Python value for the type; the store checks its fit."""
    kinds = pa.types
    if kinds.is_struct(type_):
        return _struct_reader(type_, zone, as_text)
    if kinds.is_map(type_):
        return _map_reader(type_, zone, as_text)
    if is_list_like(type_):
        return _list_reader(type_, zone, as_text)
    if as_text and kinds.is_string(type_):
        return _text_of
    if takes_text(type_):
        parse = parser(type_, zone)
        return lambda value: parse(value) if isinstance(value, str) else value
    return _same


def _same(value: Any) -> Any:
    return value


def _text_of(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else _json_of(value)


def _json_of(value: Any) -> str:
    return _ENCODER.encode(value).decode()


def _struct_reader(type_: pa.DataType, zone: str, as_text: bool) -> Read:
    fields = {fold(field.name): _reader(field.type, zone, as_text) for field in type_}

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: fields.get(fold(name), _same)(each) for name, each in value.items()}

    return read


def _list_reader(type_: pa.DataType, zone: str, as_text: bool) -> Read:
    item = _reader(type_.value_type, zone, as_text)
    return lambda value: [item(each) for each in value] if isinstance(value, list) else value


def _map_reader(type_: pa.DataType, zone: str, as_text: bool) -> Read:
    key, item = _reader(type_.key_type, zone, False), _reader(type_.item_type, zone, as_text)
    text = pa.types.is_string(type_.key_type)
    parse = None if text or pa.types.is_nested(type_.key_type) else parser(type_.key_type, zone)

    def read(value: Any) -> Any:
        if isinstance(value, dict):
            # The keys of an object are always strings.
            return [(parse(k) if parse else k, item(each)) for k, each in value.items()]
        if isinstance(value, list):
            return [
                (key(pair[0]), item(pair[1])) if isinstance(pair, list) and len(pair) == 2 else pair
                for pair in value
            ]
        return value

    return read
