"""What became of a table's schema: every commit that created, altered or renamed it.

What was altered is told as statements, found from the schemas before and after. Columns are known
by their ids: two may have changed names, and one of a name may have come for another that went.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from tidelock.model.history.commit import Commit, TableChange, Tables, TableState
from tidelock.model.schema.described import DescribedTable
from tidelock.model.schema.identity import by_identity
from tidelock.model.schema.plan.plan import Step
from tidelock.model.schema.plan.planner import plan_schema
from tidelock.model.schema.plan.table_steps import CurrentTable
from tidelock.store.log.log import Head
from tidelock.store.log.table_changes import changes_of
from tidelock.store.parts import Parts
from tidelock.store.schema.plans import describe, schema_at


@dataclass(frozen=True)
class SchemaVersion:
    """One change of a table's schema."""

    version: int
    time: datetime
    actor: str
    message: str
    changes: tuple[str, ...]
    """As statements."""
    commit: str


def schema_history(store: Parts, head: Head, name: str) -> Iterator[SchemaVersion]:
    """The changes of a table's schema, newest first."""
    state = head.tables[name]
    label, newest = state.name, head.version
    for version, change in changes_of(store.log, head.branch, state.id, state.changed, 0):
        if change.after is not None and change.after.name != label:
            # Renaming a table alone does not count as a change of it.
            yield from _renames(store, head, state, newest, version)
        if change.before is None or _altered(change):
            yield _told(store, head, store.log.commit_at(head.branch, version), change)
        if change.before is not None:
            label, newest = change.before.name, version - 1


def _altered(change: TableChange) -> bool:
    before, after = change.before, change.after
    if before is None or after is None:
        return True
    return before.schema != after.schema or before.name != after.name


def _renames(
    store: Parts, head: Head, state: TableState, newest: int, oldest: int
) -> Iterator[SchemaVersion]:
    for commit in store.log.walk(head.branch, newest, oldest + 1):
        for change in commit.tables:
            if change.table_id == state.id and _altered(change):
                yield _told(store, head, commit, change)


def _told(store: Parts, head: Head, commit: Commit, change: TableChange) -> SchemaVersion:
    tables = store.log.tables_at(head.branch, commit.version)
    return SchemaVersion(
        commit.version,
        commit.time,
        commit.actor,
        commit.message,
        tuple(_statements(store, tables, commit, change)),
        commit.id,
    )


def _statements(store: Parts, tables: Tables, commit: Commit, change: TableChange) -> Iterator[str]:
    after = _described(store, tables, change.after, commit.version)
    if change.before is None:
        yield after.ddl
        return
    earlier = tables.before(commit.tables)
    before = _described(store, earlier, change.before, commit.version - 1)
    kept, works = by_identity(before.schema, after.schema)
    for work in works:
        yield Step(before.name, work, "").ddl
    held = CurrentTable(before.name, before.id, lambda: kept, "", 0)
    others = [
        CurrentTable(state.name, state.id, partial(schema_at, store.files, state), "", 0)
        for state in tables.states()
        if state.id != before.id and state.name != before.name
    ]
    declared = replace(after.declared, was=before.name)
    for step in plan_schema([declared], [held, *others], branch="", version=0).steps:
        yield step.ddl


def _described(
    store: Parts, tables: Tables, state: TableState | None, version: int
) -> DescribedTable:
    assert state is not None
    return describe(store.files, tables, state.name, "", version)
