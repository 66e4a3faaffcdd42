"""Refreshing stream tables within the commit of a merge.

Owns: which of them follow from what the merge brings and are behind it, and that all of those are
refreshed in its transaction, so that no reader sees merged tables under stream tables that do not
know of them. What is suspended stays as it is, and the report says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tidelock.derive.catalog import Catalog
from tidelock.derive.graph.due import suspension
from tidelock.derive.refresh.unit import MemberFailed, Members, is_current
from tidelock.derive.stream import Stream
from tidelock.model.history.commit import Tables, TableState
from tidelock.model.history.merges import Merge, TableAction, TableMerge
from tidelock.store.store import Store
from tidelock.store.transaction import Transaction


def refresh_merged(
    store: Store, catalog: Catalog, transaction: Transaction, report: Merge
) -> Merge:
    """Stage the refresh of what is behind, and say so of it in the report."""
    tables = transaction.tables()
    arrangement = catalog.arrange(tables)
    moved = _moved(transaction, tables)
    concerned = set(moved)
    members: Members | None = None
    done: dict[str, str] = {}
    held_back: dict[str, str] = {}
    for unit in arrangement.units:
        streams = [arrangement.streams[name] for name in unit.members]
        if not any(_follows(one, concerned) for one in streams):
            continue
        concerned.update(unit.members)
        if is_current(arrangement, tables, unit.members) and not _reads_any(streams, done):
            continue
        held = next((one for one in streams if one.state.suspended is not None), None)
        if held is not None:
            assert held.state.suspended is not None
            why = f"{held.name!r} is {suspension(held.state.suspended)}"
            held_back.update(dict.fromkeys(unit.members, why))
            continue
        if members is None:
            store.engine.follow_settings()
            members = Members(store, catalog, transaction, moved=moved)
        try:
            attempts = members.stage(unit.members)
        except MemberFailed as error:
            raise (error.__cause__ or error) from error
        done.update({one.table: one.reason for one in attempts})
    return _reported(report, done, held_back)


def _moved(transaction: Transaction, tables: Tables) -> dict[str, tuple[TableState | None, int]]:
    """The tables that the merge changes, by the names that they get: as they were before, and how
    many rows change."""
    found: dict[str, tuple[TableState | None, int]] = {}
    for change in transaction.changes():
        after = change.after
        if after is None:
            continue
        before = change.before
        undone = after.stream is not None and not after.stream.populated
        same = before is not None and before.changed == after.changed
        if undone or (same and before is not None and before.name == after.name):
            continue
        rows = change.inserted + 2 * change.updated + change.deleted
        now = None if before is None else replace(before, name=after.name)
        found[after.name] = (now, max(rows, 1))
    return {name: one for name, one in found.items() if name in tables}


def _follows(stream: Stream, concerned: set[str]) -> bool:
    own = stream.name in concerned or not stream.state.populated
    return own or any(one.name in concerned for one in stream.reads)


def _reads_any(streams: list[Stream], done: Mapping[str, str]) -> bool:
    return any(one.name in done for stream in streams for one in stream.reads)


def _reported(report: Merge, done: Mapping[str, str], held_back: Mapping[str, str]) -> Merge:
    """The report with what became of stream tables."""
    # What leaves may have the name of what comes.
    gone = [one for one in report.tables if one.action == "dropped"]
    found = {one.table: one for one in report.tables if one.action != "dropped"}
    for name, why in done.items():
        known = found.get(name, TableMerge(name, "stale"))
        action: TableAction = "refreshed" if known.action == "stale" else known.action
        found[name] = replace(known, action=action, why=why)
    for name, why in held_back.items():
        found[name] = replace(found.get(name, TableMerge(name, "stale")), why=why)
    told = sorted([*gone, *found.values()], key=lambda one: one.table)
    return replace(report, tables=tuple(told))
