"""Files of rows, as methods of the Lake handle."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tidelock.run.rooms import Rooms
from tidelock.store.branches import MAIN

if TYPE_CHECKING:
    from tidelock.ingest.files.load import LoadReport, Mode

FileNames = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class FileMethods(Rooms):
    """What a lake does with files of rows."""

    def load(
        self,
        table: str,
        files: FileNames,
        *,
        mode: Mode = "append",
        format: str | None = None,
        delimiter: str | None = None,
        nulls: str | Sequence[str] = ("",),
        columns: str | Sequence[str] | None = None,
        evolve: bool = False,
        create: bool = False,
        schema: object | None = None,
        key: str | Sequence[str] | None = None,
        message: str = "",
        branch: str = MAIN,
        operation_id: str | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> LoadReport:
        """Load Parquet, CSV or JSON lines files into a table, as one commit.

        `files` are names, folders (for the files directly in them) and patterns such as
        `"day/**/*.csv"`. Columns are matched by name, and those that are not given get their
        defaults, also in rows that an upsert replaces. Columns that the table does not have are
        refused, unless `evolve=True`, which adds them in the same commit. A bad value is an error
        that names file, line and column, and nothing is loaded. `delimiter`, `nulls` (what stands
        for NULL) and `columns` (of files without a header) are for CSV. With `create=True` a table
        that is missing is created, from `schema` or from the first Parquet file, with that `key`.
        `progress` is called with the number of rows of each batch.
        """
        from tidelock.ingest.files.find import find_files
        from tidelock.ingest.files.load import (
            Load,
            LoadReport,
            check_mode,
            creation_of,
            reading_of,
        )

        self._store.refuse_unusable()
        names = [files] if isinstance(files, str | os.PathLike) else list(files)
        reading = reading_of(format, delimiter, nulls, columns, self._engine.zone)
        found = find_files([os.fspath(name) for name in names], reading)
        creation = creation_of(create, schema, key)
        wanted = Load(table, tuple(found), check_mode(mode), creation, evolve)
        transaction = self._store.begin(
            branch, message=message or wanted.reason, operation_id=operation_id
        )
        with transaction:
            rows = wanted.stage(transaction, progress or (lambda _: None))
        assert transaction.commit is not None
        # An operation that was published before gives its commit, which this one began after.
        loaded = transaction.commit.version > transaction.base_version
        return LoadReport(transaction.commit, rows, loaded)
