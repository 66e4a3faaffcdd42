"""Whether two queries are the same, whatever names they were planned under.

Owns: a form of a tree in which tables and columns of tables are ids, and every other column is
numbered in the order in which it comes. Two trees with one form give the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from sqlglot.tokenizer_core import TokenType

from tidelock.derive.algebra.operators import Operator, Scan, inputs, walk, with_inputs
from tidelock.model.sql.text import Unreadable, read_tokens

Ids = Mapping[str, tuple[str, Mapping[str, int]]]
"""By the name that a scan gives a table: its id, and the ids of its columns by their names."""


def by_ids(root: Operator, ids: Ids) -> Operator:
    """The tree over ids. The columns of a scan have no order of their own."""
    if isinstance(root, Scan):
        table_id, columns = ids[root.table]
        found = sorted((columns[name], here) for here, name in root.columns)
        return Scan(table_id, tuple((here, f"#{column}") for column, here in found))
    return with_inputs(root, [by_ids(one, ids) for one in inputs(root)])


def canonical(root: Operator) -> Operator:
    """The tree, as `by_ids` gives it, with its columns numbered."""
    numbers: dict[str, str] = {}
    for one in reversed(list(walk(root))):
        for name in one.output:
            numbers.setdefault(name, f"{len(numbers)}")
    renamed = _renamed(root, numbers)
    assert isinstance(renamed, Operator)
    return renamed


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, Scan):
        return replace(value, columns=tuple((names[here], one) for here, one in value.columns))
    if isinstance(value, str):
        return names[value] if value in names else _sql(value, names)
    if isinstance(value, tuple):
        return tuple(_renamed(one, names) for one in value)
    if is_dataclass(value) and not isinstance(value, type):
        changes = {one.name: _renamed(getattr(value, one.name), names) for one in fields(value)}
        return replace(value, **changes)
    return value


def _sql(sql: str, names: Mapping[str, str]) -> str:
    """An expression with its columns renamed; fields of them, and texts, stay as they are."""
    try:
        tokens = read_tokens(sql)
    except Unreadable:
        return sql
    made, end, behind_dot = [], 0, False
    for token in tokens:
        if token.token_type is TokenType.IDENTIFIER and not behind_dot and token.text in names:
            made += [sql[end : token.start], f"`{names[token.text]}`"]
            end = token.end + 1
        behind_dot = token.token_type is TokenType.DOT
    return "".join([*made, sql[end:]])
