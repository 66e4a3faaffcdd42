"""Tables of other formats as destinations: what Iceberg and Delta have in common.

Owns: how a plan and a table that keeps its own watermark are brought together, and which columns
fit. The rows of a chunk and the mark that it is there are one commit of the table, so that what is
delivered does not depend on what the lake remembers.

    mark = (generation, until, plan, columns): everything up to `until` is there, and nothing after
                                      it; the plan that set it tells this lake from a copy of it;
                                      and which columns of the lake those of the table are

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

from tidelock.deliver.destinations.evolution import (
    Evolution,
    evolve,
    evolve_by_name,
    evolved,
    spelled,
)
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
from tidelock.errors import Advice, DestinationFailed, InvalidOption, SinkStopped
from tidelock.model.names import fold
from tidelock.model.positions import end_of, version_of
from tidelock.model.sinks import (
    NOBODY,
    Chunk,
    DeliveryPlan,
    SentColumn,
    SinkDefinition,
    SinkState,
    Standing,
    digest_of,
    first_position,
    told,
)
from tidelock.model.types import normal_type
from tidelock.store.lookup.by_sequence import SEQUENCE
from tidelock.store.objects.failpoints import hit
from tidelock.store.objects.kinds.location import locate
from tidelock.store.secrets import resolve

ROWS_PER_COMMIT = 1_000_000


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a table has come, as the table itself says."""

    generation: int
    until: int
    plan: str
    """The identity of the plan that it was set by."""
    columns: str = ""
    """The digest of the columns that rows came with last; empty where it was not noted."""

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
    has_one_schema = True
    keeps_dropped = False
    """Whether columns stay that the lake has dropped, as its format cannot drop them."""

    def __init__(self, definition: SinkDefinition, options: Mapping[str, Any]) -> None:
        self.definition = definition
        self.rows_per_chunk = rows_option(options, "rows_per_commit", ROWS_PER_COMMIT)
        self._terms = Terms()
        self._known: ForeignTable | None = None
        """The table, for as long as nothing was done that may have changed it."""
        self._sent: tuple[SentColumn, ...] = ()
        """The columns that rows came with before the plan."""
        self._columns: tuple[SentColumn, ...] = ()
        """The columns that rows come with by the plan."""

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
        self, chunk: SentChunk, rows: Iterator[pa.RecordBatch], evolution: Evolution, mark: Mark
    ) -> int:
        """Evolve the columns, add rows, and set the mark, in one commit; its size in bytes.

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

    @abstractmethod
    def why_not(self, table: ForeignTable, evolution: Evolution) -> str | None:
        """Why the columns cannot become others, as a sentence without its end; None if they can."""

    def held(self, schema: pa.Schema) -> pa.Schema:
        """A schema as the format holds it, without what the lake's storage notes in it."""
        return plain(schema)

    # What they share

    def plan(self, plan: DeliveryPlan, schema: pa.Schema) -> None:
        table = self._known = self.load()
        self._sent, self._columns = plan.before.columns, plan.columns
        mark = Mark(plan.generation, plan.after, plan.identity, digest_of(plan.columns))
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
        # What cannot be followed is told before anything is sent, or taken back.
        self._evolution(table, schema)
        if (
            table.mark is not None
            and table.mark.generation < plan.generation
            and table.mark.until > plan.after
        ):
            if self.definition.feed == "inserts":
                self._terms.check_losses(plan, self.ranges_above(table, plan.after))
            hit("tables.before_rewind")
            self._terms.guard(surely=True)
            self._rewind(plan.after, replace(mark, columns=table.mark.columns))

    def write(self, chunk: SentChunk, rows: Iterator[pa.RecordBatch]) -> int:
        table = self._known or self.load()
        if table is None:
            raise self._failed(f"{self.title} was removed while it was written to")
        if table.mark is not None and table.mark.has(chunk):
            return 0
        evolution = self._evolution(table, chunk.schema)
        # Whatever fails from here on may have been done: the table is read before the next try.
        self._known = None
        columns = digest_of(self._columns)
        mark = Mark(chunk.generation, chunk.chunk.until, chunk.plan, columns)
        self._terms.guard()
        size_bytes = self.append(chunk, rows, evolution, mark)
        schema = evolved(table.schema, evolution, keeps_dropped=self.keeps_dropped)
        self._known = ForeignTable(schema, table.owner, mark)
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

    @property
    def divided(self) -> tuple[str, ...]:
        """The columns that divide the table, by the names that rows have."""
        names = {one.id: one.name for one in self._columns}
        labels, ids = self.definition.partition_by, self.definition.partition_ids
        if not ids or not names:
            return labels
        return tuple(names.get(one, label) for one, label in zip(ids, labels, strict=True))

    def _evolution(self, table: ForeignTable, rows: pa.Schema) -> Evolution:
        """What becomes of the columns of the table, so that rows of a schema fit.

        SinkStopped if it cannot be; DestinationFailed if somebody changed the table so that they
        do not.
        """
        schema, before = self.held(rows), self._sent_to(table)
        if before is None:
            evolution, owned = evolve_by_name(table.schema, schema), table.owner is not None
        else:
            evolution, owned = evolve(table.schema, schema, before, self._columns), False
            why = self._why_not(table, evolution)
            if why is not None:
                raise self._unable(why)
        there = evolved(table.schema, evolution, keeps_dropped=self.keeps_dropped)
        wrong = differences(there, schema, owned=owned)
        if wrong:
            raise self._failed(
                f"{self.title} does not fit the rows of {self.definition.table!r}: "
                + "; ".join(wrong)
                + ". Change it so that it does"
            )
        return evolution

    def _sent_to(self, table: ForeignTable) -> tuple[SentColumn, ...] | None:
        """Which columns of the lake those of the table are; None if only their names tell."""
        told = "" if table.mark is None else table.mark.columns
        if not self._columns:
            return None
        if told and told == digest_of(self._columns):
            return self._columns
        if told in ("", digest_of(self._sent)):
            return self._sent or None
        return None

    def _why_not(self, table: ForeignTable, evolution: Evolution) -> str | None:
        if table.owner is None and (evolution.renamed or evolution.dropped or evolution.widened):
            return "it was made by somebody else, and its columns are left as they are"
        left = {*evolution.dropped, *(name for name, _ in evolution.renamed)}
        left = left if not self.keeps_dropped else left.difference(evolution.dropped)
        taken = {fold(name) for name in table.schema.names if name not in left}
        for field in evolution.added:
            if fold(field.name) in taken:
                return f"it has a column {field.name!r} already, which is another one"
        return self.why_not(table, evolution)

    def _unable(self, why: str) -> SinkStopped:
        name, table = self.definition.name, self.definition.table
        return SinkStopped(
            f"{self.title} cannot follow the columns of {table!r}: {why}. Nothing was sent.",
            Advice(
                f"Create a sink with another address, and drop {name!r}; or alter the table back, "
                f"and call lake.replay({name!r}, since=POSITION).",
                f"Create a sink with another address, and drop {name!r}; or alter the table back, "
                f"and run `tidelock sink replay {name} --since POSITION`.",
            ),
            sink=name,
            to=self.definition.to,
            reason=why,
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
        elif spelled(field.type) != spelled(mine.type):
            wrong.append(
                f"column {field.name!r} is {spelled(field.type)} there and {spelled(mine.type)} "
                "here"
            )
        elif mine.nullable and not field.nullable:
            wrong.append(f"column {field.name!r} is NOT NULL there and may be NULL here")
    return wrong


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
