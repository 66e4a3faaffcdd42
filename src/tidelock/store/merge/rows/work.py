"""A merge of rows under way: some rows at a time are read, decided and handed over.

    1. which rows each side touched (row_merge.py)
    2. rows that the source alone touched are taken over as they are; of those, what a compaction
       has merely moved is found to be the same, and left
    3. rows that both touched are put side by side and decided (decisions.py)

Invariants: nothing is written here, what follows is handed to an `Output`; in memory are the keys
and places of touched rows, and so many rows as fit.
Cost: what both sides changed, and finding the rows at the target by key or by id.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidelock.model.history.conflicts import SEQUENCE, Conflict
from tidelock.model.history.renumbering import ABSENT, Ids
from tidelock.store.changes.alike import Mask, same_rows
from tidelock.store.lookup.key_numbers import Numbering
from tidelock.store.merge.rows.decisions import Decided, Triples, decide_rows
from tidelock.store.merge.rows.located import Located, at_side, locate
from tidelock.store.merge.rows.output import Output, RowIds, Written
from tidelock.store.merge.rows.row_merge import Overrides, RowMerge
from tidelock.store.merge.rows.sides import (
    ByKey,
    Keyed,
    Touched,
    distinct,
    places_of,
    rows_at_a_time,
)


@dataclass(frozen=True)
class Places:
    """For each key, where its row is among those that a side touched; ABSENT if it is not."""

    gone: Ids
    come: Ids
    target_gone: Ids
    target_come: Ids
    override: Ids

    @classmethod
    def of(
        cls, keys: pa.Table, here: Touched, there: Touched, overrides: Overrides | None
    ) -> Places:
        numbering, count = Numbering(keys), keys.num_rows
        nothing = np.full(count, ABSENT, dtype=np.int64)
        return cls(
            places_of(here.gone.keys, numbering, count),
            places_of(here.come.keys, numbering, count),
            places_of(there.gone.keys, numbering, count),
            places_of(there.come.keys, numbering, count),
            nothing if overrides is None else places_of(overrides.keys, numbering, count),
        )

    @property
    def at_target(self) -> Mask:
        touched: Mask = (self.target_gone >= 0) | (self.target_come >= 0)
        return touched

    @property
    def overridden(self) -> Mask:
        found: Mask = self.override >= 0
        return found


def parts(chosen: Ids, order: Ids, size: int) -> Iterator[Ids]:
    """Some keys in parts, in the order in which their rows are read."""
    ordered = chosen[np.argsort(order[chosen], kind="stable")]
    for start in range(0, len(ordered), size):
        yield ordered[start : start + size]


@dataclass
class Work:
    """One merge under way; rows are chosen by the number of their key."""

    merge: RowMerge
    keys: pa.Table
    places: Places
    located: Located
    out: Output

    def delete(self, chosen: Ids) -> None:
        """Rows that the source alone deleted."""
        there = self.located.ids[chosen] != ABSENT
        chosen = chosen[there]
        if len(chosen):
            self.out.delete(self._keys(chosen), self.located.at(chosen))

    def write(self, chosen: Ids, rows: pa.Table | None = None, anew: bool = False) -> None:
        """Rows that the source alone inserted or updated."""
        if not anew:
            # One that retention has removed at the target stays away.
            there = self.located.ids[chosen] != ABSENT
            rows = None if rows is None else rows.filter(pa.array(there))
            chosen = chosen[there]
        if not len(chosen):
            return
        if rows is None:
            rows = self.merge.here.come.take(self.places.come[chosen])
        self._hand_over(chosen, rows)

    def write_if_changed(self, chosen: Ids) -> None:
        """Rows that the source updated, or that a compaction moved."""
        here = self.merge.here
        old = here.gone.take(self.places.gone[chosen])
        new = here.come.take(self.places.come[chosen])
        changed = ~same_rows(old, new, self.merge.compared)
        if changed.any():
            self.write(chosen[changed], new.filter(pa.array(changed)))

    def decide(self, chosen: Ids) -> None:
        """Rows that both sides touched."""
        merge = self.merge
        rows = self._triples(chosen)
        decided = decide_rows(
            rows, merge.compared, merge.granularity, merge.resolution, merge.filled
        )
        for name in merge.source_keys.names:
            if name in rows.source.column_names:
                decided.from_source[name] = ~rows.in_target
        gone = np.flatnonzero(decided.delete)
        if len(gone):
            self.out.delete(self._keys(chosen[gone]), self.located.at(chosen[gone]))
        write = np.flatnonzero(decided.write)
        if len(write):
            result = rows.choose(decided.from_source, rows.target.column_names)
            result = self._computed(rows, decided, result)
            self._hand_over(chosen[write], result.take(pa.array(write)))
        merge.resolved += int(decided.resolved.sum())
        self._tell(chosen, rows, decided)

    def _hand_over(self, chosen: Ids, rows: pa.Table) -> None:
        self.out.write(
            Written(rows, self._keys(chosen), self.located.at(chosen), self._ids(chosen))
        )

    def _ids(self, chosen: Ids) -> RowIds | None:
        here, there = self.merge.source_keys, self.merge.target_keys
        if isinstance(here, ByKey) or isinstance(there, ByKey):
            return None
        numbers = self._numbers(chosen)
        return RowIds(at_side(here, numbers), at_side(there, numbers))

    def _numbers(self, chosen: Ids) -> Ids:
        numbers: Ids = self.keys.column(0).to_numpy()[chosen]
        return numbers

    def _keys(self, chosen: Ids) -> pa.Table:
        return self.keys.take(pa.array(chosen))

    def _triples(self, chosen: Ids) -> Triples:
        here, there, at = self.merge.here, self.merge.there, self.places
        gone, come = at.gone[chosen], at.come[chosen]
        left, arrived = at.target_gone[chosen], at.target_come[chosen]
        base = _first_of([(here.gone, gone), (there.gone, left)], len(chosen))
        source = _over(base, here.come, come)
        target = _over(base, there.come, arrived)
        in_base = (gone >= 0) | (left >= 0)
        in_source = (come >= 0) | ((gone < 0) & in_base)
        in_target = (arrived >= 0) | ((left < 0) & in_base)
        unknown = np.zeros(len(chosen), dtype=np.bool_)
        overrides, places = self.merge.overrides, at.override[chosen]
        if overrides is not None and (places >= 0).any():
            mask = places >= 0
            base = _choose(base, overrides.rows, np.where(mask, places, ABSENT))
            in_base = np.where(mask, overrides.present[places], in_base)
            unknown = mask & overrides.unknown[places]
        return Triples(base, source, target, in_base, in_source, in_target, unknown)

    def _computed(self, rows: Triples, decided: Decided, result: pa.Table) -> pa.Table:
        """The rows with the values that expressions give."""
        merge = self.merge
        for name, mask in decided.computed.items():
            chosen = np.flatnonzero(mask)
            if not len(chosen):
                continue
            assert merge.compute is not None
            some = pa.array(chosen)
            sql = dict(merge.resolution.expressions)[name]
            sides = (one.take(some) for one in (rows.base, rows.source, rows.target))
            values = merge.compute(name, sql, *sides)
            order = np.arange(len(rows))
            order[chosen] = len(rows) + np.arange(len(chosen))
            place = result.schema.get_field_index(name)
            kept = pa.chunked_array([*result.column(name).chunks, *_chunks(values)])
            result = result.set_column(
                place, result.schema.field(place), kept.take(pa.array(order))
            )
        return result

    def _tell(self, chosen: Ids, rows: Triples, decided: Decided) -> None:
        """Note the conflicts, so many in full as are kept."""
        conflicts = self.merge.conflicts
        left = np.zeros(len(rows), dtype=np.bool_)
        for kind, mask in decided.kinds.items():
            left |= mask
            places = np.flatnonzero(mask)
            shown = places[: conflicts.room]
            conflicts.count(self.merge.table, kind, len(places) - len(shown))
            sides = [
                _plain(table.take(pa.array(shown)), present[shown])
                for table, present in (
                    (rows.base, rows.in_base & ~rows.unknown),
                    (rows.source, rows.in_source),
                    (rows.target, rows.in_target),
                )
            ]
            keys = self._told_keys(chosen[shown])
            for number, place in enumerate(shown.tolist()):
                columns = [name for name, at in decided.conflicts.items() if at[place]]
                base, source, target = (side[number] for side in sides)
                conflicts.add(
                    Conflict(
                        self.merge.table,
                        kind,
                        keys[number],
                        base,
                        source,
                        target,
                        tuple(columns),
                    )
                )
        if left.any():
            doubtful = chosen[left]
            self.out.doubt(self._keys(doubtful), self.located.at(doubtful), self._ids(doubtful))

    def _told_keys(self, chosen: Ids) -> list[dict[str, object]]:
        if isinstance(self.merge.source_keys, ByKey):
            return self._keys(chosen).to_pylist()  # type: ignore[no-any-return]
        ids = self.located.ids[chosen]
        known = np.where(ids == ABSENT, self._numbers(chosen), ids)
        return [{SEQUENCE: one} for one in known.tolist()]


def _first_of(parts: list[tuple[Keyed, Ids]], count: int) -> pa.Table:
    """Rows from whichever has them; a row that nobody has is NULL throughout."""
    order = np.full(count, ABSENT, dtype=np.int64)
    tables = []
    start = 0
    for keyed, places in parts:
        wanted = np.flatnonzero((places >= 0) & (order < 0))
        if len(wanted):
            tables.append(keyed.take(places[wanted]))
            order[wanted] = start + np.arange(len(wanted))
            start += len(wanted)
    schema = parts[0][0].shown.schema
    return _take(pa.concat_tables(tables) if tables else schema.empty_table(), order)


def _over(base: pa.Table, come: Keyed, places: Ids) -> pa.Table:
    """Rows of a side where it has them, else those of the base; so are columns that the side does
    not have."""
    wanted = np.flatnonzero(places >= 0)
    if not len(wanted):
        return base
    found = come.take(places[wanted])
    order = np.full(base.num_rows, ABSENT, dtype=np.int64)
    order[wanted] = np.arange(len(wanted))
    rows = _choose(base, found, order)
    for number, name in enumerate(come.shown.names):
        if name is None:
            rows = rows.set_column(number, rows.schema.field(number), base.column(number))
    return rows


def _choose(rows: pa.Table, others: pa.Table, places: Ids) -> pa.Table:
    """Rows, but those of another table where it has a place for them."""
    order = np.where(places >= 0, rows.num_rows + places, np.arange(len(places)))
    return pa.concat_tables([rows, others]).take(pa.array(order))


def _take(rows: pa.Table, order: Ids) -> pa.Table:
    """Rows in an order; NULL where there is no place."""
    return rows.take(pa.array(order, mask=order < 0))


def _plain(rows: pa.Table, present: Mask) -> list[dict[str, object] | None]:
    return [
        row if there else None
        for row, there in zip(rows.to_pylist(), present.tolist(), strict=True)
    ]


def _chunks(values: pa.ChunkedArray | pa.Array) -> list[pa.Array]:
    return values.chunks if isinstance(values, pa.ChunkedArray) else [values]


def merge_rows(merge: RowMerge, out: Output) -> None:
    """Hand over what the source changed, and note what is in conflict."""
    here = merge.here
    if not len(here.gone) and not len(here.come) and merge.overrides is None:
        return
    keys = _touched_keys(merge)
    places = Places.of(keys, here, merge.there, merge.overrides)
    located = locate(merge.target.dataset, merge.target_keys, merge.target.shown, keys)
    part = rows_at_a_time(merge.base.dataset, merge.source.dataset, merge.target.dataset)
    work = Work(merge, keys, places, located, out)
    overlap = places.at_target | places.overridden
    before, after = places.gone >= 0, places.come >= 0
    if merge.source_lacks_columns:
        overlap |= before & after
    alone = ~overlap
    maybe = np.zeros(len(overlap), dtype=np.bool_)
    maybe[before] = here.gone.may_be_elsewhere[places.gone[before]]
    maybe &= alone & after
    work.delete(np.flatnonzero(alone & before & ~after))
    for chosen in parts(np.flatnonzero(maybe), places.come, part):
        work.write_if_changed(chosen)
    for chosen in parts(np.flatnonzero(alone & before & after & ~maybe), places.come, part):
        work.write(chosen)
    for chosen in parts(np.flatnonzero(overlap), places.come, part):
        work.decide(chosen)
    for chosen in parts(np.flatnonzero(alone & ~before & after), places.come, part):
        work.write(chosen, anew=True)


def _touched_keys(merge: RowMerge) -> pa.Table:
    here, there = merge.here, merge.there
    if merge.overrides is None:
        return distinct(here.gone.keys, here.come.keys)
    # What both bases do not agree on may be a change of the source that nobody sees otherwise.
    return distinct(
        here.gone.keys,
        here.come.keys,
        there.gone.keys,
        there.come.keys,
        merge.overrides.keys,
    )
