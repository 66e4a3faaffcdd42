"""Merging the rules of a table: which of each side's follow, under the merged columns.

Owns: rules by their names. What is one rule on both sides is found out from what it says once its
columns are called as they are after the merge; what one side brings on a column that the other
dropped, or retyped so that it cannot be compared, is a conflict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from tidelock.errors import InvalidSchema
from tidelock.model.history.merges import Side
from tidelock.model.names import fold
from tidelock.model.schema.column_merge import Decisions, MergedColumn
from tidelock.model.schema.declared import DeclaredRule
from tidelock.model.schema.rule_text import rule_text
from tidelock.model.schema.rules import Rule
from tidelock.model.schema.schema import TableSchema, check_rule
from tidelock.model.sql.trees import rename_column

_TEMPORARY = "__tidelock_relabelled_"


def merged_rules(
    columns: Sequence[MergedColumn],
    bases: Sequence[TableSchema],
    source: TableSchema,
    target: TableSchema,
    decisions: Decisions,
) -> tuple[Rule, ...]:
    """Rules by their names, each as the merged columns call what it names. Columns that come from
    the source have no id yet: they are told by their place."""
    places = {one.column.name: number for number, one in enumerate(columns)}

    def read(
        schema: TableSchema, label: Callable[[MergedColumn], str | None]
    ) -> dict[str, Rule | None]:
        now = {name: one.column.name for one in columns if (name := label(one)) is not None}
        found: dict[str, Rule | None] = {}
        for rule in schema.rules:
            names = schema.labels(rule.columns)
            if any(name not in now for name in names):
                found[fold(rule.name)] = None
                continue
            condition = rule.condition
            if condition is not None:
                condition = _relabelled(condition, now)
            ids = tuple(places[now[name]] for name in names)
            found[fold(rule.name)] = replace(rule, columns=ids, condition=condition)
        return found

    known = [
        read(schema, lambda one, n=n: one.bases[n])  # type: ignore[misc]
        for n, schema in enumerate(bases)
    ]
    mine = read(source, lambda one: one.source)
    other = read(target, lambda one: one.target)
    labels = [one.column.name for one in columns]
    names = {fold(rule.name): rule.name for rule in (*target.rules, *source.rules)}
    found = []
    for folded, name in names.items():
        values = [one.get(folded) for one in known]
        here, there = mine.get(folded), other.get(folded)
        if not any(folded in one for one in known):
            _refuse_lost(source.rule(name), here, source, columns, "source", decisions)
            _refuse_lost(target.rule(name), there, target, columns, "target", decisions)
        tell = partial(_told, labels=labels)
        kept = decisions.take(values or [None], here, there, f"the rule {name!r}", tell=tell)
        if kept is not None and _fits(kept, columns, decisions):
            found.append(kept)
    return tuple(found)


def _told(rule: Rule | None, labels: Sequence[str]) -> str:
    """A rule as DDL says it, but for a table that it refers to, which is told by its id."""
    if rule is None:
        return "dropped"
    names = tuple(labels[place] for place in rule.columns)
    said = DeclaredRule(
        rule.kind,
        rule.name,
        names,
        rule.condition,
        rule.table or None,
        on_delete=rule.on_delete,
        least=rule.least,
        most=rule.most,
    )
    return rule_text(said, named=False)


def _refuse_lost(
    rule: Rule | None,
    merged: Rule | None,
    schema: TableSchema,
    columns: Sequence[MergedColumn],
    side: Side,
    decisions: Decisions,
) -> None:
    """A rule that a side brings, on a column that the other has dropped."""
    if rule is None or merged is not None:
        return
    left = {one.source if side == "source" else one.target for one in columns}
    gone = tuple(name for name in schema.labels(rule.columns) if name not in left)
    decisions.refuse(
        f"the rule {rule.name!r} of the {side} needs {', '.join(map(repr, gone))}, which the other "
        "side dropped",
        gone,
        # What was dropped does not come back with its rule.
        resolvable=decisions.prefer != side,
    )


def _fits(rule: Rule, columns: Sequence[MergedColumn], decisions: Decisions) -> bool:
    """Whether the columns are still of types that the rule can be about."""
    named = [columns[place].column for place in rule.columns]
    try:
        check_rule(rule, named)
    except InvalidSchema as error:
        decisions.refuse(error.message, tuple(one.name for one in named), resolvable=False)
        return False
    return True


def _relabelled(condition: str, labels: Mapping[str, str]) -> str:
    """A condition under other names of its columns; two may have changed places."""
    changed = [(old, new) for old, new in labels.items() if old != new]
    for number, (old, _) in enumerate(changed):
        condition = rename_column(condition, old, f"{_TEMPORARY}{number}")
    for number, (_, new) in enumerate(changed):
        condition = rename_column(condition, f"{_TEMPORARY}{number}", new)
    return condition
