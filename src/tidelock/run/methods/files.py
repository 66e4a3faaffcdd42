"""Files of rows, as methods of the Lake handle."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tidelock.errors import Action, ConflictError
from tidelock.run.rooms import Rooms
from tidelock.store.branches import MAIN

if TYPE_CHECKING:
    from tidelock.ingest.files.infer import InferredSchema
    from tidelock.ingest.files.load import LoadReport, Mode, OnBadRow
    from tidelock.ingest.files.row_file import RowFile

ATTEMPTS_MAX = 8

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
        on_bad_row: OnBadRow = "fail",
        only_new: bool = False,
        progress: Callable[[int], None] | None = None,
        inferred: Callable[[InferredSchema], None] | None = None,
    ) -> LoadReport:
        """Load Parquet, CSV or JSON lines files into a table, as one commit.

        `files` are names, folders (for the files directly in them) and patterns such as
        `"day/**/*.csv"`. Columns are matched by name, and those that are not given get their
        defaults, also in rows that an upsert replaces. Columns that the table does not have are
        refused, unless `evolve=True`, which adds them in the same commit. A bad value is an error
        that names file, line and column, and nothing is loaded. `delimiter`, `nulls` (what stands
        for NULL) and `columns` (of files without a header) are for CSV. With `create=True` a table
        that is missing is created, from `schema`, or as `infer_schema` tells from the files, with
        that `key`. `on_bad_row="quarantine"` puts records that cannot be read into the table
        `<table>_quarantine`, in the same commit, with file, line, reason and text. `only_new=True`
        passes over files that were loaded so into the table before. `progress` is called with the
        number of rows of each batch, `inferred` with the columns of a table before it is created.
        """
        from tidelock.ingest.files.load import (
            Load,
            LoadReport,
            check_mode,
            check_on_bad_row,
            check_only_new,
            creation_of,
        )

        self._store.refuse_unusable()
        found = self._files(files, format, delimiter, nulls, columns)
        wanted = Load(
            table,
            tuple(found),
            check_mode(mode),
            creation_of(create, schema, key),
            evolve,
            check_on_bad_row(on_bad_row),
            check_only_new(only_new, mode),
            inferred,
        )
        for attempt in range(ATTEMPTS_MAX):
            transaction = self._store.begin(
                branch, message=message or wanted.reason, operation_id=operation_id
            )
            try:
                with transaction:
                    staged = wanted.stage(transaction, progress or (lambda _: None))
                    if only_new and not transaction.repeated and staged.known == len(found):
                        transaction.rollback()
            except ConflictError as error:
                # Somebody else has loaded new files meanwhile: which are left is looked at again.
                retried = only_new and error.action is Action.REFRESH_AND_RETRY
                if not retried or attempt + 1 == ATTEMPTS_MAX:
                    raise
                continue
            break
        if transaction.commit is None:
            newest = self._store.log.commit_at(transaction.branch, transaction.base_version)
            return LoadReport(newest, 0, False, known=staged.known)
        # An operation that was published before gives its commit, which this one began after.
        loaded = transaction.commit.version > transaction.base_version
        return LoadReport(transaction.commit, staged.rows, loaded, staged.bad, staged.known)

    def infer_schema(
        self,
        files: FileNames,
        *,
        format: str | None = None,
        delimiter: str | None = None,
        nulls: str | Sequence[str] = ("",),
        columns: str | Sequence[str] | None = None,
    ) -> InferredSchema:
        """The columns that files would make a table of, told from a sample of their rows; `ddl` is
        what `create_table` and `schema=` take. Nothing is created."""
        from tidelock.ingest.files.infer import infer_schema

        self._store.refuse_unusable()
        return infer_schema(self._files(files, format, delimiter, nulls, columns))

    def _files(
        self,
        files: FileNames,
        format: str | None,
        delimiter: str | None,
        nulls: str | Sequence[str],
        columns: str | Sequence[str] | None,
    ) -> list[RowFile]:
        from tidelock.ingest.files.find import find_files
        from tidelock.ingest.files.load import reading_of

        names = [files] if isinstance(files, str | os.PathLike) else list(files)
        reading = reading_of(format, delimiter, nulls, columns, self._engine.zone)
        return find_files([os.fspath(name) for name in names], reading)
