"""The part of the Lake handle that names one state and reads it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from tidelock.errors import InvalidOption
from tidelock.model.history.commit import TableState
from tidelock.model.listing import Listing
from tidelock.store import points
from tidelock.store.branches import MAIN
from tidelock.store.snapshot import Snapshot

if TYPE_CHECKING:
    from tidelock.store.rules.listing import RuleInfo
    from tidelock.store.store import Store
    from tidelock.store.table import Table


class SnapshotMethods:
    """What a lake has, now or at an earlier point."""

    _store: Store

    def snapshot(
        self,
        branch: str | None = None,
        *,
        version: int | None = None,
        commit: str | None = None,
        at: datetime | str | None = None,
        tag: str | None = None,
    ) -> Snapshot:
        """One consistent state: the newest, or by version, commit id, time or tag.

        The branch is main if none is named. A commit or a tag says itself which branch it is on;
        one that is not in the history of a branch that is named as well is refused.
        """
        selectors = {"version": version, "commit": commit, "at": at, "tag": tag}
        given = [name for name, value in selectors.items() if value is not None]
        if len(given) > 1:
            raise InvalidOption(
                f"A snapshot is named by one of version, commit, at and tag, not by "
                f"{' and '.join(given)}.",
                given=given,
            )
        store = self._store
        name = MAIN if branch is None else branch
        if not given:
            return store.newest_snapshot(name)
        place = points.locate(store, name, version=version, commit=commit, at=at, tag=tag)
        if branch is not None and (tag or commit):
            named = f"The tag {tag!r}" if tag else f"The commit {commit!r}"
            points.check_on_branch(store.branches.head(branch), place, named)
        return store.snapshot_at(*place)

    def table(self, name: str, *, branch: str = MAIN) -> Table:
        """A table of the newest snapshot: short for `lake.snapshot().table(name)`."""
        return self.snapshot(branch).table(name)

    def tables(self, *, branch: str = MAIN) -> Listing[TableState]:
        """The tables of the newest snapshot."""
        return self.snapshot(branch).tables()

    def rules(self, table: str, *, branch: str = MAIN) -> Listing[RuleInfo]:
        """What must hold of the rows of a table: its key, NOT NULL, and its other rules."""
        return self.snapshot(branch).rules(table)
