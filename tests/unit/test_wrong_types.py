"""Arguments of a wrong type are refused by name, and leave a lake that everybody can read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.lakes import NUMBERS_DDL, check_log, numbers

import tidelock
from tidelock import Lake
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


@pytest.mark.parametrize("limit", ["5", 5.0, [5], True])
def test_a_limit_is_a_number(tmp_path: Path, limit: Any) -> None:
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        lake.create_table("t", NUMBERS_DDL)
        with pytest.raises(TidelockError, match="whole number"):
            lake.log(limit=limit)


def test_no_message_is_an_empty_one(tmp_path: Path) -> None:
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        lake.create_table("t", NUMBERS_DDL)
        transaction(message=None)(lake)
        assert [commit.message for commit in check_log(lake)] == ["create table t", ""]
