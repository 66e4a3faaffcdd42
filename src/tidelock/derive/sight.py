"""How a query comes to see its inputs: what it is planned against, and what it reads of that.

The values are in `seen.py`; here is what needs types and the parser of SQL.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import lru_cache

from tidelock.derive.algebra.operators import scans
from tidelock.derive.seen import SeenColumn, SeenInput
from tidelock.derive.sql.view import View
from tidelock.model.ddl import parse_type
from tidelock.model.schema.schema import Column, TableSchema
from tidelock.model.sql.reads import find_reads
from tidelock.model.types import spell_type


def see(
    label: str, table_id: str, schema: TableSchema, read: Collection[str] | None = None
) -> SeenInput:
    """What a query sees of a table that it is planned against; `read` are the columns that its rows
    depend on, if that is known."""
    columns = tuple(
        SeenColumn(one.name, one.id, spell_type(one.type), one.nullable, _is_in(one.name, read))
        for one in schema.shown.columns
    )
    return SeenInput(label, table_id, columns, schema.key_ids)


def retyped(seen: SeenInput, now: TableSchema) -> SeenInput:
    """The same input with the types that its columns have now."""
    found = [now.with_id(column.id) for column in seen.columns]
    columns = tuple(
        column if one is None else replace(column, type=spell_type(one.type))
        for column, one in zip(seen.columns, found, strict=True)
    )
    return replace(seen, columns=columns)


def columns_read(
    view: View, query: str, schemas: Mapping[str, TableSchema]
) -> dict[str, frozenset[str]]:
    """The columns of each input that the rows of a view depend on, by labels.

    Where the query is not understood, those that its text can refer to.
    """
    found: dict[str, set[str]] = {name: set() for name in view.tables}
    if view.root is not None:
        for scan in scans(view.root):
            found[scan.table].update(column for _, column in scan.columns)
    else:
        for one in find_reads(query, schemas, lambda condition, schema: None).reads:
            every = schemas[one.name].names
            found.setdefault(one.name, set()).update(every if one.columns is None else one.columns)
    return {name: frozenset(columns) for name, columns in found.items()}


@lru_cache(maxsize=4096)
def label_schema(seen: SeenInput) -> TableSchema:
    """The input as the query's text is read against it."""
    columns = tuple(
        Column(one.label, parse_type(one.type, one.label), one.nullable, one.id)
        for one in seen.columns
    )
    labels = {one.id: one.label for one in seen.columns}
    key = tuple(labels[one] for one in seen.key) if labels.keys() >= set(seen.key) else ()
    return TableSchema(columns, key)


def _is_in(name: str, names: Collection[str] | None) -> bool:
    return names is None or name in names
