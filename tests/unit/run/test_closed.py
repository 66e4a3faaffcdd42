"""A handle that was closed: whatever is asked of it, and of what it gave, says so."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.lakes import NUMBERS_DDL, numbers
from tests.support.line_source import KIND

import tidelock
from tidelock import Lake, errors

FACTS = {"uri", "info", "actor", "close"}
"""What a closed handle still tells: what it is, or was."""

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "alter_stream_table": ("t",),
    "alter_table": ("t", "ADD COLUMN b INT"),
    "apply": (".",),
    "apply_schema": ("CREATE TABLE u (a INT)",),
    "changes": ("t",),
    "create_branch": ("b",),
    "create_or_replace_stream_table": ("v", "SELECT 1 AS a"),
    "create_sink": ("s",),
    "create_source": ("f",),
    "create_stream_table": ("v", "SELECT 1 AS a"),
    "create_table": ("u", "a INT"),
    "delete_branch": ("dev",),
    "delete_tag": ("q1",),
    "discard_quarantined": ("s", "1"),
    "drop_sink": ("s",),
    "drop_source": ("f",),
    "drop_stream_table": ("v",),
    "drop_table": ("t",),
    "execute": ("DELETE FROM t",),
    "explain": ("t",),
    "find_commit": (1,),
    "find_operation": ("o",),
    "freshness": ("t",),
    "history": ("t",),
    "hold": ("h",),
    "mirror": ("t",),
    "suspend_sink": ("s", "reason"),
    "load": ("t", "nothing.csv"),
    "plan_schema": ("CREATE TABLE u (a INT)",),
    "diff": ("main", 0),
    "merge": ("dev",),
    "prune": ("t", "id < 1"),
    "quarantine": ("s",),
    "read_since": ("t",),
    "release": ("h",),
    "replay": ("s",),
    "resume": ("t",),
    "resume_sink": ("s",),
    "resnapshot": ("f",),
    "resume_source": ("f",),
    "source_status": ("f",),
    "suspend_source": ("f",),
    "repair_sink": ("s",),
    "resync_sink": ("s",),
    "retry_quarantined": ("s",),
    "run": (lambda tx: tx.append("t", []),),
    "rules": ("t",),
    "schema": ("t",),
    "schema_history": ("t",),
    "sink_status": ("s",),
    "sql": ("SELECT 1",),
    "suspend": ("t",),
    "table": ("t",),
    "write_stream": (None,),
    "tag": ("q2",),
}
KEYWORDS: dict[str, dict[str, Any]] = {
    "alter_stream_table": {"schedule": "5m"},
    "create_sink": {"table": "t", "kind": "parquet", "to": "x"},
    "create_source": {"kind": KIND, "path": "x"},
    "write_stream": {"table": "t", "checkpoint": "x"},
}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = tidelock.open(tmp_path / "lake", create=True)
    lake.create_table("t", NUMBERS_DDL)
    lake.run(lambda tx: tx.append("t", numbers((1, 1))))
    lake.create_branch("dev")
    lake.tag("q1")
    return lake


METHODS = sorted(name for name in dir(Lake) if not name.startswith("_") and name not in FACTS)


@pytest.mark.parametrize("name", METHODS)
def test_whatever_is_asked_of_a_closed_lake_says_so(lake: Lake, name: str) -> None:
    lake.close()
    with pytest.raises(errors.LakeClosed, match="was closed"):
        ask(lake, name)


def ask(lake: Lake, name: str) -> None:
    if isinstance(inspect.getattr_static(Lake, name), property):
        getattr(lake, name)
    else:
        getattr(lake, name)(*ARGUMENTS.get(name, ()), **KEYWORDS.get(name, {}))


def test_a_closed_lake_tells_what_it_was(lake: Lake) -> None:
    lake.close()
    lake.close()
    assert lake.uri.endswith("lake")
    assert lake.actor
    assert lake.info.id
    assert "Lake(" in repr(lake)


USES: dict[str, Callable[[Lake], Callable[[], Any]]] = {
    "snapshot table": lambda lake: (snapshot := lake.snapshot()) and (lambda: snapshot.table("t")),
    "snapshot sql": lambda lake: (snapshot := lake.snapshot()) and (lambda: snapshot.sql("SELECT")),
    "snapshot tables": lambda lake: lake.snapshot().tables,
    "snapshot rules": lambda lake: (snapshot := lake.snapshot()) and (lambda: snapshot.rules("t")),
    "rows": lambda lake: (table := lake.table("t")) and table.to_arrow,
    "batches": lambda lake: (table := lake.table("t")) and table.to_batches,
    "frame": lambda lake: (table := lake.table("t")) and table.to_spark,
    "count": lambda lake: (table := lake.table("t")) and table.count,
    "count some": lambda lake: (table := lake.table("t")) and (lambda: table.count("id > 0")),
    "transaction": lambda lake: (
        (tx := lake.transaction()) and (lambda: tx.append("t", numbers((2, 2))))
    ),
    "transaction table": lambda lake: (tx := lake.transaction()) and (lambda: tx.table("t")),
    "publication of nothing": lambda lake: lake.transaction().publish,
    "publication": lambda lake: staged(lake).publish,
}


def staged(lake: Lake) -> Any:
    tx = lake.transaction()
    tx.append("t", numbers((2, 2)))
    return tx


@pytest.mark.parametrize("use", USES)
def test_what_a_closed_lake_gave_says_so(lake: Lake, use: str) -> None:
    act = USES[use](lake)
    lake.close()
    with pytest.raises(errors.LakeClosed):
        act()


def test_readers_of_a_closed_lake_say_so(lake: Lake) -> None:
    readers = [lake.table("t").to_batches(), lake.changes("t", since=0)]
    table = lake.table("t")
    lake.close()
    for reader in readers:
        with pytest.raises(errors.LakeClosed):
            reader.read_all()
    assert repr(table) == "Table('t', of a lake that was closed)"


def test_a_transaction_of_a_closed_lake_is_undone_without_another_error(lake: Lake) -> None:
    def fail_after_closing() -> None:
        with lake.transaction() as tx:
            tx.append("t", numbers((2, 2)))
            lake.close()
            raise KeyError("of the caller")

    with pytest.raises(KeyError):
        fail_after_closing()
    with tidelock.open(lake.uri) as again:
        assert again.table("t").count() == 1
