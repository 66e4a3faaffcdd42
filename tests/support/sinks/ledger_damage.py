"""Ways in which the state of a sink is damaged: by hand, by a disk, by a restored backup."""

from __future__ import annotations

from pathlib import Path

from tidelock.run.lake import Lake


def state_of(lake: Lake, name: str = "w") -> Path:
    return Path(lake.uri, "_tidelock", "sinks", lake.sink_status(name).id, "state.json")


def delete(path: Path, older: bytes) -> None:
    path.unlink()


def truncate(path: Path, older: bytes) -> None:
    path.write_bytes(path.read_bytes()[:20])


def put_back(path: Path, older: bytes) -> None:
    path.write_bytes(older)
