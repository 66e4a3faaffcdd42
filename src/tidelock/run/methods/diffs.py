"""The part of the Lake handle that compares two states."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelock.model.arguments import check_count
from tidelock.store import points
from tidelock.store.branches import MAIN
from tidelock.store.points import At

if TYPE_CHECKING:
    from tidelock.derive.catalog import Catalog
    from tidelock.model.history.diffs import Diff, DiffPoint
    from tidelock.store.snapshot import Snapshot
    from tidelock.store.store import Store


class DiffMethods:
    """What differs between two states of a lake."""

    _store: Store
    _catalog: Catalog

    def diff(
        self,
        before: At,
        after: At | None = None,
        *,
        table: str | None = None,
        branch: str = MAIN,
        examples: int | None = 5,
    ) -> Diff:
        """What leads from one state to another: columns, rules, definitions and rows, by table.

        Both are a branch's name, a version of `branch`, a commit id, a tag's name or a time; the
        second is the newest of `branch` if none is given. Rows are matched by key, else by row
        sequence, and in stream tables by value. `examples` says how many rows of each kind are
        shown of a table, None all of them; `diff.table(name).rows()` streams them.
        """
        from tidelock.derive.stream_diffs import StreamDiffs
        from tidelock.model.history.diffs import Diff
        from tidelock.store.diff.tables import Comparison
        from tidelock.store.kinship.bases import Tip
        from tidelock.store.kinship.kinship import Kinship

        if examples is not None:
            check_count(examples, "examples")
        store = self._store
        store.refuse_unusable()
        (name, place), (other, there) = (
            points.state_point(store, at, branch) for at in (before, after)
        )
        old, new = store.snapshot_at(*place), store.snapshot_at(*there)
        streams = StreamDiffs(self._catalog, old.states(), new.states())
        kinship = Kinship(store, Tip(*place, old.states()), Tip(*there, new.states()))
        differing, alike = Comparison(store, old, new, kinship, streams.of, examples).run(table)
        return Diff(_point(name, old), _point(other, new), differing, alike)


def _point(name: str, snapshot: Snapshot) -> DiffPoint:
    from tidelock.model.history.diffs import DiffPoint

    return DiffPoint(name, snapshot.branch, snapshot.version, snapshot.commit)
