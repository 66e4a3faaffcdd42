"""A diamond of four views: our group refresh against Spark Declarative Pipelines.

Both have the same rows and the same queries, on a local Spark of two cores. Declarative Pipelines
compute every view anew at every run, whether its source changed or not, so its source stays.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.clusters import connect_server

import tidelock
from bench.measure import Claim, folder, middle, seconds
from bench.outside import hand_over
from bench.shop import MILLION, REGIONS, SPARK, change, fill

SCRIPT = Path(__file__).parent / "outside_scripts" / "pipelines_run.py"
ROWS = 10 * MILLION
ROUNDS = 5
WARM_UP = 12
"""A JVM that has just started is slow at everything small; what follows changes does not start
anew for each of them."""
MEMORY = "4g"
VIEWS = {
    "by_customer": "SELECT customer_id, SUM(amount) AS total, COUNT(*) AS orders "
    "FROM orders GROUP BY customer_id",
    "by_region": "SELECT c.region, SUM(b.total) AS total, SUM(b.orders) AS orders "
    "FROM by_customer b JOIN customers c ON b.customer_id = c.id GROUP BY c.region",
    "large": "SELECT c.region, COUNT(*) AS orders FROM orders o JOIN customers c "
    "ON o.customer_id = c.id WHERE o.amount > 900 GROUP BY c.region",
    "overview": "SELECT r.region, r.total, r.orders, l.orders AS large "
    "FROM by_region r JOIN large l ON r.region = l.region",
}


class Pipeline:
    """The views in Declarative Pipelines, in a process of their own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert int(self._answer()) == ROWS

    def run(self) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write("run\n")
        self._process.stdin.flush()
        took, rows = self._answer().split()
        assert int(rows) == REGIONS
        return float(took)

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "Declarative Pipelines ended with an error."
        return line


@contextmanager
def pipeline(path: Path) -> Iterator[Pipeline]:
    os.environ.setdefault("SPARK_DRIVER_MEMORY", MEMORY)
    with connect_server(path) as url:
        command = [sys.executable, str(SCRIPT), url, str(path), json.dumps(VIEWS)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, text=True, **pipes) as process:
            try:
                yield Pipeline(process)
            finally:
                process.kill()


def diamond_against_pipelines() -> Iterator[Claim]:
    with folder() as path, tidelock.open(path / "lake", create=True, **SPARK) as lake:
        fill(lake, ROWS)
        hand_over(lake, path / "outside")
        for name, query in VIEWS.items():
            lake.create_stream_table(name, query, refresh_mode="incremental")
        (group,) = lake.groups()
        assert set(group.members) == set(VIEWS)
        lake.refresh()

        def refresh(number: int) -> float:
            change(lake, ROWS, number)
            took = seconds(lambda: actions.update(one.action for one in lake.refresh()))
            assert actions == {"incremental"}, actions
            return took

        actions: set[str] = set()
        with pipeline(path / "outside") as other:
            for number in range(WARM_UP):
                refresh(number)
            other.run()
            other.run()
            rounds = [(refresh(WARM_UP + number), other.run()) for number in range(ROUNDS)]
        ours, theirs = (middle(list(one)) for one in zip(*rounds, strict=True))
        yield Claim(
            "diamond of 4 views, 10 million orders, 1,000 changed: Spark's pipelines against it",
            theirs / ours,
            10,
            at_least=True,
            detail=f"{theirs:.2f} s against {ours:.2f} s, with its commit",
        )


CLAIMS = [diamond_against_pipelines]
