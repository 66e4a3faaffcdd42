"""Eras: the versions through which a table has the same visible columns.

Owns: where one era ends and the next begins, and what the columns that a sink divides rows by are
called in each. A commit that alters the columns and changes rows is the first of the new era.

Invariant: a plan reads versions of one era, so that all its rows have the same columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from tidelock.errors import SinkStopped, SnapshotExpired
from tidelock.model.history.commit import TableChange, TableState
from tidelock.model.schema.schema import TableSchema
from tidelock.model.sinks import SentColumn, SinkDefinition, SinkState
from tidelock.model.types import spell_type
from tidelock.store.log.log import Head
from tidelock.store.log.table_changes import changes_of
from tidelock.store.store import Store

GONE = -1
"""The id of no column."""

Divided: TypeAlias = Mapping[str, str]
"""The columns that divide rows: the names by which a sink knows them, and those that rows have."""


@dataclass(frozen=True, slots=True)
class Era:
    """Some versions of one era, of which something may be delivered."""

    last: int
    inserted: bool = False
    """Whether rows came in it."""
    changed: bool = False
    """Whether rows came, went or were updated in it."""


def schema_at(store: Store, state: TableState) -> TableSchema:
    """The visible columns of a table in a snapshot."""
    known = store.files.known_schema(state)
    return (known or store.files.schema(state, store.files.read(state))).shown


def columns_at(store: Store, state: TableState) -> tuple[SentColumn, ...] | None:
    """The visible columns of a table in a snapshot; None if nobody can tell any more: only the pins
    of a table that was not altered yet tell what its columns were."""
    try:
        return sent_columns(schema_at(store, state))
    except SnapshotExpired:
        return None


def sent_columns(schema: TableSchema) -> tuple[SentColumn, ...]:
    return tuple(
        SentColumn(one.id, one.name, spell_type(one.type), one.nullable) for one in schema.columns
    )


def eras_since(store: Store, head: Head, table: TableState, since: int) -> Sequence[Era]:
    """The eras of a table after a version, oldest first; the last one ends with the head."""
    if not table.schema:
        # It has the columns that it was created with.
        return [Era(head.version, True, True)]
    found: list[Era] = []
    inserted = changed = False
    changes = list(changes_of(store.log, head.branch, table.id, table.changed, since))
    for version, change in reversed(changes):
        if version > since + 1 and _has_other_columns(store, change):
            found.append(Era(version - 1, inserted, changed))
            inserted = changed = False
        inserted = inserted or bool(change.inserted) or change.before is None
        changed = changed or inserted or bool(change.updated or change.deleted)
    return [*found, Era(head.version, inserted, changed)]


def _has_other_columns(store: Store, change: TableChange) -> bool:
    before, after = change.before, change.after
    if before is None or after is None or before.schema == after.schema:
        return False
    then, now = columns_at(store, before), columns_at(store, after)
    return then is None or then != now


def divided_by(definition: SinkDefinition, schema: TableSchema) -> Divided:
    """What the columns are called that a sink divides rows by; SinkStopped if one is gone."""
    divided = {}
    ids = definition.partition_ids or [schema.column(n).id for n in definition.partition_by]
    for label, column_id in zip(definition.partition_by, ids, strict=True):
        found = schema.with_id(column_id)
        if found is None:
            raise SinkStopped(
                f"Sink {definition.name!r} divides rows by column {label!r}, which was dropped. "
                "Nothing of what came since was sent. Drop the sink, and create one with another "
                "partition_by and another address.",
                sink=definition.name,
                column=label,
                reason=f"column {label!r} of partition_by was dropped",
            )
        divided[label] = found.name
    return divided


def with_partition_ids(
    store: Store, head: Head, table: TableState, definition: SinkDefinition, state: SinkState | None
) -> SinkDefinition:
    """The definition with the ids of the columns that divide rows, of which those that were made
    before ids were kept have the names alone."""
    if not definition.partition_by or definition.partition_ids:
        return definition
    then = None
    if state is not None and state.read[0] and table.schema:
        then = store.log.tables_at(head.branch, state.read[0]).same(table)
    columns = then and columns_at(store, then)
    ids = {one.name: one.id for one in columns or sent_columns(schema_at(store, table))}
    found = tuple(ids.get(name, GONE) for name in definition.partition_by)
    return replace(definition, partition_ids=found)
