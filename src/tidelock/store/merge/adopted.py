"""Tables that a merge takes over by their pin: no row is read or written.

Owns: a table within the transaction of a merge whose next state is one that another branch made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice

import numpy as np

from tidelock.model.history.commit import Kind, TableChange, TableState
from tidelock.model.streams import PUBLISHING, StreamState
from tidelock.store.changes.pin_diff import PinDiff, diff_pins
from tidelock.store.kinship.bases import Tip
from tidelock.store.log.log import Log
from tidelock.store.log.table_changes import changes_of
from tidelock.store.operations.counts import ByColumnId, Counts, Target
from tidelock.store.operations.operations import Operation
from tidelock.store.staging.staged_table import StagedTable
from tidelock.store.tables.datasets import TableFiles
from tidelock.store.tables.fragments import Dataset

COMMITS_SUMMED_MAX = 8
"""What so many commits did is told by them; of more, the two ends are compared."""

StreamAt = Callable[[int], StreamState]
"""Where the content of a stream table stands, once the version is known that publishes it."""


@dataclass
class Adoption(ByColumnId):
    """Put the pin of another branch in the place of the one that it was made from."""

    state: TableState
    counts: Counts
    survives_data_changes: bool = False

    def apply(self, files: TableFiles, target: Target, base: Dataset, counts: Counts) -> Dataset:
        counts.inserted += self.counts.inserted
        counts.updated += self.counts.updated
        counts.deleted += self.counts.deleted
        return files.read(self.state)


@dataclass
class AdoptedTable(StagedTable):
    """A table whose next state another branch has made, and what is staged on top of that."""

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
    def complete(self) -> bool:
        return len(self.operations) == 1

    @property
    def taken(self) -> TableState:
        assert self.adopted is not None
        return self.adopted

    @property
    def base(self) -> Dataset:
        return self.files.read(self.taken if self.moved else self.state)

    @cached_property
    def _first(self) -> Target:
        schema = self.files.known_schema(self.taken) or self.files.schema(self.taken, self.base)
        return Target(self.name, self.taken.id, schema)

    @property
    def shown(self) -> TableState:
        return self._labelled(self.taken)

    @property
    def redefined(self) -> bool:
        before, after = self.state, self.taken
        if self.fresh or self.altered or self.renamed or before.schema != after.schema:
            return True
        definitions = [one.stream.definition if one.stream else "" for one in (before, after)]
        return definitions[0] != definitions[1]

    def _renumber_own(self, found: TableState) -> None:
        """What is staged on top is found in the adopted pin, whatever is done to the target's."""

    def change(self, version: int, kind: Kind, *, durable: bool = False) -> TableChange:
        stream = self.taken.stream if self.stream_then is None else self.stream_then(version)
        if self.stream is not None and self.stream.refreshed == PUBLISHING:
            # It was refreshed on top of what was adopted.
            stream = self.stream_at(version)
        if not self.moved:
            return TableChange(self.state, replace(self.state, stream=stream))
        after = replace(
            self._labelled(self.taken, durable=durable), changed=version, stream=stream, origin=""
        )
        if self.complete:
            after = replace(after, origin=self.made_by)
        else:
            dataset = self.current()
            checksum = self.files.checksum(self.taken.id, dataset)
            rows = dataset.count_rows()
            after = replace(after, pin=dataset.version, rows=rows, checksum=checksum)
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
    operations: list[Operation] = [Adoption(taken, replace(counts))]
    state = target or replace(taken, name=name)
    staged = AdoptedTable(
        files,
        state,
        name=name,
        counts=counts,
        adopted=taken,
        made_by=source.origin(taken),
        fresh=target is None,
        moved=moved,
        stream_then=stream_then,
    )
    staged.operations, staged.applied = operations, 1
    staged.targets = [staged.target]
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
