"""Rules as DDL says them."""

from __future__ import annotations

from tidelock.model.names import quote
from tidelock.model.schema.declared import DeclaredRule
from tidelock.model.schema.rules import Rule
from tidelock.model.schema.schema import TableSchema


def rule_text(rule: DeclaredRule, *, named: bool = True) -> str:
    """A rule as it stands in CREATE TABLE, with its name or without."""
    columns = columns_text(rule.columns)
    match rule.kind:
        case "unique":
            text = f"UNIQUE {columns}"
            if rule.condition is not None:
                text += f" WHERE ({rule.condition})"
        case "check":
            text = f"CHECK ({rule.condition})"
        case "reference":
            assert rule.table is not None
            target = f" {columns_text(rule.target)}" if rule.target else ""
            text = f"FOREIGN KEY {columns} REFERENCES {_name(rule.table)}{target}"
            if rule.on_delete != "restrict":
                text += f" ON DELETE {rule.on_delete.upper()}"
        case "cardinality":
            text = f"CARDINALITY {columns} {_bounds(rule)}"
    return text if rule.name is None or not named else f"CONSTRAINT {_name(rule.name)} {text}"


def _bounds(rule: DeclaredRule) -> str:
    if rule.most is None:
        return f"AT LEAST {rule.least}"
    return f"BETWEEN {rule.least} AND {rule.most}"


def columns_text(names: tuple[str, ...]) -> str:
    return f"({', '.join(map(_name, names))})"


def _name(name: str) -> str:
    """A name in backticks only where it needs them."""
    plain = name.isascii() and name.isidentifier() and name == name.lower()
    return name if plain else quote(name)


def declared(
    rule: Rule, schema: TableSchema, table: str | None = None, other: TableSchema | None = None
) -> DeclaredRule:
    """A rule by names; `table` and `other` are those that it refers to."""
    target = () if other is None else other.labels(rule.target)
    return DeclaredRule(
        rule.kind,
        rule.name,
        schema.labels(rule.columns),
        rule.condition,
        table,
        target,
        rule.on_delete,
        rule.least,
        rule.most,
    )
