"""The JSON documents of the command line. Keys are stable: scripts rely on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelock.cli.cells import moment
from tidelock.model.commit import BranchRef, Commit, TableChange, TableState

if TYPE_CHECKING:
    from tidelock.store.branches import Tag
    from tidelock.store.garbage import GarbageReport
    from tidelock.store.intents import Intent, UnreadableIntent
    from tidelock.store.mirror import Foreign
    from tidelock.store.recovery import Recovery

Document = dict[str, Any]


def of_commit(commit: Commit) -> Document:
    return {
        "version": commit.version,
        "id": commit.id,
        "parents": list(commit.parents),
        "branch": commit.branch,
        "actor": commit.actor,
        "operation_id": commit.operation_id,
        "kind": commit.kind,
        "message": commit.message,
        "time": moment(commit.time),
        "tables": [of_change(change) for change in commit.tables],
        "properties": commit.properties,
    }


def of_change(change: TableChange) -> Document:
    return {
        "table": change.table,
        "id": change.table_id,
        "inserted": change.inserted,
        "updated": change.updated,
        "deleted": change.deleted,
        "rows": change.after.rows if change.after else 0,
        "created": change.before is None,
        "dropped": change.after is None,
    }


def of_table(state: TableState) -> Document:
    return {
        "name": state.name,
        "rows": state.rows,
        "key": list(state.key),
        "changed": state.changed,
        "id": state.id,
    }


def of_branch(branch: BranchRef, version: int) -> Document:
    return {
        "name": branch.name,
        "version": version,
        "fork_version": branch.fork_version or None,
        # Nobody creates main: it comes with the lake.
        "created": moment(branch.created) if branch.actor else None,
        "actor": branch.actor or None,
        "id": branch.id,
    }


def of_tag(tag: Tag) -> Document:
    return {
        "name": tag.name,
        "commit": tag.commit,
        "version": tag.version,
        "created": moment(tag.created),
        "actor": tag.actor,
    }


def of_intent(intent: Intent) -> Document:
    return {
        "operation_id": intent.operation_id,
        "branch": intent.branch,
        "actor": intent.actor,
        "owner": intent.owner,
        "message": intent.message,
        "created": moment(intent.created),
        "sealed": intent.sealed is not None,
    }


def of_unreadable(intent: UnreadableIntent) -> Document:
    return {"file": intent.file, "cause": intent.cause}


def of_foreign(foreign: Foreign) -> Document:
    return {
        "table": foreign.table,
        "path": foreign.path,
        "expected": foreign.expected,
        "actual": foreign.actual,
        "rows": foreign.rows,
    }


def of_recovery(recovery: Recovery) -> Document:
    return {
        "operation_id": recovery.operation_id,
        "outcome": recovery.outcome,
        "branch": recovery.branch,
        "version": recovery.version,
        "actor": recovery.actor,
        "owner": recovery.owner,
        "message": recovery.message,
        "time": moment(recovery.time),
    }


def of_garbage(report: GarbageReport, names: dict[str, str]) -> Document:
    return {
        "dry_run": report.dry_run,
        "cutoff": moment(report.cutoff),
        "files": report.files,
        "bytes": report.size_bytes,
        "tables": [
            {
                "table": names.get(table.table_id),
                "id": table.table_id,
                "files": table.files,
                "bytes": table.size_bytes,
                "error": table.error,
            }
            for table in report.tables
        ],
    }
