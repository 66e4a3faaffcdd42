"""The line of commits that a transaction is put on top of.

Owns: the answer to "what came before", while several transactions are prepared for one record:
those that are prepared before it are on the line already, and are in the log only once the record
is put. Nothing here is durable: when the put loses, another line is begun from the new head.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelock.model.history.commit import BranchRef, Commit, Tables
from tidelock.store.log.log import Head, Log


@dataclass(frozen=True)
class Line:
    """The commits up to a head, and those that are prepared to follow it."""

    log: Log
    head: Head
    tables: Tables
    """All tables after the last of them."""
    prepared: tuple[Commit, ...] = ()

    @classmethod
    def up_to(cls, log: Log, head: Head) -> Line:
        return cls(log, head, head.tables)

    def then(self, commit: Commit) -> Line:
        """The line with one more commit on it."""
        after = self.tables.after(commit.tables)
        return Line(self.log, self.head, after, (*self.prepared, commit))

    @property
    def branch(self) -> BranchRef:
        return self.head.branch

    @property
    def next_version(self) -> int:
        """The version of whatever is put on top."""
        return self.head.version + len(self.prepared) + 1

    def commit_at(self, branch: BranchRef, version: int) -> Commit:
        ahead = version - self.head.version
        return self.prepared[ahead - 1] if ahead > 0 else self.log.commit_at(branch, version)
