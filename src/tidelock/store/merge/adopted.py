"""Tables that a merge takes over by their pin: no row is read or written.

Owns: a table within the transaction of a merge whose next state is one that another branch made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice

import numpy as np

from tidelock.model.commit import Kind, TableChange, TableState
from tidelock.model.streams import StreamState
from tidelock.store.log.log import Log
from tidelock.store.log.table_changes import changes_of
from tidelock.store.merge.bases import Tip
from tidelock.store.staging.counts import ByColumnId, Counts, Target
from tidelock.store.staging.operations import Operation
from tidelock.store.staging.staged_table import StagedTable
from tidelock.store.tables.datasets import TableFiles
from tidelock.store.tables.fragments import Dataset
from tidelock.store.tables.pin_diff import PinDiff, diff_pins

COMMITS_SUMMED_MAX = 8
"""What so many commits did is told by them; of more, the two ends are compared."""

StreamAt = Callable[[int], StreamState]
"""Where the content of a stream table stands, once the version is known that publishes it."""


@dataclass
class Adoption(ByColumnId):
    """Put the pin of another branch in the place of the one that it was made from."""

    state: TableState
    survives_data_changes: bool = False

    def apply(self, files: TableFiles, target: Target, base: Dataset, counts: Counts) -> Dataset:
        return files.read(self.state)


@dataclass
class AdoptedTable(StagedTable):
    """A table whose next state another branch has made."""

    adopted: TableState | None = None
    made_by: str = ""
    """The commit that made that state."""
    fresh: bool = False
    """Whether the target has no such table."""
    moved: bool = True
    """Whether its content is another than the target's: else only where it stands is taken."""
    stream_then: StreamAt | None = None

    @property
    def created(self) -> bool:
        return self.fresh

    @property
    def pending(self) -> bool:
        return False

    @property
    def taken(self) -> TableState:
        assert self.adopted is not None
        return self.adopted

    @property
    def base(self) -> Dataset:
        return self.files.read(self.taken if self.moved else self.state)

    def latest(self) -> Dataset:
        return self.base

    def current(self) -> Dataset:
        return self.base

    @cached_property
    def _first(self) -> Target:
        schema = self.files.known_schema(self.taken) or self.files.schema(self.taken, self.base)
        return Target(self.name, self.taken.id, schema)

    @property
    def shown(self) -> TableState:
        return replace(self.taken, name=self.name)

    def _move_to(self, found: TableState) -> None:
        """Whatever maintenance did to the target's pin, the source's takes its place."""

    def change(self, version: int, kind: Kind, *, durable: bool = False) -> TableChange:
        stream = self.taken.stream if self.stream_then is None else self.stream_then(version)
        if not self.moved:
            return TableChange(self.state, replace(self.state, stream=stream))
        after = replace(
            self.taken, name=self.name, changed=version, origin=self.made_by, stream=stream
        )
        before = None if self.fresh else self.state
        counts = self.counts
        return TableChange(before, after, counts.inserted, counts.updated, counts.deleted)


def adopt(
    files: TableFiles,
    source: Tip,
    taken: TableState,
    target: TableState | None,
    name: str,
    counts: Counts,
    stream_then: StreamAt | None = None,
    *,
    moved: bool = True,
) -> AdoptedTable:
    """A table of the target that becomes what it is at the source; a new one if there is none."""
    operations: list[Operation] = [Adoption(taken)]
    state = target or replace(taken, name=name)
    staged = AdoptedTable(
        files,
        state,
        name=name,
        complete=True,
        counts=counts,
        adopted=taken,
        made_by=source.origin(taken),
        fresh=target is None,
        moved=moved,
        stream_then=stream_then,
    )
    staged.operations = operations
    if stream_then is not None:
        # Others that refresh or alter it meanwhile are in the way (StagedTable.rebase).
        staged.stream = stream_then(0)
    return staged


def counts_since(
    files: TableFiles, log: Log, source: Tip, taken: TableState, before: TableState, since: int
) -> Counts:
    """What the source did to a table since a version on its line at which it was as `before`."""
    changes = (one for _, one in changes_of(log, source.branch, taken.id, taken.changed, since))
    first = list(islice(changes, COMMITS_SUMMED_MAX + 1))
    if len(first) > COMMITS_SUMMED_MAX:
        diff = diff_pins(files.reader(before.id), files.read(before), files.read(taken))
        if not diff.may_have_moved:
            return _counts_of(diff)
    counts = Counts()
    for change in chain(first, changes):
        counts.inserted += change.inserted
        counts.updated += change.updated
        counts.deleted += change.deleted
    return counts


def _counts_of(diff: PinDiff) -> Counts:
    """By rows that one pin has and the other has not: those that both have were updated."""
    both = len(np.intersect1d(diff.come.ids, diff.gone.ids))
    return Counts(diff.come.count - both, both, diff.gone.count - both)
