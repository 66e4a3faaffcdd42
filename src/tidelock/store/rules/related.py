"""Which rules a change concerns.

Asked at every attempt to publish, so that the usual answer, none, has to be quick: a table without
rules has no declaration (store/schema), and only those that have one are looked at. What the tables
with declarations refer to is remembered for as long as they have the same.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidelock.model.history.commit import TableChange, Tables, TableState
from tidelock.model.schema.rules import Rule

if TYPE_CHECKING:
    from tidelock.model.schema.schema import TableSchema
    from tidelock.store.schema.declarations import Declarations
    from tidelock.store.tables.datasets import TableFiles

KNOWN_MAX = 64


@dataclass(frozen=True)
class References:
    """The references of a lake's tables, by the table that is referred to."""

    by_parent: Mapping[str, tuple[tuple[str, Rule], ...]] = field(default_factory=dict)
    """To the id of a parent, the ids of its children and their rules."""

    def to(self, table_id: str) -> tuple[tuple[str, Rule], ...]:
        return self.by_parent.get(table_id, ())


NO_REFERENCES = References()
_known: OrderedDict[tuple[tuple[str, str], ...], References] = OrderedDict()


def references_of(declarations: Declarations, tables: Tables) -> References:
    """Who refers to whom among some tables."""
    declared = tuple((state.id, state.schema) for state in tables.states() if state.schema)
    if not declared:
        return NO_REFERENCES
    found = _known.get(declared)
    if found is None:
        by_parent: defaultdict[str, list[tuple[str, Rule]]] = defaultdict(list)
        for table_id, schema_id in declared:
            for rule in declarations.read(schema_id).rules:
                if rule.kind == "reference":
                    by_parent[rule.table].append((table_id, rule))
        found = References({parent: tuple(rules) for parent, rules in by_parent.items()})
        _known[declared] = found
        if len(_known) > KNOWN_MAX:
            _known.popitem(last=False)
    return found


def rules_of(declarations: Declarations, state: TableState | None) -> tuple[Rule, ...]:
    """The rules of a table. Of one without a declaration it is known that it has none."""
    if state is None or not state.schema:
        return ()
    return declarations.read(state.schema).rules


def schema_of_state(files: TableFiles, state: TableState) -> TableSchema:
    known = files.known_schema(state)
    return files.schema(state, files.read(state)) if known is None else known


def are_concerned(files: TableFiles, tables: Tables, changes: tuple[TableChange, ...]) -> bool:
    """Whether a rule has anything to do with these changes."""
    declarations = files.declarations
    for change in changes:
        if rules_of(declarations, change.after) or _is_tightened(change):
            return True
    references = references_of(declarations, tables)
    if references is NO_REFERENCES:
        return False
    return any(references.to(change.table_id) for change in changes)


def _is_tightened(change: TableChange) -> bool:
    """Whether a key came to a table that was there before."""
    before, after = change.before, change.after
    return before is not None and after is not None and before.key != after.key


def related_tables(
    files: TableFiles, tables: Tables, changes: tuple[TableChange, ...]
) -> dict[str, tuple[int, str] | None]:
    """What the rules of some changes depend on: the tables that are changed, those that they refer
    to and those that refer to them, each as some tables have it before the changes."""
    declarations = files.declarations
    final = tables.after(changes)
    references = references_of(declarations, final)
    ids = set()
    for change in changes:
        ids.add(change.table_id)
        ids.update(rule.table for rule in rules_of(declarations, change.after) if rule.table)
        ids.update(child for child, _ in references.to(change.table_id))
    by_id = {state.id: state for state in tables.states()}
    return {one: _told(by_id.get(one)) for one in ids}


def _told(state: TableState | None) -> tuple[int, str] | None:
    return None if state is None else (state.changed, state.schema)
