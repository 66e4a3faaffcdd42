"""Arrays: texts into lists of elements, and back.

    array      [bounds "="] "{" [item ("," item)*] "}"      of some types another delimiter
    item       array | quoted | plain
    quoted     '"', with a backslash before each '"' and backslash, '"'
    plain      NULL, or what has none of  " \\ { } ,  and no white space, and is not empty

Held are arrays of one dimension that begin at 1, with elements that are held: the lake's arrays
have no others. An array of several dimensions, one that says its bounds, and one with an element
that its type cannot hold are NULL, and kept.

The law of converters is held as a whole: the list is printed again, with its quotes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelock.ingest.postgres.types.converters import (
    Converted,
    Converter,
    Malformed,
    differing,
    kept_rows,
)
from tidelock.model.types import list_type

_SIMPLE = r'^\{[^"\\{}]*\}$'
_QUOTED = r'^$|^(?i:null)$|["\\{} \t\n\r\f\x0b'
_BOUNDS = re.compile(r"(\[[+-]?[0-9]+:[+-]?[0-9]+\])+=(?=\{)", re.ASCII)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_EXPECTED = "an array"
DIMENSIONS_MAX = 6


@dataclass(frozen=True)
class Arrays(Converter):
    element: Converter
    delimiter: str = ","
    type: pa.DataType = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", list_type(self.element.type))

    def convert(self, texts: pa.Array) -> Converted:
        lists = self._lists(texts)
        items = lists.flatten()
        lengths = _lengths(lists)
        values, kept = self.element.convert(items)
        whole = _list_array(lengths, values, lists, self.type)
        if kept is not None and values.null_count:
            lost = pc.and_(kept, values.is_null()).to_numpy(zero_copy_only=False)
            rows = np.arange(len(texts))
            whole = whole.take(pa.array(rows, mask=np.isin(rows, np.repeat(rows, lengths)[lost])))
        same = pc.equal(self.texts(whole), texts)
        if same.null_count == texts.null_count and pc.all(same).as_py() is not False:
            return whole, None
        return whole, kept_rows(differing(same, texts))

    def texts(self, values: pa.Array) -> pa.Array:
        items = self.element.texts(values.flatten())
        quoted = pc.match_substring_regex(items, f"{_QUOTED}{re.escape(self.delimiter)}]")
        if pc.any(quoted).as_py():
            escaped = pc.replace_substring_regex(items, r'(["\\])', r"\\\1")
            items = pc.if_else(quoted, pc.binary_join_element_wise('"', escaped, '"', ""), items)
        items = pc.fill_null(items, "NULL")
        lists = _list_array(_lengths(values), items, values, list_type(pa.string()))
        return pc.binary_join_element_wise("{", pc.binary_join(lists, self.delimiter), "}", "")

    def _lists(self, texts: pa.Array) -> pa.Array:
        """The elements' texts; NULL for what no list holds."""
        simple = pc.fill_null(pc.match_substring_regex(texts, _SIMPLE), False)
        split = _split(pc.if_else(simple, texts, None), self.delimiter)
        odd = pc.and_not(texts.is_valid(), simple)
        if pc.any(odd).as_py() is not True:
            return split
        rows = np.flatnonzero(odd.to_numpy(zero_copy_only=False))
        found = [parse_array(text, self.delimiter) for text in texts.filter(odd).to_pylist()]
        places = np.arange(len(texts))
        places[rows] = len(texts) + np.arange(len(rows))
        return pa.concat_arrays([split, pa.array(found, split.type)]).take(pa.array(places))


def _split(texts: pa.Array, delimiter: str) -> pa.Array:
    """Arrays without quotes and without arrays inside, at once."""
    empty = pc.equal(texts, "{}")
    lists = pc.split_pattern(pc.utf8_slice_codeunits(texts, 1, -1), delimiter)
    if pc.any(empty).as_py():
        # Of an empty text split_pattern makes one empty element.
        none = pa.array([[]], lists.type)
        places = np.where(
            pc.fill_null(empty, False).to_numpy(zero_copy_only=False),
            len(texts),
            np.arange(len(texts)),
        )
        lists = pa.concat_arrays([lists, none]).take(pa.array(places))
    items = lists.flatten()
    null = pc.equal(items, "NULL")
    if pc.any(null).as_py() is not True:
        return lists
    return _list_array(_lengths(lists), pc.if_else(null, None, items), lists, lists.type)


def _lengths(lists: pa.Array) -> npt.NDArray[np.int32]:
    found: npt.NDArray[np.int32] = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    return found


def _list_array(
    lengths: npt.NDArray[np.int32], items: pa.Array, like: pa.Array, type_: pa.DataType
) -> pa.Array:
    """Lists of these lengths, NULL where others are."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    mask = like.is_null() if like.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets), items, type=type_, mask=mask)


def parse_array(text: str, delimiter: str = ",") -> list[str | None] | None:
    """The elements of an array, None if it has bounds or several dimensions; or Malformed."""
    bounds = _BOUNDS.match(text)
    items, flat, end = _elements(text, bounds.end() if bounds else 0, delimiter, 1)
    if end != len(text):
        raise Malformed(text, _EXPECTED)
    return items if flat and not bounds else None


def _elements(
    text: str, place: int, delimiter: str, depth: int
) -> tuple[list[str | None], bool, int]:
    """The elements of the array that begins at a place, whether it has one dimension, and where it
    ends. What stands in arrays inside is read, as it must be right, and forgotten."""
    if text[place : place + 1] != "{" or depth > DIMENSIONS_MAX:
        raise Malformed(text, _EXPECTED)
    if text[place + 1 : place + 2] == "}":
        return [], True, place + 2
    items: list[str | None] = []
    flat, end = True, ""
    while end != "}":
        place += 1
        if text[place : place + 1] == "{":
            _, _, place = _elements(text, place, delimiter, depth + 1)
            flat = False
        else:
            match = _items(delimiter).match(text, place)
            if match is None:
                raise Malformed(text, _EXPECTED)
            items.append(_element(match))
            place = match.end()
        end = text[place : place + 1]
        if end not in ("}", delimiter):
            raise Malformed(text, _EXPECTED)
    return items, flat, place + 1


@cache
def _items(delimiter: str) -> re.Pattern[str]:
    plain = rf'[^"\\{{}}{re.escape(delimiter)}]+'
    return re.compile(rf'"([^"\\]*(?:\\.[^"\\]*)*)"|({plain})', re.DOTALL)


def _element(match: re.Match[str]) -> str | None:
    if match[1] is not None:
        return _ESCAPED.sub(r"\1", match[1]) if "\\" in match[1] else match[1]
    return None if match[2] == "NULL" else match[2]
