"""Plans of stream tables that exist, over what their inputs are now.

Owns: what a definition sees of each input at this moment, and whether its query still holds there.
A plan is written in labels; which column of which pin a label means is told by `SeenInput`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tidelock.derive.plan.view import ViewPlan
from tidelock.derive.seen import SeenInput, with_reads
from tidelock.derive.sight import columns_read, label_schema, see
from tidelock.derive.sql.query import read_view
from tidelock.derive.stream import Stored, Stream, StreamInput
from tidelock.errors import DefinitionBroken, SnapshotExpired, TableNotFound, TidelockError
from tidelock.model.schema.schema import TableSchema
from tidelock.model.types import spell_type
from tidelock.store.table import Table
from tidelock.store.tables.datasets import TableFiles, schema_of


class Reads(Protocol):
    """What a plan is made over: a transaction or a snapshot."""

    def table(self, name: str) -> Table: ...


@dataclass(frozen=True)
class PlannedInput:
    """One input of a plan: what the definition sees of it, and what it is."""

    label: str
    name: str
    seen: SeenInput
    schema: TableSchema
    """Its columns as they are now."""

    @property
    def unseen(self) -> tuple[str, ...]:
        """The columns that came since."""
        known = {column.id for column in self.seen.columns}
        return tuple(one.name for one in self.schema.columns if one.id not in known)


@dataclass(frozen=True)
class Planned:
    """The plan of a stream table, with its inputs."""

    plan: ViewPlan
    stream: Stream
    inputs: tuple[PlannedInput, ...]
    rebuilt: bool = False
    """Whether the segments are others than they were, for less is known of the inputs: they may
    hold NULLs, or have no key, where they had none or one."""

    def input(self, label: str) -> PlannedInput:
        return next(one for one in self.inputs if one.label == label)

    @property
    def stored(self) -> Stored:
        """The definition as it is kept from now on, with what it sees."""
        seen = tuple(one.seen for one in self.inputs)
        known = self.stream.stored
        return known if set(known.seen) == set(seen) else replace(known, seen=seen)


def see_input(reads: Reads, one: StreamInput) -> PlannedInput:
    """What a stream table sees of an input."""
    if one.state is None:
        raise TableNotFound(f"There is no table {one.label!r}.", table=one.label)
    table = reads.table(one.name)
    seen = one.seen or see(one.label, one.state.id, _then(table.files, one, table.schema))
    return PlannedInput(one.label, one.name, seen, table.schema)


def _then(files: TableFiles, one: StreamInput, now: TableSchema) -> TableSchema:
    """The columns of an input of which it was not kept what they were: those that it had when the
    stream table was computed, or else those that it has."""
    if one.then is None or one.state is None or not one.state.schema:
        return now
    try:
        then = schema_of(files.open(one.then.table_id, one.then.pin), ()).shown
    except SnapshotExpired:
        return now
    key = [then.with_id(column_id) for column_id in now.key_ids]
    names = tuple(column.name for column in key if column is not None)
    return replace(then, key=names) if len(names) == len(key) else then


def seen_before(files: TableFiles, stream: Stream) -> dict[str, SeenInput]:
    """What a stream table saw of its inputs when it was computed, where its definition does not
    say; nothing if that cannot be told. No engine is asked."""
    found = {}
    for one in stream.reads:
        if one.state is None or one.then is None:
            return {}
        now = files.known_schema(one.state) or files.schema(one.state, files.read(one.state))
        found[one.label] = see(one.label, one.state.id, _then(files, one, now.shown))
    schemas = {label: label_schema(seen) for label, seen in found.items()}
    try:
        view = read_view(stream.definition.query, schemas)
        read = columns_read(view, stream.definition.query, schemas)
    except TidelockError:
        return {}
    return {label: with_reads(seen, read.get(label, ())) for label, seen in found.items()}


def refuse_broken(stream: Stream, inputs: Sequence[PlannedInput]) -> None:
    """DefinitionBroken if the query reads a column that is gone, or is of another type."""
    for one in inputs:
        for column in one.seen.columns:
            now = one.schema.with_id(column.id)
            if not column.read or (now is not None and spell_type(now.type) == column.type):
                continue
            what = "was dropped" if now is None else f"is {spell_type(now.type)} by now"
            raise DefinitionBroken(
                f"Column {column.label!r} of {one.name!r}, which {stream.name!r} reads, {what}. "
                "Replace its definition.",
                table=stream.name,
                column=column.label,
            )
