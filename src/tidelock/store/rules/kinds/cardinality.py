"""CARDINALITY: each value of some columns has at least so many rows, and at most so many.

Law: only values that come or leave can have another number of rows than before. Where the columns
are a reference too, every row that can be referred to counts as a value, also if nobody refers to
it; else only values that occur do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelock.model.schema.rules import Rule
from tidelock.store.lookup.by_key import Match
from tidelock.store.rows.refusals import OFFENDERS_MAX
from tidelock.store.rules.deltas import TableDelta
from tidelock.store.rules.kinds import on_spark
from tidelock.store.rules.kinds.offenders import rows_at, rule_broken, tell_values
from tidelock.store.rules.kinds.values import distinct
from tidelock.store.rules.prospect import Prospect
from tidelock.store.tables.fragments import Addresses

COUNTED_ALONE_MAX = 16
NO_ADDRESSES: Addresses = np.array([], dtype=np.uint64)


def check(prospect: Prospect, table_id: str, rule: Rule, delta: TableDelta) -> None:
    """RuleBroken if a value has too few or too many rows."""
    changed = delta.came + (delta.left if rule.least else 0)
    if not changed:
        return
    columns = prospect.labels(table_id, rule.columns)
    if prospect.is_large(changed):
        _check_on_spark(prospect, table_id, rule, columns)
        return
    with prospect.reading(table_id):
        values = distinct(delta.rows_that_came(columns), columns)
        if rule.least and delta.left:
            gone = distinct(delta.rows_that_left(columns), columns)
            values = distinct(pa.concat_tables([values.cast(gone.schema), gone]), columns)
    _check_values(prospect, table_id, rule, values)


def check_parents(prospect: Prospect, table_id: str, rule: Rule, delta: TableDelta) -> None:
    """RuleBroken if a row comes to the table that is referred to, and too few refer to it."""
    if not rule.least or not delta.came:
        return
    columns = prospect.labels(table_id, rule.columns)
    for reference in _references(prospect, table_id, rule):
        if reference.table != delta.table_id:
            continue
        if prospect.is_large(delta.came):
            _check_on_spark(prospect, table_id, rule, columns)
            continue
        target = prospect.labels(reference.table, reference.target)
        with prospect.reading(reference.table):
            values = distinct(delta.rows_that_came(target), target).rename_columns(columns)
        _check_values(prospect, table_id, rule, values)


def check_all(prospect: Prospect, table_id: str, rule: Rule) -> None:
    """RuleBroken if a value has too few or too many rows, among all that there are."""
    check(prospect, table_id, rule, prospect.whole(table_id))
    for reference in _references(prospect, table_id, rule):
        check_parents(prospect, table_id, rule, prospect.whole(reference.table))


def _references(prospect: Prospect, table_id: str, rule: Rule) -> list[Rule]:
    """The references that have the same columns, their targets in the order of the rule's."""
    found = []
    for other in prospect.schema(table_id).rules:
        if other.kind == "reference" and set(other.columns) == set(rule.columns):
            places = [other.columns.index(one) for one in rule.columns]
            target = tuple(other.target[place] for place in places)
            found.append(replace(other, columns=rule.columns, target=target))
    return found


def _check_values(prospect: Prospect, table_id: str, rule: Rule, values: pa.Table) -> None:
    if not values.num_rows:
        return
    columns = prospect.labels(table_id, rule.columns)
    counts, match = _counted(prospect, table_id, rule, values)
    unfit = (counts > 0) & (counts < rule.least)
    if rule.most is not None:
        unfit |= counts > rule.most
    empty = np.flatnonzero(counts == 0) if rule.least else counts[:0]
    for reference in _references(prospect, table_id, rule) if len(empty) else ():
        asked = values.take(pa.array(empty))
        there = prospect.find(reference.table, reference.target, asked)
        unfit[empty[there.positions]] = True
    if not unfit.any():
        return
    numbers = np.flatnonzero(unfit)
    first = values.take(pa.array(numbers[:OFFENDERS_MAX]))
    if match is None:
        match = prospect.find(table_id, rule.columns, values)
    chosen = match.addresses[unfit[match.positions]]
    raise _broken(
        prospect,
        table_id,
        rule,
        tell_values(columns, first),
        counts[numbers].tolist(),
        len(numbers),
        len(chosen),
        chosen,
    )


def _counted(
    prospect: Prospect, table_id: str, rule: Rule, values: pa.Table
) -> tuple[npt.NDArray[np.int64], Match | None]:
    """How many rows each value has, and where they are if they had to be read for it: without an
    upper bound there may be any number of them."""
    if rule.most is None and values.num_rows <= COUNTED_ALONE_MAX:
        each = [
            prospect.count(table_id, rule.columns, values.slice(number, 1))
            for number in range(values.num_rows)
        ]
        return np.array(each, dtype=np.int64), None
    match = prospect.find(table_id, rule.columns, values)
    return np.bincount(match.positions, minlength=values.num_rows), match


def _check_on_spark(prospect: Prospect, table_id: str, rule: Rule, columns: Sequence[str]) -> None:
    found = on_spark.unfit_groups(prospect, table_id, columns, rule.least, rule.most)
    if found is not None:
        counts = found.first.column("n").to_pylist()
        first = prospect.typed(table_id, columns, found.first.drop_columns(["n"]))
        match = prospect.find(table_id, rule.columns, first)
        told = tell_values(columns, first)
        raise _broken(
            prospect, table_id, rule, told, counts, found.count, found.rows, match.addresses
        )
    for reference in _references(prospect, table_id, rule) if rule.least else ():
        target = prospect.labels(reference.table, reference.target)
        bare = on_spark.without_partner(prospect, reference.table, target, table_id, columns)
        if bare is not None:
            first = prospect.typed(reference.table, target, bare.first.drop_columns(["n"]))
            told = tell_values(columns, first)
            zeros = [0] * len(told)
            raise _broken(prospect, table_id, rule, told, zeros, bare.count, 0, NO_ADDRESSES)


def _broken(
    prospect: Prospect,
    table_id: str,
    rule: Rule,
    told: Sequence[str],
    counts: Sequence[int],
    values: int,
    rows: int,
    addresses: Addresses,
) -> Exception:
    said = [
        f"{value} has {_rows(count)}, and {_bound(rule, count)}"
        for value, count in zip(told, counts, strict=False)
    ]
    shown = rows_at(prospect, table_id, addresses)
    return rule_broken(prospect, table_id, rule, rows, shown, said, values - len(said))


def _bound(rule: Rule, count: int) -> str:
    if count < rule.least:
        return f"must have {rule.least:,} at least"
    return f"may have {rule.most:,} at most"


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count or 'no'} rows"
