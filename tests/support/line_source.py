"""A source for tests: a file of JSON lines, each a transaction, that does as another file tells it.

    {"rows": [{"id": 1, "v": 2}]}              upserts into the table `rows`
    {"gone": [1]}                              deletes by key

`<path>.mood` holds a word: `unreachable`, `stopped`, `denied`, `bug`, `hang`; without it all is
well. `<path>.opened` gets a line each time that the source is opened, `<path>.polled` each time
that it is asked, `<path>.told` the last position that was acknowledged.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from tidelock.errors import SourceDenied, SourceStopped, SourceUnavailable
from tidelock.ingest.intake.incoming import Incoming
from tidelock.ingest.protocol import Desk, Source, SourceTable
from tidelock.model.sources import OpenTransaction, Reading, SourceDefinition

KIND = "tests.support.line_source:Lines"
KIND_ANEW = "tests.support.line_source:LinesAnew"
SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.int64())])
TROUBLES = {
    "unreachable": SourceUnavailable("nobody is at home."),
    "stopped": SourceStopped("the slot is gone.", reason="slot"),
    "denied": SourceDenied("the door is locked."),
    "bug": ZeroDivisionError("a bug"),
}


class Lines(Source):
    def __init__(self, name: str, path: Path) -> None:
        self._name = name
        self._path = path

    @classmethod
    def open(cls, definition: SourceDefinition) -> Self:
        path = Path(definition.options["path"])
        note(path, "opened")
        return cls(definition.name, path)

    def discover(self) -> Sequence[SourceTable]:
        return [SourceTable("rows", SCHEMA, ("id",))]

    def poll(self, desk: Desk) -> Iterator[Incoming]:
        note(self._path, "polled")
        mood = _read(self._path, "mood")
        if mood == "hang":
            while True:
                time.sleep(1)
        if mood in TROUBLES:
            raise TROUBLES[mood]
        done = int(desk.position or 0)
        for number, line in enumerate(_read(self._path, "").splitlines()[done:], done + 1):
            incoming = desk.begin()
            _apply(incoming, json.loads(line))
            yield incoming.finish(str(number))
        if mood == "open":
            now = desk.store.clock.now()
            one = OpenTransaction("7", 10, 2048, now)
            desk.tell(Reading("", position="99", lag_bytes=5, lag_seconds=1.0, open=(one,)))

    def acknowledge(self, position: str) -> None:
        _write(self._path, "told", position)

    def drop(self) -> None:
        note(self._path, "dropped")


class LinesAnew(Lines):
    """One that can load its tables anew: as all of its lines leave them."""

    def resnapshot(self, desk: Desk, tables: Sequence[str]) -> Iterator[Incoming]:
        incoming = desk.begin()
        incoming.truncate("rows")
        lines = _read(self._path, "").splitlines()
        for line in lines:
            _apply(incoming, json.loads(line))
        yield incoming.finish(str(len(lines)))


def say(path: Path, *transactions: dict[str, Any]) -> None:
    """Append transactions to what the source reads."""
    with path.open("a") as file:
        file.writelines(json.dumps(one) + "\n" for one in transactions)


def rows(*ids: int, v: int = 0) -> dict[str, Any]:
    return {"rows": [{"id": one, "v": v} for one in ids]}


def mood(path: Path, word: str = "") -> None:
    _write(path, "mood", word)


def times(path: Path, what: str) -> int:
    """How often something was done with the source."""
    return len(_read(path, what).splitlines())


def note(path: Path, what: str) -> None:
    with path.with_suffix(f".{what}").open("a") as file:
        file.write("once\n")


def _apply(incoming: Incoming, told: dict[str, Any]) -> None:
    if "rows" in told:
        incoming.upsert("rows", told["rows"])
    if "gone" in told:
        incoming.delete("rows", [{"id": one} for one in told["gone"]])


def _read(path: Path, what: str) -> str:
    file = path.with_suffix(f".{what}") if what else path
    return file.read_text() if file.exists() else ""


def _write(path: Path, what: str, text: str) -> None:
    path.with_suffix(f".{what}").write_text(text)
