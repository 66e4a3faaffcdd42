"""What all tests share: one Spark session, and a process environment that nobody leaks into."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How a failed run is replayed, and how long the long ones take.
KEPT = {"TIDELOCK_SEED", "TIDELOCK_FILTERS", "TIDELOCK_FAULT_SECONDS"}
SETTINGS = ("TIDELOCK_", "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "PYSPARK_SUBMIT_ARGS")
# A JVM of tests lives for minutes and sees little data: one that compiles quickly, rather than
# well, and does not verify Spark's own classes takes half of the time.
SHORT_LIVED_JVM = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)


def pytest_configure(config: pytest.Config) -> None:
    for name in list(os.environ):
        if name.startswith(SETTINGS) and name not in KEPT:
            del os.environ[name]
    os.environ.setdefault("SPARK_SUBMIT_OPTS", SHORT_LIVED_JVM)
    # A long run looks for what nobody thought of; all others judge what was changed.
    same = "TIDELOCK_FAULT_SECONDS" not in os.environ
    settings.register_profile("tidelock", derandomize=same, deadline=None)
    settings.load_profile("tidelock")
    # Every `mapInArrow` says this where a new pandas is installed; we hand PySpark no pandas.
    config.addinivalue_line(
        "filterwarnings", "ignore:PySpark does not yet fully support pandas:FutureWarning"
    )


@pytest.fixture(autouse=True)
def environment_is_left_as_found() -> Iterator[None]:
    yield
    leaked = [n for n in os.environ if n.startswith(SETTINGS) and n not in KEPT]
    assert not leaked, f"the test left {leaked} in the environment"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The local session of the whole test run; lakes that are opened without one share it."""
    from tidelock.run.engine.session import Engine

    engine = Engine(
        master="local[2]",
        memory="2g",
        conf={"spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "2"},
    )
    yield engine.get()
    engine.close()
