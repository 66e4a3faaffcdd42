"""UNIQUE: no two rows have the same values in some columns, among those that a condition is for.

Law: each value of a row that comes is had by one row of the table as it would be. Rows that stay
were unique before, and a row that leaves breaks nothing. A key that comes to a table is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidelock.model.schema.rules import Rule
from tidelock.model.sql.expressions import Filter
from tidelock.store.lookup.by_key import Match
from tidelock.store.operations.counts import Target
from tidelock.store.operations.operations import duplicate_key
from tidelock.store.rows.refusals import OFFENDERS_MAX
from tidelock.store.rules.deltas import TableDelta
from tidelock.store.rules.kinds import on_spark
from tidelock.store.rules.kinds.conditions import condition_of, true_at, true_for
from tidelock.store.rules.kinds.offenders import rows_at, rule_broken, tell_values
from tidelock.store.rules.kinds.values import distinct
from tidelock.store.rules.prospect import Prospect


def check(prospect: Prospect, table_id: str, rule: Rule, delta: TableDelta) -> None:
    """RuleBroken if a row that comes has the values of another."""
    condition = None
    if rule.condition is not None:
        condition = condition_of(prospect, table_id, rule.condition)
    found = _repeated(prospect, table_id, rule.columns, delta, condition)
    if found is None:
        return
    columns = prospect.labels(table_id, rule.columns)
    told = [
        f"{value} is in {count:,} rows"
        for value, count in zip(tell_values(columns, found.first), found.counts, strict=False)
    ]
    rows = rows_at(prospect, table_id, found.match.addresses)
    more = found.values - len(told)
    raise rule_broken(prospect, table_id, rule, found.rows, rows, told, more)


def check_key(prospect: Prospect, table_id: str) -> None:
    """DuplicateKey if two rows of a table have the same key."""
    schema = prospect.schema(table_id)
    found = _repeated(prospect, table_id, schema.key_ids, prospect.whole(table_id), None)
    if found is not None:
        target = Target(prospect.name(table_id), table_id, schema)
        raise duplicate_key(target, found.first, found.values, "is in more than one row")


@dataclass(frozen=True)
class _Repeated:
    """Values that several rows have: the first of them, with how many rows have each and where
    those are; the number of all such values, and of their rows."""

    first: pa.Table
    counts: Sequence[int]
    match: Match
    values: int
    rows: int


def _repeated(
    prospect: Prospect,
    table_id: str,
    ids: Sequence[int],
    delta: TableDelta,
    condition: Filter | None,
) -> _Repeated | None:
    if not delta.came:
        return None
    columns = prospect.labels(table_id, ids)
    if not prospect.is_large(delta.came):
        values = _values(prospect, table_id, columns, delta, condition)
        # What came by a commit that another stands on may have left since.
        present = delta.leads_to(prospect.dataset(table_id))
        return _among(prospect, table_id, ids, values, condition, present=present)
    found = on_spark.repeated_values(prospect, table_id, columns, condition)
    if found is None:
        return None
    # The rows themselves are looked for here, those of the first values alone.
    values = found.first.drop_columns(["n"])
    values = prospect.typed(table_id, columns, values)
    some = _among(prospect, table_id, ids, values, condition, present=True)
    assert some is not None
    return _Repeated(some.first, some.counts, some.match, found.count, found.rows)


def _values(
    prospect: Prospect,
    table_id: str,
    columns: list[str],
    delta: TableDelta,
    condition: Filter | None,
) -> pa.Table:
    """The values of the rows that come."""
    if condition is None or condition.lance is not None:
        lance = None if condition is None else condition.lance
        return distinct(delta.rows_that_came(columns, lance), columns)
    read = list(dict.fromkeys([*columns, *condition.columns]))
    rows = delta.rows_that_came(read)
    true = true_for(prospect, table_id, rows, condition)
    return distinct(rows.filter(pa.array(true)), columns)


def _among(
    prospect: Prospect,
    table_id: str,
    ids: Sequence[int],
    values: pa.Table,
    condition: Filter | None,
    *,
    present: bool,
) -> _Repeated | None:
    """Which of some values several rows have; `present`: each is had by one at least."""
    if not values.num_rows:
        return None
    if condition is None or condition.lance is not None:
        lance = None if condition is None else condition.lance
        if present and prospect.count(table_id, ids, values, lance) == values.num_rows:
            return None
        match = prospect.find(table_id, ids, values, lance)
    else:
        match = _shared(prospect.find(table_id, ids, values), values.num_rows)
        match = _chosen(match, true_at(prospect, table_id, match.addresses, condition))
    match = _shared(match, values.num_rows)
    if not len(match):
        return None
    numbers, counts = np.unique(match.positions, return_counts=True)
    first = values.take(pa.array(numbers[:OFFENDERS_MAX]))
    return _Repeated(first, counts.tolist(), match, len(numbers), len(match))


def _shared(match: Match, values: int) -> Match:
    """The rows whose value another one has too."""
    counts = np.bincount(match.positions, minlength=values)
    return _chosen(match, counts[match.positions] > 1)


def _chosen(match: Match, mask: np.ndarray) -> Match:
    return Match(match.positions[mask], match.row_ids[mask], match.addresses[mask])
