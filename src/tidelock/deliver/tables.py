"""Tables of other formats as destinations: what Iceberg and Delta have in common.

Owns: how a plan and a table that keeps its own watermark are brought together, and which columns
fit. The rows of a chunk and the mark that it is there are one commit of the table, so that what is
delivered does not depend on what the lake remembers.

    mark = (generation, until, plan): everything up to `until` is there, and nothing after it; the
                                      plan that set it tells this lake from a copy of it

| the table says | and the plan | then |
|---|---|---|
| there is no table | begins where the sink begins | it is made, with a mark |
| mark of this generation and lake | begins or ends a chunk there | what it has is passed over |
| mark of an earlier generation | is a replay | rows after the plan's beginning are taken back |
| anything else | | DestinationFailed: somebody changed the table, or the lake was put back |

Partitions are the table's own: chunks come for the whole of it, and a commit spans partitions.
After a crash: a chunk is there with its mark, or not at all. Data files that no commit names may
stay behind; the table's own maintenance removes them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidelock.deliver.sink import Recovered, SentChunk, is_left_by, rows_option
from tidelock.errors import DestinationFailed, InvalidOption
from tidelock.model.names import fold
from tidelock.model.sinks import Plan, SinkDefinition, SinkState, end_of, told, version_of
from tidelock.model.types import normal_type, spell_type
from tidelock.store.faults import hit
from tidelock.store.location import locate

ROWS_PER_COMMIT = 1_000_000


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a table has come, as the table itself says."""

    generation: int
    until: int
    plan: str
    """The identity of the plan that it was set by."""

    def has(self, chunk: SentChunk) -> bool:
        return chunk.generation <= self.generation and chunk.chunk.until <= self.until


@dataclass(frozen=True, slots=True)
class Found:
    """A table as it is now."""

    schema: pa.Schema
    owner: str | None
    """The id of the sink that made it; None when somebody else did."""
    mark: Mark | None


class TableSink(ABC):
    """A table that follows a table.

    Replay takes back what comes after a position, in one commit of the table, and sends it again:
    no row is there twice, and until the next delivery has ended the later ones are missing. A table
    that this sink did not make may hold rows of others, and is not replayed.
    """

    partitions_itself = True

    def __init__(self, definition: SinkDefinition, options: Mapping[str, Any]) -> None:
        self.definition = definition
        self.rows_per_chunk = rows_option(options, "rows_per_commit", ROWS_PER_COMMIT)
        self._found: Found | None = None

    # What a format does

    @abstractmethod
    def load(self) -> Found | None:
        """Read the table anew; None when there is none."""

    @abstractmethod
    def create(self, schema: pa.Schema, mark: Mark) -> None:
        """Make the table, owned by this sink and with a mark, in one commit."""

    @abstractmethod
    def append(
        self, chunk: SentChunk, rows: Iterator[pa.RecordBatch], added: pa.Schema, mark: Mark
    ) -> int:
        """Add rows, the columns that are new, and the mark, in one commit; its size in bytes.

        A commit that somebody else has made meanwhile (`has_since`) is as good.
        """

    @abstractmethod
    def take_back(self, column: str, after: int, mark: Mark) -> None:
        """Delete the rows with a higher value in a column, and set the mark, in one commit."""

    @abstractmethod
    def rows_above(self, column: str, after: int) -> int:
        """How many rows have a higher value in a column, in the table as it was last loaded."""

    def held(self, schema: pa.Schema) -> pa.Schema:
        """A schema as the format holds it, without what the lake's storage notes in it."""
        return plain(schema)

    def pass_over(self, chunk: SentChunk, rows: Iterator[pa.RecordBatch]) -> None:
        """A chunk that is there already is sent again: say again what was said of it."""
        return

    # What they share

    def plan(self, plan: Plan, schema: pa.Schema) -> None:
        found = self._found = self.load()
        mark = Mark(plan.generation, plan.after, plan.identity)
        if found is None:
            if plan.after > first_position(self.definition):
                raise self._failed(
                    f"{self.place} is gone, and what was delivered with it. To begin anew, {_AGAIN}"
                )
            self.create(self.held(schema), mark)
            hit("deliver.after_create")
            return
        if found.owner not in (None, self.definition.id):
            raise self._failed(
                f"{self.place} belongs to another sink, {found.owner}. Choose another place, or "
                "drop that table first"
            )
        if found.mark is None:
            if found.owner is not None or plan.after > first_position(self.definition):
                raise self._failed(
                    f"{self.place} does not say how far it has come: somebody made it anew, or "
                    f"changed its properties. To begin anew, drop it and {_AGAIN}"
                )
        elif disagrees(plan, found.mark):
            raise self._failed(
                f"{self.place} has what comes up to {self._told(found.mark.until)}, and the lake "
                f"goes on after {self._told(plan.after)}: one of them was put back, or the lake is "
                "a copy of the one that delivered. To replace what the table has by what this "
                "lake has, run `tidelock sink replay NAME --lose-rows`"
            )
        elif found.mark.generation < plan.generation and found.mark.until > plan.after:
            self._rewind(plan.after, mark)

    def write(self, chunk: SentChunk, rows: Iterator[pa.RecordBatch]) -> int:
        found = self._found or self.load()
        if found is None:
            raise self._failed(f"{self.place} was removed while it was written to")
        if found.mark is not None and found.mark.has(chunk):
            self.pass_over(chunk, rows)
            return 0
        added = self._fit(found, self.held(chunk.schema))
        # Whatever fails from here on may have been done: the table is read before the next try.
        self._found = None
        mark = Mark(chunk.generation, chunk.chunk.until, chunk.plan)
        size_bytes = self.append(chunk, rows, added, mark)
        self._found = Found(
            pa.schema([*found.schema, *added]) if len(added) else found.schema, found.owner, mark
        )
        return size_bytes

    def confirm(self, plan: Plan, state: SinkState) -> None:
        """Every chunk was confirmed by its own commit."""
        return

    def close(self) -> None:
        self._found = None

    def recover(self) -> Recovered | None:
        found = self.load()
        if found is None or found.mark is None:
            return None
        mark = found.mark
        return Recovered(mark.until, generation=mark.generation, left_by=mark.plan)

    def check_replay(self) -> int:
        """The generation of what is there; InvalidOption when nothing of it can be taken back."""
        found = self.load()
        if found is not None and found.owner != self.definition.id:
            raise InvalidOption(
                f"{self.place} was not made by sink {self.definition.name!r}, so that rows of "
                "others may be in it, and none is taken back. Replay into a table of its own: drop "
                "the sink, and create one with another place.",
                sink=self.definition.name,
            )
        return found.mark.generation if found is not None and found.mark is not None else 0

    @property
    def place(self) -> str:
        return f"The table at {self.definition.to}"

    def has_since(self, chunk: SentChunk) -> bool:
        """Whether the table has a chunk, now that a commit of it was refused."""
        found = self.load()
        return found is not None and found.mark is not None and found.mark.has(chunk)

    def _rewind(self, after: int, mark: Mark) -> None:
        if self.definition.feed == "inserts":
            self.take_back("_sequence", after, mark)
        elif after == end_of(version_of(after)):
            self.take_back("_version", version_of(after), mark)
        else:
            raise self._failed(
                f"{self.place} can be taken back to the end of a version, not into the middle of "
                f"the one after {self._told(after)}. To go on, {_AGAIN}"
            )
        self._found = self.load()

    def _fit(self, found: Found, schema: pa.Schema) -> pa.Schema:
        """The columns to be added, so that rows of a schema fit."""
        wrong = differences(found.schema, schema, owned=found.owner is not None)
        if wrong:
            raise self._failed(
                f"{self.place} does not fit the rows of {self.definition.table!r}: "
                + "; ".join(wrong)
                + ". Change it so that it does"
            )
        names = {fold(name) for name in found.schema.names}
        # What is there already has no value for a new column.
        return pa.schema(
            [field.with_nullable(True) for field in schema if fold(field.name) not in names]
        )

    def _told(self, position: int) -> int:
        return told(self.definition.feed, position)

    def _failed(self, what: str) -> DestinationFailed:
        name = self.definition.name
        return DestinationFailed(f"{what.replace('NAME', name)}.", sink=name, to=self.definition.to)


_AGAIN = "run `tidelock sink replay NAME --since POSITION`"


def first_position(definition: SinkDefinition) -> int:
    """The position before what a sink delivers first."""
    if definition.snapshot is not None:
        return end_of(definition.snapshot - 1)
    return definition.start


def disagrees(plan: Plan, mark: Mark) -> bool:
    """Whether a mark can be explained neither by this plan nor by a replay."""
    if mark.generation != plan.generation:
        return mark.generation > plan.generation
    ends = {plan.after, *(chunk.until for part in plan.parts for chunk in part.chunks)}
    return mark.until not in ends or not is_left_by(mark.plan, plan)


def differences(there: pa.Schema, rows: pa.Schema, owned: bool) -> list[str]:
    """Why rows of a schema do not fit a table; empty when they do.

    A column that only the rows have can be added. One that only the table has is fine in a table of
    somebody else's, if it may be NULL; in the sink's own it was dropped or renamed in the lake.
    """
    wrong = []
    fields = {fold(field.name): field for field in rows}
    for field in there:
        mine = fields.get(fold(field.name))
        if mine is None:
            if owned:
                wrong.append(f"column {field.name!r} is no longer in the lake")
            elif not field.nullable:
                wrong.append(f"column {field.name!r} is required, and the rows do not have it")
        elif mine.name != field.name:
            wrong.append(f"column {field.name!r} is written {mine.name!r} in the lake")
        elif _named(field.type) != _named(mine.type):
            wrong.append(
                f"column {field.name!r} is {_named(field.type)} there and {_named(mine.type)} here"
            )
        elif mine.nullable and not field.nullable:
            wrong.append(f"column {field.name!r} is NOT NULL there and may be NULL here")
    return wrong


def _named(kind: pa.DataType) -> str:
    return spell_type(kind, for_spark=True)


def plain(schema: pa.Schema) -> pa.Schema:
    """A schema without the metadata that the lake's storage puts there."""
    return pa.schema(
        [pa.field(f.name, normal_type(f.type, f.name), nullable=f.nullable) for f in schema]
    )


def uri_of(definition: SinkDefinition) -> str:
    """Where a table is: an absolute path, or a URI of any kind of storage that its format knows."""
    scheme, found, _ = definition.to.partition("://")
    if found and scheme.lower() not in ("file", "s3"):
        return definition.to
    return locate(definition.to).uri
