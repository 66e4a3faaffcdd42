"""Starting: what the command line costs before it does anything."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import tidelock
from bench.idling import TIDELOCK
from bench.measure import Claim, folder, in_turns, middle

ARROW = [sys.executable, "-c", "import pyarrow"]
RUNS = 9
HELP_TEXTS = ("--version", "--help", "load --help")
HISTORY = ("log", "show 1", "table list", "branch list", "tag list", "status", "stream list")


def help_texts() -> Iterator[Claim]:
    for line in HELP_TEXTS:
        yield against_arrow(line)


def history() -> Iterator[Claim]:
    with folder(steady=True) as path:
        uri = small_lake(path)
        for line in HISTORY:
            yield against_arrow(line, "--lake", uri)


def small_lake(path: Path) -> str:
    with tidelock.open(path / "lake", create=True, actor="bench", engine="sail") as lake:
        with lake.transaction("orders") as tx:
            tx.create_table("orders", "id BIGINT NOT NULL, v BIGINT", key=["id"])
            tx.append("orders", [{"id": 1, "v": 1}])
        lake.create_stream_table("sums", "SELECT id, sum(v) AS v FROM orders GROUP BY id")
        return lake.uri


def against_arrow(line: str, *more: str) -> Claim:
    command = [*TIDELOCK, *line.split(), *more]
    # Once before the clock runs, so that both sides find their modules compiled.
    _run(command)
    ours, arrow = in_turns(lambda _: _run(command), lambda _: _run(ARROW), RUNS)
    return Claim(
        f"`tidelock {line}` against `import pyarrow` (medians)",
        middle(ours) / middle(arrow),
        2,
        detail=f"{middle(ours) * 1e3:.0f} ms against {middle(arrow) * 1e3:.0f} ms",
    )


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


CLAIMS = [help_texts, history]
