"""An engine that goes away is not a broken view: nothing is suspended, and it is found again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.support import clusters, lost_jvm

import tidelock
from tidelock import Lake
from tidelock.errors import EngineUnavailable
from tidelock.model.time import retries
from tidelock.run.engine import connect

# A Python that finds everything but Tidelock.
WITHOUT_TIDELOCK = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "tidelock":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""


def test_a_jvm_that_is_killed_is_started_again(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, lost_jvm.__file__, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(clusters.SOURCES)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    seen: dict[str, Any] = json.loads(done.stdout)
    killed = seen["killed"]
    assert killed["action"] == "failed"
    assert killed["condition"] == "ENGINE_UNAVAILABLE"
    assert killed["retries"]
    assert killed["reason"].startswith("Spark is not available: its process ")
    assert "Another one is started when it is next needed." in killed["reason"]
    assert seen["then"] == [f"failed 1 time: {killed['reason']}"]
    # Who does not ask by name waits a moment, as the engine has just been found away.
    assert seen["due"]["action"] in ("none", "skipped")
    assert seen["named"]["action"] == "full"
    assert "given to the lake" in seen["given"]
    assert seen["given refresh"]["condition"] == "ENGINE_UNAVAILABLE"
    assert seen["again"]["action"] == "full"
    assert seen["suspended"] == []
    assert seen["rows"] == [[0, 3], [1, 3], [2, 3]]
    assert seen["seconds to close"] < 20


class Server:
    """A Spark Connect server that is started and killed, always on the same port."""

    def __init__(self, folder: Path) -> None:
        self.port = clusters.free_port()
        self.url = f"sc://127.0.0.1:{self.port}"
        self._folder = folder
        self._stack = ExitStack()
        self._group = 0
        self._starts = 0

    def start(self, python_path: Path = clusters.SOURCES) -> None:
        self._starts += 1
        home = self._folder / f"server-{self._starts}"
        self._group = self._stack.enter_context(
            clusters.connect_process(home, self.port, python_path=python_path)
        )

    def signal(self, number: signal.Signals) -> None:
        os.killpg(self._group, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self._stack.close()

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()


def wait_for(lake: Lake, found: Callable[[Any], bool], seconds: float = 120.0) -> Any:
    """The last attempt to refresh the view, once it is as it is to be."""
    deadline = time.monotonic() + seconds
    while not found(last := lake.history("counts", 1)[0]):
        assert time.monotonic() < deadline, last
        time.sleep(0.2)
    return last


@pytest.mark.timeout(600)
def test_a_server_that_comes_and_goes_suspends_nothing_and_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "RETRIES_MAX", 3)
    monkeypatch.setattr(retries, "WAIT_SECONDS_MAX", 2.0)
    absent = tmp_path / "absent"
    absent.mkdir()
    (absent / "sitecustomize.py").write_text(WITHOUT_TIDELOCK)
    with Server(tmp_path) as server:
        lake = tidelock.open(tmp_path / "lake", create=True, remote=server.url)
        lake.create_table("t", "a BIGINT")
        lake.run(lambda tx: tx.append("t", [{"a": n % 3} for n in range(9)]))
        # In full, which needs workers: few changes would be computed by the server alone.
        query = "SELECT a, count(*) AS n FROM t GROUP BY a"
        lake.create_stream_table("counts", query, refresh_mode="full")
        assert lake.refresh()[0].action == "full"
        user = tidelock.open(tmp_path / "lake", spark=lake.spark)
        server.kill()

        # Whether the session is asked first depends on how long ago it last answered.
        told = "No Spark Connect server answers|Another session is begun when it is next needed"
        with pytest.raises(EngineUnavailable, match=told):
            lake.sql("SELECT * FROM t")
        began = time.monotonic()
        with pytest.raises(EngineUnavailable, match="was given to the lake"):
            user.sql("SELECT * FROM t")
        user.close()
        assert time.monotonic() - began < 5

        lake.run(lambda tx: tx.append("t", [{"a": 7}]))
        stop = threading.Event()
        running = threading.Thread(target=lambda: lake.serve_schedule(stop=stop))
        running.start()
        try:
            absence = wait_for(lake, lambda one: one.times >= 2)
            assert absence.condition == "ENGINE_UNAVAILABLE"
            assert len(lake.history("counts")) == 2, "an outage is one record"

            server.start(python_path=absent)
            absence = wait_for(lake, lambda one: "import what they need" in one.reason)
            assert "No module named 'tidelock'" in absence.reason
            assert "PYSPARK_PYTHON" in absence.reason
            server.kill()

            server.start()
            wait_for(lake, lambda one: one.action == "full")
        finally:
            stop.set()
            running.join()
        assert {row["a"]: row["n"] for row in lake.table("counts").to_arrow().to_pylist()} == {
            0: 3,
            1: 3,
            2: 3,
            7: 1,
        }
        assert [one.status for one in lake.stream_tables()] == ["refreshed"]

        # It is there, and says nothing any more.
        server.signal(signal.SIGSTOP)
        began = time.monotonic()
        lake.close()
        assert time.monotonic() - began < 5
        server.signal(signal.SIGKILL)
