"""Lance's fields as it writes them into a manifest, so that they can be given names and ids.

Lance numbers the fields of a PyArrow schema by position, so that a schema which leaves out a column
would show another column's values under its name. A schema that carries ids is therefore made from
the parts of another: what `LanceSchema` gives to be pickled is the list of its fields, each as a
protobuf message, parents before what is inside of them.

    2 name    3 id    4 parent_id (-1: none)    5 logical_type    6 nullable    others untouched
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from lance.schema import LanceSchema

NAME, ID, PARENT, NULLABLE = 2, 3, 4, 6
_VARINT, _BYTES = 0, 2
_NEGATIVE = 1 << 63


@dataclass(frozen=True)
class Field:
    """One field: its message's parts by number, in order."""

    parts: tuple[tuple[int, int, int | bytes], ...]
    """Number, wire type and value of each."""

    @property
    def id(self) -> int:
        return self._number(ID)

    @property
    def parent(self) -> int:
        return self._number(PARENT)

    def with_id(self, id: int, parent: int) -> Field:
        return self._put(ID, id)._put(PARENT, parent)

    def labelled(self, name: str, nullable: bool) -> Field:
        rest = tuple(part for part in self.parts if part[0] != NAME)
        return Field((*rest, (NAME, _BYTES, name.encode())))._put(NULLABLE, int(nullable))

    def _number(self, number: int) -> int:
        found = next((value for at, _, value in self.parts if at == number), 0)
        assert isinstance(found, int)
        return found - (1 << 64) if found >= _NEGATIVE else found

    def _put(self, number: int, value: int) -> Field:
        rest = tuple(part for part in self.parts if part[0] != number)
        return Field((*rest, (number, _VARINT, value % (1 << 64))))

    def encode(self) -> bytes:
        out = bytearray()
        for number, wire, value in sorted(self.parts, key=lambda part: part[0]):
            out += _varint(number << 3 | wire)
            if isinstance(value, bytes):
                out += _varint(len(value)) + value
            else:
                out += _varint(value)
        return bytes(out)


@dataclass(frozen=True)
class Fields:
    """The fields of a schema, depth first, and the schema that they were taken from."""

    source: Any
    fields: tuple[Field, ...]

    @classmethod
    def of(cls, schema: Any) -> Fields:
        _, (_, *messages) = schema.__reduce__()
        return cls(schema, tuple(map(_decode, messages)))

    @classmethod
    def of_arrow(cls, field: pa.Field) -> Fields:
        return cls.of(LanceSchema.from_pyarrow(pa.schema([field])))

    def column(self, id: int) -> tuple[Field, ...]:
        """A column and what is inside of it."""
        return self._columns[id]

    @cached_property
    def _columns(self) -> dict[int, tuple[Field, ...]]:
        starts = [at for at, one in enumerate(self.fields) if one.parent < 0]
        ends = [*starts[1:], len(self.fields)]
        parts = [self.fields[start:end] for start, end in zip(starts, ends, strict=True)]
        return {part[0].id: part for part in parts}

    def schema(self, fields: Sequence[Field]) -> Any:
        """A schema of other fields, all else as in this one."""
        rebuild, (metadata, *_) = self.source.__reduce__()
        return rebuild(metadata, *(one.encode() for one in fields))


def renumbered(fields: Sequence[Field], ids: Sequence[int]) -> tuple[Field, ...]:
    """A column whose fields have other ids."""
    new = {one.id: id for one, id in zip(fields, ids, strict=True)}
    return tuple(
        one.with_id(new[one.id], new[one.parent] if one.parent >= 0 else -1) for one in fields
    )


def _decode(message: bytes) -> Field:
    parts: list[tuple[int, int, int | bytes]] = []
    at = 0
    while at < len(message):
        tag, at = _read_varint(message, at)
        number, wire = tag >> 3, tag & 7
        value, at = _read_varint(message, at)
        if wire == _BYTES:
            parts.append((number, wire, message[at : at + value]))
            at += value
        elif wire == _VARINT:
            parts.append((number, wire, value))
        else:
            raise ValueError(f"A field of Lance's has a part of wire type {wire}.")
    return Field(tuple(parts))


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
