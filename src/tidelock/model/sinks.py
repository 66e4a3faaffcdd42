"""Sinks as data: what follows which table to where, and how far it has come.

What is delivered is counted by positions (positions.py). Ranges of them are open below and closed
above: (after, until].

Invariants:
    a partition's watermark is that of `lagging[path]`, else `watermark`;
    lagging[path].watermark < watermark; plans are numbered 1, 2, 3, … and closed in that order;
    the chunks of a part are contiguous: until of one is after of the next.

Every value here is frozen and holds only plain types, so that an object is its own wire format.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from tidelock.errors import InvalidOption
from tidelock.model.positions import end_of, version_of

Feed = Literal["inserts", "changes"]
FEEDS = ("inserts", "changes")
HOLDS: dict[Feed, str] = {
    "inserts": (
        "It will hold each row once, as it was when it was delivered: later updates, deletions and "
        "retention do not reach it; a feed of changes carries those"
    ),
    "changes": (
        "It will hold every change of every commit, with updates and deletions as rows of their "
        "own, marked by _op"
    ),
}
"""What a destination will and will not hold, for each feed."""
NOBODY = ""
"""What a destination that no plan has reached says of who did."""


def told(feed: Feed, position: int) -> int:
    """A position as users know it: a sequence, or the last version that is complete."""
    return position if feed == "inserts" else version_of(position + 1) - 1


@dataclass(frozen=True, slots=True)
class SinkDefinition:
    """What a user asked for when the sink was created."""

    name: str
    id: str
    table: str
    table_id: str
    branch: str
    branch_id: str
    kind: str
    to: str
    feed: Feed
    partition_by: tuple[str, ...]
    schedule: str | None
    start: int
    """The position at which it began."""
    snapshot: int | None
    """The version whose rows a `changes` feed delivers first, as inserted."""
    hold_seconds: float
    options: dict[str, Any]
    actor: str
    created: datetime
    format: int = 1
    partition_ids: tuple[int, ...] = ()
    """The ids of the columns in `partition_by`, which are called so when the sink is made; empty in
    definitions from before ids were kept."""


def first_position(definition: SinkDefinition) -> int:
    """The position before what a sink delivers first."""
    if definition.snapshot is not None:
        return end_of(definition.snapshot - 1)
    return definition.start


@dataclass(frozen=True, slots=True)
class SentColumn:
    """A column of the rows that are sent: what it is, and what it is called."""

    id: int
    name: str
    type: str
    nullable: bool = True


def digest_of(columns: tuple[SentColumn, ...]) -> str:
    """What tells columns from others, as a destination may note it; empty for none."""
    told = json.dumps([[one.id, one.name, one.type] for one in columns])
    return hashlib.blake2b(told.encode(), digest_size=7).hexdigest() if columns else ""


@dataclass(frozen=True, slots=True)
class Chunk:
    """What is sent at once: the rows of one partition with positions in (after, until]."""

    after: int
    until: int
    rows: int


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a partition does not go on, and when it is tried again."""

    reason: str
    condition: str
    failures: int
    since: datetime
    retry_at: datetime
    asked: bool = False
    """Whether the destination itself said when, as Retry-After does."""


@dataclass(frozen=True, slots=True)
class Lag:
    """A partition that is behind the others."""

    watermark: int
    chunks: tuple[Chunk, ...] = ()
    """What was planned for it and is still to be sent, just so."""
    version: int = 0
    """The version of the lake that those chunks are read from."""
    of: int = 0
    """The plan whose note tells the rows of those chunks; 0 when their partition does."""
    skipped: tuple[int, ...] = ()
    """The plans that went on without it, each with a note of its rows."""
    again: int = -1
    """The position up to which it is sent again: rows that are in the partition now."""
    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True)
class SinkState:
    """How far a sink has come."""

    plan: int
    """The number of the last plan that is closed."""
    watermark: int
    lagging: dict[str, Lag] = field(default_factory=dict)
    """The partitions that are behind, by their logical path."""
    seen: int = 0
    """The version at which the table had last changed when everything was planned."""
    fragment: int = -1
    """The newest fragment then: later rows are in later ones."""
    generation: int = 1
    """Raised when rows are sent again on purpose, so that their ids differ."""
    accepted: int = 0
    """The version up to which somebody accepted that rows were lost."""
    read: tuple[int, int] = (0, 0)
    """The version that the last plan read, and the pin of the table then."""
    left_by: tuple[str, ...] = ()
    """The identities of plans, one of which was the last to reach the destination; () for none."""
    may_lose_rows: bool = False
    """Whether a replay may take rows from the destination that the lake has no longer."""
    format: int = 1
    columns: tuple[SentColumn, ...] = ()
    """The newest columns that rows were sent with; empty before the first."""
    shown: int = 0
    """The version that those are of."""

    @property
    def reached(self) -> int:
        """The position up to which every partition has everything."""
        return min([self.watermark, *(lag.watermark for lag in self.lagging.values())])

    def watermark_of(self, path: str) -> int:
        lag = self.lagging.get(path)
        return self.watermark if lag is None else lag.watermark


@dataclass(frozen=True, slots=True)
class Part:
    """The chunks of one partition, in order."""

    path: str
    chunks: tuple[Chunk, ...]

    @property
    def after(self) -> int:
        return self.chunks[0].after

    @property
    def until(self) -> int:
        return self.chunks[-1].until

    @property
    def rows(self) -> int:
        return sum(chunk.rows for chunk in self.chunks)


@dataclass(frozen=True, slots=True)
class DeliveryPlan:
    """One delivery, decided before anything is sent, and repeated as it is until it is done."""

    number: int
    sink_id: str
    version: int
    """The version of the lake that is read."""
    after: int
    until: int
    parts: tuple[Part, ...]
    before: SinkState
    next: SinkState
    """The state once everything is delivered."""
    generation: int = 1
    of: int = 0
    """The plan whose note tells the rows, for a partition that catches up; else 0."""
    pin: int = 0
    """The content of the table at that version."""
    created: datetime | None = None
    closed: bool = False
    format: int = 1
    columns: tuple[SentColumn, ...] = ()
    """The columns of its rows."""
    shown: int = 0
    """The version that those are of, if that is a later one than is read."""

    @property
    def identity(self) -> str:
        """What tells an open plan from every other, those of a copy of the lake among them.

        A lake that is put back numbers its plans as before, and the sequences of its rows: what was
        read differs, unless it is the same content that is planned in the same way.
        """
        parts = [
            (part.path, [(chunk.after, chunk.until) for chunk in part.chunks])
            for part in self.parts
        ]
        told = json.dumps([self.number, self.pin, self.generation, self.of, parts])
        return hashlib.blake2b(told.encode(), digest_size=7).hexdigest()


def check_feed(feed: str) -> None:
    if feed not in FEEDS:
        raise InvalidOption(f"The feed {feed!r} is none of {', '.join(FEEDS)}.", feed=feed)


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a sink stands: its state, and the plan that is open, if there is one."""

    state: SinkState
    open: DeliveryPlan | None = None
    mended: str | None = None
    """What was found wrong with the state and could be made good."""

    def given_up(self) -> SinkState:
        """The state without the plan that is open, which may have reached the destination."""
        if self.open is None:
            return self.state
        before = self.state.left_by or (NOBODY,)
        return replace(self.state, left_by=(*before, self.open.identity))
