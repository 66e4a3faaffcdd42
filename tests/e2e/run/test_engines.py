"""The same pipeline on every engine gives the same rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import clusters, pipelines

import tidelock
from tidelock.errors import EngineUnavailable, QueryFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


TWO_LAKES = """
import sys, tidelock
lakes = [tidelock.open("shop.lake", remote=sys.argv[1]) for _ in range(2)]
for lake in lakes:
    lake.sql("SELECT count(*) FROM orders").collect()
lakes[0].close()
print("used", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def reference(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the local Spark gives, which is the reference engine."""
    return pipelines.run(tmp_path_factory.mktemp("local"), spark=spark)


def test_a_local_spark_gives_the_rows_that_were_written(reference: dict[str, Any]) -> None:
    expected = {}
    for n in range(5010):
        amount, customer = Decimal(n) / 4, str(n % 7)
        moment = datetime.fromtimestamp(n * 3600, UTC).isoformat()
        if n >= 4990:
            amount, customer, moment = amount + 1, "None", "None"
        if n % 100 == 7:
            amount = (amount / 2).quantize(Decimal("0.1"), ROUND_HALF_UP)
        if not (n < 2000 and n % 24 == 13):
            expected[str(n)] = [customer, f"{amount:.2f}", moment]
    assert {row[0]: row[1:] for row in reference["orders"]} == expected
    assert {row[0] for row in reference["query"]} == {"ü0", "ü1", "ü2", "ü3", "ü4", "None"}


def test_a_standalone_cluster_of_two_workers_gives_the_same(
    reference: dict[str, Any], tmp_path: Path
) -> None:
    with clusters.standalone_cluster(tmp_path / "cluster") as master:
        conf = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executorEnv.PYTHONPATH": str(clusters.SOURCES),
            "spark.sql.shuffle.partitions": "2",
            "spark.cores.max": "2",
            # Nothing runs before both are there.
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
        }
        rows = _run_driver(tmp_path, {"master": master, "memory": "512m", "conf": conf})
        at_work = {
            log.relative_to(tmp_path / "cluster").parts[0]
            for log in (tmp_path / "cluster").glob("worker-*/apps/app-*/*/stderr")
            if "Running task" in log.read_text()
        }
    assert rows == reference
    assert at_work == {"worker-0", "worker-1"}


def test_a_spark_connect_server_gives_the_same(reference: dict[str, Any], tmp_path: Path) -> None:
    with clusters.connect_server(tmp_path / "server") as url:
        assert pipelines.run(tmp_path, remote=url) == reference
        # A process ends, whichever of its lakes it closed, and whether the server is there or not.
        command = [sys.executable, "-c", TWO_LAKES, url]
        done = subprocess.run(command, cwd=tmp_path, timeout=120, input="", text=True)
        assert done.returncode == 0
        left = subprocess.Popen(
            command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert left.stdout is not None
        assert left.stdout.readline() == "used\n"
        lake = tidelock.open(tmp_path / "shop.lake", remote=url)
        assert lake.sql("SELECT count(*) FROM orders").collect()[0][0] > 0
    began = time.monotonic()
    with pytest.raises(EngineUnavailable, match="No Spark Connect server answers"):
        lake.sql("SELECT count(*) FROM orders")
    lake.close()
    left.communicate("", timeout=10)
    assert left.returncode == 0
    assert time.monotonic() - began < 20


def test_sail_gives_the_same(reference: dict[str, Any], tmp_path: Path) -> None:
    assert pipelines.run(tmp_path, engine="sail") == reference


def test_sail_names_an_unknown_column_as_it_is_written(tmp_path: Path) -> None:
    with tidelock.open(tmp_path / "lake", create=True, engine="sail") as lake:
        lake.create_table("sites", "id BIGINT, note STRING")
        with pytest.raises(QueryFailed, match=r"^Sail refused .* attribute `nope` is missing"):
            lake.sql("SELECT nope FROM sites")


def test_what_fails_on_sail_is_said_of_sail(tmp_path: Path) -> None:
    with tidelock.open(tmp_path / "lake", create=True, engine="sail") as lake:
        lake.create_table("sites", "id BIGINT, note STRING")
        lake.run(lambda tx: tx.append("sites", [{"id": 0}, {"id": 1}]))
        lake.create_stream_table("ratios", "SELECT id, 1 / id AS ratio FROM sites")
        (failed,) = lake.refresh()
        with pytest.raises(QueryFailed) as counted:
            lake.table("sites").count("1 / id > 0")
        with pytest.raises(QueryFailed) as updated, lake.transaction() as tx:
            tx.update("sites", {"note": "CAST(1 / id AS STRING)"})
    for told in (failed.reason, str(counted.value), str(updated.value)):
        assert "Sail " in told
        assert "Spark " not in told


def test_sail_counts_rows_of_which_no_column_is_read(tmp_path: Path) -> None:
    with tidelock.open(tmp_path / "lake", create=True, engine="sail") as lake:
        lake.create_table("t", "k BIGINT")
        lake.create_table("w", "k BIGINT")
        lake.create_stream_table("pairs", "SELECT t.k FROM t CROSS JOIN w")
        lake.create_stream_table("n", "SELECT count(*) AS n FROM t CROSS JOIN w")
        for start, rows in ((0, 2), (2, 3000)):
            with lake.transaction() as tx:
                tx.append("t", [{"k": start}])
                tx.append("w", [{"k": one} for one in range(rows)])
            lake.refresh()
        assert lake.table("pairs").count() == 2 * 3002
        assert lake.table("n").to_arrow().to_pylist() == [{"n": 2 * 3002}]


def _run_driver(folder: Path, settings: dict[str, object]) -> dict[str, Any]:
    """The pipeline with a driver of its own, because a process has only one Spark with a JVM."""
    environment = {**os.environ, "PYTHONPATH": str(clusters.SOURCES)}
    done = subprocess.run(
        [sys.executable, pipelines.__file__, str(folder), json.dumps(settings)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=folder,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr == "", "the console must stay quiet"
    rows: dict[str, Any] = json.loads(done.stdout)
    return rows
