"""Arguments of a wrong type are refused by name, and leave a lake that everybody can read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.lakes import NUMBERS_DDL, check_log, numbers

import tidelock
from tidelock import Lake, errors
from tidelock.errors import TidelockError

WRONG = ["half a \ud800 character", 5, b"x", ["x"], 5.5, True, object()]
Call = Callable[[Lake, Any], object]


def transaction(**options: Any) -> Callable[[Lake], None]:
    def run(lake: Lake) -> None:
        with lake.transaction(**options) as tx:
            tx.append("t", numbers((1, 1)))

    return run


def reopen(lake: Lake, **options: Any) -> None:
    with tidelock.open(lake.uri, **options) as other:
        transaction()(other)


def _nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(depth):
        found = {"a": found}
    return found


CALLS: dict[str, Call] = {
    "message": lambda lake, value: transaction(message=value)(lake),
    "message of run": lambda lake, value: lake.run(lambda tx: None, message=value),
    "message of create": lambda lake, value: lake.create_table("n", "id INT", message=value),
    "actor": lambda lake, value: transaction(actor=value)(lake),
    "actor of open": lambda lake, value: reopen(lake, actor=value),
    "operation id": lambda lake, value: transaction(operation_id=value)(lake),
    "find operation": lambda lake, value: lake.find_operation(value),
    "properties": lambda lake, value: transaction(properties=value)(lake),
    "branch": lambda lake, value: transaction(branch=value)(lake),
    "create branch": lambda lake, value: lake.create_branch(value),
    "delete branch": lambda lake, value: lake.delete_branch(value),
    "log": lambda lake, value: lake.log(value),
    "tag": lambda lake, value: lake.tag(value),
    "snapshot by tag": lambda lake, value: lake.snapshot(tag=value),
    "snapshot by commit": lambda lake, value: lake.snapshot(commit=value),
    "create table": lambda lake, value: lake.create_table(value, "id INT"),
    "schema": lambda lake, value: lake.create_table("n", value),
    "key": lambda lake, value: lake.create_table("n", "id INT", key=value),
    "drop table": lambda lake, value: lake.drop_table(value),
    "read table": lambda lake, value: lake.table(value),
    "append to": lambda lake, value: lake.run(lambda tx: tx.append(value, [])),
    "append": lambda lake, value: lake.run(lambda tx: tx.append("t", value)),
    "update column": lambda lake, value: lake.run(lambda tx: tx.update("t", {str: "1"})),
    "delete where": lambda lake, value: lake.run(lambda tx: tx.delete("t", value)),
    "columns": lambda lake, value: lake.table("t").to_arrow(columns=[value]),
    "filter": lambda lake, value: lake.table("t").to_arrow(filter=value),
    "changes": lambda lake, value: lake.changes(value),
    "mirror": lambda lake, value: lake.mirror(value),
    "repair": lambda lake, value: lake.repair(value),
    "stream table": lambda lake, value: lake.create_stream_table(value, "SELECT id FROM t"),
    "query": lambda lake, value: lake.create_stream_table("s", value),
    "sink": lambda lake, value: lake.create_sink(value, table="t", kind="csv", to="/tmp/x"),
    "sink's table": lambda lake, value: lake.create_sink("s", table=value, kind="csv", to="/x"),
    "sink's kind": lambda lake, value: lake.create_sink("s", table="t", kind=value, to="/x"),
}


@pytest.mark.parametrize("what", CALLS)
def test_a_wrong_type_is_refused_by_name(tmp_path: Path, what: str) -> None:
    with tidelock.open(tmp_path / "lake", create=True, actor="me") as lake:
        lake.create_table("t", NUMBERS_DDL)
        version = lake.snapshot().version
        for value in WRONG:
            with pytest.raises(TidelockError):
                CALLS[what](lake, value)
        with tidelock.open(tmp_path / "lake") as other:
            assert len(check_log(other)) == other.snapshot().version == version


COUNTS: dict[str, Call] = {
    "log": lambda lake, value: lake.log(limit=value),
    "limit": lambda lake, value: lake.table("t").to_arrow(limit=value),
    "versions": lambda lake, value: lake.collect_garbage(versions=value),
    "retries": lambda lake, value: lake.run(lambda tx: None, retries=value),
}


@pytest.mark.parametrize("what", COUNTS)
def test_a_count_is_a_whole_number(tmp_path: Path, what: str) -> None:
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        lake.create_table("t", NUMBERS_DDL)
        for value in ("5", 5.0, [5], True, float("nan"), -1, 2**63, b"5"):
            with pytest.raises(TidelockError, match="whole number"):
                COUNTS[what](lake, value)


OTHERS: dict[str, tuple[Call, list[Any]]] = {
    "age": (
        lambda lake, value: lake.collect_garbage(value),
        [float("nan"), float("inf"), 10**30, "99999999999d", timedelta.max, True, None, []],
    ),
    "optimize": (lambda lake, value: lake.optimize(value), [5, 1.5, True, object(), b"t", [5]]),
    "columns": (
        lambda lake, value: lake.table("t").to_arrow(columns=value),
        [5, True, b"id", ["id", "id"], ["id", "ID"], [None]],
    ),
    "storage options": (
        lambda lake, value: tidelock.open(lake.uri, storage_options=value),
        [5, True, [1], b"x", {1: 2}, {"region": "x"}],
    ),
    "path": (lambda lake, value: tidelock.open(value), ["\ud800", 5, None, ["x"]]),
    "properties": (
        lambda lake, value: transaction(properties=value)(lake),
        [_nested(3000), {"a": object()}, {("a",): 1}],
    ),
}


@pytest.mark.parametrize("what", OTHERS)
def test_other_wrong_values_are_refused(tmp_path: Path, what: str) -> None:
    call, values = OTHERS[what]
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        lake.create_table("t", NUMBERS_DDL)
        for value in values:
            with pytest.raises(TidelockError):
                call(lake, value)
        assert len(check_log(lake)) == 1


TEXT = pa.Array.from_buffers(
    pa.string(), 3, pa.array([b"ok", b"\xff\xfe", b"ok"], pa.binary()).buffers()
)
TEXTS: dict[str, tuple[str, pa.Array]] = {
    "STRING": ("STRING", TEXT),
    "STRUCT": ("STRUCT<a: STRING>", pa.StructArray.from_arrays([TEXT], ["a"])),
    "ARRAY": ("ARRAY<STRING>", pa.ListArray.from_arrays([0, 1, 2, 3], TEXT)),
    "large": ("STRING", TEXT.cast(pa.binary()).cast(pa.large_binary()).view(pa.large_string())),
}


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("what", TEXTS)
def test_bytes_that_are_no_text_are_refused(tmp_path: Path, what: str, streaming: bool) -> None:
    """Arrow takes them without a look, and whatever reads the table later fails."""
    kind, values = TEXTS[what]
    rows = pa.table({"id": [1, 2, 3], "s": values})
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        lake.create_table("t", f"id BIGINT NOT NULL, s {kind}", key="id")
        with pytest.raises(errors.WrongType, match="not UTF-8, in row 1") as caught:
            lake.run(lambda tx: tx.append("t", rows.to_reader(2) if streaming else rows))
        assert (caught.value.table, caught.value.column) == ("t", "s")
        with pytest.raises(errors.WrongType, match="not UTF-8"):
            lake.run(lambda tx: tx.upsert("t", {"id": [1, 2, 3], "s": values}))
        lake.run(lambda tx: tx.append("t", rows.slice(2)))
        assert lake.table("t").to_arrow()["id"].to_pylist() == [3]


def test_no_message_is_an_empty_one(tmp_path: Path) -> None:
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        lake.create_table("t", NUMBERS_DDL)
        transaction(message=None)(lake)
        assert [commit.message for commit in check_log(lake)] == ["create table t", ""]
