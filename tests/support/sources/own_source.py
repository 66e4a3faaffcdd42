"""A source as a user would write one: a file to which lines are appended; and some that break the
law, each in its own way, so that the contract is seen to notice."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from tidelock.ingest.intake.incoming import Incoming
from tidelock.ingest.protocol import Desk, Source, SourceTable
from tidelock.model.sources import SourceDefinition

ROWS = pa.schema([("id", pa.int64()), ("v", pa.string())])
LINES_TOGETHER = 3


def append(path: str, rows: list[dict[str, Any]]) -> None:
    with open(path, "a") as file:
        file.writelines(f"{json.dumps(row)}\n" for row in rows)


class LogSource(Source):
    """Its position is the number of lines that were read."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    @classmethod
    def open(cls, definition: SourceDefinition) -> Self:
        return cls(definition.options["path"])

    def discover(self) -> Sequence[SourceTable]:
        return [SourceTable("lines", ROWS)]

    def lines(self) -> list[dict[str, Any]]:
        text = self.path.read_text() if self.path.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    def poll(self, desk: Desk) -> Iterator[Incoming]:
        lines = self.lines()
        for start in range(int(desk.position or 0), len(lines), LINES_TOGETHER):
            some = lines[start : start + LINES_TOGETHER]
            incoming = desk.begin()
            incoming.insert("lines", some)
            yield incoming.finish(str(start + len(some)))
            if desk.stopped():
                return


class ForgetfulSource(LogSource):
    """It gives everything each time."""

    def poll(self, desk: Desk) -> Iterator[Incoming]:
        lines = self.lines()
        if len(lines) == int(desk.position or 0):
            return
        incoming = desk.begin()
        incoming.insert("lines", lines)
        yield incoming.finish(str(len(lines)))


class HastySource(LogSource):
    """It removes what it has given before that is acknowledged."""

    def poll(self, desk: Desk) -> Iterator[Incoming]:
        lines = self.lines()
        if lines:
            self.path.write_text("")
            incoming = desk.begin()
            incoming.insert("lines", lines)
            yield incoming.finish(str(int(desk.position or 0) + 1))


class RestlessSource(LogSource):
    """It moves on although nothing came."""

    def poll(self, desk: Desk) -> Iterator[Incoming]:
        moved = False
        for incoming in super().poll(desk):
            moved = True
            yield incoming
        if not moved:
            yield desk.begin().finish(f"{int(desk.position or 0)}")
