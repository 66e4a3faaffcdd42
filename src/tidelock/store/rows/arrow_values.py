"""Arrow arrays of one type made into another, only where no value changes its meaning.

Owns: which types a column takes (as Spark's ANSI store assignment, but nothing is rounded or cut),
and the conversion of nested types, field by field.

    integer   <- integer, decimal, float     the same number, or it does not fit
    float     <- float, decimal              the nearest number; finite stays finite
              <- integer                     the same number
    DECIMAL   <- integer, decimal            the same number
              <- float                       the number that the float is printed as
    TIMESTAMP <- timestamp, date             without a zone it is read in the session's
    DATE      <- date, timestamp             at midnight; an instant, at the session's midnight
    STRUCT    <- struct                      by field name; a missing field is NULL
    any       <- the same in another layout, and Arrow's null type

Never: string and number, boolean and number, TIMESTAMP into TIMESTAMP_NTZ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelock.model.names import fold
from tidelock.model.time.zoned_arrays import instants_of, local_times_of
from tidelock.model.time.zones import UTC
from tidelock.model.types import inner_fields, is_list_like
from tidelock.store.rows.decimals import (
    decimal_to_decimal,
    decimal_to_float,
    decimal_to_integer,
    float_to_decimal,
    integer_to_decimal,
)

Convert = Callable[[pa.Array], pa.Array]


class Mismatch(Exception):
    """A type that a column does not take at all. `path` leads into a nested column."""

    def __init__(self, path: str, actual: pa.DataType, hint: str) -> None:
        super().__init__(path, actual, hint)
        self.path = path
        self.actual = actual
        self.hint = hint


class UnknownField(Exception):
    """A column that the table does not have, or a field that the column's STRUCT does not have.
    `names` are all of them, the first included."""

    def __init__(self, path: str, name: str, known: list[str], names: Sequence[str] = ()) -> None:
        super().__init__(path, name, known, names)
        self.path = path
        self.name = name
        self.known = known
        self.names = list(names) or [name]


class MissingField(Exception):
    """A NOT NULL field of the column's STRUCT that the data does not have."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class AmbiguousField(Exception):
    """Two fields of the data that are for one of the table's."""

    def __init__(self, path: str, names: tuple[str, str]) -> None:
        super().__init__(path, names)
        self.path = path
        self.names = names


class Misfit(ValueError):
    """A value that its column cannot hold, though the column takes values of its type."""


_PLAIN = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def converter(
    source: pa.DataType, target: pa.DataType, path: str, zone: str = UTC
) -> Convert | None:
    """How arrays of `source` become arrays of `target`; None if they already are.

    `zone` is the session's time zone, in which times without a zone are read.
    """
    if source.equals(target, check_metadata=True):
        return None
    if isinstance(source, pa.BaseExtensionType):
        raise Mismatch(path, source, "Give its storage type instead")
    if pa.types.is_dictionary(source):
        # Arrow cannot take from views, so those are plain before they are decoded.
        plain = _PLAIN.get(source.value_type, source.value_type)
        decode = _then(converter(plain, target, path, zone))
        return lambda a: decode(a.dictionary.cast(plain).take(a.indices))
    if pa.types.is_run_end_encoded(source):
        fit = _then(converter(source.value_type, target, path, zone))
        return lambda a: fit(pc.run_end_decode(a))
    if pa.types.is_null(source):
        return lambda a: pa.nulls(len(a), target)
    if pa.types.is_nested(target):
        return _nested(source, target, path, zone)
    kinds = (_kind(source), _kind(target))
    zoned = _ZONED_RULES.get(kinds)
    if zoned is not None:
        return lambda a: zoned(a, target, zone)
    rule = _RULES.get(kinds)
    if rule is None:
        raise Mismatch(path, source, _HINTS.get(kinds, "Convert it first"))
    return lambda a: rule(a, target)


def _then(step: Convert | None) -> Convert:
    return (lambda a: a) if step is None else step


Step = tuple[int | None, Convert | None]


def match_fields(
    source: Sequence[pa.Field], target: Sequence[pa.Field], path: str, zone: str = UTC
) -> list[Step]:
    """For each target field: which source field it comes from (None: it is NULL), and how."""
    outer = f"{path}." if path else ""
    places = match_names([f.name for f in source], target, path)
    return [
        (i, None if i is None else converter(source[i].type, field.type, outer + field.name, zone))
        for i, field in zip(places, target, strict=True)
    ]


def match_names(
    names: Sequence[str], target: Sequence[pa.Field], path: str = ""
) -> list[int | None]:
    """For each target field the position of the name that is for it, without regard to case."""
    outer = f"{path}." if path else ""
    by_fold = {fold(field.name): n for n, field in enumerate(target)}
    places: list[int | None] = [None] * len(target)
    for i, name in enumerate(names):
        n = by_fold.get(fold(name))
        if n is None:
            unknown = [one for one in names if fold(one) not in by_fold]
            raise UnknownField(path, name, [field.name for field in target], unknown)
        taken = places[n]
        if taken is not None:
            raise AmbiguousField(outer + target[n].name, (names[taken], name))
        places[n] = i
    for place, field in zip(places, target, strict=True):
        if place is None and not field.nullable:
            raise MissingField(outer + field.name)
    return places


# Single values ---------------------------------------------------------------------------------


def _kind(type_: pa.DataType) -> str:
    for kind, matches in _KINDS:
        if matches(type_):
            return kind
    return str(type_)


_KINDS: tuple[tuple[str, Callable[[pa.DataType], bool]], ...] = (
    ("integer", pa.types.is_integer),
    ("float", pa.types.is_floating),
    ("decimal", pa.types.is_decimal),
    ("string", lambda t: _is_string(t)),
    ("binary", lambda t: _is_binary(t)),
    ("boolean", pa.types.is_boolean),
    ("date", pa.types.is_date),
    ("timestamp", lambda t: pa.types.is_timestamp(t) and t.tz is not None),
    ("timestamp_ntz", lambda t: pa.types.is_timestamp(t) and t.tz is None),
)


def _is_string(type_: pa.DataType) -> bool:
    kinds = pa.types
    return bool(
        kinds.is_string(type_) or kinds.is_large_string(type_) or kinds.is_string_view(type_)
    )


def _is_binary(type_: pa.DataType) -> bool:
    kinds = pa.types
    return bool(
        kinds.is_binary(type_)
        or kinds.is_large_binary(type_)
        or kinds.is_binary_view(type_)
        or kinds.is_fixed_size_binary(type_)
    )


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    return array.cast(target)


def _integer_to_float(array: pa.Array, target: pa.DataType) -> pa.Array:
    try:
        return array.cast(target)
    except pa.ArrowInvalid:
        # Arrow refuses everything beyond 2^53, also what a float holds exactly.
        nearest = array.cast(target, safe=False)
        if nearest.cast(array.type, safe=False).equals(array):
            return nearest
        raise


def _float_to_float(array: pa.Array, target: pa.DataType) -> pa.Array:
    out = array.cast(target)
    if out.type.bit_width < array.type.bit_width and (
        pc.sum(pc.is_inf(out)).as_py() != pc.sum(pc.is_inf(array)).as_py()
    ):
        raise Misfit("a finite number became infinite")
    return out


def _instant_to_date(array: pa.Array, target: pa.DataType, zone: str) -> pa.Array:
    return _to_date(local_times_of(array.cast(pa.timestamp("us", UTC)), zone), target)


def _local_to_instant(array: pa.Array, target: pa.DataType, zone: str) -> pa.Array:
    return instants_of(array.cast(pa.timestamp("us")), zone)


def _date_to_instant(array: pa.Array, target: pa.DataType, zone: str) -> pa.Array:
    return instants_of(_date_to_timestamp(array, pa.timestamp("us")), zone)


def _to_date(array: pa.Array, target: pa.DataType) -> pa.Array:
    out = array.cast(target)
    if not out.cast(array.type).equals(array):
        raise Misfit("not at midnight")
    return out


def _date_to_timestamp(array: pa.Array, target: pa.DataType) -> pa.Array:
    return array.cast(pa.date32()).cast(target)


_RULES: dict[tuple[str, str], Callable[[pa.Array, pa.DataType], pa.Array]] = {
    ("integer", "integer"): _cast,
    ("decimal", "integer"): decimal_to_integer,
    ("float", "integer"): _cast,
    ("float", "float"): _float_to_float,
    ("decimal", "float"): decimal_to_float,
    ("integer", "float"): _integer_to_float,
    ("decimal", "decimal"): decimal_to_decimal,
    ("integer", "decimal"): integer_to_decimal,
    ("float", "decimal"): float_to_decimal,
    ("string", "string"): _cast,
    ("binary", "binary"): _cast,
    ("boolean", "boolean"): _cast,
    ("date", "date"): _cast,
    ("timestamp_ntz", "date"): _to_date,
    ("date", "timestamp_ntz"): _date_to_timestamp,
    ("timestamp", "timestamp"): _cast,
    ("timestamp_ntz", "timestamp_ntz"): _cast,
}

_ZONED_RULES: dict[tuple[str, str], Callable[[pa.Array, pa.DataType, str], pa.Array]] = {
    ("timestamp", "date"): _instant_to_date,
    ("date", "timestamp"): _date_to_instant,
    ("timestamp_ntz", "timestamp"): _local_to_instant,
}

_HINTS: dict[tuple[str, str], str] = {
    ("timestamp", "timestamp_ntz"): "Remove the time zone first, or make the column a TIMESTAMP",
    ("string", "decimal"): "Parse the text first",
    ("string", "integer"): "Parse the text first",
    ("string", "float"): "Parse the text first",
}


# Nested values ---------------------------------------------------------------------------------


def _nested(source: pa.DataType, target: pa.DataType, path: str, zone: str) -> Convert:
    if pa.types.is_struct(target) and pa.types.is_struct(source):
        return _struct(source, target, path, zone)
    if pa.types.is_list(target) and is_list_like(source):
        return _list(source, target, path, zone)
    if pa.types.is_map(target) and (pa.types.is_map(source) or _holds_entries(source)):
        return _map(source, target, path, zone)
    raise Mismatch(path, source, "Convert it first")


def _struct(source: pa.DataType, target: pa.DataType, path: str, zone: str) -> Convert:
    steps = match_fields(list(source), list(target), path, zone)
    fields = list(target)

    def convert(array: pa.Array) -> pa.Array:
        # flatten() also hides what lies under a NULL struct, which is nobody's value.
        parts = array.flatten()
        children = [
            pa.nulls(len(array), field.type)
            if i is None
            else (parts[i] if step is None else step(parts[i]))
            for (i, step), field in zip(steps, fields, strict=True)
        ]
        return pa.StructArray.from_arrays(children, fields=fields, mask=_mask(array))

    return convert


def _list(source: pa.DataType, target: pa.DataType, path: str, zone: str) -> Convert:
    step = converter(source.value_type, target.value_type, f"{path}.item", zone)

    def convert(array: pa.Array) -> pa.Array:
        values = array.flatten()
        return pa.ListArray.from_arrays(
            _offsets(array),
            values if step is None else step(values),
            type=target,
            mask=_mask(array),
        )

    return convert


def _map(source: pa.DataType, target: pa.DataType, path: str, zone: str) -> Convert:
    key_from, value_from = (f.type for f in _entry_fields(source))
    key_step = converter(key_from, target.key_type, f"{path}.key", zone)
    value_step = converter(value_from, target.item_type, f"{path}.value", zone)

    def convert(array: pa.Array) -> pa.Array:
        offsets, keys, values = entries(array)
        return pa.MapArray.from_arrays(
            offsets,
            keys if key_step is None else key_step(keys),
            values if value_step is None else value_step(values),
            type=target,
            mask=_mask(array),
        )

    return convert


def _holds_entries(source: pa.DataType) -> bool:
    """Whether lists of (key, value) structs: what a map is called where there are none."""
    if not is_list_like(source) or not pa.types.is_struct(source.value_type):
        return False
    return [f.name for f in source.value_type] == ["key", "value"]


def _entry_fields(source: pa.DataType) -> list[pa.Field]:
    return inner_fields(source if pa.types.is_map(source) else source.value_type)


def entries(array: Any) -> tuple[pa.Array, pa.Array, pa.Array]:
    """The offsets, keys and values of an array of maps, or of lists of (key, value)."""
    if not pa.types.is_map(array.type):
        keys, values = array.flatten().flatten()
        return _offsets(array), keys, values
    bounds = array.offsets
    lengths = pc.subtract(bounds.slice(1), bounds.slice(0, len(array)))
    shown = pc.if_else(array.is_valid(), lengths, 0) if array.null_count else lengths
    start = bounds[0].as_py()
    if pc.equal(pc.sum(shown), pc.sum(lengths)).as_py() is not False:
        size = bounds[len(array)].as_py() - start
        return _ends(shown), array.keys.slice(start, size), array.items.slice(start, size)
    # A NULL map may have entries under it, which are nobody's.
    whole = pa.concat_arrays([array, array.slice(0, 0)])
    positions = pa.array(range(len(whole.keys)), pa.int32())
    seen = pa.ListArray.from_arrays(whole.offsets, positions, mask=whole.is_null()).flatten()
    return _ends(shown), whole.keys.take(seen), whole.items.take(seen)


def _offsets(lists: pa.Array) -> pa.Array:
    # Made from the lengths, because every layout of lists has those, sliced or not.
    return _ends(pc.fill_null(pc.list_value_length(lists), 0))


def _ends(lengths: pa.Array) -> pa.Array:
    ends = pc.cumulative_sum_checked(lengths.cast(pa.int32()))
    return pa.concat_arrays([pa.array([0], pa.int32()), ends])


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None
