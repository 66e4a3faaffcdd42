"""Converters: what is made of the texts of one type, and how they are given back.

Owns: the law that all of them keep, and how it is held for types that Arrow can cast.

    convert(texts) = values, kept        texts(values) = texts wherever `kept` is not

What a value was made of is printed again and compared, so nothing is rounded or changed in silence,
even where Arrow or PostgreSQL would do otherwise than is written here. Of a row in `kept` the
caller has to keep the text. Its value tells the two cases apart:

    NULL         the type cannot hold it: infinity, a year before 1, too many digits
    a value      it is right, but is printed otherwise: numeric 1.50 is 1.5

`kept` is None when no row is in it. Then a row costs a cast, a print and a comparison; no loop in
Python is over rows that are not odd.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Mask = npt.NDArray[np.bool_]
SAMPLE_ROWS = 256
Converted = tuple[pa.Array, pa.Array | None]


class Malformed(ValueError):
    """A text that PostgreSQL never sends for the type. `convert` names the column."""

    def __init__(self, text: str, expected: str) -> None:
        super().__init__(text, expected)
        self.text = text
        self.expected = expected


class Converter(ABC):
    """Texts into values of one type of the lake, and back."""

    type: pa.DataType
    """The lake's type."""

    @abstractmethod
    def convert(self, texts: pa.Array) -> Converted:
        """The values, and which rows' texts have to be kept. The texts are valid UTF-8."""

    @abstractmethod
    def texts(self, values: pa.Array) -> pa.Array:
        """The values as PostgreSQL prints them."""


class CastConverter(Converter):
    """A type that Arrow casts texts to, for all rows at once."""

    @property
    @abstractmethod
    def usual(self) -> str:
        """A pattern. What it matches, Arrow casts to exactly the value that is meant."""

    beyond: tuple[str, ...] = ()
    """Texts that no value of the lake has, and that whole columns may be full of."""

    @abstractmethod
    def read(self, text: str) -> Any:
        """The value of one text that is neither; None if the type cannot hold it; or Malformed."""

    def cast(self, texts: pa.Array) -> pa.Array:
        """Values of all texts, or pa.ArrowInvalid."""
        return texts.cast(self.type)

    def convert(self, texts: pa.Array) -> Converted:
        # Arrow takes a microsecond for each text that it refuses, and columns may be full of them.
        sample = self._cast(texts.slice(0, SAMPLE_ROWS))
        values = None if sample is None else self._cast(texts)
        if values is None:
            values = self._cast(pc.if_else(_matches(texts, self.usual), texts, None))
        if values is None:
            values = pa.nulls(len(texts), self.type)
        same = pc.equal(self.texts(values), texts)
        if same.null_count == texts.null_count and pc.all(same).as_py() is not False:
            return values, None
        return self._look_closer(texts, values, differing(same, texts))

    def _look_closer(self, texts: pa.Array, values: pa.Array, kept: Mask) -> Converted:
        rows = np.flatnonzero(kept)
        odd = texts.take(pa.array(rows))
        # What is usual, but was not cast because others beside it could not be, is read as well.
        known = pc.and_(_matches(odd, self.usual), values.take(pa.array(rows)).is_valid())
        known = pc.or_(known, pc.is_in(odd, pa.array(self.beyond, pa.string())))
        rows = rows[~known.to_numpy(zero_copy_only=False)]
        if len(rows):
            odd = texts.take(pa.array(rows))
            found = pa.array([self.read(text) for text in odd.to_pylist()], self.type)
            mask = np.zeros(len(texts), np.bool_)
            mask[rows] = True
            values = pc.replace_with_mask(values, pa.array(mask), found)
            kept[rows] = differing(pc.equal(self.texts(found), odd), odd)
        return values, kept_rows(kept)

    def _cast(self, texts: pa.Array) -> pa.Array | None:
        try:
            return self.cast(texts)
        except pa.ArrowInvalid:
            return None


def differing(same: pa.Array, texts: pa.Array) -> Mask:
    """Where there is a text, and not the same one."""
    found: Mask = pc.and_not(texts.is_valid(), pc.fill_null(same, False)).to_numpy(
        zero_copy_only=False
    )
    return found.copy()


def kept_rows(kept: Mask) -> pa.Array | None:
    return pa.array(kept) if kept.any() else None


def _matches(texts: pa.Array, pattern: str) -> pa.Array:
    return pc.fill_null(pc.match_substring_regex(texts, pattern), False)


def bounds_of(array: pa.Array) -> npt.NDArray[np.int32]:
    """Where the values of a STRING or BINARY array begin and end in its data."""
    return np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]


def data_of(array: pa.Array, bounds: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
    """The bytes of a STRING or BINARY array, one value after the other."""
    data = array.buffers()[2]
    if data is None or not len(array) or bounds[0] == bounds[-1]:
        return np.zeros(0, np.uint8)
    return np.frombuffer(data, np.uint8, int(bounds[-1] - bounds[0]), int(bounds[0]))


def nulls_of(array: pa.Array) -> pa.Buffer | None:
    """Which values are NULL, as a buffer for an array made in its image."""
    if not array.null_count:
        return None
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    return pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
