"""The JSON documents of the command line. Keys are stable: scripts rely on them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from tidelock.cli.show.cells import moment

if TYPE_CHECKING:
    from tidelock.cli.show.writers import Writer
    from tidelock.deliver.delivery.quarantine import QuarantinedChunk
    from tidelock.deliver.reports import DeliveryReport, ManifestReport, SinkStatus
    from tidelock.derive.attempts.attempts import Attempt
    from tidelock.derive.reports import Explanation, Freshness, GroupState, StreamTable
    from tidelock.ingest.reports import IngestReport, SourceStatus
    from tidelock.model.history.commit import BranchRef, Commit, TableChange, TableState
    from tidelock.model.sinks import Trouble
    from tidelock.store.branches import Tag
    from tidelock.store.leases.intents import UnreadableIntent
    from tidelock.store.leases.recovery import Recovery
    from tidelock.store.leases.single_holder import Holder
    from tidelock.store.schema.history import SchemaVersion
    from tidelock.store.statements.reports import StatementReport
    from tidelock.store.upkeep.garbage.garbage import GarbageReport
    from tidelock.store.upkeep.mirror_notes import Foreign
    from tidelock.store.upkeep.repair.inventory import Finding
    from tidelock.store.upkeep.repair.verification import VerifyReport

Document = dict[str, Any]


def _picked(value: object, names: str) -> Document:
    """Some attributes, by their own names."""
    return {name: _plain(getattr(value, name)) for name in names.split()}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return moment(value)
    return list(value) if isinstance(value, tuple) else value


def of_commit(commit: Commit) -> Document:
    return {
        **_picked(commit, "version id parents branch actor operation_id kind message time"),
        "tables": [of_change(change) for change in commit.shown],
        "properties": commit.properties,
    }


def of_change(change: TableChange) -> Document:
    return {
        "table": change.table,
        "id": change.table_id,
        **_picked(change, "inserted updated deleted"),
        "rows": change.after.rows if change.after else 0,
        "created": change.before is None,
        "dropped": change.after is None,
        "altered": change.altered,
    }


def of_statement(report: StatementReport) -> Document:
    return {"statement": report.kind, **_picked(report, "table inserted updated deleted")}


def of_table(state: TableState) -> Document:
    return _picked(state, "name rows key changed id")


def of_schema_version(version: SchemaVersion) -> Document:
    return _picked(version, "version time actor message changes commit")


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
    return _picked(tag, "name commit version created actor")


def of_writer(writer: Writer) -> Document:
    return {
        **_picked(writer.intent, "operation_id branch actor owner message created"),
        "sealed": writer.intent.sealed is not None,
        **_picked(writer, "lease_ends lease_ended"),
    }


def of_unreadable(intent: UnreadableIntent) -> Document:
    return _picked(intent, "file cause")


def of_foreign(foreign: Foreign) -> Document:
    return _picked(foreign, "table path expected actual rows")


def of_stream(stream: StreamTable) -> Document:
    return _picked(
        stream,
        "name query schedule refresh_mode consistency schedule_policy inputs rows as_of epoch "
        "group status origin",
    )


def of_freshness(freshness: Freshness) -> Document:
    return {
        **_picked(freshness, "current as_of behind_versions waiting_for"),
        "behind_seconds": freshness.behind.total_seconds(),
    }


def of_attempt(attempt: Attempt) -> Document:
    return _picked(
        attempt,
        "table action time reason seconds incremental_seconds full_seconds rows_in rows_out "
        "version commit epoch condition retry_at actor",
    )


def of_group(group: GroupState) -> Document:
    return _picked(
        group,
        "name members convergence_points inputs policy consistency epoch frontier last_result "
        "not_due_because",
    )


def of_holder(holder: Holder | None) -> Document | None:
    return None if holder is None else _picked(holder, "owner since until")


def of_explanation(explained: Explanation) -> Document:
    names = "table incremental obstacles mode reason incremental_seconds full_seconds text"
    return {
        **_picked(explained, names),
        "sql": [_picked(one, "segment input sql") for one in explained.sql],
    }


def of_recovery(recovery: Recovery) -> Document:
    return _picked(recovery, "operation_id outcome branch version actor owner message time")


def of_garbage(report: GarbageReport, names: dict[str, str]) -> Document:
    return {
        **_picked(report, "dry_run cutoff files"),
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
        "damaged": [of_finding(finding) for finding in report.damaged],
    }


def of_finding(finding: Finding) -> Document:
    return _picked(finding, "key what why advice kind table")


def of_verification(report: VerifyReport) -> Document:
    return {
        **_picked(report, "ok objects files"),
        "bytes": report.size_bytes,
        "findings": [of_finding(finding) for finding in report.findings],
    }


def of_sink(status: SinkStatus) -> Document:
    names = (
        "name id table branch kind to feed partition_by schedule state reason watermark newest "
        "quarantined plan in_flight retry_at options damage"
    )
    return {
        **_picked(status, names),
        "lagging": [
            {**_picked(one, "path watermark"), "trouble": _trouble(one.trouble)}
            for one in status.lagging
        ],
    }


def of_source(status: SourceStatus) -> Document:
    names = (
        "name id kind branch schedule state reason position newest lag_bytes lag_seconds "
        "rows_per_second transactions_per_second commit committed reader retry_at notes options"
    )
    return {
        **_picked(status, names),
        "open": [_picked(one, "name rows size_bytes since") for one in status.open],
        "tables": [_picked(one, "name table state reason rows expected") for one in status.tables],
    }


def of_ingest(report: IngestReport) -> Document:
    names = "source action rows transactions commits position version reason seconds state retry_at"
    return {
        **_picked(report, names),
        "tables": [_picked(one, "table puts removes") for one in report.tables],
    }


def of_repair(report: ManifestReport) -> Document:
    return {
        **_picked(report, "sink files rows"),
        "missing": [list(ends) for ends in report.missing],
    }


def of_delivery(report: DeliveryReport) -> Document:
    return {
        **_picked(report, "sink action rows chunks size_bytes quarantined after until version"),
        **_picked(report, "reason seconds"),
        "partitions": [
            {
                **_picked(one, "path rows chunks size_bytes quarantined after until"),
                "trouble": _trouble(one.trouble),
            }
            for one in report.partitions
        ],
    }


def _trouble(trouble: Trouble | None) -> Document | None:
    if trouble is None:
        return None
    return _picked(trouble, "reason condition failures since retry_at")


def of_quarantined(refused: QuarantinedChunk) -> Document:
    return _picked(refused, "number id path after until rows status answer time")
