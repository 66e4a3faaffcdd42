"""Declarations: the schemas of tables, as they are kept.

Owns: one object for each schema, under the hash of its content. A table's state names the one that
it has; a table that is as it was created without rules names none, and its columns are those of
its pin.

    {"columns": [{"id": 0, "name": "id", "type": "BIGINT", "nullable": false, …}, …],
     "key": [0], "rules": [{"kind": "unique", "name": "…", "columns": [1], …}, …],
     "next_id": 2, "format": 1}

Invariants: a declaration exists before a commit names it, and never changes; the columns of a pin
have the ids, names, types and order of the declaration that its state names; no column has, or
had, an id from `next_id` on.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache

import msgspec
import pyarrow as pa

from tidelock.errors import CorruptObject, ObjectExists
from tidelock.model.schema.rules import Rule
from tidelock.model.schema.schema import Column, TableSchema
from tidelock.model.types import spell_type
from tidelock.store.objects import layout
from tidelock.store.objects.protocol import Objects
from tidelock.store.objects.records import decode, encode


@dataclass(frozen=True, slots=True)
class KeptColumn:
    id: int
    name: str
    type: str
    nullable: bool
    default: str | None = None
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class Declaration:
    """A schema as it is kept: types as DDL, the key by ids."""

    columns: tuple[KeptColumn, ...]
    key: tuple[int, ...] = ()
    rules: tuple[Rule, ...] = ()
    comment: str | None = None
    next_id: int = 0
    format: int = 1

    @property
    def id(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:32]


def declaration_of(schema: TableSchema) -> Declaration:
    columns = tuple(
        KeptColumn(c.id, c.name, spell_type(c.type), c.nullable, c.default, c.comment)
        for c in schema.columns
    )
    return Declaration(columns, schema.key_ids, schema.rules, schema.comment, schema.next_id)


@lru_cache(maxsize=4096)
def schema_of(declaration: Declaration) -> TableSchema:
    """The same object for the same declaration, so that what it has computed is kept."""
    columns = tuple(
        Column(c.name, _type_of(c.type), c.nullable, c.id, c.default, c.comment)
        for c in declaration.columns
    )
    names = {column.id: column.name for column in columns}
    key = tuple(names[one] for one in declaration.key)
    return TableSchema(columns, key, declaration.rules, declaration.comment, declaration.next_id)


@lru_cache(maxsize=1024)
def _type_of(spelled: str) -> pa.DataType:
    # Tables that nobody altered have no declaration, and need no reader of SQL.
    from tidelock.model.ddl import parse_type

    return parse_type(spelled, "of a declared schema")


class Declarations:
    """Owns the declared schemas of a lake, and those that this handle has met."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._known: dict[str, TableSchema] = {}
        self._durable: set[str] = set()

    def identify(self, schema: TableSchema) -> str:
        """The id that the declaration of a schema has, also if nobody keeps it yet."""
        declaration = declaration_of(schema)
        self._known.setdefault(declaration.id, schema_of(declaration))
        return declaration.id

    def keep(self, schema: TableSchema) -> str:
        """Make a schema durable; returns the id of its declaration."""
        schema_id = self.identify(schema)
        if schema_id not in self._durable:
            declaration = declaration_of(schema)
            key = layout.schema(schema_id)
            try:
                self._objects.put_new(key, encode(declaration))
            except ObjectExists:
                try:
                    decode(self._objects.get(key), Declaration, key)
                except CorruptObject:
                    # Its name is the hash of what it was: this.
                    self._objects.put(key, encode(declaration))
            self._durable.add(schema_id)
        return schema_id

    def read(self, schema_id: str) -> TableSchema:
        found = self._known.get(schema_id)
        if found is None:
            key = layout.schema(schema_id)
            declaration = decode(self._objects.get(key), Declaration, key)
            found = self._known[schema_id] = schema_of(declaration)
        return found
