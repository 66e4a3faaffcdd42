"""REFERENCES: the values of some columns are those of a row of another table, or of the same.

Laws: a row that comes finds what it refers to among the rows that the other table would have; a
value that leaves the other table, and does not come again, is not referred to any more.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidelock.errors import Advice
from tidelock.model.schema.rules import Rule
from tidelock.store.lookup.by_key import Match
from tidelock.store.rows.refusals import OFFENDERS_MAX
from tidelock.store.rules.deltas import TableDelta
from tidelock.store.rules.kinds import on_spark
from tidelock.store.rules.kinds.offenders import rows_at, rule_broken, tell_values
from tidelock.store.rules.kinds.values import distinct, without
from tidelock.store.rules.prospect import Prospect

_ADVICE = Advice(
    "Delete or change those rows in the same transaction, or let the rule do it with ON DELETE "
    "CASCADE or SET NULL.",
    "Delete or change those rows in the same transaction, or let the rule do it with ON DELETE "
    "CASCADE or SET NULL.",
)


def check(
    prospect: Prospect,
    table_id: str,
    rule: Rule,
    delta: TableDelta,
    advice: Advice | None = None,
) -> None:
    """RuleBroken if a row that comes refers to none."""
    if not delta.came:
        return
    columns = prospect.labels(table_id, rule.columns)
    if prospect.is_large(delta.came):
        target = prospect.labels(rule.table, rule.target)
        found = on_spark.without_partner(prospect, table_id, columns, rule.table, target, delta)
        if found is not None:
            first = prospect.typed(table_id, columns, found.first.drop_columns(["n"]))
            raise _broken(prospect, table_id, rule, first, found.count, found.rows, advice)
        return
    with prospect.reading(table_id):
        values = distinct(delta.rows_that_came(columns), columns)
    missing = not_there(prospect, rule, values)
    if missing.num_rows:
        _refuse_children(prospect, table_id, rule, missing, advice)


def check_parents(prospect: Prospect, table_id: str, rule: Rule, delta: TableDelta) -> None:
    """RuleBroken if a row of a table refers to one that leaves; `delta` is of the other table."""
    if not delta.left or not prospect.state(table_id).rows:
        return
    if prospect.state(table_id).rows <= delta.left:
        check(prospect, table_id, rule, prospect.whole(table_id), _ADVICE)
        return
    columns = prospect.labels(table_id, rule.columns)
    target = prospect.labels(rule.table, rule.target)
    if prospect.is_large(delta.left):
        found = on_spark.orphans(prospect, table_id, columns, rule.table, target, delta)
        if found is not None:
            first = prospect.typed(table_id, columns, found.first.drop_columns(["n"]))
            raise _broken(prospect, table_id, rule, first, found.count, found.rows, _ADVICE)
        return
    gone = not_there(prospect, rule, distinct(delta.rows_that_left(target), target))
    if gone.num_rows:
        _refuse_children(prospect, table_id, rule, gone, _ADVICE)


def not_there(prospect: Prospect, rule: Rule, values: pa.Table) -> pa.Table:
    """Those of some values that the table which is referred to would not have."""
    if not values.num_rows:
        return values
    # It has each at most once, so that a number tells whether all are there.
    if prospect.count(rule.table, rule.target, values) == values.num_rows:
        return values.slice(0, 0)
    return without(values, prospect.find(rule.table, rule.target, values).positions)


def _refuse_children(
    prospect: Prospect,
    table_id: str,
    rule: Rule,
    missing: pa.Table,
    advice: Advice | None = None,
) -> None:
    """RuleBroken if rows refer to values that are not there."""
    match: Match = prospect.find(table_id, rule.columns, missing)
    if not len(match):
        # A commit brought the row, and another took it away since.
        return
    numbers = np.unique(match.positions)
    first = missing.take(pa.array(numbers[:OFFENDERS_MAX]))
    rows = rows_at(prospect, table_id, match.addresses)
    raise _broken(prospect, table_id, rule, first, len(numbers), len(match), advice, rows)


def _broken(
    prospect: Prospect,
    table_id: str,
    rule: Rule,
    first: pa.Table,
    values: int,
    count: int,
    advice: Advice | None = None,
    rows: list[dict[str, object]] | None = None,
) -> Exception:
    columns = prospect.labels(table_id, rule.columns)
    target = ", ".join(prospect.labels(rule.table, rule.target))
    where = f"{prospect.name(rule.table)} ({target})"
    told = [f"{value} is not in {where}" for value in tell_values(columns, first)]
    if rows is None:
        match = prospect.find(table_id, rule.columns, first)
        rows = rows_at(prospect, table_id, match.addresses)
    return rule_broken(prospect, table_id, rule, count, rows, told, values - len(told), advice)
