"""Loading: files of rows into one table, in one transaction.

Invariant: all rows of all files are staged, or none, in the order of the files and of their rows.
Memory is bounded by one block, whatever the size of a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import pyarrow as pa

from tidelock.errors import Advice, InvalidOption
from tidelock.ingest.files.new_columns import new_columns
from tidelock.ingest.files.parquet import kept_stdin, parquet_schema
from tidelock.ingest.files.read import read_file
from tidelock.ingest.files.row_file import FORMATS, STDIN, Reading, RowFile
from tidelock.model.history.commit import Commit
from tidelock.model.names import fold, names_of
from tidelock.model.schema.alterations import AddColumn
from tidelock.model.schema.schema import TableSchema
from tidelock.store.table import Table
from tidelock.store.transaction import Transaction

Mode = Literal["append", "upsert", "overwrite"]
NAMED_MAX = 3


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What a load did. `loaded` is False when its operation id was published before."""

    commit: Commit
    rows: int
    loaded: bool = True


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

    @property
    def reason(self) -> str:
        """The message of its commit, unless another is given."""
        named = ", ".join(file.shown for file in self.files[:NAMED_MAX])
        more = len(self.files) - NAMED_MAX
        return f"load {named}{f' and {more} more' if more > 0 else ''}"

    def stage(self, transaction: Transaction, progress: Callable[[int], None]) -> int:
        """Stage all rows of all files; returns how many there were."""
        if self.creation is not None:
            self._create(self.creation, transaction)
        if not self.evolve or transaction.repeated:
            return self._stage_rows(transaction, progress)
        with ExitStack() as stack:
            kept = replace(self, files=tuple(_kept(file, stack) for file in self.files))
            table = transaction.table(self.table)
            for column in new_columns(kept.files, table.schema, table.name):
                transaction.alter_table(self.table, AddColumn(column))
            return kept._stage_rows(transaction, progress)

    def _stage_rows(self, transaction: Transaction, progress: Callable[[int], None]) -> int:
        target = transaction.table(self.table)
        defaults = transaction.defaults(self.table)
        rows = 0

        def batches() -> Iterator[pa.RecordBatch]:
            nonlocal rows
            for file in self.files:
                for batch in read_file(file, target.schema, target.name, defaults):
                    rows += batch.num_rows
                    progress(batch.num_rows)
                    yield batch

        getattr(transaction, self.mode)(self.table, batches())
        return rows

    def _create(self, creation: Creation, transaction: Transaction) -> None:
        if self.table in transaction.tables():
            _refuse_contradiction(transaction.table(self.table), creation)
            return
        schema, first = creation.schema, self.files[0]
        if schema is None:
            if first.format != "parquet" or first.name == STDIN:
                ddl = "id BIGINT NOT NULL, name STRING"
                raise InvalidOption(
                    "Only a Parquet file says what its columns are.",
                    Advice(f'Give them: schema="{ddl}".', f'Give them: --schema "{ddl}".'),
                )
            schema = parquet_schema(Path(first.name))
        transaction.create_table(self.table, schema, creation.key)


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
