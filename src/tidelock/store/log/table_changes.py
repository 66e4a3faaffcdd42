"""Which commits changed a table, told from the log alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from tidelock.model.history.commit import BranchRef, Commit, TableChange
from tidelock.model.names import fold
from tidelock.store.log.log import Log


class Commits(Protocol):
    """Where commits are found: the log, or a line of them that is being prepared."""

    def commit_at(self, branch: BranchRef, version: int) -> Commit: ...


def changes_of(
    log: Commits, branch: BranchRef, table_id: str, newest_change: int, since: int
) -> Iterator[tuple[int, TableChange]]:
    """The changes of one table after `since`, newest first: one record per change, no others."""
    version = newest_change
    while version > since:
        commit = log.commit_at(branch, version)
        change = next(change for change in commit.tables if change.table_id == table_id)
        yield version, change
        if change.before is None:
            return
        version = change.before.changed


def named_changes(
    log: Log, branch: BranchRef, name: str, newest: int, since: int = 0
) -> Iterator[tuple[int, TableChange]]:
    """The changes of whichever tables had this name after `since`, up to `newest`, newest first.

    Costs one record per change for as long as one table had the name, and every record of the
    time before that.
    """
    state = log.tables_at(branch, newest).find(name)
    unread = newest
    if state is not None:
        unread = since
        for version, change in changes_of(log, branch, state.id, state.changed, since):
            yield version, change
            if change.before is None:
                unread = version
    for commit in log.walk(branch, unread, since + 1):
        # Newest first: a commit that replaces a table drops the old one, then creates the new one.
        for change in sorted(commit.tables, key=lambda change: change.before is not None):
            told = state is not None and change.table_id == state.id
            maintained = change.after is not None and change.after.changed < commit.version
            if fold(change.table) == fold(name) and not told and not maintained:
                yield commit.version, change
