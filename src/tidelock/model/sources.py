"""Sources as data: what feeds which tables, from where, and how often it is read.

A position says how far a source was read. It is text that the source's kind understands, and is in
the state of the source's ledger (`TableState.position`), so that rows and how far was read are
published by one commit.

Every value here is frozen and holds only plain types, so that an object is its own wire format.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tidelock.model.names import HIDDEN

LIVE = "live"
"""The schedule of a source that is read all the time."""
SOURCE = "source"
"""The property of a commit that says what of a source it holds."""


@dataclass(frozen=True, slots=True)
class SourceDefinition:
    """What a user asked for when the source was created."""

    name: str
    id: str
    kind: str
    into: str
    """What the tables are called: a name, or a pattern with `{table}` and `{schema}`."""
    branch: str
    branch_id: str
    schedule: str | None
    options: dict[str, Any]
    actor: str
    created: datetime
    format: int = 1

    @property
    def ledger(self) -> str:
        """The name of its hidden table."""
        return f"{HIDDEN}source_{self.id}"


@dataclass(frozen=True, slots=True)
class Suspension:
    """That a source is not read until it is resumed, and why."""

    reason: str
    actor: str
    time: datetime
    format: int = 1


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction of the source that has not ended, and what of it was received."""

    name: str
    rows: int
    size_bytes: int
    since: datetime


@dataclass(frozen=True, slots=True)
class TableStanding:
    """Where one table that a source feeds stands."""

    name: str
    """As the source calls it."""
    table: str
    """As the lake calls it."""
    state: str
    """`loading`, `streaming`, `suspended`, or `gone`."""
    reason: str = ""
    rows: int = 0
    """Those that its first load has read so far."""
    expected: int | None = None
    """How many its first load has to read, as far as the source can tell."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What the process that reads a source has last told of it."""

    state: str
    reason: str = ""
    position: str = ""
    """The newest position that the source has told of."""
    lag_bytes: int | None = None
    lag_seconds: float | None = None
    rows_per_second: float = 0.0
    transactions_per_second: float = 0.0
    open: tuple[OpenTransaction, ...] = ()
    tables: tuple[TableStanding, ...] = ()
    notes: tuple[str, ...] = ()
    time: datetime | None = None
    owner: str = ""
    retry_at: datetime | None = None
    evidence: dict[str, Any] = field(default_factory=dict)
    format: int = 1
