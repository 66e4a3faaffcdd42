"""Values as JSON: one spelling for each type, in all JSON that Tidelock writes; made by columns.

    TINYINT … BIGINT, BOOLEAN    as they are
    FLOAT, DOUBLE                the fewest digits that give the same value, always with a point or
                                 an exponent; "NaN", "Infinity" and "-Infinity", which JSON has not
    DECIMAL                      text in digits alone: a number would lose some
    STRING                       text, escaped
    BINARY                       text, in Base64
    DATE, TIMESTAMP              text, ISO 8601; fractions of a second only where there are some;
                                 moments in UTC, with Z
    ARRAY, STRUCT                array, object
    MAP                          an object if its keys are STRING and differ; else an array of
                                 [key, value]
    NULL                         null

Laws: the same rows give the same bytes, whatever batches they come in. What is written here,
`tidelock load` reads back as the same value (ingest/files/jsonl.py).
"""

from __future__ import annotations

import base64
import json
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

TEXT = pa.large_string()
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_SPACE, _QUOTE, _BACKSLASH = ord(" "), ord('"'), ord("\\")


def encode_lines(batch: pa.RecordBatch) -> pa.Array:
    """Each row as one line, with the line feed that ends it."""
    return _objects(batch.schema.names, batch.columns, batch.num_rows, "\n")


def join_lines(lines: pa.Array) -> bytes:
    """Lines as one body."""
    return bytes(lay_out(lines)[0])


def lay_out(lines: pa.Array) -> tuple[memoryview, npt.NDArray[np.int64]]:
    """Lines one after the other; and where in them each begins, and the end."""
    bounds = _bounds(lines)
    return _bytes(lines, bounds).data, bounds - bounds[0]


def _bounds(texts: pa.Array) -> npt.NDArray[np.int64]:
    if not len(texts):
        return np.zeros(1, np.int64)
    return np.frombuffer(texts.buffers()[1], np.int64, len(texts) + 1, texts.offset * 8)


def _bytes(texts: pa.Array, bounds: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """The values of a string array: they lie one after the other."""
    data = texts.buffers()[2]
    if data is None or bounds[0] == bounds[-1]:
        return np.zeros(0, np.uint8)
    return np.frombuffer(data, np.uint8, bounds[-1] - bounds[0], bounds[0])


def encode_values(column: pa.Array) -> pa.Array:
    """The values of a column as JSON."""
    return _complete(*_encode(column))


def python_values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """The values of a column as JSON has them, ready for `json.dumps`."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return [json.loads(text) for chunk in chunks for text in encode_values(chunk).to_pylist()]


def _complete(texts: pa.Array, quote: str) -> pa.Array:
    whole = _joined(quote, texts, quote) if quote else texts
    return pc.fill_null(whole, "null") if whole.null_count else whole


def _encode(column: pa.Array) -> tuple[pa.Array, str]:
    """The values of a column as JSON but for the quotes around them, and NULL as NULL."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return column.cast(TEXT), ""
    if pa.types.is_floating(kind):
        return _floats(column), ""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _strings(column.cast(TEXT)), '"'
    if pa.types.is_decimal(kind):
        return decimal_texts(column), '"'
    if pa.types.is_date(kind):
        return column.cast(TEXT), '"'
    if pa.types.is_timestamp(kind):
        return _moments(column), '"'
    if pa.types.is_struct(kind):
        names = [kind.field(number).name for number in range(kind.num_fields)]
        return _where_known(column, _objects(names, column.flatten(), len(column))), ""
    if pa.types.is_map(kind):
        return _maps(column), ""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _lists(column, encode_values(column.flatten())), ""
    if pa.types.is_null(kind):
        return pa.nulls(len(column), TEXT), ""
    if _is_binary(kind):
        return _binaries(column), '"'
    # What a query may give and no table holds, such as an interval.
    shown = [None if value is None else str(value) for value in column.to_pylist()]
    return _strings(pa.array(shown, TEXT)), '"'


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _joined(*parts: pa.Array | str) -> pa.Array:
    """The parts of each value, one after the other; NULL where a part is."""
    texts = [pa.scalar(part, TEXT) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*texts, pa.scalar("", TEXT))


def _where_known(column: pa.Array, encoded: pa.Array) -> pa.Array:
    return pc.if_else(column.is_valid(), encoded, None) if column.null_count else encoded


def _objects(names: list[str], columns: list[pa.Array], count: int, end: str = "") -> pa.Array:
    if not names:
        return pa.array(["{}" + end] * count, TEXT)
    parts: list[pa.Array | str] = []
    between = "{"
    for number, (name, column) in enumerate(zip(names, columns, strict=True)):
        texts, quote = _encode(column)
        if texts.null_count:
            texts, quote = _complete(texts, quote), ""
        # Quotes go with what is between the values: joining them costs nothing more.
        lead = f"{between}," if number else between
        parts += [f"{lead}{json.dumps(name, ensure_ascii=False)}:{quote}", texts]
        between = quote
    return _joined(*parts, between + "}" + end)


def _lists(column: pa.Array, encoded: pa.Array, around: str = "[]") -> pa.Array:
    """The values of a column of lists, from those of all its lists one after the other."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).cast(pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    lists = pa.ListArray.from_arrays(offsets, encoded.cast(pa.string()))
    inner = pc.binary_join(lists, ",").cast(TEXT)
    return _where_known(column, _joined(around[0], inner, around[1]))


def _maps(column: pa.Array) -> pa.Array:
    kind = column.type
    pair = pa.struct([pa.field("key", kind.key_type), pa.field("value", kind.item_type)])
    pairs = column.cast(pa.list_(pair))
    keys, values = (encode_values(side) for side in pairs.flatten().flatten())
    if not (pa.types.is_string(kind.key_type) or pa.types.is_large_string(kind.key_type)):
        return _pair_lists(pairs, keys, values)
    objects = _lists(pairs, _joined(keys, ":", values), "{}")
    repeats = _repeats_key(pairs, keys)
    if not repeats.any():
        return objects
    return pc.if_else(pa.array(repeats), _pair_lists(pairs, keys, values), objects)


def _pair_lists(pairs: pa.Array, keys: pa.Array, values: pa.Array) -> pa.Array:
    return _lists(pairs, _joined("[", keys, ",", values, "]"))


def _repeats_key(pairs: pa.Array, keys: pa.Array) -> npt.NDArray[np.bool_]:
    """Which maps have a key more than once: an object would keep one of them alone."""
    repeats = np.zeros(len(pairs), dtype=np.bool_)
    owners = pc.list_parent_indices(pairs).to_numpy().astype(np.int64)
    distinct = keys.dictionary_encode()
    entries = owners * max(1, len(distinct.dictionary)) + distinct.indices.to_numpy()
    if len(pc.unique(pa.array(entries))) < len(entries):
        unique, counts = np.unique(entries, return_counts=True)
        repeats[unique[counts > 1] // len(distinct.dictionary)] = True
    return repeats


def _strings(texts: pa.Array) -> pa.Array:
    data = _bytes(texts, _bounds(texts))
    if not ((data < _SPACE).any() or (data == _QUOTE).any() or (data == _BACKSLASH).any()):
        return texts
    for found, escaped in _ESCAPES.items():
        texts = pc.replace_substring(texts, found, escaped)
    if (_bytes(texts, _bounds(texts)) < _SPACE).any():
        texts = pa.array([_escape_controls(one) for one in texts.to_pylist()], TEXT)
    return texts


def _escape_controls(text: str | None) -> str | None:
    return text and "".join(c if c >= " " else f"\\u{ord(c):04x}" for c in text)


def _floats(column: pa.Array) -> pa.Array:
    texts = column.cast(TEXT)
    if pc.any(pc.equal(pc.trunc(column), column)).as_py():
        # With a point it is read as a number of this type, and -0.0 keeps its sign.
        has_sign = pc.or_(pc.match_substring(texts, "."), pc.match_substring(texts, "e"))
        texts = pc.if_else(has_sign, texts, _joined(texts, ".0"))
    finite = pc.is_finite(column)
    if pc.all(finite).as_py() in (True, None):
        return texts
    endless = pc.if_else(pc.greater(column, 0), '"Infinity"', '"-Infinity"')
    odd = pc.if_else(pc.is_nan(column), '"NaN"', endless).cast(TEXT)
    return pc.if_else(finite, texts, odd)


def decimal_texts(column: pa.Array) -> pa.Array:
    """Decimals in digits alone, which more readers take than powers of ten."""
    texts = column.cast(TEXT)
    if pc.any(pc.match_substring(texts, "E")).as_py():
        plain = [None if one is None else f"{one:f}" for one in column.to_pylist()]
        return pa.array(plain, TEXT)
    return texts


def _moments(column: pa.Array) -> pa.Array:
    zone = "" if column.type.tz is None else "Z"
    moments = column.cast(pa.timestamp("us"))
    whole = pc.fill_null(moments.cast(pa.int64()), 0).to_numpy() % 1_000_000 == 0
    if whole.all():
        texts = _moment_texts(moments.cast(pa.timestamp("s")))
    else:
        texts = _moment_texts(moments)
        if whole.any():
            seconds = moments.cast(pa.timestamp("s"), safe=False)
            texts = pc.if_else(pa.array(whole), _moment_texts(seconds), texts)
    return _joined(texts, zone) if zone else texts


def _moment_texts(moments: pa.Array) -> pa.Array:
    if _of_four_digit_years(moments.cast(pa.timestamp("us"), safe=False)):
        return pc.replace_substring(moments.cast(TEXT), " ", "T", max_replacements=1)
    return pc.strftime(moments, "%Y-%m-%dT%H:%M:%S").cast(TEXT)


def _of_four_digit_years(moments: pa.Array) -> bool:
    least, most = pc.min_max(moments.cast(pa.int64())).as_py().values()
    return least is None or (least >= _YEAR_1_US and most < _YEAR_10000_US)


_YEAR_1_US = pa.scalar(datetime(1, 1, 1), pa.timestamp("us")).value
_YEAR_10000_US = pa.scalar(datetime(9999, 12, 31), pa.timestamp("us")).value + 86_400_000_000


def _binaries(column: pa.Array) -> pa.Array:
    encoded: list[Any] = [
        None if one is None else base64.b64encode(one).decode("ascii") for one in column.to_pylist()
    ]
    return pa.array(encoded, TEXT)
