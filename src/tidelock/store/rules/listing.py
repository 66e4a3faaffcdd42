"""The rules of a table, as they are shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidelock.errors import BrokenInvariant
from tidelock.model.history.commit import Tables
from tidelock.model.listing import Listing
from tidelock.model.names import is_hidden
from tidelock.model.schema.declared import DeclaredRule
from tidelock.model.schema.rule_text import columns_text, declared, rule_text
from tidelock.store.rules.related import schema_of_state
from tidelock.store.tables.datasets import TableFiles


@dataclass(frozen=True, slots=True)
class RuleInfo:
    """One rule of a table. Those that are part of its columns have no name."""

    name: str | None
    kind: str
    text: str
    """As DDL says it."""


def list_rules(files: TableFiles, tables: Tables, table: str) -> Listing[RuleInfo]:
    """Everything that must hold of the rows of a table, beyond their types."""
    return Listing.of(
        f"Rules of {tables[table].name}",
        _rules(files, tables, table),
        {"name": lambda r: r.name, "kind": lambda r: r.kind, "text": lambda r: r.text},
    )


def _rules(files: TableFiles, tables: Tables, table: str) -> Iterator[RuleInfo]:
    schema = schema_of_state(files, tables[table])
    if schema.key:
        yield RuleInfo(None, "key", f"PRIMARY KEY {columns_text(schema.key)}")
    for column in schema.columns:
        if not column.nullable and column.name not in schema.key and not is_hidden(column.name):
            yield RuleInfo(None, "required", f"{columns_text((column.name,))[1:-1]} NOT NULL")
    for rule in declared_rules(files, tables, table):
        # The name stands beside it.
        yield RuleInfo(rule.name, rule.kind, rule_text(rule, named=False))


def declared_rules(files: TableFiles, tables: Tables, table: str) -> list[DeclaredRule]:
    """The rules of a table by names."""
    schema = schema_of_state(files, tables[table])
    by_id = {state.id: state for state in tables.states()}
    found = []
    for rule in schema.rules:
        if rule.kind != "reference":
            found.append(declared(rule, schema))
            continue
        parent = by_id.get(rule.table)
        if parent is None:
            raise BrokenInvariant(f"Rule {rule.name!r} refers to a table that is not there.")
        found.append(declared(rule, schema, parent.name, schema_of_state(files, parent)))
    return found
