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

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import pyarrow as pa

from tidelock.deliver.destinations.partitions import WHOLE
from tidelock.deliver.destinations.protocol import (
    DestinationPosition,
    Ranges,
    ReplayRequest,
    SentChunk,
    Sink,
    SinkReplay,
    Terms,
    go_back,
    is_left_by,
    rows_option,
)
from tidelock.deliver.destinations.secrets import resolve
from tidelock.errors import Advice, DestinationFailed, InvalidOption, SinkStopped
from tidelock.model.names import fold
from tidelock.model.sinks import (
    NOBODY,
    Chunk,
    DeliveryPlan,
    SinkDefinition,
    SinkState,
    Standing,
    end_of,
    first_position,
    told,
    version_of,
)
from tidelock.model.types import normal_type, spell_type
from tidelock.store.lookup.by_sequence import SEQUENCE
from tidelock.store.objects.failpoints import hit
from tidelock.store.objects.location import locate

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
class ForeignTable:
    """A destination's table as it was last read."""

    schema: pa.Schema
    owner: str | None
    """The id of the sink that made it; None when somebody else did."""
    mark: Mark | None


class TableSink(Sink):
    """A table that follows a table.

    Owns: the marks of a destination's table, and what is made of one that disagrees with a plan.

    Replay takes back what comes after a position, in one commit of the table, and sends it again:
    no row is there twice, and until the next delivery has ended the later ones are missing. A table
    that this sink did not make may hold rows of others, and is not replayed.
    """

    partitions_itself = True

    def __init__(self, definition: SinkDefinition, options: Mapping[str, Any]) -> None:
        self.definition = definition
        self.rows_per_chunk = rows_option(options, "rows_per_commit", ROWS_PER_COMMIT)
        self._terms = Terms()
        self._known: ForeignTable | None = None
        """The table, for as long as nothing was done that may have changed it."""

    @classmethod
    def open(cls, definition: SinkDefinition) -> Self:
        return cls(definition, resolve(definition.options))

    def accept(self, terms: Terms) -> None:
        self._terms = terms

    # What a format does

    @abstractmethod
    def load(self) -> ForeignTable | None:
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

    @abstractmethod
    def missing_files(self) -> list[str]:
        """The data files that the table names, as it was last loaded, and that are not there."""

    def held(self, schema: pa.Schema) -> pa.Schema:
        """A schema as the format holds it, without what the lake's storage notes in it."""
        return plain(schema)

    # What they share

    def plan(self, plan: DeliveryPlan, schema: pa.Schema) -> None:
        table = self._known = self.load()
        mark = Mark(plan.generation, plan.after, plan.identity)
        if table is None:
            if plan.after > first_position(self.definition):
                raise self._failed(
                    f"{self.title} is gone, and what was delivered with it. To begin anew, replay "
                    "the sink",
                    self._replay("since=POSITION", "--since POSITION"),
                )
            self._terms.guard()
            self.create(self.held(schema), mark)
            hit("deliver.after_create")
            return
        if table.owner not in (None, self.definition.id):
            raise self._failed(
                f"{self.title} belongs to another sink, {table.owner}. Choose another address, or "
                "drop that table first"
            )
        if table.mark is None:
            if table.owner is not None or plan.after > first_position(self.definition):
                raise self._failed(
                    f"{self.title} does not say how far it has come: somebody made it anew, or "
                    "changed its properties. To begin anew, drop it and replay the sink",
                    self._replay("since=POSITION", "--since POSITION"),
                )
        elif disagrees(plan, table.mark):
            raise self._failed(
                f"{self.title} has what comes up to {self._told(table.mark.until)}, and the lake "
                f"goes on after {self._told(plan.after)}: one of them was put back, or the lake is "
                "a copy of the one that delivered. A replay replaces what the table has by what "
                "this lake has",
                self._replay("lose_rows=True", "--lose-rows"),
            )
        elif table.mark.generation < plan.generation and table.mark.until > plan.after:
            if self.definition.feed == "inserts":
                self._terms.check_losses(plan, self.ranges_above(table, plan.after))
            hit("tables.before_rewind")
            self._terms.guard(surely=True)
            self._rewind(plan.after, mark)

    def write(self, chunk: SentChunk, rows: Iterator[pa.RecordBatch]) -> int:
        table = self._known or self.load()
        if table is None:
            raise self._failed(f"{self.title} was removed while it was written to")
        if table.mark is not None and table.mark.has(chunk):
            return 0
        added = self._fit(table, self.held(chunk.schema))
        # Whatever fails from here on may have been done: the table is read before the next try.
        self._known = None
        mark = Mark(chunk.generation, chunk.chunk.until, chunk.plan)
        self._terms.guard()
        size_bytes = self.append(chunk, rows, added, mark)
        self._known = ForeignTable(
            pa.schema([*table.schema, *added]) if len(added) else table.schema, table.owner, mark
        )
        return size_bytes

    def confirm(self, plan: DeliveryPlan, state: SinkState) -> None:
        """Every chunk was confirmed by its own commit."""
        return

    def close(self) -> None:
        self._known = None

    def recover(self) -> DestinationPosition | None:
        table = self.load()
        if table is None or table.mark is None:
            return None
        mark = table.mark
        return DestinationPosition(mark.until, generation=mark.generation, left_by=mark.plan)

    def refuse_occupied(self) -> None:
        table = self.load()
        if table is not None and table.owner is not None:
            raise SinkStopped(
                f"{self.title} belongs to another sink, {table.owner}. Choose another address, or "
                "drop that table first.",
                owner=table.owner,
            )

    def find_damage(self, standing: Standing) -> list[str]:
        state = standing.state
        if not state.left_by:
            return []
        table = self.load()
        if table is None:
            return [f"{self.title} is gone."]
        if table.mark is None:
            return [f"{self.title} does not say how far it has come: somebody made it anew."]
        known = standing.given_up().left_by or (NOBODY,)
        sentences = []
        if table.mark.generation == state.generation and table.mark.plan not in known:
            sentences.append(
                f"{self.title} has what comes up to {self._told(table.mark.until)}, and was last "
                "written by another lake, or by this one before it was put back."
            )
        return sentences + [f"{path} is gone." for path in self.missing_files()]

    def replay(self, request: ReplayRequest) -> SinkReplay:
        """The next plan takes back what comes after the position, in one commit."""
        table = self.load()
        if table is not None and table.owner != self.definition.id:
            raise InvalidOption(
                f"{self.title} was not made by sink {self.definition.name!r}, so that rows of "
                "others may be in it, and none is taken back. Replay into a table of its own: drop "
                "the sink, and create one with another address.",
                sink=self.definition.name,
            )
        there = table.mark.generation if table is not None and table.mark is not None else 0
        state = replace(request.state, generation=max(request.state.generation, there + 1))
        since = request.since
        return _TableReplay(go_back(state, since), None, since, sink=self, table=table)

    def ranges_above(self, table: ForeignTable | None, since: int) -> Sequence[Ranges]:
        """What the table, as it was last loaded, has after a position."""
        if table is None or table.mark is None or table.mark.until <= since:
            return ()
        rows = self.rows_above(SEQUENCE, since)
        return ({WHOLE: (Chunk(since, table.mark.until, rows),)},)

    @property
    def title(self) -> str:
        """The table, as the subject of a sentence."""
        return f"The table at {self.definition.to}"

    def has_since(self, chunk: SentChunk) -> bool:
        """Whether the table has a chunk, now that a commit of it was refused."""
        table = self.load()
        return table is not None and table.mark is not None and table.mark.has(chunk)

    def _rewind(self, after: int, mark: Mark) -> None:
        if self.definition.feed == "inserts":
            self.take_back(SEQUENCE, after, mark)
        elif after == end_of(version_of(after)):
            self.take_back("_version", version_of(after), mark)
        else:
            raise self._failed(
                f"{self.title} can be taken back to the end of a version, not into the middle of "
                f"the one after {self._told(after)}. To go on, replay the sink",
                self._replay("since=POSITION", "--since POSITION"),
            )
        self._known = self.load()

    def _fit(self, table: ForeignTable, schema: pa.Schema) -> pa.Schema:
        """The columns to be added, so that rows of a schema fit."""
        wrong = differences(table.schema, schema, owned=table.owner is not None)
        if wrong:
            raise self._failed(
                f"{self.title} does not fit the rows of {self.definition.table!r}: "
                + "; ".join(wrong)
                + ". Change it so that it does"
            )
        names = {fold(name) for name in table.schema.names}
        # What is there already has no value for a new column.
        return pa.schema(
            [field.with_nullable(True) for field in schema if fold(field.name) not in names]
        )

    def _told(self, position: int) -> int:
        return told(self.definition.feed, position)

    def _replay(self, argument: str, option: str) -> Advice:
        name = self.definition.name
        return Advice(
            f"Call lake.replay({name!r}, {argument}).",
            f"Run `tidelock sink replay {name} {option}`.",
        )

    def _failed(self, what: str, advice: Advice | None = None) -> DestinationFailed:
        name, to = self.definition.name, self.definition.to
        return DestinationFailed(f"{what}.", advice, sink=name, to=to)


@dataclass(frozen=True, kw_only=True)
class _TableReplay(SinkReplay):
    sink: TableSink
    table: ForeignTable | None

    def replaced(self) -> Sequence[Ranges]:
        return self.sink.ranges_above(self.table, self.since)


def disagrees(plan: DeliveryPlan, mark: Mark) -> bool:
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
    scheme, separator, _ = definition.to.partition("://")
    if separator and scheme.lower() not in ("file", "s3"):
        return definition.to
    return locate(definition.to).uri
