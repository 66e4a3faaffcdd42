"""Reading one pin of one table: rows by columns and condition, from Lance or through Spark.

Owns: the choice between the two. A condition that Lance evaluates with Spark's meaning runs in
Lance, without a JVM; every other one runs on Spark. Results are the same rows either way.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from tidelock.errors import LakeClosed
from tidelock.model.arguments import check_count
from tidelock.model.history.commit import TableState
from tidelock.model.names import names_of, quote
from tidelock.model.schema.schema import TableSchema
from tidelock.store.engine import Engine
from tidelock.store.spark.kept_frames import keep_for
from tidelock.store.spark.scan import FrameSource, scan_frame
from tidelock.store.spark.sessions import could_not, engine_errors
from tidelock.store.tables.datasets import TableFiles
from tidelock.store.tables.fragments import Dataset, projection

if TYPE_CHECKING:
    from tidelock.model.sql.expressions import Filter
    from tidelock.store.spark.types import DataFrame

ROWS_SHOWN_MAX = 20


@dataclass(frozen=True, eq=False)
class Table:
    """One table of one snapshot. Reading it twice gives the same rows."""

    files: TableFiles
    engine: Engine
    state: TableState
    dataset: Dataset
    owner: object
    """What keeps the pin alive: the snapshot or the transaction that this table is of."""
    whole: bool = False
    """Whether the columns show that Tidelock keeps for itself."""
    noted: Callable[[Filter | None], None] | None = None
    """Told of each read and its condition, where somebody has to know."""

    @property
    def name(self) -> str:
        return self.state.name

    @property
    def key(self) -> tuple[str, ...]:
        return self.state.key

    @cached_property
    def schema(self) -> TableSchema:
        schema = self.files.schema(self.state, self.dataset)
        return schema if self.whole else schema.shown

    @property
    def path(self) -> str:
        """Where the Lance dataset of this table is."""
        return self.files.uri(self.state.id)

    def count(self, filter: str | None = None) -> int:
        """The number of rows; with a filter, of those for which it is true."""
        self.files.refuse_unusable()
        condition = None if filter is None else self.condition(filter)
        self.note(condition)
        if condition is None:
            return int(self.dataset.count_rows())
        if condition.lance is not None:
            with self.files.reading(self.state):
                return int(self.dataset.count_rows(filter=condition.lance))
        frame = self.to_spark(columns=condition.columns, filter=filter)
        with self._errors(frame):
            return frame.count()

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        filter: str | None = None,
        limit: int | None = None,
    ) -> pa.Table:
        """The rows as an Arrow table."""
        if limit is not None:
            check_count(limit, "limit")
        condition = None if filter is None else self.condition(filter)
        names = self.resolve(columns)
        self.note(condition)
        if condition is None or condition.lance is not None:
            scanner = self.dataset.scanner(
                columns=projection(self.dataset, names),
                filter=condition and condition.lance,
                limit=limit,
            )
            with self.files.reading(self.state):
                return scanner.to_table()
        frame = self.to_spark(columns, filter)
        with self._errors(frame):
            rows = (frame if limit is None else frame.limit(limit)).toArrow()
        return rows.cast(pa.schema([self.schema.arrow.field(n) for n in names]))

    def to_batches(
        self, columns: Sequence[str] | None = None, filter: str | None = None
    ) -> pa.RecordBatchReader:
        """The rows as a stream of batches, in bounded memory."""
        self.files.refuse_unusable()
        condition = None if filter is None else self.condition(filter)
        self.note(condition)
        if condition is not None and condition.lance is None:
            return self.to_arrow(columns, filter).to_reader()
        scanner = self.dataset.scanner(
            columns=projection(self.dataset, self.resolve(columns)),
            filter=condition and condition.lance,
        )

        def batches() -> Iterator[pa.RecordBatch]:
            # Refers to this table, and so to its snapshot, for as long as it is read.
            with self.files.reading(self.state):
                yield from scanner.to_batches()

        return pa.RecordBatchReader.from_batches(scanner.projected_schema, batches())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows as a stream for libraries that speak Arrow: `polars.DataFrame(table)`, DuckDB,
        …"""
        return self.to_batches().__arrow_c_stream__(requested_schema)

    def to_spark(
        self, columns: Sequence[str] | None = None, filter: str | None = None
    ) -> DataFrame:
        """The rows as a Spark DataFrame, read by the executors, fragment by fragment.

        What it reads stays readable while it lives, or a DataFrame that was made from it.
        """
        self.files.refuse_unusable()
        return keep_for(self._frame(self.resolve(columns), filter), self.owner)

    def _frame(self, names: list[str], filter: str | None) -> DataFrame:
        condition = None if filter is None else self.condition(filter)
        self.note(condition)
        if condition is None:
            return scan_frame(self.engine.get(), self.source(), columns=names)
        session = self.engine.get()
        if condition.lance is not None:
            return scan_frame(session, self.source(), columns=names, filter=condition.lance)
        # The condition may read columns that are not asked for.
        read = [name for name in self.schema.names if name in {*names, *condition.columns}]
        frame = scan_frame(session, self.source(), columns=read)
        with self._errors(frame):
            frame = frame.alias(self.name).where(condition.sql)
            return frame if read == names else frame.select(*[quote(name) for name in names])

    def _errors(self, frame: DataFrame) -> AbstractContextManager[None]:
        doing = f"could not evaluate the condition on table {self.name!r}"
        return engine_errors(frame.sparkSession, could_not(doing, table=self.name))

    def source(self) -> FrameSource:
        """What an executor needs to read this pin."""
        return FrameSource(
            uri=self.path,
            version=self.dataset.version,
            storage_options=self.files.location.lance_options,
            fragments=tuple((f.fragment_id, f.count_rows()) for f in self.dataset.get_fragments()),
            schema=self.schema.arrow,
            checksum=self.files.checksum(self.state.id, self.dataset),
        )

    def note(self, condition: Filter | None) -> None:
        """Let be known that the rows are read for which a condition is true, or all of them."""
        if self.noted is not None:
            self.noted(condition)

    def condition(self, filter: str) -> Filter:
        from tidelock.model.sql.expressions import parse_filter

        return parse_filter(filter, self.schema, table_name=self.name, zone=self.engine.zone)

    def resolve(self, columns: Sequence[str] | None) -> list[str]:
        """The columns' names as the schema writes them; ColumnNotFound names an unknown one."""
        if columns is None:
            return list(self.schema.names)
        return [self.schema.column(name).name for name in names_of(columns, "columns")]

    def __repr__(self) -> str:
        try:
            rows = self.count()
        except LakeClosed:
            return f"Table({self.name!r}, of a lake that was closed)"
        columns = ", ".join(self.schema.names[:8]) + (", …" if len(self.schema.names) > 8 else "")
        key = f", key=({', '.join(self.key)})" if self.key else ""
        return f"Table({self.name!r}, {rows} rows, columns=({columns}){key})"

    def _repr_html_(self) -> str:
        rows = self.to_arrow(limit=ROWS_SHOWN_MAX)
        head = "".join(f"<th>{html.escape(name)}</th>" for name in rows.column_names)
        lines = [
            "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row.values())
            for row in rows.to_pylist()
        ]
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        caption = html.escape(f"{self.name}: {self.count()} rows")
        return f"<table><caption>{caption}</caption><tr>{head}</tr>{body}</table>"
