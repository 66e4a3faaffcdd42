"""Idling: what `tidelock run` and `tidelock status` cost on a large lake where nothing happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import tidelock
from bench.measure import Claim, folder, seconds

TIDELOCK = [sys.executable, "-c", "from tidelock.cli.main import main; main()"]
BASE_TABLES, STREAM_TABLES, SINKS, SOURCES = 20, 300, 200, 50
SETTLE_SECONDS, MEASURED_SECONDS = 15.0, 30.0


def large_lake(path: Path) -> str:
    """A lake with stream tables and sinks that are all current."""
    with tidelock.open(path / "lake", create=True, actor="bench", engine="sail") as lake:
        with lake.transaction("tables") as tx:
            for number in range(BASE_TABLES):
                tx.create_table(f"t{number}", "id BIGINT NOT NULL, v BIGINT", key=["id"])
                tx.append(f"t{number}", [{"id": 1, "v": 1}])
        for number in range(STREAM_TABLES):
            query = f"SELECT id, v + {number} AS v FROM t{number % BASE_TABLES}"
            lake.create_stream_table(f"s{number}", query)
        lake.refresh()
        for number in range(SINKS):
            to = str(path / "out" / str(number))
            lake.create_sink(f"k{number}", table=f"s{number}", kind="jsonl", to=to)
        lake.deliver()
        return lake.uri


def processor_seconds(pid: int) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def share_of_a_core(uri: str) -> float:
    """The share of a core that `tidelock run` uses while nothing happens."""
    process = subprocess.Popen(
        [*TIDELOCK, "run", "--json", "--engine", "sail", "--lake", uri],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        while b'"started"' not in (line := process.stdout.readline()):
            assert line, "it ended"
        time.sleep(SETTLE_SECONDS)
        before = processor_seconds(process.pid)
        time.sleep(MEASURED_SECONDS)
        used = processor_seconds(process.pid) - before
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    return used / MEASURED_SECONDS


def command_seconds(*arguments: str) -> float:
    """The quickest of some runs: what else the machine does is not to be measured."""

    def run() -> None:
        subprocess.run([*TIDELOCK, *arguments], check=True, stdout=subprocess.DEVNULL)

    return min(seconds(run) for _ in range(7))


def idling() -> Iterator[Claim]:
    with folder() as path:
        uri = large_lake(path)
        share = share_of_a_core(uri)
        yield Claim(
            f"share of a core of an idle `run` over {STREAM_TABLES} stream tables, {SINKS} sinks",
            share,
            0.02,
            detail=f"{share:.2%}",
        )
        start = command_seconds("tag", "list", "--lake", uri)
        status = command_seconds("status", "--lake", uri)
        yield Claim(
            "seconds that `status` takes there over the start of a command",
            status - start,
            1.0,
            detail=f"{status:.2f} s against {start:.2f} s",
        )


def idling_sources() -> Iterator[Claim]:
    with folder() as path:
        with tidelock.open(path / "lake", create=True, actor="bench") as lake:
            for number in range(SOURCES):
                lake.create_source(
                    f"s{number}",
                    kind="tests.support.line_source:Lines",
                    into=f"t{number}",
                    path=str(path / f"{number}.jsonl"),
                )
        share = share_of_a_core(lake.uri)
        yield Claim(
            f"share of a core of an idle `run` over {SOURCES} live sources that have nothing to do",
            share,
            0.02,
            detail=f"{share:.2%}",
        )


CLAIMS = [idling, idling_sources]
