"""Evolution: what becomes of the columns of a destination's table when those of the lake change.

Owns: the steps from the columns that the table has to those that rows come with, and whether they
are told by ids or only by names. Which of them a format can take is for the format to say.

| the lake | and the table |
|---|---|
| has a column that the table has not | gets it, NULL in the rows that are there |
| calls a column otherwise | calls it so, too |
| has no longer a column | drops it, or keeps it if its format cannot |
| has a wider type, or allows NULL | widens, relaxes |
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tidelock.model.names import fold
from tidelock.model.sinks import SentColumn
from tidelock.model.types import spell_type


@dataclass(frozen=True)
class Evolution:
    """What is to be done to the columns of a table, by its own names."""

    added: tuple[pa.Field, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    dropped: tuple[str, ...] = ()
    widened: tuple[tuple[str, pa.DataType, pa.DataType], ...] = ()
    """By the names that they will have: the type there, and that of the rows."""
    relaxed: tuple[str, ...] = ()
    """By the names that they will have."""

    def __bool__(self) -> bool:
        return bool(self.added or self.renamed or self.dropped or self.widened or self.relaxed)


def evolve(
    there: pa.Schema,
    rows: pa.Schema,
    before: tuple[SentColumn, ...],
    after: tuple[SentColumn, ...],
) -> Evolution:
    """From the columns of a table to those of rows. `before` are the columns that were sent last,
    which the table calls by their names, and `after` those of the rows."""
    fields = {fold(field.name): field for field in there}
    known = {one.id: fields[fold(one.name)] for one in before if fold(one.name) in fields}
    ids = {fold(one.name): one.id for one in after}
    now = {one.id for one in after}
    added, renamed, widened, relaxed = [], [], [], []
    for field in rows:
        column_id = ids.get(fold(field.name))
        # Columns that feeds add have no id, and are always there under their names.
        old = fields.get(fold(field.name)) if column_id is None else known.get(column_id)
        if old is None:
            # What is there already has no value for a new column.
            added.append(field.with_nullable(True))
            continue
        if old.name != field.name:
            renamed.append((old.name, field.name))
        if spelled(old.type) != spelled(field.type):
            widened.append((field.name, old.type, field.type))
        if field.nullable and not old.nullable:
            relaxed.append(field.name)
    dropped = tuple(field.name for column_id, field in known.items() if column_id not in now)
    return Evolution(tuple(added), tuple(renamed), dropped, tuple(widened), tuple(relaxed))


def evolve_by_name(there: pa.Schema, rows: pa.Schema) -> Evolution:
    """As `evolve`, where nothing but names is known: columns come, and others are left alone."""
    names = {fold(name) for name in there.names}
    return Evolution(
        added=tuple(one.with_nullable(True) for one in rows if fold(one.name) not in names)
    )


def evolved(there: pa.Schema, evolution: Evolution, *, keeps_dropped: bool = False) -> pa.Schema:
    """The columns of a table after its evolution."""
    renamed, relaxed = dict(evolution.renamed), set(evolution.relaxed)
    types = {name: kind for name, _, kind in evolution.widened}
    fields = []
    for field in there:
        if field.name in evolution.dropped and not keeps_dropped:
            continue
        name = renamed.get(field.name, field.name)
        nullable = field.nullable or name in relaxed or field.name in evolution.dropped
        fields.append(pa.field(name, types.get(name, field.type), nullable))
    return pa.schema([*fields, *evolution.added])


def spelled(kind: pa.DataType) -> str:
    return spell_type(kind, for_spark=True)
