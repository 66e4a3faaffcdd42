"""Loading: files of rows into one table, in one transaction.

Invariant: all rows of all files are staged, or none, in the order of the files and of their rows.
Memory is bounded by one block, whatever the size of a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal, get_args

import pyarrow as pa

from tidelock.errors import Advice, InputError, InvalidOption, TableNotFound, WrongType
from tidelock.ingest.files.infer import InferredSchema, infer_schema
from tidelock.ingest.files.new_columns import new_columns
from tidelock.ingest.files.parquet import kept_stdin
from tidelock.ingest.files.quarantine import (
    QUARANTINE,
    quarantine_of,
    quarantine_rows,
    refuse_other,
)
from tidelock.ingest.files.read import read_file
from tidelock.ingest.files.row_file import FORMATS, STDIN, Reading, RowFile
from tidelock.ingest.files.tolerant import BadRecord, FileRefused, Target, read_tolerantly
from tidelock.model.history.commit import Commit
from tidelock.model.names import fold, names_of
from tidelock.model.schema.alterations import AddColumn
from tidelock.model.schema.schema import TableSchema
from tidelock.store.table import Table
from tidelock.store.transaction import Transaction

Mode = Literal["append", "upsert", "overwrite"]
OnBadRow = Literal["fail", "quarantine"]
NAMED_MAX = 3


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What a load did. `loaded` is False when its operation id was published before, or when all
    files were; then the commit is the one that there was already."""

    commit: Commit
    rows: int
    loaded: bool = True
    quarantined: int = 0
    """Records that were put aside."""
    known: int = 0
    """Files that were loaded before, and passed over."""


@dataclass(frozen=True, slots=True)
class Creation:
    """The table that is created if there is none; else the one that has to be there."""

    schema: object | None = None
    key: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """Which files go into which table, and how."""

    table: str
    files: tuple[RowFile, ...]
    mode: Mode = "append"
    creation: Creation | None = None
    evolve: bool = False
    """Whether columns that the files have and the table does not are added to it."""
    quarantine: bool = False
    """Whether records that cannot be read are put aside; else they are refused."""
    only_new: bool = False
    """Whether files that were loaded before are passed over."""
    inferred: Callable[[InferredSchema], None] | None = None
    """Called with the columns that a table gets, before it is created."""

    @property
    def reason(self) -> str:
        """The message of its commit, unless another is given."""
        named = ", ".join(file.shown for file in self.files[:NAMED_MAX])
        more = len(self.files) - NAMED_MAX
        return f"load {named}{f' and {more} more' if more > 0 else ''}"

    def stage(self, transaction: Transaction, progress: Callable[[int], None]) -> Staged:
        """Stage all rows of all files."""
        if transaction.repeated:
            return self._stage_rows(transaction, progress)
        with ExitStack() as stack:
            wanted = self
            if self.evolve or self._infers(transaction):
                wanted = replace(self, files=tuple(_kept(file, stack) for file in self.files))
            told = wanted._create(transaction)
            loaded = None
            marks: list[tuple[RowFile, str]] = []
            if self.only_new:
                # What it looks files up with takes long to import.
                from tidelock.ingest.files.loaded import Loaded, full_mark, refuse_stdin

                refuse_stdin(self.files)
                loaded = Loaded(self.table, transaction)
                new = loaded.unloaded(self.files, again=self.mode == "upsert")
                if not new:
                    return Staged(0, known=len(self.files))
                wanted = replace(wanted, files=new)
                # Before they are read: what changes while it is read is another state.
                marks = [(file, full_mark(file)) for file in new]
            if self.evolve:
                table = transaction.table(self.table)
                for column in new_columns(wanted.files, table.schema, table.name):
                    transaction.alter_table(self.table, AddColumn(column))
            try:
                staged = wanted._stage_rows(transaction, progress)
            except InputError as error:
                raise error if told is None else _beyond_sample(error, told) from error
            if loaded is not None:
                loaded.note(marks, datetime.now(UTC))
            return replace(staged, known=len(self.files) - len(wanted.files))

    def _stage_rows(self, transaction: Transaction, progress: Callable[[int], None]) -> Staged:
        target = self._target(transaction)
        defaults = transaction.defaults(self.table)
        rows = 0
        bad: list[BadRecord] = []

        def batches() -> Iterator[pa.RecordBatch]:
            nonlocal rows
            for file in self._as_created():
                for one in self._records(file, Target(target.schema, target.name, defaults)):
                    if isinstance(one, BadRecord):
                        bad.append(one)
                        continue
                    rows += one.num_rows
                    progress(one.num_rows)
                    yield one

        getattr(transaction, self.mode)(self.table, batches())
        if bad:
            self._put_aside(bad, transaction)
        return Staged(rows, len(bad))

    def _records(self, file: RowFile, target: Target) -> Iterator[pa.RecordBatch | BadRecord]:
        if not self.quarantine:
            yield from read_file(file, target.schema, target.table, target.defaults)
            return
        seen = False
        try:
            for one in read_tolerantly(file, target):
                seen = seen or isinstance(one, pa.RecordBatch)
                yield one
        except FileRefused as refused:
            if seen:
                # Its rows are on their way already: all files are loaded whole, or none is.
                where = f"{file.shown}: {refused.bad.reason} It breaks off after some rows."
                raise WrongType(f"{where} Nothing was loaded.", file=file.shown) from refused
            yield refused.bad

    def _put_aside(self, bad: list[BadRecord], transaction: Transaction) -> None:
        name = quarantine_of(self.table)
        if name in transaction.tables():
            refuse_other(name, transaction.table(name).schema)
        else:
            transaction.create_table(name, QUARANTINE)
        transaction.append(name, quarantine_rows(bad, datetime.now(UTC)))

    def _target(self, transaction: Transaction) -> Table:
        try:
            return transaction.table(self.table)
        except TableNotFound as error:
            raise TableNotFound(
                error.message,
                Advice("create=True creates it.", "--create creates it."),
                **error.evidence,
            ) from error

    def _infers(self, transaction: Transaction) -> bool:
        """Whether the files tell the columns of the table."""
        creation = self.creation
        return (
            creation is not None
            and creation.schema is None
            and self.table not in transaction.tables()
        )

    def _as_created(self) -> tuple[RowFile, ...]:
        """The files, read as what was inferred of them says: a STRING takes mixtures of JSON."""
        if self.creation is None or self.creation.schema is not None:
            return self.files
        return tuple(
            replace(file, reading=replace(file.reading, as_text=True)) for file in self.files
        )

    def _create(self, transaction: Transaction) -> InferredSchema | None:
        """Create the table, if it is to be; what was inferred for it."""
        creation = self.creation
        if creation is None:
            self._target(transaction)
            return None
        if self.table in transaction.tables():
            _refuse_contradiction(transaction.table(self.table), creation)
            return None
        if creation.schema is not None:
            transaction.create_table(self.table, creation.schema, creation.key)
            return None
        told = infer_schema(self.files)
        if self.inferred is not None:
            self.inferred(told)
        transaction.create_table(self.table, told.ddl, creation.key)
        return told


@dataclass(frozen=True, slots=True)
class Staged:
    """What a load has staged; nothing, if all files were known."""

    rows: int
    bad: int = 0
    known: int = 0


def _beyond_sample(error: InputError, told: InferredSchema) -> InputError:
    """What to do about a value that the columns do not take which were told from others."""
    if not told.rows or not isinstance(error, WrongType):
        return error
    return WrongType(
        f"{error.message} The columns were inferred from the first {told.rows:,} rows.",
        Advice(f'Give them: schema="{told.ddl}", say.', f'Give them: --schema "{told.ddl}", say.'),
        **error.evidence,
    )


def _kept(file: RowFile, stack: ExitStack) -> RowFile:
    """The file, as one that can be read twice."""
    if file.name != STDIN:
        return file
    return replace(file, kept=stack.enter_context(kept_stdin()))


def check_mode(mode: object) -> Mode:
    if mode not in get_args(Mode):
        raise InvalidOption(
            f"There is no mode {mode!r}. Use one of: {', '.join(get_args(Mode))}.", mode=mode
        )
    return mode  # type: ignore[return-value]


def check_on_bad_row(on_bad_row: object) -> bool:
    if on_bad_row not in get_args(OnBadRow):
        raise InvalidOption(
            f"on_bad_row={on_bad_row!r} is none of: {', '.join(get_args(OnBadRow))}.",
            on_bad_row=on_bad_row,
        )
    return on_bad_row == "quarantine"


def check_only_new(only_new: bool, mode: object) -> bool:
    if only_new and mode == "overwrite":
        raise InvalidOption(
            "To overwrite a table with what is new alone would remove what is known.",
            Advice("Leave only_new= out.", "Leave --only-new out."),
        )
    return only_new


def creation_of(
    create: bool, schema: object | None, key: str | Sequence[str] | None
) -> Creation | None:
    if create:
        return Creation(schema, None if key is None else tuple(names_of(key, "key")))
    if schema is not None or key is not None:
        raise InvalidOption(
            "Columns and a key are given for a table that is created.",
            Advice("Say create=True.", "Say --create."),
        )
    return None


def reading_of(
    format: str | None,
    delimiter: str | None,
    nulls: str | Sequence[str],
    columns: str | Sequence[str] | None,
    zone: str,
) -> Reading:
    """How files are to be read, checked."""
    if format is not None and format not in FORMATS:
        raise InvalidOption(
            f"There is no format {format!r}. Use one of: {', '.join(FORMATS)}.", format=format
        )
    delimiter = "\t" if delimiter in ("\\t", "tab") else delimiter
    if delimiter is not None and len(delimiter) != 1:
        raise InvalidOption(f"A delimiter is one character, not {delimiter!r}.")
    return Reading(
        format,
        delimiter,
        (nulls,) if isinstance(nulls, str) else tuple(nulls),
        None if columns is None else tuple(names_of(columns, "columns")),
        zone,
    )


def _refuse_contradiction(table: Table, creation: Creation) -> None:
    """A table that is there must be the one that would have been created."""
    given, actual = creation.key, list(table.key)
    if given is not None and [*map(fold, given)] != [*map(fold, actual)]:
        shown = f"the key ({', '.join(actual)})" if actual else "no key"
        raise InvalidOption(
            f"The table {table.name!r} exists and has {shown}, not ({', '.join(given)}).",
            Advice(
                "Leave key= out, or load into another table.",
                "Leave --key out, or load into another table.",
            ),
            table=table.name,
            expected=list(given),
            actual=actual,
        )
    if creation.schema is None:
        return
    from tidelock.model.ddl import parse_schema, to_ddl

    wanted = parse_schema(creation.schema)
    if _columns_of(wanted, actual) != _columns_of(table.schema, actual):
        raise InvalidOption(
            f"The table {table.name!r} exists and has the columns {to_ddl(table.schema)}, not "
            f"{to_ddl(wanted)}.",
            Advice(
                "Leave schema= out, or load into another table.",
                "Leave --schema out, or load into another table.",
            ),
            table=table.name,
            expected=to_ddl(wanted),
            actual=to_ddl(table.schema),
        )


def _columns_of(schema: TableSchema, key: list[str]) -> dict[str, tuple[pa.DataType, bool]]:
    """Types and whether they may be NULL, which a key may not, whether or not that was written."""
    required = {fold(name) for name in key}
    return {
        fold(column.name): (column.type, column.nullable and fold(column.name) not in required)
        for column in schema.columns
    }
