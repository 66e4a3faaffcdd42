"""A plan that cannot be sent again keeps the version that it is read from, also on S3, where a
delivery holds the head before it knows what there is to plan."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.lakes import collect_all
from tests.support.s3_server import S3Server, s3_bucket, s3_server

import tidelock
from tidelock.errors import StoreUnavailable
from tidelock.store.leases.holds import hold_names
from tidelock.store.objects.failpoints import armed

__all__ = ["s3_bucket", "s3_server"]


def test_a_plan_that_fails_again_keeps_its_version(
    s3_server: S3Server, s3_bucket: str, tmp_path: Path
) -> None:
    options = s3_server.storage_options
    with tidelock.open(f"s3://{s3_bucket}/lake", create=True, storage_options=options) as lake:
        lake.create_table("o", "id BIGINT")
        lake.run(lambda tx: tx.append("o", [{"id": n} for n in range(10)]))
        lake.create_sink("s", table="o", kind="jsonl", to=str(tmp_path / "out"))
        with armed("deliver.after_chunk", "error"), pytest.raises(StoreUnavailable):
            lake.deliver("s")
        held = hold_names(lake._store.objects)
        assert len(held) == 1
        lake.run(lambda tx: tx.overwrite("o", [{"id": 99}]))
        with armed("deliver.after_chunk", "error"), pytest.raises(StoreUnavailable):
            lake.deliver("s")
        assert hold_names(lake._store.objects) == held
        collect_all(lake)
        assert lake.deliver("s").rows == 11
        assert hold_names(lake._store.objects) == []
