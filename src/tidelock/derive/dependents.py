"""What stream tables need of tables: who reads what would be dropped or get another type.

Owns: the judgement of what a commit leaves. It is made from the ids of tables and columns that
definitions hold, and from the declared schemas of tables that were altered: no engine is asked and
no query is planned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from tidelock.derive.planned import seen_before
from tidelock.derive.seen import SeenColumn, SeenInput
from tidelock.derive.stream import Stream, StreamInput
from tidelock.errors import Advice, TableInUse
from tidelock.model.history.commit import Tables, TableState
from tidelock.model.schema.schema import TableSchema
from tidelock.model.types import spell_type, type_name
from tidelock.store.tables.datasets import TableFiles


@dataclass(frozen=True)
class Need:
    """Something that a stream table reads, and that is no longer what it was."""

    stream: Stream
    input: StreamInput
    column: SeenColumn | None = None
    """None if it is the table itself that is gone."""
    type: pa.DataType | None = None
    """What the column's type is by now; None if it is gone."""


def unmet_needs(streams: Iterable[Stream], files: TableFiles) -> Iterator[Need]:
    """What stream tables of a snapshot read, and do not find as their definitions saw it."""
    for stream in streams:
        # A table that has no declared schema was never altered.
        altered = any(one.state is not None and one.state.schema for one in stream.reads)
        untold = altered and not stream.stored.seen
        before = seen_before(files, stream) if untold else {}
        for one in stream.reads:
            if one.state is None:
                yield Need(stream, one)
                continue
            seen = one.seen or before.get(one.label)
            if seen is not None and one.state.schema:
                yield from _of_columns(stream, one, seen, schema_at(files, one.state))


def _of_columns(
    stream: Stream, one: StreamInput, seen: SeenInput, schema: TableSchema
) -> Iterator[Need]:
    for column in seen.columns:
        if not column.read:
            continue
        now = schema.with_id(column.id)
        if now is None:
            yield Need(stream, one, column)
        elif spell_type(now.type) != column.type:
            yield Need(stream, one, column, now.type)


def schema_at(files: TableFiles, state: TableState) -> TableSchema:
    return files.known_schema(state) or files.schema(state, files.read(state))


def refuse_unmet(needs: Iterable[Need], before: Tables, files: TableFiles) -> None:
    """TableInUse if there are any, of the first table and column with all who read them."""
    found = sorted(needs, key=_order)
    if not found:
        return
    first = found[0]
    readers = list(dict.fromkeys(n.stream.name for n in found if _what(n) == _what(first)))
    listed = ", ".join(map(repr, readers))
    table = _name_before(first, before)
    if first.column is None:
        raise TableInUse(
            f"{table!r} is read by {listed}, so that it cannot be dropped.",
            Advice(
                "Drop those first with lake.drop_stream_table, or all of them with cascade=True; "
                "or create it again in the same transaction.",
                "Drop those first, with `tidelock stream drop`; or say CASCADE, or --cascade.",
            ),
            table=table,
            dependents=tuple(readers),
        )
    column = _column_before(first, before, files)
    raise TableInUse(
        f"Column {column!r} of {table!r} is read by {listed}, so that it cannot be "
        + ("dropped." if first.type is None else f"made {type_name(first.type)}."),
        Advice(
            "Replace or drop those first; or say cascade=True, which drops them too."
            if first.type is None
            else "Say cascade=True: then they get the new type too, and the next refresh computes "
            "them anew. Or drop them first.",
            "Replace or drop those first, with `tidelock stream`; or say CASCADE, or --cascade.",
        ),
        table=table,
        column=column,
        dependents=tuple(readers),
    )


def all_unmet(needs: Iterable[Need], before: Tables, files: TableFiles) -> Iterator[TableInUse]:
    """One TableInUse for each table and column."""
    found: dict[tuple[str, int, bool], list[Need]] = {}
    for need in needs:
        found.setdefault(_what(need), []).append(need)
    for some in found.values():
        try:
            refuse_unmet(some, before, files)
        except TableInUse as error:
            yield error


def _what(need: Need) -> tuple[str, int, bool]:
    """The table and the column that are needed."""
    column = -1 if need.column is None else need.column.id
    return _table_id(need) or need.input.label, column, need.type is not None


def _order(need: Need) -> tuple[bool, str, str, bool, str]:
    label = "" if need.column is None else need.column.label
    return need.column is not None, need.input.name, label, need.type is not None, need.stream.name


def _table_id(need: Need) -> str | None:
    seen = need.stream.stored.of(need.input.label)
    return None if seen is None else seen.table_id


def _before(need: Need, before: Tables) -> TableState | None:
    """The table that a need is of, as it was before the commit."""
    table_id = _table_id(need)
    found = (state for state in before.states() if state.id == table_id)
    return next(found, None) or before.find(need.input.label)


def _name_before(need: Need, before: Tables) -> str:
    state = _before(need, before)
    return need.input.name if state is None else state.name


def _column_before(need: Need, before: Tables, files: TableFiles) -> str:
    assert need.column is not None
    state = _before(need, before)
    known = None if state is None else schema_at(files, state).with_id(need.column.id)
    return need.column.label if known is None else known.name
