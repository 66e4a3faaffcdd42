"""The operations that a transaction stages on one table.

An operation is a value that can be applied to a base pin and gives the next pin. It remembers what
it wrote, so that applying it again to a newer pin, after somebody else's commit, costs as little as
it can: an append commits the same fragments, an upsert looks its keys up again, an update or a
delete finds its rows again by their stable row ids.

    operation        may be applied again when another commit changed the table's rows
    Append           yes (its keys are checked again)
    Upsert           yes (its keys are matched again; upserts.py)
    Mutation         no: what it read may have changed
    Overwrite        no

After a maintenance commit, which changes no row, every operation may be applied again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa
from lance.fragment import FragmentMetadata

from tidelock.errors import BrokenInvariant, DuplicateKey
from tidelock.model.schema import TableSchema
from tidelock.store.lookup.by_key import match_keys, rows_by_id
from tidelock.store.lookup.wanted_keys import GivenKeys, WantedKeys
from tidelock.store.rows.checks import comparable_keys
from tidelock.store.rows.refusals import OFFENDERS_MAX, tell_keys, tell_value
from tidelock.store.tables.datasets import TableFiles
from tidelock.store.tables.fragments import Addresses, Dataset


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
    keys: list[WantedKeys] = field(default_factory=list)
    """The keys of what was written; none when the table has no key."""
    checked_pin: int | None = None
    """The pin against which the keys were last found to be new."""
    rows: int = 0
    size_bytes: int = 0
    """How much is not written yet."""
    survives_data_changes: bool = True
    _known: set[tuple[object, ...]] | None = None
    """The keys of what is not written yet, once somebody asked for them."""

    def add(self, rows: pa.Table) -> None:
        """Take more rows, before any of them was written."""
        self.data.append(rows)
        self.rows += rows.num_rows
        self.size_bytes += rows.nbytes

    def waiting_keys(self, target: Target) -> set[tuple[object, ...]]:
        """The keys of what is not written yet, for a caller that adds few rows at a time: to
        compare with all of them each time would take as long as there are rows."""
        if self._known is None:
            parts = (comparable_keys(rows.select(target.key)) for rows in self.data)
            self._known = {key for part in parts for key in part}
        return self._known

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
            self.keys.append(GivenKeys(table.select(target.key)))
        self.fragments.extend(files.write(base, table))
        self.data, self.rows, self.size_bytes, self._known = [], 0, 0, None

    def _all_keys(self, target: Target) -> Iterator[WantedKeys]:
        if self.data:
            yield GivenKeys(pa.concat_tables([table.select(target.key) for table in self.data]))
        yield from self.keys


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


def refuse_present(target: Target, base: Dataset, keys: WantedKeys) -> None:
    """DuplicateKey when one of these keys is in the table already."""
    match = match_keys(base, keys)
    if len(match):
        raise key_present(target, keys.take(np.sort(match.positions)[:OFFENDERS_MAX]), len(match))


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
