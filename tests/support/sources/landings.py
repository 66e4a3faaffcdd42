"""Files that land, and processes that ingest them."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import tidelock
from tidelock import Lake
from tidelock.errors import SourceBusy, SourceMoved
from tidelock.ingest.ledger import Ledger

LEASE_SECONDS = 1.0
ROWS_PER_FILE = 3
SOURCE = "events"


def make(uri: str, landing: Path, **options: Any) -> Lake:
    """A lake with a source of the files in a folder."""
    landing.mkdir()
    lake = tidelock.open(uri, create=True, actor="tests")
    given = {"path": f"{landing}/**/*.json", "table": "t", "schema": "id BIGINT, v STRING"}
    lake.create_source(SOURCE, kind="files", schedule=None, **{**given, **options})
    return lake


def land(landing: Path, numbers: range, rows: int = ROWS_PER_FILE) -> None:
    """Files that landed long ago, each of some rows; one line of every seventh is no row."""
    moment = time.time() - 3600
    for number in numbers:
        folder = landing / str(number % 3)
        folder.mkdir(exist_ok=True)
        path = folder / f"{number:05}.json"
        lines = [
            json.dumps({"id": number * rows + row, "v": "x" * (row % 50)}) for row in range(rows)
        ]
        path.write_text("\n".join([*lines, *(["bad"] if number % 7 == 0 else [])]) + "\n")
        os.utime(path, (moment, moment))


def ingest(uri: str, spill_bytes: int | None = None) -> None:
    """Read all that there is, however often somebody else is at it."""
    from tidelock.ingest.protocol import Source

    if spill_bytes is not None:
        Source.fragment_bytes = spill_bytes
    with tidelock.open(uri, actor=f"process {os.getpid()}") as lake:
        deadline = time.monotonic() + 100
        while time.monotonic() < deadline:
            try:
                if lake.ingest(SOURCE).action == "idle":
                    return
            except (SourceBusy, SourceMoved):
                time.sleep(0.02)
        raise AssertionError("it does not come to an end")


def load_new(uri: str, landing: str) -> None:
    """Load the files that nobody has loaded."""
    with tidelock.open(uri) as lake:
        lake.load("t", f"{landing}/**/*.json", only_new=True, on_bad_row="quarantine")


def check(lake: Lake, files: int, rows: int = ROWS_PER_FILE) -> None:
    """Each file is in the lake once, with its rows, what was put aside, and its entry."""
    found = Counter(lake.table("t").to_arrow().column("id").to_pylist())
    assert found == Counter(range(files * rows))
    aside = Counter(Path(one.file).stem for one in lake.source_quarantine(SOURCE))
    assert aside == Counter(f"{number:05}" for number in range(0, files, 7))
    definition = lake._sources.registry.definition(SOURCE)
    entries = Ledger(lake._store, definition, lake._store.branches.head("main")).entries()
    assert len(entries) == files
    assert sum((entry.told or {})["rows"] for entry in entries) == files * rows
    commits = [one for one in lake.log(limit=None) if one.properties.get("source")]
    assert sum(one.properties["source"]["files"] for one in commits) == files
    assert lake.source_status(SOURCE).position == str(len(commits))
