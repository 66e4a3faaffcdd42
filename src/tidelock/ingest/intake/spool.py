"""What a large transaction does to one table, in storage while it is open.

Rows are written as fragments of the table itself, in the order in which they come, so that they are
written once: they become part of the table when the transaction is published. What it removes is
written beside them, into a dataset of its own (removes.py). An intent says that somebody is at it;
when its process dies, garbage collection sweeps all of it.

Invariants: puts are numbered 0 … n-1 through the fragments, in their order; values that a put lacks
are found when it is written, for what its row was then is known then; memory does not grow with
what is written, but for a few bytes for each row that is superseded or removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from lance.fragment import FragmentMetadata

from tidelock.ingest.intake.changes import (
    Mask,
    Parts,
    Places,
    TableChanges,
    with_all_columns,
    without_parts,
)
from tidelock.ingest.intake.net import Events, Unknown, codes_of, fill_carried
from tidelock.ingest.intake.removes import Removes
from tidelock.model.schema.alterations import Alteration
from tidelock.store.lookup.wanted_keys import StagedKeys, divide
from tidelock.store.objects.failpoints import hit
from tidelock.store.operations.operations import added_fragments
from tidelock.store.store import Store
from tidelock.store.tables.datasets import TableFiles
from tidelock.store.tables.fragments import Dataset


@dataclass(frozen=True)
class SpooledRows:
    """What a spool comes to: the rows that are there at the end, and the keys that are gone."""

    fragments: list[FragmentMetadata]
    gone: list[pa.Table]
    emptied: bool
    """Whether all rows from before the transaction are gone."""


class Spool:
    """Owns the fragments and the removes of one table in one open transaction."""

    def __init__(
        self,
        store: Store,
        branch: str,
        table: str,
        alterations: Sequence[Alteration],
        unknown: Unknown | None = None,
    ) -> None:
        self._unknown = unknown
        self._store = store
        self._branch = branch
        self._table = table
        # It is never published: its intent keeps what is written from garbage collection.
        self._holder = store.begin(branch, message=f"rows on their way into {table}")
        self._holder.announce()
        if alterations:
            self._holder.alter_table(table, *alterations)
        staged = self._holder.stage(table)
        self._id = staged.state.id
        self._files: TableFiles = staged.files
        self._base = staged.current()
        self._key = list(staged.schema.key)
        self._columns = list(staged.schema.names)
        self._fragments: list[FragmentMetadata] = []
        self._parts = _Runs()
        self._earlier: list[Removes] = []
        """What was removed before columns came, from a table without a key."""
        self._removes = Removes(self._files, staged.schema.arrow)
        self._emptied: list[tuple[int, int]] = []
        self.rows = 0

    def add(self, changes: TableChanges, undone: set[int]) -> None:
        """Write changes; those of subtransactions that are undone by now are left out."""
        changes = without_parts(changes, as_parts(undone))
        if self._key:
            changes = fill_carried(
                changes, self._key, lambda keys: self._rows_of(keys, undone), self._unknown
            )
        if changes.puts.num_rows:
            self._fragments.extend(self._files.write(self._base, changes.puts))
            hit("ingest.after_fragment")
        if changes.removes.num_rows:
            self._removes.add(changes.removes, changes.after + self.rows, changes.remove_parts)
        self._emptied += [(count + self.rows, part) for count, part in changes.emptied]
        self._parts.add(changes.put_parts)
        self.rows += changes.puts.num_rows

    def alter(self, alteration: Alteration) -> None:
        """A column comes; what is written already has NULL in it."""
        self._holder.alter_table(self._table, alteration)
        staged = self._holder.stage(self._table)
        self._base = staged.current()
        self._columns = list(staged.schema.names)
        if not self._key and self._removes:
            # Those that are told by all of their values have one value more from here on.
            self._earlier.append(self._removes)
            self._removes = Removes(self._files, staged.schema.arrow)

    def drop(self) -> None:
        """Give it up: nobody refers to what was written."""
        self._holder.rollback()

    def result(self, undone: set[int]) -> SpooledRows:
        """What the transaction comes to; `removed` tells what leaves a table without a key."""
        begin, emptied = self._begin(undone)
        dead = self._parts.mask(as_parts(undone))
        dead[:begin] = True
        gone: list[pa.Table] = []
        if self._key:
            for superseded, some in self._superseded(dead, begin, undone):
                dead[superseded] = True
                gone.append(some)
        return SpooledRows(self._without(dead), [] if emptied else gone, emptied)

    def removed(self, undone: set[int]) -> Iterator[pa.Table]:
        """All values of the rows that leave a table without a key, some at a time."""
        begin, _ = self._begin(undone)
        schema = pa.schema([self._base.schema.field(name) for name in self._columns])
        for removes in (*self._earlier, self._removes):
            for rows in removes.rows(begin, as_parts(undone)):
                yield with_all_columns(rows, schema)

    def _begin(self, undone: set[int]) -> tuple[int, bool]:
        """How many puts came before all rows were removed at once, and whether they ever were."""
        counts = [count for count, part in self._emptied if part not in undone]
        return max(counts, default=0), bool(counts)

    def _superseded(
        self, dead: Mask, begin: int, undone: set[int]
    ) -> Iterator[tuple[Places, pa.Table]]:
        """The live puts that another change of their key follows, and the keys that are gone; for
        one range of keys after the other."""
        parts = as_parts(undone)
        if not self._fragments:
            yield (
                np.zeros(0, np.int64),
                _distinct(self._removes.within(None, self._key, begin, parts)[0]),
            )
            return
        dataset, own = self._written()
        keys = StagedKeys(dataset, own, self._key)
        ranges = divide(keys)
        for one in ranges:
            table, places = keys.within(one)
            live = ~dead[places]
            table, places = table.filter(pa.array(live)), places[live]
            removes, after = self._removes.within(one, self._key, begin, parts)
            both = pa.concat_tables([table.select(self._key), removes.select(self._key)])
            last = Events.of(codes_of(both)[0], places, after).last()
            count = len(places)
            yield (
                np.delete(places, last[last < count]),
                removes.take(pa.array(last[last >= count] - count)),
            )
        outside = self._removes.outside(ranges, self._key, begin, parts)
        yield np.zeros(0, np.int64), _distinct(outside)

    def _without(self, dead: Mask) -> list[FragmentMetadata]:
        """The fragments with the rows that are left; what has all of its rows is not read."""
        if not dead.any():
            return self._fragments
        dataset, own = self._written()
        kept: list[FragmentMetadata] = []
        start = 0
        for fragment, id in zip(self._fragments, own, strict=True):
            here = dead[start : start + fragment.physical_rows]
            start += fragment.physical_rows
            if not here.any():
                kept.append(fragment)
            elif not here.all():
                kept.extend(self._rewritten(dataset, id, ~here))
        return kept

    def _rewritten(self, dataset: Dataset, id: int, live: Mask) -> list[FragmentMetadata]:
        fragment = dataset.get_fragment(id)
        scanner = dataset.scanner(fragments=[fragment], scan_in_order=True)

        def batches() -> Iterator[pa.RecordBatch]:
            start = 0
            for batch in scanner.to_batches():
                mask = live[start : start + batch.num_rows]
                start += batch.num_rows
                if mask.any():
                    yield batch.filter(pa.array(mask))

        reader = pa.RecordBatchReader.from_batches(scanner.projected_schema, batches())
        return self._files.write(dataset, reader)

    def _written(self) -> tuple[Dataset, tuple[int, ...]]:
        """The table with what was written, for reading that, and the ids of its fragments."""
        dataset = self._files.append(self._id, self._base, self._fragments)
        return dataset, tuple(added_fragments(self._base, dataset))

    def _rows_of(self, keys: pa.Table, undone: set[int]) -> tuple[pa.Table, Places]:
        """The rows that these keys have now: as they were last put, else as the lake has them."""
        parts = as_parts(undone)
        begin, emptied = self._begin(undone)
        rows, numbers, places = self._last_puts(keys, begin, parts)
        removed, after = self._removes.of(keys, begin, parts)
        latest = np.full(keys.num_rows, -1, np.int64)
        latest[numbers] = places
        # What is removed since is not there, whatever was put before.
        gone = np.unique(removed[after > latest[removed]])
        kept = ~np.isin(numbers, gone)
        rows, numbers = rows.filter(pa.array(kept)), numbers[kept]
        rest = np.setdiff1d(np.arange(keys.num_rows), np.concatenate([numbers, gone]))
        if not len(rest) or emptied:
            return rows, numbers
        others = keys.take(pa.array(rest))
        newest = self._store.begin(self._branch)
        found, at = newest.rows_of(self._table, others)
        newest.rollback()
        return (
            pa.concat_tables([rows, found.select(rows.column_names)]),
            np.concatenate([numbers, rest[at]]),
        )

    def _last_puts(
        self, keys: pa.Table, begin: int, undone: Parts
    ) -> tuple[pa.Table, Places, Places]:
        """Of these keys those that were put: the last row of each, the number of its key, and the
        number of the put."""
        if not self._fragments:
            nothing = np.zeros(0, np.int64)
            return self._base.schema.empty_table().select(self._columns), nothing, nothing
        dataset, own = self._written()
        rows, numbers, places = StagedKeys(dataset, own, self._key).rows_of(keys, self._columns)
        dead = self._parts.mask(undone)
        dead[:begin] = True
        order = np.lexsort((places, numbers))
        order = order[~dead[places[order]]]
        ends = np.append(numbers[order][1:] != numbers[order][:-1], True)[: len(order)]
        last = order[ends]
        return rows.take(pa.array(last)), numbers[last], places[last]


class _Runs:
    """The subtransaction of each put, as runs of the same one."""

    def __init__(self) -> None:
        self._parts: list[Parts] = []
        self._counts: list[Places] = []

    def add(self, parts: Parts) -> None:
        if not len(parts):
            return
        starts = np.flatnonzero(np.append(True, parts[1:] != parts[:-1]))
        self._parts.append(parts[starts])
        self._counts.append(np.diff(np.append(starts, len(parts))))

    def mask(self, undone: Parts) -> Mask:
        """Which puts were undone."""
        if not self._parts:
            return np.zeros(0, np.bool_)
        parts, counts = np.concatenate(self._parts), np.concatenate(self._counts)
        return np.repeat(np.isin(parts, undone), counts)


def as_parts(undone: set[int]) -> Parts:
    return np.fromiter(undone, np.uint32, len(undone))


def _distinct(keys: pa.Table) -> pa.Table:
    return codes_of(keys)[1]
