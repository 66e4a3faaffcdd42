"""CHECK: a condition is not false for any row.

Law: it says nothing of other rows, so that the rows of a fragment are looked at once, however often
the transaction that wrote it is rebased.
"""

from __future__ import annotations

from tidelock.errors import QueryFailed
from tidelock.model.schema.rules import Rule
from tidelock.store.rows.refusals import OFFENDERS_MAX
from tidelock.store.rules.deltas import ROW_ADDRESS, TableDelta
from tidelock.store.rules.kinds import on_spark
from tidelock.store.rules.kinds.conditions import condition_of, negated, true_for
from tidelock.store.rules.kinds.offenders import rows_at, rule_broken, tell_row
from tidelock.store.rules.prospect import Prospect
from tidelock.store.tables.fragments import Addresses, numbers

COLUMNS_TOLD = 4


def check(prospect: Prospect, table_id: str, rule: Rule, delta: TableDelta) -> None:
    """RuleBroken if the condition is false for a row that comes."""
    schema_id = prospect.state(table_id).schema
    files = [file for file, _ in delta.added if (schema_id, rule.name, file) not in prospect.passed]
    if not files:
        return
    try:
        addresses, count = _false(prospect, table_id, rule, delta, files)
    except QueryFailed as error:
        raise _unanswered(prospect, table_id, rule, error) from error
    if count:
        assert rule.condition is not None
        rows = rows_at(prospect, table_id, addresses)
        columns = condition_of(prospect, table_id, rule.condition).columns
        # A row is known by its key, or else by its first columns.
        known = prospect.schema(table_id).key or tuple(rows[0])[:COLUMNS_TOLD]
        names = list(dict.fromkeys([*known, *columns]))
        told = [f"({tell_row(row, names)})" for row in rows[:OFFENDERS_MAX]]
        told[0] = f"{_shown(rule.condition)} is false for {told[0]}"
        raise rule_broken(prospect, table_id, rule, count, rows, told, count - len(told))
    prospect.passed.update((schema_id, rule.name, file) for file in files)


def _false(
    prospect: Prospect, table_id: str, rule: Rule, delta: TableDelta, files: list[str]
) -> tuple[Addresses, int]:
    """Where the first rows are that the condition is false for, and how many there are."""
    assert rule.condition is not None
    false = condition_of(prospect, table_id, negated(rule.condition))
    if prospect.is_large(delta.came):
        return on_spark.rows_where(prospect, table_id, delta, files, false)
    with prospect.reading(table_id):
        if false.lance is not None:
            rows = delta.rows_that_came([], false.lance, files)
            found = numbers(rows.column(ROW_ADDRESS))
        else:
            rows = delta.rows_that_came(list(false.columns), None, files)
            found = numbers(rows.column(ROW_ADDRESS))[true_for(prospect, table_id, rows, false)]
    return found, len(found)


def _unanswered(prospect: Prospect, table_id: str, rule: Rule, error: QueryFailed) -> QueryFailed:
    """The condition fails for a row, and says neither that it is true nor that it is false."""
    assert rule.condition is not None
    table = prospect.name(table_id)
    return QueryFailed(
        f"Table {table!r}: rule {rule.name!r}, {_shown(rule.condition)}, has no answer for a row. "
        f"{error.message}",
        **{**error.evidence, "table": table, "rule": rule.name},
    )


def _shown(condition: str) -> str:
    return " ".join(condition.split())
