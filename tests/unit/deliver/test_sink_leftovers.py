"""Whoever is killed while delivering leaves nothing behind for good."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.sinks.destinations import rows_at

import tidelock
from tidelock.deliver.deliveries import Deliveries
from tidelock.deliver.destinations.files.formats import FORMATS
from tidelock.deliver.destinations.kinds import open_sink
from tidelock.deliver.destinations.protocol import SentChunk
from tidelock.errors import StoreUnavailable
from tidelock.model.sinks import Chunk
from tidelock.run.lake import Lake
from tidelock.store.leases.holds import hold_names
from tidelock.store.objects.failpoints import armed


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        lake.create_table("o", "id BIGINT")
        lake.run(lambda tx: tx.append("o", [{"id": n} for n in range(10)]))
        yield lake


def run_by_schedule(lake: Lake) -> None:
    deliveries = Deliveries(lake._sinks, "main", lambda report: None)
    deliveries.look(lake._store.branches.head("main"), datetime.now(UTC))
    deliveries.end()


@pytest.mark.parametrize(
    "begin",
    [pytest.param(run_by_schedule, id="run"), pytest.param(Lake.collect_garbage, id="gc")],
)
def test_the_hold_of_a_plan_that_was_delivered_and_not_closed_is_released(
    lake: Lake, tmp_path: Path, begin: Callable[[Lake], object]
) -> None:
    lake.create_sink("s", table="o", kind="jsonl", to=str(tmp_path / "out"))
    with armed("deliver.before_clear", "error"), pytest.raises(StoreUnavailable):
        lake.deliver("s")
    assert lake.deliver("s").action == "idle"
    assert len(hold_names(lake._store.objects)) == 1
    begin(lake)
    assert hold_names(lake._store.objects) == []
    assert len(rows_at(lake, "s")) == 10


def test_what_an_open_plan_holds_is_kept(lake: Lake, tmp_path: Path) -> None:
    lake.create_sink("s", table="o", kind="jsonl", to=str(tmp_path / "out"))
    with armed("deliver.after_chunk", "error"), pytest.raises(StoreUnavailable):
        lake.deliver("s")
    lake.collect_garbage()
    assert len(hold_names(lake._store.objects)) == 1
    assert lake.deliver("s").rows == 10
    assert hold_names(lake._store.objects) == []


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_on_its_way_to_a_bucket_has_no_name(
    lake: Lake, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    lake.create_sink("s", table="o", kind=kind, to=f"memory://{tmp_path.name}-{kind}")
    monkeypatch.setattr(tempfile, "tempdir", str(spool))
    sink = open_sink(lake._sinks.ledger.definition("s"))
    schema = pa.schema([("id", pa.int64())])

    def rows() -> Iterator[pa.RecordBatch]:
        for n in range(3):
            assert list(spool.iterdir()) == []
            yield pa.record_batch([pa.array([n])], schema)

    chunk = SentChunk("s", "inserts", "", Chunk(-1, 2, 3), 1, schema)
    assert sink.write(chunk, rows()) > 0
    assert [int(row["id"]) for row in rows_at(lake, "s")] == [0, 1, 2]
