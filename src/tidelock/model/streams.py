"""Stream tables as data: what a user asked for, and where the content stands.

A definition is inert: it says what the table is, never how it is kept. It is stored once under the
hash of its content, so that a snapshot of a thousand stream tables stays small.

Invariants:
    a frontier holds one entry for each input that the query reads;
    members of an atomic group have one `as_of` and one `epoch` at every version.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal, TypedDict, get_args

import msgspec

from tidelock.errors import InvalidOption

RefreshMode = Literal["auto", "incremental", "incremental_strict", "full"]
Consistency = Literal["atomic", "none"]
SchedulePolicy = Literal["fastest", "slowest"]
PUBLISHING = -1
"""Stands for the version of the commit that a staged state will be part of."""
UPSTREAM = "upstream"
"""The schedule of a table that is due whenever one of its inputs changed."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A stream table as its user wrote it. `origin` is the file and line that it came from."""

    query: str
    schedule: str | None = UPSTREAM
    refresh_mode: RefreshMode = "auto"
    consistency: Consistency = "atomic"
    schedule_policy: SchedulePolicy = "fastest"
    origin: str | None = None
    format: int = 1

    @property
    def id(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:32]


class StreamOptions(TypedDict, total=False):
    """The options of a definition, as keyword arguments."""

    schedule: str | None
    refresh_mode: RefreshMode
    consistency: Consistency
    schedule_policy: SchedulePolicy


@dataclass(frozen=True, slots=True)
class InputVersion:
    """One table that a stream table was computed from, as it was then.

    `version` is the version of the lake that its content stands for: for a base table the snapshot
    that was read, for a stream table the `as_of` that it had itself.
    """

    table: str
    table_id: str
    changed: int
    pin: int
    version: int


@dataclass(frozen=True, slots=True)
class Spent:
    """What the last refresh of each kind took; 0 where there was none."""

    full_seconds: float = 0.0
    delta_seconds: float = 0.0
    delta_rows: int = 0
    """How many changes the last refresh by delta read."""
    delta_seconds_before: float = 0.0
    """What the refresh by delta before the last one took."""


@dataclass(frozen=True, slots=True)
class StreamState:
    """Where the content of a stream table stands; part of its table's state in a snapshot."""

    definition: str
    """The id of its definition."""
    frontier: tuple[InputVersion, ...] = ()
    as_of: int = 0
    """The version of the lake that was read by the last refresh; 0 before the first."""
    epoch: int = 0
    refreshed: int = 0
    """The version of the commit that last refreshed it; 0 before the first, PUBLISHING while it is
    staged."""
    suspended: str | None = None
    """Why it is not refreshed; None when it is."""
    spent: Spent = Spent()
    made_on: str = ""
    """The engine that gave its table's columns their types."""

    @property
    def populated(self) -> bool:
        return self.refreshed > 0


def check_choice(name: str, value: object, choices: object) -> None:
    """InvalidOption unless the value is one of a Literal's."""
    allowed = get_args(choices)
    if value not in allowed:
        raise InvalidOption(
            f"{name}={value!r} is not known. Use one of: {', '.join(map(repr, allowed))}.",
            **{name: value},
        )
