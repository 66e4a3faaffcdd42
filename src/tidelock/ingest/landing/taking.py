"""One file into a transaction: all of its rows, or all that are rows, or nothing.

A file is a part of its transaction, which is undone when the file turns out to be another by the
time that it was read, or to be none at all, or to have columns that are added first.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import count
from typing import Any

import pyarrow as pa

from tidelock.errors import ColumnNotFound, InputError, SourceStopped, WrongType
from tidelock.ingest.files.infer import columns_of
from tidelock.ingest.files.marks import checksum_of, is_in_doubt
from tidelock.ingest.files.quarantine import quarantine_rows
from tidelock.ingest.files.read import read_file
from tidelock.ingest.files.row_file import RowFile
from tidelock.ingest.files.tolerant import BadRecord, FileRefused, Target, read_tolerantly
from tidelock.ingest.intake.incoming import Incoming
from tidelock.ingest.landing.entries import Taken
from tidelock.ingest.landing.places import ListedFile, Moved, Place
from tidelock.ingest.landing.settings import Settings
from tidelock.model.schema.alterations import AddColumn
from tidelock.model.schema.schema import Column, table_schema
from tidelock.store.rows.defaults import Defaults

BAD_TOGETHER = 1000


class Taking:
    """Takes files into one transaction of a source, each as a part of it."""

    def __init__(
        self,
        settings: Settings,
        place: Place,
        incoming: Incoming,
        defaults: Defaults,
        moment: datetime,
    ) -> None:
        self._settings = settings
        self._place = place
        self._incoming = incoming
        self._defaults = defaults
        self._moment = moment
        self._parts = count(1)

    def take(self, file: ListedFile) -> Taken:
        """Take a file; Moved, and nothing of it is taken, if it is not what was listed."""
        before = self._incoming.rows
        self._part = next(self._parts)
        try:
            with self._place.fetched(file) as path:
                young = self._settings.pattern.is_local and is_in_doubt(
                    file.modified, self._place.now()
                )
                rows, bad = self._read(self._row_file(file, path))
                checksum = checksum_of(path) if young else None
        except Moved:
            self._undo(before)
            raise
        return Taken(file, rows, bad, checksum)

    def _row_file(self, file: ListedFile, path: str) -> RowFile:
        settings = self._settings
        return RowFile(settings.pattern.shown(file.name), settings.format, settings.reading, path)

    def _read(self, file: RowFile) -> tuple[int, int]:
        before = self._incoming.rows
        try:
            return self._rows_of(file)
        except ColumnNotFound as error:
            if not (self._settings.evolve and "columns" in error.evidence):
                raise self._stop(error, file) from error
            self._undo(before)
            self._add_columns(file)
        return self._rows_of(file)

    def _rows_of(self, file: RowFile) -> tuple[int, int]:
        """How many rows a file has, and how many records of it were put aside."""
        before, rows, bad = self._incoming.rows, 0, 0
        waiting: list[BadRecord] = []
        try:
            for one in self._records(file):
                if isinstance(one, pa.RecordBatch):
                    self._incoming.upsert(self._settings.table, one, self._part)
                    rows += one.num_rows
                    continue
                waiting.append(one)
                bad += 1
                if len(waiting) == BAD_TOGETHER:
                    self._put_aside(waiting)
                    waiting = []
        except FileRefused as refused:
            self._undo(before)
            rows, bad = 0, 1
            waiting = [refused.bad]
        if waiting:
            self._put_aside(waiting)
        return rows, bad

    def _records(self, file: RowFile) -> Iterator[pa.RecordBatch | BadRecord]:
        settings = self._settings
        called, schema = self._incoming.table(settings.table)
        try:
            if settings.on_error == "quarantine":
                target = Target(schema, called, self._defaults)
                yield from read_tolerantly(file, target, columns_come=settings.evolve)
            else:
                yield from read_file(file, schema, called, self._defaults)
        except ColumnNotFound:
            raise
        except InputError as error:
            if not _is_empty(error):
                raise self._stop(error, file) from error
        except FileRefused as refused:
            if not _is_empty(refused.error):
                raise

    def _put_aside(self, bad: list[BadRecord]) -> None:
        rows = quarantine_rows(bad, self._moment)
        before = self._incoming.rows
        self._incoming.upsert(self._settings.quarantine, rows, self._part)
        self._incoming.rows = before

    def _add_columns(self, file: RowFile) -> None:
        called, schema = self._incoming.table(self._settings.table)
        new = [Column(c.name, c.type) for c in columns_of(file) if schema.find(c.name) is None]
        try:
            columns = table_schema(new).columns
        except InputError as error:
            told = type(error)(f"{file.shown}: {error.message}", error.advice, **error.evidence)
            raise self._stop(told, file) from error
        for column in columns:
            self._incoming.alter(called, AddColumn(column))

    def _undo(self, rows: int) -> None:
        """Nothing of the part is taken; what follows is another part."""
        self._incoming.undo(self._part)
        self._incoming.rows = rows
        self._part = next(self._parts)

    def _stop(self, error: InputError, file: RowFile) -> SourceStopped:
        evidence: dict[str, Any] = {**error.evidence, "file": file.shown}
        evidence.pop("source", None)
        message = error.message.removesuffix(" Nothing was loaded.")
        return SourceStopped(
            f"{message} Nothing of this commit was published.",
            error.advice,
            source=self._settings.source,
            state="bad_record",
            reason=message,
            **{name: value for name, value in evidence.items() if name not in ("state", "reason")},
        )


def _is_empty(error: BaseException) -> bool:
    """Whether a file was refused because there is nothing in it, which may well be."""
    return isinstance(error, WrongType) and bool(error.evidence.get("empty"))
