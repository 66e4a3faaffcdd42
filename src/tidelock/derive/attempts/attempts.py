"""Attempts: what became of every refresh, kept whether or not anything was published.

A refresh that published is told by its commit. One that did not leaves an object of its own, so
that its reason outlives the process:

    _tidelock/attempts/<branch id>/<table id>/<time>-<random>.json

An outage of the engine is one such object, whatever its length.

Invariant: the failures in a row are those of the definition that the table has, after the last
refresh that published and after the last resumption; the list of a healthy table's is empty or old.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from tidelock.errors import (
    EngineMismatch,
    EngineUnavailable,
    FormatError,
    JavaMissing,
    NewerFormat,
    ObjectMissing,
)
from tidelock.store.objects import layout
from tidelock.store.objects.entries import entries
from tidelock.store.objects.protocol import Objects
from tidelock.store.objects.records import decode, encode

logger = logging.getLogger("tidelock")
NOT_OF_THE_TABLE = tuple(
    one.condition for one in (EngineUnavailable, EngineMismatch, JavaMissing, NewerFormat)
)
"""The conditions of attempts that failed for the engine's sake, and not for the table's."""

Action = Literal["incremental", "full", "adopted", "none", "skipped", "failed", "resumed"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to refresh one stream table."""

    table: str
    table_id: str
    action: Action
    time: datetime
    reason: str = ""
    """How and why in few words; `lake.explain` tells more."""
    seconds: float = 0.0
    incremental_seconds: float | None = None
    """What it was expected to take by delta, where that was compared with a full refresh."""
    full_seconds: float | None = None
    """What it was expected to take in full."""
    rows_in: int = 0
    """By delta: the changed rows of its inputs that it read, an updated row counting as two, and
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
    times: int = 1
    """How many attempts in a row this one stands for, none of which the table is to blame for."""
    actor: str = ""
    definition: str = ""
    """Of a failure: the id of the definition that failed."""
    format: int = 1

    @property
    def spares_table(self) -> bool:
        return self.action == "failed" and self.condition in NOT_OF_THE_TABLE


def record(objects: Objects, branch_id: str, attempt: Attempt) -> None:
    name = f"{_moment(attempt.time)}-{secrets.token_hex(4)}"
    key = f"{layout.attempts(branch_id, attempt.table_id)}/{name}.json"
    objects.put_new(key, encode(attempt))


def record_once(objects: Objects, branch_id: str, attempt: Attempt) -> None:
    """Record what the table is not to blame for, in the place of the last such record: an outage of
    days leaves one object."""
    known = list(_recorded(objects, branch_id, attempt.table_id))
    last = known[-1] if known else None
    if last is None or not last[1].spares_table:
        record(objects, branch_id, attempt)
        return
    record(objects, branch_id, replace(attempt, times=last[1].times + 1))
    objects.delete(last[0])


def _moment(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y%m%dT%H%M%S%f")


def recorded(objects: Objects, branch_id: str, table_id: str) -> list[Attempt]:
    """What was recorded of one table, oldest first."""
    return [attempt for _, attempt in _recorded(objects, branch_id, table_id)]


def _recorded(objects: Objects, branch_id: str, table_id: str) -> Iterator[tuple[str, Attempt]]:
    keys = [info.key for info in entries(objects, layout.attempts(branch_id, table_id))]
    return _read(objects, keys)


def _read(objects: Objects, keys: list[str]) -> Iterator[tuple[str, Attempt]]:
    for key in keys:
        try:
            attempt = decode(objects.get(key), Attempt, key)
        except FormatError as error:
            # Told for the record: nothing depends on it but how soon it is tried again.
            logger.warning("%s", error.message)
        except ObjectMissing:
            # Another process put a newer one in its place.
            continue
        else:
            yield key, attempt


def keys_by_table(objects: Objects, branch_id: str) -> dict[str, list[str]]:
    """The objects of all attempts of a branch by table id, oldest first: one list, none read."""
    found: dict[str, list[str]] = {}
    for info in entries(objects, layout.attempts_of(branch_id), depth=2):
        found.setdefault(info.key.rsplit("/", 2)[1], []).append(info.key)
    return found


def read_attempts(objects: Objects, keys: list[str], since: datetime | None) -> list[Attempt]:
    """The attempts in some objects, but those that are older than a moment, as their keys tell."""
    if since is not None:
        begin = _moment(since)
        keys = [key for key in keys if key.rsplit("/", 1)[1].partition("-")[0] >= begin]
    return [attempt for _, attempt in _read(objects, keys)]


def failures_since(found: list[Attempt], moment: datetime | None, definition: str) -> list[Attempt]:
    """The failures in a row of a definition after a moment, oldest first."""
    row: list[Attempt] = []
    for attempt in found:
        if moment is not None and attempt.time <= moment:
            continue
        if attempt.action == "resumed":
            row.clear()
        elif attempt.action == "failed" and attempt.definition == definition:
            row.append(attempt)
    return row


def told_failures(row: list[Attempt]) -> str:
    """How often a table failed in a row, and why it did the last time."""
    times = sum(attempt.times for attempt in row)
    return f"failed {times:,} time{'' if times == 1 else 's'}: {row[-1].reason}"
