"""The operations that a transaction stages on one table.

An operation is a value that can be applied to a base pin and gives the next pin. It remembers what
it wrote, so that applying it again to a newer pin, after somebody else's commit, costs as little as
it can: an append commits the same fragments, an upsert looks its keys up again, an update or a
delete finds its rows again (found_rows.py).

    operation        may be applied again when another commit changed the table's rows
    Append           yes (its keys are checked again)
    Upsert           yes (its keys are matched again; upserts.py)
    Mutation         if none of its rows was touched (new keys are checked again)
    Replacement      no, unless its stager says that it is as a mutation
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
from tidelock.store.lookup.by_key import match_keys
from tidelock.store.lookup.key_numbers import is_among
from tidelock.store.lookup.wanted_keys import GivenKeys, WantedKeys
from tidelock.store.operations.counts import ByColumnId, Counts, Labels, Target
from tidelock.store.operations.found_rows import FoundRows
from tidelock.store.operations.labels import relabelled
from tidelock.store.rows.checks import comparable_keys
from tidelock.store.rows.refusals import OFFENDERS_MAX, tell_keys, tell_value
from tidelock.store.tables.datasets import TableFiles
from tidelock.store.tables.fragments import Addresses, Dataset, with_row_ids


class Operation(Protocol):
    survives_data_changes: bool
    """Whether it may be applied again after others changed rows of the table."""

    def apply(
        self, files: TableFiles, target: Target, base: Dataset, counts: Counts
    ) -> Dataset: ...

    def follow(self, target: Target, labels: Labels) -> None:
        """Be applied to a table whose columns another commit has altered from here on; `labels`
        says what those of before are called now, `target` is the table as it is now."""


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

    def follow(self, target: Target, labels: Labels) -> None:
        self.data = [relabelled(rows, labels, target.schema) for rows in self.data]
        self.keys = [one.relabelled(labels) for one in self.keys]
        self.checked_pin = self._known = None

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
    keys: WantedKeys | None = None
    """The keys that its rows get, where it changes them."""
    survives_data_changes: bool = True
    rows: FoundRows = field(init=False)

    def __post_init__(self) -> None:
        self.rows = FoundRows(self.row_ids, self.addresses, self.found_at)

    def apply(self, files: TableFiles, target: Target, base: Dataset, counts: Counts) -> Dataset:
        addresses = _found_again(self.rows, files, target, base)
        _refuse_taken_since(self, target, base)
        if self.fragments:
            counts.updated += len(addresses)
        else:
            counts.deleted += len(addresses)
        fragments = _renumbered(self.fragments, self.rows, len(self.rows))
        return files.replace_rows(target.id, base, addresses, fragments)

    def follow(self, target: Target, labels: Labels) -> None:
        """Fragments know their columns by id."""
        self.keys = None if self.keys is None else self.keys.relabelled(labels)


@dataclass
class Replacement:
    """Rows that were computed: some leave, some come, the first `replaced` of both being the same
    rows with other values."""

    row_ids: Addresses
    addresses: Addresses
    fragments: Sequence[FragmentMetadata]
    replaced: int
    found_at: int
    keys: WantedKeys | None = None
    """The keys of the rows that come, where others might have taken them."""
    survives_data_changes: bool = False
    rows: FoundRows = field(init=False)

    def __post_init__(self) -> None:
        self.rows = FoundRows(self.row_ids, self.addresses, self.found_at)

    def apply(self, files: TableFiles, target: Target, base: Dataset, counts: Counts) -> Dataset:
        addresses = _found_again(self.rows, files, target, base)
        _refuse_taken_since(self, target, base)
        written = sum(fragment.physical_rows for fragment in self.fragments)
        counts.updated += self.replaced
        counts.deleted += len(addresses) - self.replaced
        counts.inserted += written - self.replaced
        fragments = _renumbered(self.fragments, self.rows, self.replaced)
        return files.replace_rows(target.id, base, addresses, fragments)

    def follow(self, target: Target, labels: Labels) -> None:
        """Fragments know their columns by id."""
        self.keys = None if self.keys is None else self.keys.relabelled(labels)


def _found_again(rows: FoundRows, files: TableFiles, target: Target, base: Dataset) -> Addresses:
    addresses = rows.at(files, target.id, base)
    if len(addresses) != len(rows):
        raise BrokenInvariant(
            f"{len(rows)} rows of {target.name!r} were staged for change, {len(addresses)} were "
            "found again at another pin, though nobody touched them."
        )
    return addresses


def _refuse_taken_since(change: Mutation | Replacement, target: Target, base: Dataset) -> None:
    """Check new keys again, unless it is the pin at which they were found to be free."""
    if change.keys is not None and base.version != change.found_at:
        refuse_taken(target, base, change.keys, change.rows.ids)


def _renumbered(
    fragments: Sequence[FragmentMetadata], rows: FoundRows, replaced: int
) -> Sequence[FragmentMetadata]:
    """Fragments whose first rows replace others, with the ids that those have now."""
    return with_row_ids(fragments, rows.ids[:replaced]) if rows.has_own else fragments


@dataclass
class Overwrite(ByColumnId):
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


def refuse_taken(target: Target, base: Dataset, keys: WantedKeys, row_ids: Addresses) -> None:
    """DuplicateKey when one of these keys is that of a row which is not among these ids."""
    match = match_keys(base, keys)
    others = ~is_among(match.row_ids, np.sort(row_ids))
    if others.any():
        taken = keys.take(np.sort(match.positions[others])[:OFFENDERS_MAX])
        raise duplicate_key(
            target, taken, int(others.sum()), "would occur more than once after this update"
        )


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
