"""Real Spark clusters on loopback, started from the installed PySpark.

Each is a context manager that gives the URL to connect to, and ends the processes that it started,
by their own ids. Ports are free ones, chosen by the operating system.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pyspark

SPARK_HOME = Path(pyspark.__file__).parent
SOURCES = Path(__file__).parents[2] / "src"
START_SECONDS_MAX = 90


@contextmanager
def standalone_cluster(folder: Path, workers: int = 2) -> Iterator[str]:
    """A master and its workers, of one core each; gives `spark://…`."""
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    place = ["--host", "127.0.0.1", "--webui-port", "0"]
    with ExitStack() as stack:
        stack.enter_context(
            _jvm(folder / "master", "deploy.master.Master", *place, "--port", str(port))
        )
        _await_port(port)
        logs = []
        for number in range(workers):
            home = folder / f"worker-{number}"
            size = ["--cores", "1", "--memory", "1g", "--work-dir", str(home / "apps")]
            stack.enter_context(_jvm(home, "deploy.worker.Worker", *place, *size, master))
            logs.append(home / "log")
        for log in logs:
            _await_line(log, "Successfully registered with master")
        yield master


@contextmanager
def connect_server(folder: Path, cores: int = 2) -> Iterator[str]:
    """A Spark Connect server over a local Spark; gives `sc://…`."""
    port = free_port()
    with connect_process(folder, port, cores):
        yield f"sc://127.0.0.1:{port}"


@contextmanager
def connect_process(
    folder: Path, port: int, cores: int = 2, python_path: Path = SOURCES
) -> Iterator[int]:
    """A Spark Connect server that listens on a port; gives the id of its process group."""
    settings = {
        "spark.master": f"local[{cores}]",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "connect" / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
    }
    arguments = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    with _jvm(
        folder / "connect",
        "deploy.SparkSubmit",
        *arguments,
        "--class",
        "org.apache.spark.sql.connect.service.SparkConnectServer",
        "spark-internal",
        python_path=python_path,
    ) as group:
        _await_port(port)
        yield group


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _jvm(home: Path, name: str, *arguments: str, python_path: Path = SOURCES) -> Iterator[int]:
    home.mkdir(parents=True)
    environment = {
        **os.environ,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_LOCAL_DIRS": str(home / "scratch"),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(python_path),
        "PYTHONWARNINGS": "ignore",
    }
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.{name}", *arguments],
            cwd=home,
            env=environment,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            # A group of its own: a worker's executors end with it.
            start_new_session=True,
        )
    try:
        yield process.pid
    finally:
        with suppress(ProcessLookupError):  # The test may have killed it.
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)


def _await_port(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise TimeoutError(f"nothing listens on port {port}")


def _await_line(log: Path, line: str) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        if line in log.read_text(errors="replace"):
            return
        time.sleep(0.2)
    raise TimeoutError(f"{log} never said {line!r}: {log.read_text(errors='replace')[-2000:]}")
