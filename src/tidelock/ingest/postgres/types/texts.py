"""Texts that are kept as they are, and the two types whose values are spelt byte by byte.

    bool     t f
    bytea    \\x and two digits for each byte, in lower case

Nothing else is taken for these, so what is converted is printed again as it came, and every value
is held.
"""

from __future__ import annotations

import binascii
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelock.errors import BrokenInvariant
from tidelock.ingest.postgres.types.converters import (
    Converted,
    Converter,
    Malformed,
    bounds_of,
    data_of,
    nulls_of,
)

Places = npt.NDArray[np.int32]

_PREFIX = np.frombuffer(b"\\x", np.uint16)[0]


@dataclass(frozen=True)
class Strings(Converter):
    """PostgreSQL's text, exactly: also of types that nothing here knows."""

    type = pa.string()

    def convert(self, texts: pa.Array) -> Converted:
        return texts, None

    def texts(self, values: pa.Array) -> pa.Array:
        return values


@dataclass(frozen=True)
class Booleans(Converter):
    type = pa.bool_()

    def convert(self, texts: pa.Array) -> Converted:
        known = pc.is_in(texts, pa.array(["t", "f", None]))
        if pc.all(known).as_py() is False:
            raise Malformed(texts.filter(pc.invert(known))[0].as_py(), "t or f")
        return pc.equal(texts, "t"), None

    def texts(self, values: pa.Array) -> pa.Array:
        return pc.if_else(values, "t", "f")


@dataclass(frozen=True)
class Bytes(Converter):
    type = pa.binary()

    def convert(self, texts: pa.Array) -> Converted:
        nulls = nulls_of(texts)
        # A NULL may lie over bytes that are none.
        texts = pc.fill_null(texts, "\\x") if texts.null_count else texts
        bounds = bounds_of(texts)
        sizes = np.diff(bounds)
        if not len(sizes):
            return pa.array([], self.type), None
        if (sizes < 2).any() or (sizes % 2).any():
            raise _malformed(texts)
        # Two bytes at a time: each value begins with such a pair, and has an even number of bytes.
        pairs, begins = data_of(texts, bounds).view(np.uint16), (bounds[:-1] - bounds[0]) // 2
        if (pairs[begins] != _PREFIX).any():
            raise _malformed(texts)
        digits = np.delete(pairs, begins).tobytes()
        try:
            data = binascii.unhexlify(digits)
        except binascii.Error:
            raise _malformed(texts) from None
        if binascii.hexlify(data) != digits:
            raise _malformed(texts)
        return _array(self.type, sizes // 2 - 1, data, nulls), None

    def texts(self, values: pa.Array) -> pa.Array:
        filled = pc.fill_null(values, b"") if values.null_count else values
        bounds = bounds_of(filled)
        sizes = np.diff(bounds)
        if not len(sizes):
            return pa.array([], pa.string())
        digits = np.frombuffer(binascii.hexlify(data_of(filled, bounds).data), np.uint16)
        told = np.insert(digits, bounds[:-1] - bounds[0], _PREFIX).tobytes()
        return _array(pa.string(), sizes * 2 + 2, told, nulls_of(values))


def _array(type_: pa.DataType, sizes: Places, data: bytes, nulls: pa.Buffer | None) -> pa.Array:
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    if offsets[-1] >= 2**31:
        raise BrokenInvariant("A batch of BINARY is larger than an Arrow array of texts can be.")
    buffers = [nulls, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(type_, len(sizes), buffers)


def _malformed(texts: pa.Array) -> Malformed:
    wrong = pc.invert(pc.match_substring_regex(texts, r"^\\x([0-9a-f]{2})*$"))
    return Malformed(texts.filter(wrong)[0].as_py(), "bytes as hexadecimal digits")
