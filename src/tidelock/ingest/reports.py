"""What a round of a source did, and where a source stands, as values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidelock.model.listing import Listing
from tidelock.model.sources import OpenTransaction, TableStanding


@dataclass(frozen=True, slots=True)
class TableReport:
    """What one round did to one table."""

    table: str
    puts: int
    """Rows that came or were changed, as the source told them."""
    removes: int


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What one round of one source did."""

    source: str
    action: str
    """`ingested`, `idle`, `suspended`, `failed`, `interrupted`, or `waiting` for who reads it."""
    rows: int = 0
    transactions: int = 0
    commits: int = 0
    position: str = ""
    version: int | None = None
    """The last commit of the round."""
    tables: tuple[TableReport, ...] = ()
    reason: str = ""
    seconds: float = 0.0
    state: str = ""
    """Of one that failed: `unreachable`, `stopped` or `failing`."""
    retry_at: datetime | None = None

    def __repr__(self) -> str:
        said = f", {self.reason}" if self.reason else ""
        return (
            f"IngestReport({self.source!r}, {self.action}, {self.rows} rows, "
            f"{self.transactions} transactions, {self.commits} commits{said})"
        )


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """Where a source stands."""

    name: str
    id: str
    kind: str
    branch: str
    schedule: str | None
    state: str
    reason: str
    position: str
    """How far the lake holds it."""
    newest: str
    """The newest position that is known of the source."""
    lag_bytes: int | None
    lag_seconds: float | None
    rows_per_second: float
    transactions_per_second: float
    commit: int | None
    """The last commit that the source made, and when."""
    committed: datetime | None
    open: tuple[OpenTransaction, ...]
    tables: tuple[TableStanding, ...]
    notes: tuple[str, ...]
    reader: str
    """Which process reads it, if one does."""
    retry_at: datetime | None
    options: dict[str, Any]

    def __repr__(self) -> str:
        said = f", {self.reason}" if self.reason else ""
        return (
            f"SourceStatus({self.name!r}, {self.state}{said}, kind={self.kind!r}, "
            f"position={self.position!r}, tables={len(self.tables)})"
        )


def list_sources(statuses: list[SourceStatus]) -> Listing[SourceStatus]:
    return Listing.of(
        "Sources",
        statuses,
        {
            "name": lambda s: s.name,
            "kind": lambda s: s.kind,
            "state": lambda s: s.state,
            "tables": lambda s: len(s.tables),
            "position": lambda s: s.position,
            "lag": lambda s: None if s.lag_seconds is None else f"{s.lag_seconds:.1f} s",
            "schedule": lambda s: s.schedule,
            "reason": lambda s: s.reason,
        },
    )


def list_reports(reports: list[IngestReport]) -> Listing[IngestReport]:
    return Listing.of(
        "Ingested",
        reports,
        {
            "source": lambda r: r.source,
            "action": lambda r: r.action,
            "rows": lambda r: r.rows,
            "transactions": lambda r: r.transactions,
            "commits": lambda r: r.commits,
            "version": lambda r: r.version,
            "reason": lambda r: r.reason,
        },
    )
