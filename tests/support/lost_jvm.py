"""A process whose JVM is killed, again and again: run by test_lost_engines.py on its own, because a
process has only one JVM, and that of the tests must live.

Prints what it saw, as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import tidelock
from tidelock import Lake
from tidelock.errors import EngineUnavailable
from tidelock.run.engine import jvm
from tidelock.store.spark import stage as stage_frames


def kill_jvm() -> None:
    process = jvm._Shared.gateway.proc
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def kill_during_write(lake: Lake) -> dict[str, Any]:
    """A refresh whose JVM is killed when its rows are about to be written."""
    write: Callable[..., Any] = stage_frames.write_frame

    def killed(*arguments: Any, **options: Any) -> Any:
        kill_jvm()
        return write(*arguments, **options)

    stage_frames.write_frame = killed
    try:
        return told(lake.refresh("counts", full=True)[0])
    finally:
        stage_frames.write_frame = write


def told(attempt: Any) -> dict[str, Any]:
    return {
        "action": attempt.action,
        "condition": attempt.condition,
        "reason": attempt.reason,
        "retries": attempt.retry_at is not None,
    }


def refused(lake: Lake) -> str:
    try:
        lake.sql("SELECT count(*) FROM t").collect()
    except EngineUnavailable as error:
        return str(error)
    return "it answered"


def main(folder: str) -> None:
    uri = f"{folder}/lost.lake"
    seen: dict[str, Any] = {}
    lake = tidelock.open(uri, create=True, master="local[2]", memory="512m")
    lake.create_table("t", "a BIGINT")
    lake.run(lambda tx: tx.append("t", [{"a": n % 3} for n in range(9)]))
    lake.create_stream_table("counts", "SELECT a, count(*) AS n FROM t GROUP BY a")

    seen["killed"] = kill_during_write(lake)
    seen["then"] = [s.status for s in lake.stream_tables()]
    seen["due"] = told(lake.refresh(due=True)[0])
    seen["named"] = told(lake.refresh("counts")[0])

    given = tidelock.open(uri, spark=lake.spark)
    kill_jvm()
    seen["given"] = refused(given)
    seen["given refresh"] = told(given.refresh("counts", full=True)[0])
    given.close()

    lake.close()
    with tidelock.open(uri, master="local[2]", memory="512m") as again:
        seen["again"] = told(again.refresh("counts", full=True)[0])
        seen["suspended"] = [s.status for s in again.stream_tables() if "susp" in s.status]
        seen["rows"] = sorted(
            tuple(r.values()) for r in again.table("counts").to_arrow().to_pylist()
        )
        # Suspended, it answers nothing, and nobody is told that it is gone.
        os.kill(jvm._Shared.gateway.proc.pid, signal.SIGSTOP)
        jvm.STOP_SECONDS_MAX = 2.0
        began = time.monotonic()
    seen["seconds to close"] = time.monotonic() - began
    json.dump(seen, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
