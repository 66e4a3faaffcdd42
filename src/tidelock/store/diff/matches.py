"""Matching: which rows that one point has, and another has elsewhere or not, are the same row.

    by key      rows of a table with a key, which is the same at both points
    by id       rows of a table without one, by their row ids
    by value    rows of a stream table, or of two tables that only share a name: equal rows cancel
                out, and of the rest those with the same hash of their group are one row

In memory are the keys, ids or digests of rows in files that only one of the points has.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from tidelock.model.history.renumbering import ABSENT, Ids, Renumbering
from tidelock.model.names import ROW_HASH
from tidelock.store.changes.pin_diff import PinDiff, PinRows
from tidelock.store.diff.columns import PairedColumns
from tidelock.store.lookup.key_numbers import Numbering
from tidelock.store.merge.rows.sides import Shown, places_of, rows_at_a_time
from tidelock.store.rows.json_values import encode_lines

DIGEST_BYTES = 16
NOWHERE: Ids = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Matched:
    """Rows by their places among those of a PinDiff."""

    before: Ids
    after: Ids
    """Where each row is that both points have, as it was and as it is."""
    deleted: Ids
    inserted: Ids


@dataclass(frozen=True)
class ByKey:
    """Rows are known by their key."""

    names: tuple[str, ...]
    """As the state after calls its columns."""


@dataclass(frozen=True)
class ById:
    """Rows are known by their ids."""

    numbering: Renumbering


@dataclass(frozen=True)
class ByValue:
    """Rows are known by all that they are."""


Matching: TypeAlias = ByKey | ById | ByValue


def match_rows(by: Matching, diff: PinDiff, columns: PairedColumns) -> Matched:
    gone, come = diff.gone, diff.come
    if not gone.count or not come.count:
        return _rest(NOWHERE, NOWHERE, gone.count, come.count)
    if isinstance(by, ByKey):
        before, after = _by_key(by, gone, come, columns)
    elif isinstance(by, ById):
        there = by.numbering.there(gone.ids)
        known = np.flatnonzero(there != ABSENT)
        before, after = _common(there[known], come.ids)
        before = known[before]
    else:
        return _by_value(gone, come, columns)
    return _rest(before, after, gone.count, come.count)


def _rest(before: Ids, after: Ids, gone: int, come: int) -> Matched:
    """The rows that are matched, and those that are left over."""
    order = np.argsort(after, kind="stable")
    return Matched(before[order], after[order], _others(gone, before), _others(come, after))


def _others(count: int, places: Ids) -> Ids:
    left = np.ones(count, dtype=np.bool_)
    left[places] = False
    return np.flatnonzero(left)


def _common(one: Ids, other: Ids) -> tuple[Ids, Ids]:
    """Where numbers are that both have; none of them is there twice."""
    _, here, there = np.intersect1d(one, other, assume_unique=True, return_indices=True)
    return here, there


def _by_key(by: ByKey, gone: PinRows, come: PinRows, columns: PairedColumns) -> tuple[Ids, Ids]:
    keys = [
        shown.of(by.names).read(rows, np.arange(rows.count))
        for rows, shown in ((gone, columns.shown_before), (come, columns.shown_after))
    ]
    before = places_of(keys[0], Numbering(keys[1]), come.count)
    after = np.flatnonzero(before != ABSENT)
    return before[after], after


def _by_value(gone: PinRows, come: PinRows, columns: PairedColumns) -> Matched:
    digests = [_digests(gone, columns.shown_before), _digests(come, columns.shown_after)]
    same = _common(*_ranked(*digests))
    left = [_others(rows.count, places) for rows, places in zip((gone, come), same, strict=True)]
    if not all(ROW_HASH in rows.dataset.schema.names for rows in (gone, come)):
        return Matched(NOWHERE, NOWHERE, *left)
    # What is there once on either side is one row: of a group, its hash is that of its key.
    once = [_once(rows, places) for rows, places in zip((gone, come), left, strict=True)]
    paired = _common(once[0][0], once[1][0])
    before, after = (known[found] for (_, known), found in zip(once, paired, strict=True))
    return Matched(before, after, np.setdiff1d(left[0], before), np.setdiff1d(left[1], after))


def _once(rows: PinRows, places: Ids) -> tuple[Ids, Ids]:
    """The hashes that only one of some rows has, and where that row is."""
    hashes = rows.take(places, [ROW_HASH]).column(0).to_numpy()
    found, first, counts = np.unique(hashes, return_index=True, return_counts=True)
    return found[counts == 1], places[first[counts == 1]]


def _digests(rows: PinRows, shown: Shown) -> pa.Array:
    """What each row is, in few bytes: the same for equal rows, and for no others."""
    found = [
        hashlib.blake2b(line.encode(), digest_size=DIGEST_BYTES).digest()
        for places in parts(np.arange(rows.count), rows_at_a_time(rows.dataset))
        for batch in shown.read(rows, places).to_batches()
        for line in encode_lines(batch).to_pylist()
    ]
    return pa.array(found, pa.binary(DIGEST_BYTES))


def _ranked(one: pa.Array, other: pa.Array) -> tuple[Ids, Ids]:
    """A number for each row, so that the first of some equal rows here has that of the first of
    them there, the second that of the second, and so on."""
    codes = pa.concat_arrays([one, other]).dictionary_encode().indices.to_numpy().astype(np.int64)
    sides = codes[: len(one)], codes[len(one) :]
    ranks = [_ranks(side) for side in sides]
    most = 1 + max(int(rank.max(initial=0)) for rank in ranks)
    return sides[0] * most + ranks[0], sides[1] * most + ranks[1]


def _ranks(codes: Ids) -> Ids:
    """How many equal numbers come before each."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    ranks = np.empty(len(codes), dtype=np.int64)
    ranks[order] = np.arange(len(codes)) - np.searchsorted(ordered, ordered)
    return ranks


def parts(places: Ids, size: int) -> Iterator[Ids]:
    """Places, so many at a time."""
    for start in range(0, len(places), size):
        yield places[start : start + size]
