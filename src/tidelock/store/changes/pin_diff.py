"""Where two pins of one table differ: which rows one has and the other has not, and where they are.

Owns: the comparison of two pins by their fragments, whichever branches they are of. A data file
that both have holds the same rows in both, but for those that are deleted in one alone; files that
only one has hold rows that only one has, or rows that were moved by maintenance. A column that one
of them dropped, and the other shows, makes all rows differ.

Cost: what differs, not what is there. Data files are opened only to read rows that are asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelock.store.changes.changes import fragments_by_file, live_row_ids, live_rows
from tidelock.store.lookup.by_place import take_rows
from tidelock.store.lookup.key_numbers import is_among
from tidelock.store.schema.field_protos import Fields
from tidelock.store.tables.deletions import (
    NONE,
    Offsets,
    ReadBytes,
    deleted_offsets,
    live_positions,
)
from tidelock.store.tables.fragments import Dataset, deletion_file, projection
from tidelock.store.tables.labelled import column_ids

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Piece:
    """Rows of one fragment: some, or all that are alive."""

    fragment: int
    rows: int
    live: Offsets | None = None
    """Their places among the rows that are alive; None for all."""
    offsets: Offsets | None = None
    """Their places among all rows."""


@dataclass(frozen=True)
class PinRows:
    """Rows of one pin by where they lie, in order of their fragments."""

    dataset: Dataset
    pieces: tuple[Piece, ...]

    @cached_property
    def count(self) -> int:
        return sum(piece.rows for piece in self.pieces)

    @cached_property
    def whole(self) -> Mask:
        """Which of them lie in files that the other pin does not have."""
        parts = [np.full(piece.rows, piece.live is None) for piece in self.pieces]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.bool_)

    @cached_property
    def ids(self) -> Offsets:
        """Their row ids."""
        parts = []
        for piece in self.pieces:
            found = live_row_ids(self.dataset, piece.fragment).astype(np.int64)
            parts.append(found if piece.live is None else found[piece.live])
        return np.concatenate(parts) if parts else NONE

    def read(self, columns: Sequence[str]) -> pa.Table:
        """All of them, in order."""
        return self.take(np.arange(self.count), columns)

    def take(self, positions: Offsets, columns: Sequence[str]) -> pa.Table:
        """Those at some positions among them, in this order."""
        schema = pa.schema([self.dataset.schema.field(name) for name in columns])
        if not len(positions):
            return schema.empty_table()
        if not columns:
            # A table without columns does not know how many rows it has; the caller does.
            return pa.table({})
        ordered = bool(np.all(positions[1:] > positions[:-1]))
        order = None if ordered else np.argsort(positions, kind="stable")
        wanted = positions if order is None else positions[order]
        batches = list(self._batches(wanted, columns))
        # Row ids and nullability aside, what is read has the columns of the pin.
        found = pa.Table.from_batches(batches, batches[0].schema if batches else schema)
        if order is None:
            return found
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        return found.take(pa.array(back))

    def _batches(self, wanted: Offsets, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        ends = np.cumsum([piece.rows for piece in self.pieces])
        cuts = np.searchsorted(wanted, ends)
        begin = start = 0
        whole: list[int] = []
        for piece, cut, end in zip(self.pieces, cuts.tolist(), ends.tolist(), strict=True):
            mine = wanted[begin:cut] - start
            begin, start = cut, end
            if piece.live is None and len(mine) == piece.rows:
                # Fragments that are read as a whole are read together: each scan takes its time.
                whole.append(piece.fragment)
                continue
            yield from self._scan(whole, columns)
            whole = []
            if len(mine):
                yield from self._take_piece(piece, mine, columns)
        yield from self._scan(whole, columns)

    def _scan(self, fragments: list[int], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if fragments:
            scanner = self.dataset.scanner(
                columns=projection(self.dataset, columns),
                fragments=[self.dataset.get_fragment(one) for one in fragments],
                scan_in_order=True,
            )
            yield from scanner.to_batches()

    def _take_piece(
        self, piece: Piece, mine: Offsets, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        if piece.live is None:
            live, places = mine, live_rows(self.dataset, piece.fragment)[1][mine]
        else:
            assert piece.offsets is not None
            live, places = piece.live[mine], piece.offsets[mine]
        yield from take_rows(self.dataset, piece.fragment, live, places, list(columns))


@dataclass(frozen=True)
class PinDiff:
    """The rows that one pin has and the other has not, both ways."""

    gone: PinRows
    """Of the first pin."""
    come: PinRows
    """Of the second."""

    @property
    def empty(self) -> bool:
        return not self.gone.count and not self.come.count

    @cached_property
    def may_have_moved(self) -> bool:
        """Whether rows may be in both that lie elsewhere and are the same."""
        return bool(self.gone.whole.any() and self.come.count)


def diff_pins(
    read: ReadBytes, before: Dataset, after: Dataset, compared: Collection[int] | None = None
) -> PinDiff:
    """Where two pins of one table differ. `read` gives the bytes of a file of the table; `compared`
    are the ids of the columns that matter, if it is not all of them."""
    if before.version == after.version:
        return PinDiff(PinRows(before, ()), PinRows(after, ()))
    if _hides(before, after, compared) or _hides(after, before, compared):
        return PinDiff(every_row(before), every_row(after))
    old, new = fragments_by_file(before), fragments_by_file(after)
    gone: list[Piece] = []
    come: list[Piece] = []
    for file, fragment in old.items():
        other = new.get(file)
        if other is None:
            gone.append(_all(before, fragment))
            continue
        left, arrived = _compare(read, before, fragment, after, other)
        gone.extend(left)
        come.extend(arrived)
    come.extend(_all(after, one) for file, one in new.items() if file not in old)
    return PinDiff(
        PinRows(before, tuple(one for one in gone if one.rows)),
        PinRows(after, tuple(one for one in come if one.rows)),
    )


def _hides(one: Dataset, other: Dataset, compared: Collection[int] | None) -> bool:
    """Whether a column that one pin dropped, and the other shows, is in files that both may have:
    rows that nobody touched then have values that the one does not show."""
    here, there = column_ids(one), column_ids(other)
    missing = set(there.values()) - set(here.values())
    if compared is not None:
        missing &= set(compared)
    if not missing:
        return False
    fields = Fields.of(other.lance_schema)
    ids = {field.id for column in missing for field in fields.column(column)}
    return any(
        not ids.isdisjoint(file.fields)
        for fragment in one.get_fragments()
        for file in fragment.metadata.files
    )


def every_row(dataset: Dataset) -> PinRows:
    """All rows, each taken for one that may be elsewhere."""
    pieces = [_all(dataset, one.fragment_id) for one in dataset.get_fragments()]
    return PinRows(dataset, tuple(one for one in pieces if one.rows))


def _all(dataset: Dataset, fragment: int) -> Piece:
    metadata = dataset.get_fragment(fragment).metadata
    return Piece(fragment, metadata.physical_rows - metadata.num_deletions)


def _compare(
    read: ReadBytes, before: Dataset, fragment: int, after: Dataset, other: int
) -> tuple[list[Piece], list[Piece]]:
    """The rows of one data file that are alive in one pin alone."""
    old, new = before.get_fragment(fragment).metadata, after.get_fragment(other).metadata
    if _deletions(old) == _deletions(new):
        return [], []
    earlier, later = deleted_offsets(old, read), deleted_offsets(new, read)
    gone = later[~is_among(later, earlier)]
    come = earlier[~is_among(earlier, later)]
    return (
        [Piece(fragment, len(gone), live_positions(gone, earlier), gone)] if len(gone) else [],
        [Piece(other, len(come), live_positions(come, later), come)] if len(come) else [],
    )


def _deletions(fragment: object) -> str | None:
    file = fragment.deletion_file  # type: ignore[attr-defined]
    return None if file is None else deletion_file(fragment)
