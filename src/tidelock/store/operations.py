"""The operations that a transaction stages on one table.

An operation is a value that can be applied to a base pin and gives the next pin. It remembers what
it wrote, so that applying it again to a newer pin, after somebody else's commit, costs as little as
it can: an append commits the same fragments, an upsert looks its keys up again, an update or a
delete finds its rows again by their stable row ids.

    operation        may be applied again when another commit changed the table's rows
    Append           yes (its keys are checked again)
    Upsert           yes (its keys are matched again)
    Mutation         no: what it read may have changed
    Overwrite        no

After a maintenance commit, which changes no row, every operation may be applied again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa
from lance.fragment import FragmentMetadata

from tidelock.errors import BrokenInvariant, DuplicateKey
from tidelock.model.schema import TableSchema
from tidelock.store.keys import Match, Positions, match_keys, rows_by_id
from tidelock.store.refusals import OFFENDERS_MAX, tell_keys, tell_value
from tidelock.store.tables import Addresses, Dataset, TableFiles, with_row_ids

WRITTEN_AHEAD_ROWS_MAX = 64
"""So few rows are written before their turn, in case that they need not be written again."""
KEEP_IN_MEMORY_BYTES = 32 * 1024 * 1024
"""Larger sources are read back from their staged fragments when they are needed again."""


@dataclass(frozen=True)
class Target:
    """The table that operations are applied to."""

    name: str
    id: str
    schema: TableSchema

    @property
    def key(self) -> list[str]:
        return list(self.schema.key)


@dataclass
class Counts:
    inserted: int = 0
    updated: int = 0
    deleted: int = 0


class Operation(Protocol):
    survives_data_changes: bool
    """Whether it may be applied again after others changed rows of the table."""

    def apply(
        self, files: TableFiles, target: Target, base: Dataset, counts: Counts
    ) -> Dataset: ...


@dataclass
class Append:
    """Add rows. `data` is what is not written yet, `fragments` what is."""

    data: list[pa.Table] = field(default_factory=list)
    fragments: list[FragmentMetadata] = field(default_factory=list)
    keys: Callable[[], Iterable[pa.Table]] | None = None
    """The keys of what was written; None when the table has no key."""
    checked_pin: int | None = None
    """The pin against which the keys were last found to be new."""
    survives_data_changes: bool = True

    def apply(self, files: TableFiles, target: Target, base: Dataset, counts: Counts) -> Dataset:
        if target.schema.key and self.checked_pin != base.version:
            for keys in self._all_keys(target):
                refuse_present(target, base, keys)
        self.write(files, target, base)
        rows = sum(fragment.physical_rows for fragment in self.fragments)
        counts.inserted += rows
        return files.append(target.id, base, self.fragments) if rows else base

    def write(self, files: TableFiles, target: Target, base: Dataset) -> None:
        """Write what is still in memory: the part that does not depend on the pin."""
        if not self.data:
            return
        table = self.data[0] if len(self.data) == 1 else pa.concat_tables(self.data)
        if target.schema.key:
            keys = table.select(target.key)
            earlier = self.keys
            self.keys = lambda: [keys, *(earlier() if earlier else ())]
        self.fragments.extend(files.write(base, table))
        self.data = []

    def _all_keys(self, target: Target) -> Iterator[pa.Table]:
        for table in self.data:
            yield table.select(target.key)
        if self.keys is not None:
            yield from self.keys()


@dataclass
class Upsert:
    """Insert rows, or replace those that have the same key. `source` gives the rows."""

    source: Callable[[], pa.Table]
    survives_data_changes: bool = True
    own_fragments: frozenset[int] = frozenset()
    """Fragments of earlier chunks of the same input: a match in one is a duplicate key."""
    _written: tuple[Positions, list[FragmentMetadata]] | None = None
    """The order in which the rows were written, and as what."""

    def write(self, files: TableFiles, target: Target, base: Dataset) -> None:
        """Write few rows as they come, before it is known which of them are there already.

        They are written again if some are and some are not, for those that are come first.
        """
        rows = self.source()
        if self._written is None and rows.num_rows <= WRITTEN_AHEAD_ROWS_MAX:
            self._written = (np.arange(rows.num_rows), files.write(base, rows))

    def apply(self, files: TableFiles, target: Target, base: Dataset, counts: Counts) -> Dataset:
        rows = self.source()
        match = match_keys(base, rows.select(target.key))
        refuse_repeated(target, rows, match, self.own_fragments)
        self.own_fragments = frozenset()
        fragments = self._write(files, base, rows, match)
        counts.updated += len(match)
        counts.inserted += rows.num_rows - len(match)
        if not len(match):
            result = files.append(target.id, base, fragments)
        else:
            result = files.replace_rows(target.id, base, match.addresses, fragments)
        if rows.nbytes > KEEP_IN_MEMORY_BYTES:
            added = added_fragments(base, result)
            self.source = lambda: read_fragments(result, added)
        return result

    def _write(
        self, files: TableFiles, base: Dataset, rows: pa.Table, match: Match
    ) -> list[FragmentMetadata]:
        order = _replaced_first(match, rows.num_rows)
        if self._written is None or not np.array_equal(self._written[0], order):
            if len(match):
                rows = rows.take(pa.array(order))
            self._written = (order, files.write(base, rows))
        return with_row_ids(self._written[1], match.row_ids)


@dataclass
class Mutation:
    """Rows that were found by a condition: taken out (delete) or replaced (update)."""

    row_ids: Addresses
    addresses: Addresses
    fragments: Sequence[FragmentMetadata]
    found_at: int
    survives_data_changes: bool = False

    def apply(self, files: TableFiles, target: Target, base: Dataset, counts: Counts) -> Dataset:
        addresses = self.addresses
        if base.version != self.found_at:
            addresses = rows_by_id(base, self.row_ids)
        if len(addresses) != len(self.row_ids):
            raise BrokenInvariant(
                f"{len(self.row_ids)} rows of {target.name!r} were staged for change, "
                f"{len(addresses)} were found again after maintenance."
            )
        if self.fragments:
            counts.updated += len(addresses)
        else:
            counts.deleted += len(addresses)
        return files.replace_rows(target.id, base, addresses, self.fragments)


@dataclass
class Replacement:
    """Rows that were computed: some leave, some come, the first `replaced` of both being the same
    rows with other values."""

    row_ids: Addresses
    addresses: Addresses
    fragments: Sequence[FragmentMetadata]
    replaced: int
    found_at: int
    survives_data_changes: bool = False

    def apply(self, files: TableFiles, target: Target, base: Dataset, counts: Counts) -> Dataset:
        addresses = self.addresses
        if base.version != self.found_at:
            addresses = rows_by_id(base, self.row_ids)
        written = sum(fragment.physical_rows for fragment in self.fragments)
        counts.updated += self.replaced
        counts.deleted += len(addresses) - self.replaced
        counts.inserted += written - self.replaced
        return files.replace_rows(target.id, base, addresses, self.fragments)


@dataclass
class Overwrite:
    """All rows out, these in."""

    fragments: list[FragmentMetadata]
    survives_data_changes: bool = False

    def apply(self, files: TableFiles, target: Target, base: Dataset, counts: Counts) -> Dataset:
        counts.deleted += base.count_rows()
        counts.inserted += sum(fragment.physical_rows for fragment in self.fragments)
        return files.replace_all(target.id, base, self.fragments)


def refuse_present(
    target: Target, base: Dataset, keys: pa.Table, own: frozenset[int] = frozenset()
) -> None:
    """DuplicateKey when one of these keys is in the table already."""
    match = match_keys(base, keys)
    if len(match):
        refuse_repeated(target, keys, match, own)
        present = keys.take(pa.array(np.sort(match.positions)))
        raise key_present(target, present, present.num_rows)


def refuse_repeated(target: Target, rows: pa.Table, match: Match, own: frozenset[int]) -> None:
    """DuplicateKey when a match lies in a fragment that the same input wrote before."""
    if not own or not len(match):
        return
    repeated = np.isin(match.addresses >> np.uint64(32), list(own))
    if repeated.any():
        keys = rows.select(target.key).take(pa.array(match.positions[repeated]))
        raise duplicate_key(target, keys, keys.num_rows, "occurs more than once in the input")


def key_present(target: Target, keys: pa.Table, count: int) -> DuplicateKey:
    what = "is in the table already"
    return duplicate_key(target, keys, count, what, "Use upsert to replace rows. ")


def duplicate_key(
    target: Target, keys: pa.Table, count: int, what: str, hint: str = ""
) -> DuplicateKey:
    """The error for so many keys, of which `keys` are the first."""
    shown = keys.slice(0, OFFENDERS_MAX)
    columns = [[tell_value(value) for value in column] for column in shown.columns]
    values = list(zip(*columns, strict=True))
    return DuplicateKey(
        f"Table {target.name!r}: the key ({', '.join(target.key)}) {what}: "
        f"{tell_keys(values, count)}. {hint}Nothing was written.",
        table=target.name,
        columns=target.key,
        values=values,
    )


def added_fragments(before: Dataset, after: Dataset) -> list[int]:
    """The ids of the fragments that `after` has and `before`, its base, has not."""
    known = {fragment.fragment_id for fragment in before.get_fragments()}
    return [f.fragment_id for f in after.get_fragments() if f.fragment_id not in known]


def read_fragments(
    dataset: Dataset, ids: Iterable[int], columns: list[str] | None = None
) -> pa.Table:
    fragments = [dataset.get_fragment(fragment_id) for fragment_id in ids]
    return dataset.scanner(columns=columns, fragments=fragments).to_table()


def _replaced_first(match: Match, count: int) -> Positions:
    """The positions of rows, those that replace another before the others."""
    if not len(match):
        return np.arange(count)
    others = np.setdiff1d(np.arange(count), match.positions)
    return np.concatenate([match.positions, others])
