"""What is wrong with a sink is said when it is created, or asked for, and nothing is half done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.lakes import collect_all

import tidelock
from tidelock import errors
from tidelock.deliver.destinations.protocol import Sink
from tidelock.run.lake import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        lake.create_table("o", "id BIGINT, g STRING", key="id")
        rows = [{"id": n, "g": "a/b" if n % 2 else "c"} for n in range(10)]
        lake.run(lambda tx: tx.append("o", rows))
        yield lake


@pytest.mark.parametrize("rows", [0, -5, "abc", True, 1.5, "0"])
@pytest.mark.parametrize(
    ("kind", "option"), [("csv", "rows_per_file"), ("delta", "rows_per_commit")]
)
def test_a_number_of_rows_is_a_number_of_rows(
    lake: Lake, tmp_path: Path, kind: str, option: str, rows: Any
) -> None:
    with pytest.raises(errors.InvalidOption, match=option):
        lake.create_sink("s", table="o", kind=kind, to=str(tmp_path / "out"), **{option: rows})
    assert not list(lake.sinks())


def test_an_address_is_named_and_is_not_the_lake(lake: Lake, tmp_path: Path) -> None:
    for to in ("", str(tmp_path / "lake"), str(tmp_path / "lake" / "tables" / "x")):
        with pytest.raises(errors.InvalidOption, match="address"):
            lake.create_sink("s", table="o", kind="jsonl", to=to)
    lake.create_sink("s", table="o", kind="jsonl", to=str(tmp_path / "lake-out"))


def test_a_place_of_another_sink_of_the_lake_is_refused_at_once(lake: Lake, tmp_path: Path) -> None:
    place = tmp_path / "out"
    lake.create_sink("s", table="o", kind="jsonl", to=str(place / "a"))
    link = tmp_path / "link"
    link.symlink_to(place)
    same = (str(place / "a"), f"file://{place}/a/", str(place / "a" / "b"), str(place), f"{link}/a")
    for to in same:
        for kind in ("csv", "delta"):
            with pytest.raises(errors.InvalidOption, match="Sink 's' delivers to"):
                lake.create_sink("t", table="o", kind=kind, to=to)
    lake.create_sink("t", table="o", kind="csv", to=str(place / "ab"))
    for name in ("u", "v"):
        lake.create_sink(name, table="o", kind="http", to="http://127.0.0.1:1/rows")


def test_a_file_is_no_address_for_files(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    for to in (f"{tmp_path}/out", f"{tmp_path}/out/below", f"file://{tmp_path}/out"):
        for kind in ("csv", "iceberg"):
            with pytest.raises(errors.InvalidOption, match=r"out is a file\. Name a folder"):
                lake.create_sink("s", table="o", kind=kind, to=to)
    with pytest.raises(errors.InvalidOption, match="inside the lake"):
        lake.create_sink("s", table="o", kind="csv", to=f"file://{tmp_path}/lake/out")


def test_a_kind_that_there_is_not_is_told_with_those_there_are_once(lake: Lake) -> None:
    for kind in ("quux", "parquett"):
        with pytest.raises(errors.InvalidOption) as caught:
            lake.create_sink("s", table="o", kind=kind, to="nowhere")
        assert caught.value.message.count("'parquet'" if kind != "quux" else "parquet") == 1
        assert "module:name" in caught.value.message


def test_a_sink_of_ones_own_that_lacks_something_is_refused(lake: Lake) -> None:
    lacks = {
        "Unsized": "has no rows_per_chunk",
        "Endless": "has no close",
        "make_nothing": "is a dict",
    }
    for name, why in lacks.items():
        with pytest.raises(errors.InvalidOption, match=why):
            lake.create_sink("s", table="o", kind=f"{__name__}:{name}", to="nowhere")


class Endless(Sink):
    """A destination without `close`."""

    def __init__(self, definition: object, options: object) -> None: ...

    def plan(self, plan: object, schema: object) -> None: ...

    def write(self, chunk: object, rows: object) -> int:
        return 0

    def confirm(self, plan: object, state: object) -> None: ...


class Unsized(Endless):
    """A destination without `rows_per_chunk`."""

    def close(self) -> None: ...


def make_nothing(definition: object, options: object) -> object:
    """What makes no sink."""
    return {}


def test_a_partition_that_was_never_delivered_is_not_replayed(lake: Lake, tmp_path: Path) -> None:
    lake.create_sink("s", table="o", kind="jsonl", to=str(tmp_path / "out"), partition_by="g")
    lake.deliver("s")
    with pytest.raises(errors.InvalidOption, match=r"Did you mean 'g=a%2Fb'"):
        lake.replay("s", partition="g=a/b")
    lake.replay("s", partition="g=a%2Fb")
    assert lake.deliver("s").rows == 5


def test_a_sink_of_changes_that_lost_nothing_is_not_sent_again(lake: Lake, tmp_path: Path) -> None:
    lake.create_sink("s", table="o", kind="jsonl", to=str(tmp_path / "out"), feed="changes")
    for _ in range(2):
        with pytest.raises(errors.InvalidOption, match="lost nothing"):
            lake.resync_sink("s")
        lake.deliver("s")
    assert lake.sink_status("s").state == "current"


@pytest.mark.parametrize("feed", ["inserts", "changes"])
def test_a_start_that_is_no_longer_kept_is_refused_and_the_oldest_is_named(
    lake: Lake, tmp_path: Path, feed: Any
) -> None:
    for n in range(10, 14):
        lake.run(lambda tx, n=n: tx.append("o", [{"id": n, "g": "d"}]))
    newest = lake.snapshot().version
    to = str(tmp_path / "out")
    lake.create_sink("w", table="o", kind="jsonl", to=to, feed=feed, start=f"version:{newest - 3}")
    assert lake.deliver("w").rows == 3
    lake.drop_sink("w")
    collect_all(lake)
    with pytest.raises(errors.InvalidOption, match=rf"oldest .* version:{newest}") as caught:
        lake.create_sink(
            "s", table="o", kind="jsonl", to=f"{to}-2", feed=feed, start=f"version:{newest - 1}"
        )
    oldest = caught.value.evidence["oldest"]
    assert not list(lake.sinks())
    lake.create_sink(
        "s", table="o", kind="jsonl", to=f"{to}-2", feed=feed, start=f"version:{oldest}"
    )
    lake.run(lambda tx: tx.append("o", [{"id": 20, "g": "d"}]))
    assert lake.deliver("s").rows == 1
