"""The names that users rely on."""

from __future__ import annotations

import pickle

import tidelock
from tidelock import errors


def test_the_door_exports_exactly_these_names() -> None:
    assert sorted(tidelock.__all__) == [
        "Commit",
        "Lake",
        "Snapshot",
        "Table",
        "TableChange",
        "TableState",
        "Transaction",
        "errors",
        "open",
        "stream_table",
    ]


def test_a_lake_has_these_methods() -> None:
    public = {name for name in dir(tidelock.Lake) if not name.startswith("_")}
    assert public == {
        "actor", "alter_source", "alter_stream_table", "alter_table", "apply", "apply_schema",
        "branches", "changes", "close", "collect_garbage",
        "create_branch", "create_or_replace_stream_table", "create_sink", "create_source",
        "create_stream_table",
        "create_table", "delete_branch", "delete_tag", "deliver", "diff", "discard_quarantined",
        "drop_sink", "drop_source", "drop_stream_table", "drop_table", "execute", "explain",
        "find_commit",
        "find_operation",
        "foreign_commits", "freshness", "graph", "groups", "history", "hold", "info",
        "infer_schema", "ingest", "ingest_due", "intents",
        "load", "log", "merge", "mirror", "optimize", "plan_schema", "prune", "quarantine",
            "read_since",
        "recoveries", "refresh",
        "release", "repair", "repair_sink", "replay", "resume", "rules",
        "resnapshot", "resume_sink", "resume_source", "resync_sink", "retry_quarantined", "run",
        "scheduler", "schema",
        "schema_history", "serve_schedule",
        "sink_status", "sinks", "snapshot", "source_quarantine", "source_status", "sources",
        "spark", "sql", "stream_tables", "suspend",
        "suspend_sink", "suspend_source", "table", "tables", "tag", "tags", "transaction",
        "unreadable_intents",
        "uri", "verify", "write_stream",
    }  # fmt: skip


def every_error() -> list[type[errors.TidelockError]]:
    found = [errors.TidelockError]
    for kind in found:
        found.extend(kind.__subclasses__())
    return found


def test_every_error_has_a_condition_of_its_own_and_stands_in_the_tree() -> None:
    kinds = every_error()
    assert len({kind.condition for kind in kinds}) == len(kinds)
    for kind in kinds:
        assert kind.__name__ in (errors.__doc__ or "")


def test_an_error_pickles_with_its_evidence() -> None:
    for kind in every_error():
        error = kind("it happened", table="orders", values=[1, 2])
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is kind
        assert (copy.message, copy.table, copy.values) == ("it happened", "orders", [1, 2])
        assert copy.to_dict()["condition"] == kind.condition
