"""Which commits changed a table, told from the log alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from tidelock.model.history.commit import BranchRef, Commit, TableChange, TableState
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

    A table is followed through its renames. But where another had the name at `since`, a name that
    is taken over is told as one table that goes and one that comes, so that the changes lead from
    the rows under the name then to those under it now.
    Costs one record per change for as long as one table had the name, and every record of the
    time before that.
    """
    state = log.tables_at(branch, newest).find(name)
    held = log.tables_at(branch, since).find(name)
    unread = newest
    followed = None
    if state is not None and (held is None or held.id == state.id):
        unread, followed = since, state.id
        for version, change in changes_of(log, branch, state.id, state.changed, since):
            yield version, change
            if change.before is None and change.after and fold(change.after.name) == fold(name):
                unread = version
    for commit in log.walk(branch, unread, since + 1):
        # Newest first: a commit that replaces a table drops the old one, then creates the new one.
        for change in sorted(commit.tables, key=lambda one: not _is_named(one.after, name)):
            told = None if change.table_id == followed else _under(change, name, commit.version)
            if told is not None:
                yield commit.version, told


def _under(change: TableChange, name: str, version: int) -> TableChange | None:
    """What a change is to those who see the table only while it has a name."""
    before, after = change.before, change.after
    was, is_now = _is_named(before, name), _is_named(after, name)
    if was and is_now:
        assert after is not None
        return None if after.changed < version else change
    if is_now:
        assert after is not None
        return change if before is None else TableChange(None, after, after.rows)
    if was:
        assert before is not None
        return change if after is None else TableChange(before, None, deleted=before.rows)
    return None


def _is_named(state: TableState | None, name: str) -> bool:
    return state is not None and fold(state.name) == fold(name)
