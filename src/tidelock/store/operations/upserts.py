"""Upserts: rows that take the place of those with the same key, or come anew.

A row that replaces another takes over its row id. Lance gives ids to the first rows of a fragment,
so in every fragment those that replace others come first; the rest gets fresh ids at commit.

    Upsert          rows in memory: matched with the table, then written once
    StagedUpsert    rows of any number, written as they came, then matched; a fragment of which some
                    rows replace others, and not the first ones, is written again

Both match their keys again when they are applied to another pin, and write again only what has to
be in another order there. Which of its rows replace others is an upsert's `split`: while it is the
same, the others are given ids in the same order.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.fragment import FragmentMetadata

from tidelock.store.lookup.by_key import Match, match_keys
from tidelock.store.lookup.wanted_keys import StagedKeys
from tidelock.store.operations.counts import Counts, Labels, Target
from tidelock.store.operations.labels import relabelled
from tidelock.store.operations.operations import added_fragments, read_fragments
from tidelock.store.rows.checks import last_of_each
from tidelock.store.tables.datasets import TableFiles
from tidelock.store.tables.fragments import Addresses, Dataset, with_row_ids

WRITTEN_AHEAD_ROWS_MAX = 64
"""So few rows are written before their turn, in case that they need not be written again."""
KEEP_IN_MEMORY_BYTES = 32 * 1024 * 1024
"""Larger sources are read back from their staged fragments when they are needed again."""

Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass
class Upsert:
    """Rows in memory. Of rows with one key, the last counts; the others are replaced by it."""

    tables: list[pa.Table] = field(default_factory=list)
    survives_data_changes: bool = True
    size_bytes: int = 0
    superseded: int = 0
    """How many rows another one replaced before they reached the table."""
    split: bytes = b""
    _written: tuple[Mask | None, list[FragmentMetadata]] | None = None
    """What was written: which rows came first, or None if all are as they came."""
    _staged: tuple[Dataset, list[int]] | None = None
    """Where the rows are read from once they are no longer kept in memory."""

    def add(self, rows: pa.Table) -> None:
        """Take more rows, before any of them was written."""
        self.tables.append(rows)
        self.size_bytes += rows.nbytes

    def write(self, files: TableFiles, target: Target, base: Dataset) -> None:
        """Write few rows as they come, before it is known which of them are there already.

        They are written again if some are and some are not, for those that are come first.
        """
        rows = self._rows(target)
        if self._written is None and rows.num_rows <= WRITTEN_AHEAD_ROWS_MAX:
            self._written = (None, files.write(base, rows))

    def apply(self, files: TableFiles, target: Target, base: Dataset, counts: Counts) -> Dataset:
        rows = self._rows(target)
        # Few rows are written while it is looked up which of them are there, if that takes long.
        match, _ = files.together.both(
            lambda: match_keys(base, rows.select(target.key)),
            lambda: self.write(files, target, base) if files.together.far else None,
        )
        replaced, row_ids = _by_row(match, rows.num_rows)
        self.split = split_of(np.flatnonzero(replaced))
        fragments = with_row_ids(self._write(files, base, rows, replaced), row_ids)
        counts.updated += len(match) + self.superseded
        counts.inserted += rows.num_rows - len(match)
        result = _put(files, target, base, match, fragments)
        if self._staged is None and rows.nbytes > KEEP_IN_MEMORY_BYTES:
            self._staged = (result, added_fragments(base, result))
            self._written = (None, fragments)
            self.tables = []
        return result

    def follow(self, target: Target, labels: Labels) -> None:
        if self._staged is not None:
            self.tables, self._staged = [read_fragments(*self._staged)], None
        self.tables = [relabelled(rows, labels, target.schema) for rows in self.tables]
        self._written = None

    def _rows(self, target: Target) -> pa.Table:
        if self._staged is not None:
            return read_fragments(*self._staged)
        if len(self.tables) > 1:
            every = pa.concat_tables(self.tables)
            rows = last_of_each(every, target.key)
            self.superseded = every.num_rows - rows.num_rows
            self.tables = [rows]
        return self.tables[0]

    def _write(
        self, files: TableFiles, base: Dataset, rows: pa.Table, replaced: Mask
    ) -> list[FragmentMetadata]:
        first = None if _come_first(replaced) else replaced
        if self._written is None or not _same(self._written[0], first):
            if first is None:
                data = rows
            elif rows.nbytes <= KEEP_IN_MEMORY_BYTES:
                data = pa.concat_tables([rows.filter(first), rows.filter(~first)])
            else:
                ordered = _ordered(rows.to_batches, first)
                data = pa.RecordBatchReader.from_batches(rows.schema, ordered)
            self._written = (first, files.write(base, data))
        return self._written[1]


@dataclass
class StagedUpsert:
    """Rows that were written in the order in which they came."""

    fragments: list[FragmentMetadata]
    survives_data_changes: bool = True
    split: bytes = b""
    _reordered: dict[int, tuple[Mask, list[FragmentMetadata]]] = field(default_factory=dict)
    """Fragments that were written again, by number: which rows came first, and as what."""

    def apply(self, files: TableFiles, target: Target, base: Dataset, counts: Counts) -> Dataset:
        dataset = files.append(target.id, base, without_ids(self.fragments))
        own = added_fragments(base, dataset)
        keys = StagedKeys(dataset, tuple(own), target.key)
        rows = keys.rows
        match = match_keys(base, keys)
        self.split = split_of(np.sort(match.positions))
        counts.updated += len(match)
        counts.inserted += rows - len(match)
        if not len(match):
            return dataset
        replaced, row_ids = _by_row(match, rows)
        fragments: list[FragmentMetadata] = []
        start = taken = 0
        for number, fragment in enumerate(self.fragments):
            here = replaced[start : start + fragment.physical_rows]
            start += fragment.physical_rows
            count = int(here.sum())
            written = self._in_order(files, dataset, number, own[number], here)
            fragments.extend(with_row_ids(written, row_ids[taken : taken + count]))
            taken += count
        return files.replace_rows(target.id, base, match.addresses, fragments)

    def follow(self, target: Target, labels: Labels) -> None:
        """Fragments know their columns by id; those in another order are written again."""
        self._reordered.clear()

    def _in_order(
        self, files: TableFiles, dataset: Dataset, number: int, fragment_id: int, replaced: Mask
    ) -> list[FragmentMetadata]:
        """A fragment's rows with those that replace others first."""
        if _come_first(replaced):
            return without_ids([self.fragments[number]])
        known = self._reordered.get(number)
        if known is None or not _same(known[0], replaced):

            def batches() -> Iterator[pa.RecordBatch]:
                fragment = dataset.get_fragment(fragment_id)
                scanner = dataset.scanner(fragments=[fragment], scan_in_order=True)
                return iter(scanner.to_batches())

            rows = pa.RecordBatchReader.from_batches(dataset.schema, _ordered(batches, replaced))
            known = (replaced, files.write(dataset, rows))
            self._reordered[number] = known
        return known[1]


def split_of(places: npt.NDArray[np.int64]) -> bytes:
    """What tells two splits apart: which rows replace others, by their places in ascending order.
    Short, because there may be many of them."""
    return hashlib.blake2b(places.tobytes(), digest_size=16).digest()


def without_ids(fragments: Iterable[FragmentMetadata]) -> list[FragmentMetadata]:
    """The same fragments, whose rows get fresh ids."""
    return [dataclasses.replace(fragment, row_id_meta=None) for fragment in fragments]


def _put(
    files: TableFiles,
    target: Target,
    base: Dataset,
    match: Match,
    fragments: Sequence[FragmentMetadata],
) -> Dataset:
    if not len(match):
        return files.append(target.id, base, fragments)
    return files.replace_rows(target.id, base, match.addresses, fragments)


def _by_row(match: Match, rows: int) -> tuple[Mask, Addresses]:
    """Which rows replace another, and the ids that they take over, in the order of the rows."""
    replaced = np.zeros(rows, dtype=np.bool_)
    replaced[match.positions] = True
    row_ids = np.zeros(rows, dtype=np.uint64)
    row_ids[match.positions] = match.row_ids
    return replaced, row_ids[replaced]


def _come_first(chosen: Mask) -> bool:
    """Whether no chosen row comes after one that is not."""
    return not (chosen[1:] & ~chosen[:-1]).any()


def _same(one: Mask | None, other: Mask | None) -> bool:
    if one is None or other is None:
        return one is other
    return np.array_equal(one, other)


def _ordered(
    batches: Callable[[], Iterable[pa.RecordBatch]], first: Mask
) -> Iterator[pa.RecordBatch]:
    """The rows of a stream that can be read twice, the chosen ones before the others."""
    return chain(_chosen(batches(), first), _chosen(batches(), ~first))


def _chosen(batches: Iterable[pa.RecordBatch], chosen: Mask) -> Iterator[pa.RecordBatch]:
    start = 0
    for batch in batches:
        mask = chosen[start : start + batch.num_rows]
        start += batch.num_rows
        if mask.any():
            yield batch.filter(pa.array(mask))
