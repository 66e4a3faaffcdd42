"""Attempts: what became of every refresh, kept whether or not anything was published.

A refresh that published is told by its commit. One that did not leaves an object of its own, so
that its reason outlives the process:

    _tidelock/attempts/<branch id>/<table id>/<time>-<random>.json

Invariant: the failures in a row are those after the last refresh that published and after the last
resumption; the list of a healthy table's is empty or old.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from tidelock.errors import CorruptObject
from tidelock.store import layout
from tidelock.store.entries import entries
from tidelock.store.objects import Objects
from tidelock.store.records import decode, encode

logger = logging.getLogger("tidelock")

Action = Literal["incremental", "full", "none", "skipped", "failed", "resumed"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to refresh one stream table."""

    table: str
    table_id: str
    action: Action
    time: datetime
    reason: str = ""
    seconds: float = 0.0
    rows_in: int = 0
    """By delta: the changed rows of its sources that it read, an updated row counting as two, and
    as often as the query reads the table. In full: the rows that the query gave."""
    rows_out: int = 0
    """The rows that were removed from its table and those that were added; an updated row is one of
    each."""
    version: int | None = None
    """The version of the lake that was read."""
    commit: str | None = None
    epoch: int | None = None
    condition: str | None = None
    """The condition of the error that it failed with."""
    retry_at: datetime | None = None
    actor: str = ""
    format: int = 1


def record(objects: Objects, branch_id: str, attempt: Attempt) -> None:
    moment = attempt.time.astimezone(UTC).strftime("%Y%m%dT%H%M%S%f")
    key = f"{layout.attempts(branch_id, attempt.table_id)}/{moment}-{secrets.token_hex(4)}.json"
    objects.put_new(key, encode(attempt))


def recorded(objects: Objects, branch_id: str, table_id: str) -> list[Attempt]:
    """What was recorded of one table, oldest first."""
    found = []
    for info in entries(objects, layout.attempts(branch_id, table_id)):
        try:
            found.append(decode(objects.get(info.key), Attempt, info.key))
        except CorruptObject as error:
            # Told for the record: nothing depends on it but how soon it is tried again.
            logger.warning("%s", error.message)
    return found


def failures_since(found: list[Attempt], moment: datetime | None) -> list[Attempt]:
    """The failures in a row after a moment, oldest first."""
    row: list[Attempt] = []
    for attempt in found:
        if moment is not None and attempt.time <= moment:
            continue
        if attempt.action == "resumed":
            row.clear()
        elif attempt.action == "failed":
            row.append(attempt)
    return row
