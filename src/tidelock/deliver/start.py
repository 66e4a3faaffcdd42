"""Where a new sink begins: what `start` means for its feed, and whether that can still be read.

Invariant: a sink that was created can deliver what comes after its start: a version whose changes
garbage collection has removed is refused before the sink exists, not found out by a delivery.
"""

from __future__ import annotations

from tidelock.errors import Advice, InvalidOption, SnapshotExpired
from tidelock.model.history.commit import TableState
from tidelock.model.positions import NOTHING, end_of
from tidelock.model.sinks import Feed, SinkDefinition
from tidelock.store.log.log import Head
from tidelock.store.log.table_changes import changes_of
from tidelock.store.lookup.by_sequence import find_stretches
from tidelock.store.store import Store

STARTS = "beginning, now, version:N"


def find_start(
    store: Store, head: Head, table: TableState, feed: Feed, start: str
) -> tuple[int, int | None]:
    """The position before what is delivered first, and the version of a first snapshot."""
    if start == "beginning":
        if feed == "inserts":
            return NOTHING, None
        return end_of(head.version - 1), head.version
    version = head.version if start == "now" else _version(start, head)
    oldest = _oldest_start(store, head, table, feed, version)
    if oldest > version:
        raise InvalidOption(
            f"What {table.name!r} was at version {version} is no longer kept. The oldest that a "
            f"sink can start from is version:{oldest}.",
            Advice(
                "start='beginning' sends the rows that are there first.",
                "--start beginning sends the rows that are there first.",
            ),
            start=start,
            oldest=oldest,
        )
    if feed == "changes":
        return end_of(version), None
    then = store.log.tables_at(head.branch, version).same(table)
    stretches = () if then is None else find_stretches(store.files.read(then))
    return (stretches[-1].last if stretches else NOTHING), None


def refuse_expired(
    store: Store, head: Head, table: TableState, definition: SinkDefinition, since: int
) -> None:
    """InvalidOption when changes that are to be sent again can no longer be read."""
    first = definition.snapshot
    snapshot_is_kept = True
    if first is not None and since < first:
        # All rows of that version come first, and the changes after it.
        since = first
        snapshot_is_kept = _is_kept(store, store.log.tables_at(head.branch, first).same(table))
    oldest = _oldest_start(store, head, table, "changes", since)
    if oldest > since or not snapshot_is_kept:
        raise InvalidOption(
            f"Sink {definition.name!r} cannot send everything again: what {table.name!r} was then "
            f"is no longer kept. Replay since version {oldest} or later.",
            sink=definition.name,
            oldest=oldest,
        )


def _version(start: str, head: Head) -> int:
    word, _, number = start.partition(":") if isinstance(start, str) else ("", "", "")
    if word != "version" or not number.isdigit() or int(number) > head.version:
        raise InvalidOption(
            f"start={start!r} is none of {STARTS}, where N is a version from 0 to {head.version}.",
            start=start,
        )
    return int(number)


def _oldest_start(store: Store, head: Head, table: TableState, feed: Feed, version: int) -> int:
    """The version itself if a feed can start there, else the oldest at which it can."""
    # What is open is readable in this process for some time after it was removed.
    store.files.forget(table.id)
    then = store.log.tables_at(head.branch, version).same(table)
    if feed == "inserts" and _is_kept(store, then):
        return version
    oldest = head.version
    for changed, change in changes_of(store.log, head.branch, table.id, table.changed, version):
        if not _is_kept(store, change.after):
            return oldest
        if not _is_kept(store, change.before):
            return changed
        oldest = changed
    return version


def _is_kept(store: Store, state: TableState | None) -> bool:
    try:
        if state is not None:
            store.files.read(state)
    except SnapshotExpired:
        return False
    return True
