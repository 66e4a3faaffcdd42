"""What became of a delivery, and where a sink stands, as values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

from tidelock.model.sinks import Feed, Trouble

Action = Literal["delivered", "refused", "idle", "suspended", "waiting", "failed", "interrupted"]
"""`refused`: the destination took nothing of what it was sent, and all of it is in quarantine."""


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """What one tick sent of one partition."""

    path: str
    rows: int
    """Those that the destination took."""
    size_bytes: int
    chunks: int
    after: int
    until: int
    quarantined: int = 0
    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True)
class DeliveryReport:
    """What one tick of one sink did."""

    sink: str
    action: Action
    after: int
    until: int
    version: int
    """The version of the lake that was read."""
    partitions: tuple[PartitionReport, ...] = ()
    reason: str = ""
    seconds: float = 0.0

    @property
    def rows(self) -> int:
        return sum(partition.rows for partition in self.partitions)

    @property
    def size_bytes(self) -> int:
        return sum(partition.size_bytes for partition in self.partitions)

    @property
    def chunks(self) -> int:
        return sum(partition.chunks for partition in self.partitions)

    @property
    def quarantined(self) -> int:
        return sum(partition.quarantined for partition in self.partitions)

    @property
    def is_incomplete(self) -> bool:
        """Whether something is left that a destination did not take."""
        return self.action == "failed" or any(partition.trouble for partition in self.partitions)

    def __repr__(self) -> str:
        said = f", {self.reason}" if self.reason else ""
        return (
            f"DeliveryReport({self.sink!r}, {self.action}, {self.rows} rows, {self.chunks} chunks, "
            f"{self.size_bytes} bytes, ({self.after}, {self.until}]{said})"
        )


@dataclass(frozen=True, slots=True)
class LaggingPartition:
    path: str
    watermark: int
    trouble: Trouble | None


@dataclass(frozen=True, slots=True)
class ManifestReport:
    """A manifest that was written anew."""

    sink: str
    files: int
    rows: int
    missing: tuple[tuple[int, int], ...]
    """The first and the last of each range that the lake had delivered and no file holds."""

    def __repr__(self) -> str:
        gaps = f", {len(self.missing)} ranges missing" if self.missing else ""
        return f"ManifestReport({self.sink!r}, {self.files} files, {self.rows} rows{gaps})"


Condition: TypeAlias = Literal[
    "current", "behind", "quarantined", "failing", "damaged", "suspended", "stopped", "lapsed"
]


@dataclass(frozen=True, slots=True)
class SinkStatus:
    """Where a sink stands."""

    name: str
    id: str
    table: str
    branch: str
    kind: str
    to: str
    feed: Feed
    partition_by: tuple[str, ...]
    schedule: str | None
    state: Condition
    reason: str
    watermark: int
    """The position up to which every partition that is not lagging has everything."""
    newest: int | None
    """The newest position there is; None when it cannot be told."""
    lagging: tuple[LaggingPartition, ...]
    quarantined: int
    plan: int
    in_flight: bool
    retry_at: datetime | None
    options: dict[str, Any]
    damage: tuple[str, ...] = ()
    """What was delivered and is not there any more as it was; found only when it was verified."""

    def __repr__(self) -> str:
        said = f", {self.reason}" if self.reason else ""
        return (
            f"SinkStatus({self.name!r}, {self.state}{said}, table={self.table!r}, "
            f"kind={self.kind!r}, watermark={self.watermark}, lagging={len(self.lagging)}, "
            f"quarantined={self.quarantined})"
        )
