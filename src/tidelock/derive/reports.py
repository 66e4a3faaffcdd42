"""What can be asked about stream tables: small frozen values that show themselves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from tidelock.derive.attempts.attempts import Attempt
from tidelock.derive.graph.drawing import as_dot, as_mermaid, as_text
from tidelock.derive.graph.graph import Graph
from tidelock.derive.graph.groups import Group
from tidelock.model.listing import Listing
from tidelock.model.streams import Consistency, SchedulePolicy

if TYPE_CHECKING:
    from tidelock.derive.plan.explanation import SegmentQuery


@dataclass(frozen=True)
class StreamTable:
    """One stream table and where it stands."""

    name: str
    query: str
    schedule: str | None
    refresh_mode: str
    consistency: str
    schedule_policy: str
    inputs: tuple[str, ...]
    rows: int
    as_of: int
    epoch: int
    group: str | None
    status: str
    origin: str | None
    expected_seconds: float | None = None
    """How long its next refresh will take, judging by the last; None before the first."""


@dataclass(frozen=True)
class GroupState:
    """A group of stream tables that are refreshed together."""

    name: str
    members: tuple[str, ...]
    convergence_points: tuple[str, ...]
    inputs: tuple[str, ...]
    policy: SchedulePolicy
    consistency: Consistency
    epoch: int
    frontier: dict[str, int]
    """For each member the version that its content stands for; one and the same when atomic."""
    last_result: str
    not_due_because: str | None


@dataclass(frozen=True)
class Freshness:
    """How far a stream table is behind its inputs."""

    table: str
    as_of: int
    behind_versions: int
    """How many commits changed an input, directly or further up, since it was computed."""
    behind: timedelta
    """Since when the oldest of those changes has been waiting."""
    waiting_for: tuple[str, ...]

    @property
    def current(self) -> bool:
        return self.behind_versions == 0


@dataclass(frozen=True)
class Drawing:
    """The graph of a lake: nodes, edges, and how to draw them."""

    graph: Graph
    groups: tuple[Group, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.graph.tables

    @property
    def edges(self) -> tuple[tuple[str, str], ...]:
        return tuple(
            (read, name) for name in self.graph.stream_tables for read in self.graph.inputs(name)
        )

    def text(self) -> str:
        return as_text(self.graph, self.groups)

    def mermaid(self) -> str:
        return as_mermaid(self.graph, self.groups)

    def dot(self) -> str:
        return as_dot(self.graph, self.groups)

    def __repr__(self) -> str:
        return self.text()


@dataclass(frozen=True)
class Explanation:
    """How a stream table is kept. Its text is what a person reads.

    `mode` and `reason` are the action that a refresh would report, and why: `none` when nothing
    that it reads has changed, `skipped` while it is suspended.
    """

    table: str
    incremental: bool
    obstacles: tuple[str, ...]
    mode: str
    reason: str
    incremental_seconds: float | None
    full_seconds: float | None
    text: str
    sql: tuple[SegmentQuery, ...] = ()
    """What the engine is asked by delta, for each input of each segment."""

    def __repr__(self) -> str:
        return self.text


def refresh_listing(attempts: Iterable[Attempt]) -> Listing[Attempt]:
    return Listing.of(
        "Refresh",
        attempts,
        {
            "table": lambda a: a.table,
            "action": lambda a: a.action,
            "rows in": lambda a: a.rows_in,
            "rows out": lambda a: a.rows_out,
            "seconds": lambda a: a.seconds,
            "epoch": lambda a: a.epoch,
            "commit": lambda a: a.commit,
            "reason": lambda a: a.reason,
        },
    )
