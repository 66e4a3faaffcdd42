"""Whether a query still gives the columns that its stream table has; if not, who is to blame.

    the columns of an input changed      the definition is broken, until it is replaced
    the engine is another, or set so     the table is fine where it was made

Owns: the judgement, and its words. Columns that a table does not show are looked at and not named.
"""

from __future__ import annotations

import pyarrow as pa

from tidelock.derive.plan.view import internal_name
from tidelock.derive.planned import Planned, Reads
from tidelock.derive.seen import SeenColumn
from tidelock.derive.stream import Stream
from tidelock.errors import (
    DefinitionBroken,
    EngineMismatch,
    InputError,
    SnapshotExpired,
    TableNotFound,
    TidelockError,
)
from tidelock.model.names import is_hidden
from tidelock.model.schema.schema import TableSchema
from tidelock.model.types import spell_type, type_name
from tidelock.store.spark.sessions import Speaker


def refuse_other_columns(reads: Reads, planned: Planned, engine: Speaker) -> None:
    """Raise if the plan's rows cannot be put into the tables that are kept for the view."""
    stream, plan = planned.stream, planned.plan
    kept = reads.table(stream.name).dataset.schema
    inner = [
        (_schema(reads, internal_name(stream.table.id, one.segment.number)), one.schema)
        for one in plan.internal
    ]
    pairs = [(kept, plan.schema), *inner]
    if all(then.names == now.names and then.types == now.types for then, now in pairs):
        return
    changed = _changed_inputs(reads, stream)
    if changed or (changed is None and not is_foreign(stream, engine)):
        raise _broken(stream, kept, plan.schema, changed or ["its inputs"])
    raise _mismatch(stream, kept, plan.schema, engine)


def is_foreign(stream: Stream, engine: Speaker) -> bool:
    """Whether a table was made on another engine."""
    return bool(stream.state.made_on) and stream.state.made_on != engine.within


def unplannable(reads: Reads, stream: Stream, engine: Speaker, error: InputError) -> TidelockError:
    """The error for a query that once could be planned, and no longer can."""
    changed = _changed_inputs(reads, stream)
    if not changed and is_foreign(stream, engine):
        return not_here(stream, engine, error.message)
    why = "its query cannot be computed"
    if changed or changed is None:
        why = f"The inputs of {stream.name!r} changed so that {why}"
    else:
        why = f"The query of {stream.name!r} cannot be computed any more"
    return DefinitionBroken(
        f"{why}: {error.message.rstrip('. ')}. Replace its definition; or give the inputs back "
        "what it reads.",
        table=stream.name,
        cause=error.condition,
    )


def not_here(stream: Stream, engine: Speaker, words: str) -> EngineMismatch:
    """The error for what only the engine that a table was made on may be able to do."""
    made_on = stream.state.made_on
    return EngineMismatch(
        f"{stream.name!r} cannot be refreshed here: it was made on {made_on}, and here is "
        f"{engine.within}. {words.rstrip('. ')}. Refresh it on {made_on}, or replace its "
        "definition, which makes it anew.",
        table=stream.name,
        made_on=made_on,
        engine=engine.within,
    )


def _schema(reads: Reads, name: str) -> pa.Schema:
    try:
        return reads.table(name).dataset.schema
    except TableNotFound:
        # It is kept in other segments than it was.
        return pa.schema([])


def _changed_inputs(reads: Reads, stream: Stream) -> list[str] | None:
    """The inputs whose columns are not those that they were; None if that cannot be told."""
    if not stream.state.frontier:
        return None
    changed = []
    for entry in stream.state.frontier:
        read = next((one for one in stream.reads if one.then == entry), None)
        # Another table is in its place.
        name = entry.table if read is None else read.name
        try:
            table = reads.table(name)
            then = table.files.open(entry.table_id, entry.pin)
        except (SnapshotExpired, TableNotFound):
            return None
        if read is None or read.seen is None:
            if _columns(then.schema) != _columns(table.dataset.schema):
                changed.append(repr(name))
        elif any(_has_changed(one, table.schema) for one in read.seen.columns):
            changed.append(repr(name))
    return changed


def _has_changed(column: SeenColumn, schema: TableSchema) -> bool:
    now = schema.with_id(column.id)
    return now is None or spell_type(now.type) != column.type


def _broken(stream: Stream, kept: pa.Schema, given: pa.Schema, changed: list[str]) -> TidelockError:
    return DefinitionBroken(
        f"The columns of {' and '.join(changed)} changed so that the query of {stream.name!r} "
        f"gives {_difference(kept, given)}. Replace its definition.",
        table=stream.name,
        expected=_told(kept),
        actual=_told(given),
    )


def _mismatch(stream: Stream, kept: pa.Schema, given: pa.Schema, engine: Speaker) -> TidelockError:
    made_on = stream.state.made_on
    difference = _difference(kept, given)
    if is_foreign(stream, engine):
        cause = f"it was made on {made_on}, and {engine.within} gives {difference}"
        remedy = f"Refresh it on {made_on}"
    else:
        cause = f"{engine.within} gives {difference}, as its settings or its version are others"
        remedy = "Set it as it was"
    return EngineMismatch(
        f"{stream.name!r} cannot be refreshed here: {cause}. {remedy}, or replace its definition, "
        "which makes it anew.",
        table=stream.name,
        expected=_told(kept),
        actual=_told(given),
        made_on=made_on,
        engine=engine.within,
    )


def _difference(kept: pa.Schema, given: pa.Schema) -> str:
    """How the columns that are shown differ, in words that follow `gives`."""
    then, now = _columns(kept), _columns(given)
    if list(then) != list(now):
        return f"the columns {_told(given)} instead of {_told(kept)}"
    told = [f"{now[name]} for {name!r} instead of {then[name]}" for name in then]
    told = [one for one, name in zip(told, then, strict=True) if then[name] != now[name]]
    return ", ".join(told) or "other types to what is kept behind its columns"


def _columns(schema: pa.Schema) -> dict[str, str]:
    return {field.name: type_name(field.type) for field in schema if not is_hidden(field.name)}


def _told(schema: pa.Schema) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in _columns(schema).items())
