"""The rules of a table at two points: which came, went, or say something else.

A rule is known by its name. A column or a table that was renamed makes no difference to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tidelock.model.history.commit import Tables, TableState
from tidelock.model.history.diffs import DefinitionDiff
from tidelock.model.names import fold
from tidelock.model.schema.rule_text import columns_text, rule_text
from tidelock.model.schema.rules import Rule
from tidelock.model.schema.schema import TableSchema
from tidelock.store.diff.columns import PairedColumns
from tidelock.store.rules.listing import declared_rules
from tidelock.store.tables.datasets import TableFiles

KEY = "PRIMARY KEY"


def diff_rules(
    files: TableFiles,
    before: tuple[Tables, TableState, TableSchema],
    after: tuple[Tables, TableState, TableSchema],
    columns: PairedColumns,
) -> Iterator[DefinitionDiff]:
    """The rules that differ, by name, the key first."""
    old, new = before[2], after[2]
    renamed = {
        one.name: other.name
        for one, other in columns.pairs
        if one is not None and other is not None
    }
    if tuple(renamed.get(name) for name in old.key) != new.key:
        yield DefinitionDiff("key", *(_key(schema) for schema in (old, new)))
    ids = {
        one.id: other.id for one, other in columns.pairs if one is not None and other is not None
    }
    left = {fold(rule.name): rule for rule in old.rules}
    right = {fold(rule.name): rule for rule in new.rules}
    differ = [
        name
        for name in sorted({*left, *right})
        if name not in left or name not in right or not _same(left[name], right[name], ids, renamed)
    ]
    if differ:
        texts = [_texts(files, tables, state) for tables, state, _ in (before, after)]
        for name in differ:
            rule = right.get(name) or left[name]
            yield DefinitionDiff(rule.name, texts[0].get(name), texts[1].get(name))


def _key(schema: TableSchema) -> str | None:
    return f"{KEY} {columns_text(schema.key)}" if schema.key else None


def _texts(files: TableFiles, tables: Tables, state: TableState) -> dict[str, str]:
    return {
        fold(rule.name or ""): rule_text(rule, named=False)
        for rule in declared_rules(files, tables, state.name)
    }


def _same(before: Rule, after: Rule, ids: Mapping[int, int], renamed: Mapping[str, str]) -> bool:
    moved = replace(
        before,
        name=after.name,
        columns=tuple(ids.get(one, one) for one in before.columns),
        condition=after.condition,
    )
    if moved != after:
        return False
    return before.condition == after.condition or _renamed(before.condition, renamed) == (
        after.condition
    )


def _renamed(condition: str | None, renamed: Mapping[str, str]) -> str | None:
    """A condition under the names that columns have after."""
    if condition is None:
        return None
    # Conditions that are the same text need no parser of SQL.
    from tidelock.model.sql.trees import rename_column

    changed = [(old, new) for old, new in renamed.items() if old != new]
    # By names that no column has, so that two columns may have swapped theirs.
    for number, (old, _) in enumerate(changed):
        condition = rename_column(condition, old, f"\x00{number}")
    for number, (_, new) in enumerate(changed):
        condition = rename_column(condition, f"\x00{number}", new)
    return condition
