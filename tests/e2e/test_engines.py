"""The same pipeline on every engine gives the same rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import clusters
import pipelines
import pytest

from tidelock.run.session import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def reference(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """What the local Spark gives, which is the reference engine."""
    return pipelines.run(Engine(spark), tmp_path_factory.mktemp("local"))


def test_a_local_spark_gives_the_rows_that_were_written(reference: list[list[str]]) -> None:
    kept = [n for n in range(1000, 5000) if n * 0.25 > 300]
    assert sum(int(row[1]) for row in reference) == len(kept)
    assert sum(float(row[2]) for row in reference) == sum(kept) * 0.25
    assert {row[0] for row in reference} == {"ü0", "ü1", "ü2", "ü3", "ü4", "None"}


def test_a_standalone_cluster_of_two_workers_gives_the_same(
    reference: list[list[str]], tmp_path: Path
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


def test_a_spark_connect_server_gives_the_same(reference: list[list[str]], tmp_path: Path) -> None:
    with (
        clusters.connect_server(tmp_path / "server") as url,
        Engine(remote=url) as engine,
    ):
        assert pipelines.run(engine, tmp_path) == reference


def test_sail_gives_the_same(reference: list[list[str]], tmp_path: Path) -> None:
    pytest.importorskip("pysail")
    with Engine(engine="sail") as engine:
        assert pipelines.run(engine, tmp_path) == reference


def _run_driver(folder: Path, settings: dict[str, object]) -> list[list[str]]:
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
    rows: list[list[str]] = json.loads(done.stdout)
    return rows
