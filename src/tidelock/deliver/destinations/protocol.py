"""The protocol of destinations: what a kind of sink must do, and what it may do besides.

A delivery is planned before anything is sent. Then, for each plan, a destination is told

    plan(plan, schema)       what will come; it may prepare for it
    write(chunk, rows)       one chunk; chunks of one partition come in order
    confirm(plan, ended)     that all of it was written; what makes it known to readers goes here

and any of these again, with the same arguments and the same rows, after a crash or a failure.

Law: however often a chunk is written, its rows are in the destination once. A destination that can
tell what it has (by an id, a name, or a watermark of its own) keeps it by itself; one that cannot
passes `chunk.id` on to the receiver, which can.

Everything else has an answer that fits a destination of which nothing is known, and a kind that
knows more gives its own:

| asked | the answer of a destination that cannot tell |
|---|---|
| accept(terms) | it asks nobody before it acts |
| in_pieces() | chunks are written as a whole |
| partitions_itself | each partition has chunks of its own |
| refuse_occupied() | nothing is at its address |
| recover() | None: what it has is not known, and the sink stops |
| find_damage(standing) | None: what it has is not known |
| replay(request) | everything after a position is sent again; it makes of that what it will |
| repair(standing) | None: it has no manifest |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from tidelock.deliver.destinations.partitions import values_of
from tidelock.deliver.reports import ManifestReport
from tidelock.errors import InvalidOption, SinkStopped
from tidelock.model.positions import ORDINAL_BITS, version_of
from tidelock.model.sinks import (
    NOBODY,
    Chunk,
    DeliveryPlan,
    Feed,
    Lag,
    SinkDefinition,
    SinkState,
    Standing,
)

Ranges: TypeAlias = Mapping[str, Sequence[Chunk]]
"""Ranges of positions by the path of their partition, with the number of rows in each."""


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
        return show_range(self.feed, self.chunk)

    @property
    def id(self) -> str:
        """What tells this chunk from every other, whatever its rows are.

        The content that it is read from is part of it: a lake that was put back gives the same
        sequences to other rows.
        """
        again = f"/again-{self.generation}" if self.generation > 1 else ""
        return f"{self.sink_id}/{self.path}/{self.range}@{self.pin:x}{again}"


def show_range(feed: Feed, chunk: Chunk) -> str:
    return f"{_show(feed, chunk.after + 1)}-{_show(feed, chunk.until)}"


def _show(feed: Feed, position: int) -> str:
    if feed == "inserts":
        return f"{position:019d}"
    ordinal = position & ((1 << ORDINAL_BITS) - 1)
    return f"v{version_of(position):010d}.{ordinal:010d}"


@dataclass(frozen=True, slots=True)
class Piece:
    """What is sent at once of a chunk that is sent in pieces."""

    id: str
    rows: int
    body: bytes


class PieceReceiver(Protocol):
    """A destination that takes a chunk in pieces, and answers for each of them.

    A piece that it refuses is put aside by itself; those after it are sent.
    """

    def divide(self, chunk: SentChunk, rows: Iterator[pa.RecordBatch]) -> Iterator[Piece]:
        """A chunk in pieces: the same rows give the same pieces.

        Called by another thread, so that a piece is made while the one before it is sent.
        """

    def send(self, chunk: SentChunk, piece: Piece) -> int:
        """Write one piece; how many bytes that took. Raises what `Sink.write` does."""


class Guard(Protocol):
    """Asked before an act at a destination."""

    def __call__(self, *, surely: bool = False) -> None:
        """Raises when this process may not act any more; `surely` before what cannot be undone."""


def unguarded(*, surely: bool = False) -> None:
    """For a process that has a destination to itself."""


def never() -> bool:
    return False


def lose_nothing(plan: DeliveryPlan, ranges: Sequence[Ranges]) -> None:
    """For a destination whose rows are all in the lake."""


@dataclass(frozen=True, slots=True)
class Terms:
    """On what terms a process uses a destination.

    A process may be frozen in the middle of a call for longer than its lease, and another goes
    on meanwhile: whatever it would do next is not to be done.
    """

    guard: Guard = unguarded
    """Asked before each act."""
    stopped: Callable[[], bool] = never
    """Whether a wait is to end now, with DestinationFailed."""
    check_losses: Callable[[DeliveryPlan, Sequence[Ranges]], None] = lose_nothing
    """Asked before a plan takes ranges of rows back; raises when they must stay."""


@dataclass(frozen=True, slots=True)
class DestinationPosition:
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


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """What is to be sent again: of one partition, or of all, what comes after a position."""

    state: SinkState
    """Where the sink stands, of the generation that the replay begins."""
    partition: str | None
    since: int
    version: int
    """The version of the lake that is read."""
    standing: Standing | SinkStopped
    """What the lake knows of the sink, or why it knows nothing."""
    lose_rows: bool
    """Whether rows may go that the lake has no longer."""


@dataclass(frozen=True)
class SinkReplay:
    """A replay as a kind of destination does it, decided before anything is changed.

    This one sends everything after a position again, and leaves to the receiver what becomes of it.
    """

    state: SinkState
    """From which the next delivery goes on."""
    partition: str | None
    since: int
    version: int = 0
    """The version that chunks in `state` are read from; 0 when there are none."""

    def replaced(self) -> Sequence[Ranges]:
        """What it takes from the destination: its rows are lost if the lake has them no longer."""
        return ()

    def prepare(self) -> None:
        """Do at the destination what comes before the first plan. Done again after a crash."""


def go_back(state: SinkState, since: int) -> SinkState:
    """The state from which everything after a position is delivered again."""
    behind = {path: lag for path, lag in state.lagging.items() if lag.watermark < since}
    return replace(state, watermark=since, lagging=behind)


class Sink(ABC):
    """One destination. It is used by one thread at a time, though not always by the same."""

    rows_per_chunk: int
    """At most so many rows come at once."""
    partitions_itself = False
    """Whether it gets chunks of the whole table, whatever partitions there are."""
    has_one_schema = False
    """Whether everything there has the same columns: what is sent again then has the newest."""

    @abstractmethod
    def plan(self, plan: DeliveryPlan, schema: pa.Schema) -> None:
        """Prepare for a plan."""

    @abstractmethod
    def write(self, chunk: SentChunk, rows: Iterator[pa.RecordBatch]) -> int:
        """Write one chunk; how many bytes that took.

        Raises DestinationFailed when it is to be tried again later, ChunkRefused when it will
        never be taken.
        """

    @abstractmethod
    def confirm(self, plan: DeliveryPlan, state: SinkState) -> None:
        """Everything of a plan is written, apart from what `state` says is lagging."""

    @abstractmethod
    def close(self) -> None:
        """No more will come from this process for now."""

    # What it may know besides

    def accept(self, terms: Terms) -> None:
        """Keep to these terms from now on; told before anything else."""
        return

    def in_pieces(self) -> PieceReceiver | None:
        """That which takes chunks in pieces, if they are to be sent so."""
        return None

    def refuse_occupied(self) -> None:
        """SinkStopped when a new sink would meet what another has delivered."""
        return

    def recover(self) -> DestinationPosition | None:
        """What is there, once anything that is not known to be complete was taken back.

        None when it cannot be told. Called instead of `plan`, and never while a plan is known to
        be open.
        """
        return None

    def find_damage(self, standing: Standing) -> list[str] | None:
        """What is not as it was delivered, a sentence for each; None when it cannot be told."""
        return None

    def replay(self, request: ReplayRequest) -> SinkReplay:
        """How it would be replayed; InvalidOption when it cannot be. Changes nothing."""
        state, since = request.state, request.since
        if request.partition is None:
            return SinkReplay(go_back(state, since), None, since)
        lagging = {**state.lagging, request.partition: Lag(since, again=state.watermark)}
        return SinkReplay(replace(state, lagging=lagging), request.partition, since)

    def repair(self, standing: Standing) -> ManifestReport | None:
        """Write a manifest that is gone or cannot be read anew; None for a kind without one.

        InvalidOption when nothing is wrong with it, or when what is there cannot be told.
        """
        return None


def is_left_by(identity: str, plan: DeliveryPlan) -> bool:
    """Whether a destination is as it was before a plan, or as the plan itself leaves it.

    If not, another lake has written to it since: a copy of this one, or this one before somebody
    put it back to an earlier state.
    """
    return identity in (plan.before.left_by or (NOBODY,)) or identity == plan.identity


def as_planned(definition: SinkDefinition, sink: Sink) -> SinkDefinition:
    """The definition as it is planned for: a destination may see to partitions by itself."""
    if not sink.partitions_itself:
        return definition
    return replace(definition, partition_by=(), partition_ids=())


def rows_option(options: Mapping[str, Any], name: str, default: int) -> int:
    """An option that says how many rows come at once, as a number or as its text."""
    value = options.get(name, default)
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidOption(f"{name}={value!r} is not a number of rows from 1 on.", option=name)
    return value
