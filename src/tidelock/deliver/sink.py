"""The protocol of destinations: what a kind of sink must do.

A delivery is planned before anything is sent. Then, for each plan, a destination is told

    plan(plan, schema)       what will come; it may prepare for it
    write(chunk, rows)       one chunk; chunks of one partition come in order
    confirm(plan, ended)     that all of it was written; what makes it known to readers goes here

and any of these again, with the same arguments and the same rows, after a crash or a failure.

Law: however often a chunk is written, its rows are in the destination once. A destination that can
tell what it has (by an id, a name, or a watermark of its own) keeps it by itself; one that cannot
passes `chunk.id` on to whoever can.

A destination may do more than it must: take a chunk in pieces (`PieceSink`), hear that it is not to
be waited for (`WaitingSink`), tell what it has should the lake have forgotten it
(`RecoverableSink`), and see to its partitions by itself (`follows`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from tidelock.deliver.partitions import values_of
from tidelock.errors import InvalidOption
from tidelock.model.sinks import Chunk, Feed, Plan, SinkDefinition, SinkState, version_of

PLACE_MASK = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class SentChunk:
    """One chunk as its destination sees it."""

    sink_id: str
    feed: Feed
    path: str
    """The logical path of its partition; empty for a sink without partitions."""
    chunk: Chunk
    generation: int
    schema: pa.Schema
    plan: str = ""
    """The identity of the plan by which it comes this time."""
    pin: int = 0
    """The content of the table that its rows are read from."""

    @property
    def rows(self) -> int:
        return self.chunk.rows

    @property
    def values(self) -> tuple[str | None, ...]:
        """The partition's values as text, None for NULL."""
        return values_of(self.path)

    @property
    def range(self) -> str:
        """The positions that it covers, in a form that sorts as they do."""
        return f"{show(self.feed, self.chunk.after + 1)}-{show(self.feed, self.chunk.until)}"

    @property
    def id(self) -> str:
        """What tells this chunk from every other, whatever its rows are.

        The content that it is read from is part of it: a lake that was put back gives the same
        sequences to other rows.
        """
        again = f"/again-{self.generation}" if self.generation > 1 else ""
        return f"{self.sink_id}/{self.path}/{self.range}@{self.pin:x}{again}"


def show(feed: Feed, position: int) -> str:
    if feed == "inserts":
        return f"{position:019d}"
    return f"v{version_of(position):010d}.{position & PLACE_MASK:010d}"


@runtime_checkable
class Sink(Protocol):
    """One destination. It is used by one thread at a time."""

    rows_per_chunk: int
    """At most so many rows come at once."""

    def plan(self, plan: Plan, schema: pa.Schema) -> None:
        """Prepare for a plan."""

    def write(self, chunk: SentChunk, rows: Iterator[pa.RecordBatch]) -> int:
        """Write one chunk; how many bytes that took.

        Raises DestinationFailed when it is to be tried again later, ChunkRefused when it will
        never be taken.
        """

    def confirm(self, plan: Plan, state: SinkState) -> None:
        """Everything of a plan is written, apart from what `state` says is lagging."""

    def close(self) -> None:
        """No more will come from this process for now."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What is sent at once of a chunk that is sent in pieces."""

    id: str
    rows: int
    body: bytes


@runtime_checkable
class PieceSink(Protocol):
    """A destination that takes a chunk in pieces, and answers for each of them.

    A piece that it refuses is put aside by itself; those after it are sent.
    """

    def divide(self, chunk: SentChunk, rows: Iterator[pa.RecordBatch]) -> Iterator[Piece]:
        """A chunk in pieces: the same rows give the same pieces.

        Called by another thread, so that a piece is made while the one before it is sent.
        """

    def send(self, chunk: SentChunk, piece: Piece) -> int:
        """Write one piece; how many bytes that took. Raises what `write` does."""


@runtime_checkable
class WaitingSink(Protocol):
    """A destination that waits when it is asked to, but not for longer than it is allowed."""

    stopped: Callable[[], bool]
    """Whether to end with DestinationFailed now; set before the first plan."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """How far a destination has come, as it says itself: nothing after that is in it."""

    watermark: int
    """Of every partition that is not named."""
    lagging: dict[str, int] = field(default_factory=dict)
    """The partitions that are behind."""
    plan: int = 0
    """The last plan that it knows to be complete, if it knows plans."""
    generation: int = 1
    left_by: str = ""
    """The identity of the plan that reached it last; empty when none did."""


@runtime_checkable
class RecoverableSink(Protocol):
    """A destination that can tell what it has, should the lake have forgotten it."""

    def recover(self) -> Recovered | None:
        """What is there, once anything that is not known to be complete was taken back.

        None when it cannot be told. Called instead of `plan`, and never while a plan is known to
        be open.
        """


def is_left_by(identity: str, plan: Plan) -> bool:
    """Whether a destination is as it was before a plan, or as the plan itself leaves it.

    If not, another lake has written to it since: a copy of this one, or this one before somebody
    put it back to an earlier state.
    """
    return identity in (plan.before.left_by or ("",)) or identity == plan.identity


def follows(definition: SinkDefinition, sink: Sink) -> SinkDefinition:
    """The definition as it is planned for: a destination may see to partitions by itself.

    One with `partitions_itself` gets chunks of the whole table, whatever partitions there are.
    """
    if getattr(sink, "partitions_itself", False):
        return replace(definition, partition_by=())
    return definition


def rows_option(options: Mapping[str, Any], name: str, default: int) -> int:
    """An option that says how many rows come at once, as a number or as its text."""
    value = options.get(name, default)
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidOption(f"{name}={value!r} is not a number of rows from 1 on.", option=name)
    return value
