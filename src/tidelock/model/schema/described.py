"""A table of a lake as people read it: its columns and its rules by names, and as DDL."""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from tidelock.model.ddl.text import rule_ddl, table_ddl
from tidelock.model.schema.declared import DeclaredRule, DeclaredTable
from tidelock.model.schema.rules import Rule
from tidelock.model.schema.schema import TableSchema
from tidelock.model.types import type_name

FindTable: TypeAlias = Callable[[str], tuple[str, TableSchema] | None]
"""The name and the schema of the table of an id; None if there is none."""


@dataclass(frozen=True, repr=False)
class DescribedTable:
    """What a table is at one version. Shows itself as the statement that creates it."""

    name: str
    id: str
    branch: str
    version: int
    declared: DeclaredTable

    @property
    def schema(self) -> TableSchema:
        return self.declared.schema

    @property
    def rules(self) -> tuple[DeclaredRule, ...]:
        return self.declared.rules

    @property
    def ddl(self) -> str:
        return table_ddl(self.declared)

    def to_dict(self) -> dict[str, Any]:
        return {
            "table": self.name,
            "id": self.id,
            "branch": self.branch,
            "version": self.version,
            "columns": [
                {
                    "name": column.name,
                    "id": column.id,
                    "type": type_name(column.type),
                    "nullable": column.nullable,
                    "default": column.default,
                    "comment": column.comment,
                }
                for column in self.schema.columns
            ],
            "key": list(self.schema.key),
            "rules": [
                {"name": rule.name, "kind": rule.kind, "ddl": rule_ddl(rule)} for rule in self.rules
            ],
            "comment": self.schema.comment,
            "ddl": self.ddl,
        }

    def __repr__(self) -> str:
        return self.ddl

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.ddl)}</pre>"


def by_names(name: str, schema: TableSchema, find: FindTable) -> DeclaredTable:
    """A table whose rules name columns and tables, and not their ids."""
    rules = tuple(rule_by_names(rule, schema, find) for rule in schema.rules)
    return DeclaredTable(name, schema, rules)


def rule_by_names(rule: Rule, schema: TableSchema, find: FindTable) -> DeclaredRule:
    """A rule by names. What it refers to is named by its id where it is gone."""
    columns = () if rule.kind == "check" else schema.labels(rule.columns)
    table: str | None = None
    target: tuple[str, ...] = ()
    if rule.kind == "reference":
        found = find(rule.table)
        table = rule.table if found is None else found[0]
        if found is not None and rule.target != found[1].key_ids:
            target = found[1].labels(rule.target)
    return DeclaredRule(
        rule.kind,
        rule.name,
        columns,
        rule.condition,
        table,
        target,
        rule.on_delete,
        rule.least,
        rule.most,
    )
