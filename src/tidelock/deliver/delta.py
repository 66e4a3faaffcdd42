"""Delta tables as destinations, by delta-rs.

    txn  tidelock/<sink id>                 version = generation
    txn  tidelock/<sink id>/<generation>    version = the position after the mark
    txn  tidelock/<sink id>/plan            version = the identity of the plan, as a number
    description  "Tidelock sink <sink id>"  who made the table

The mark is three of Delta's own application transactions, in the commit that adds the rows. Two
commits with the same application that do not know of each other cannot both succeed, so that a
chunk is not added twice even by two processes.

Options: `storage_options` as delta-rs takes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import (
    CommitProperties,
    DeltaTable,
    QueryBuilder,
    TableFeatures,
    Transaction,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError, TableNotFoundError

from tidelock.deliver.partitions import NAME_BYTES_MAX, NULL
from tidelock.deliver.sink import SentChunk
from tidelock.deliver.tables import Found, Mark, TableSink, plain, uri_of
from tidelock.errors import ChunkRefused, DestinationFailed
from tidelock.model.sinks import SinkDefinition
from tidelock.model.types import TIMESTAMP_NTZ, walk

OWNED_BY = "Tidelock sink "
NTZ = "timestampNtz"


class DeltaSink(TableSink):
    """A Delta table that follows a table."""

    def __init__(self, definition: SinkDefinition, options: Mapping[str, Any]) -> None:
        super().__init__(definition, options)
        self._uri = uri_of(definition)
        self._options = {k: str(v) for k, v in (options.get("storage_options") or {}).items()}
        self._table: DeltaTable | None = None

    @property
    def place(self) -> str:
        return f"The Delta table at {self.definition.to}"

    def load(self) -> Found | None:
        try:
            table = self._table = DeltaTable(self._uri, storage_options=self._options)
        except TableNotFoundError:
            return None
        mark = None
        generation = table.transaction_version(self._application)
        if generation is not None:
            until = table.transaction_version(f"{self._application}/{generation}")
            plan = table.transaction_version(f"{self._application}/plan")
            if until is not None and plan is not None:
                mark = Mark(generation, until - 1, f"{plan:014x}")
        told = table.metadata().description or ""
        owner = told.removeprefix(OWNED_BY) if told.startswith(OWNED_BY) else None
        return Found(plain(pa.schema(table.schema().to_arrow())), owner, mark)

    def create(self, schema: pa.Schema, mark: Mark) -> None:
        self._table = DeltaTable.create(
            self._uri,
            schema,
            partition_by=list(self.definition.partition_by),
            description=f"{OWNED_BY}{self.definition.id}",
            storage_options=self._options,
            commit_properties=self._properties(mark),
        )

    def append(
        self, chunk: SentChunk, rows: Iterator[pa.RecordBatch], added: pa.Schema, mark: Mark
    ) -> int:
        table = self._table
        assert table is not None
        self._allow_types(table, added)
        stream = _Stream(self.definition, self.held(chunk.schema), rows)
        try:
            write_deltalake(
                table,
                stream.reader(),
                mode="append",
                # Columns that only one side has are NULL; what differs otherwise was refused.
                schema_mode="merge",
                commit_properties=self._properties(mark),
            )
        except Exception as error:
            if stream.refused is not None:
                raise stream.refused from None
            if not (isinstance(error, CommitFailedError) and self.has_since(chunk)):
                raise
            stream.size_bytes = 0
        stream.tell_left_out(chunk)
        return stream.size_bytes

    def pass_over(self, chunk: SentChunk, rows: Iterator[pa.RecordBatch]) -> None:
        """Rows that were left out are told again: whoever left them out may have died then."""
        stream = _Stream(self.definition, self.held(chunk.schema), rows)
        if stream.may_leave_out:
            for _ in stream.reader():
                continue
            stream.tell_left_out(chunk)

    def take_back(self, column: str, after: int, mark: Mark) -> None:
        assert self._table is not None
        self._table.delete(f"{column} > {after}", commit_properties=self._properties(mark))

    def rows_above(self, column: str, after: int) -> int:
        assert self._table is not None
        counted = QueryBuilder().register("t", self._table)
        found = counted.execute(f"SELECT count(*) AS n FROM t WHERE {column} > {after}").read_all()
        return int(pa.table(found).column("n")[0].as_py())

    def _allow_types(self, table: DeltaTable, added: pa.Schema) -> None:
        """Columns of a type that the table does not allow yet need a commit before theirs."""
        if not any(TIMESTAMP_NTZ in walk(field.type) for field in added):
            return
        if NTZ not in (table.protocol().writer_features or ()):
            table.alter.add_feature(
                TableFeatures.TimestampWithoutTimezone, allow_protocol_versions_increase=True
            )

    @property
    def _application(self) -> str:
        return f"tidelock/{self.definition.id}"

    def _properties(self, mark: Mark) -> CommitProperties:
        return CommitProperties(
            app_transactions=[
                Transaction(self._application, mark.generation),
                Transaction(f"{self._application}/{mark.generation}", mark.until + 1),
                Transaction(f"{self._application}/plan", int(mark.plan, 16)),
            ]
        )


class _Stream:
    """The rows of a chunk on their way; remembers why it stopped them, and which it left out.

    Delta names a folder after every value of a partition column. On a file system that fails for a
    value that is too long, and the library cannot be told another name: those rows are left out.
    """

    def __init__(
        self, definition: SinkDefinition, schema: pa.Schema, rows: Iterator[pa.RecordBatch]
    ) -> None:
        self._definition = definition
        self._schema = schema
        self._rows = rows
        self._local = uri_of(definition).startswith("/")
        self._texts = [
            name for name in definition.partition_by if schema.field(name).type == pa.string()
        ]
        self.size_bytes = 0
        self._long: dict[str, int] = {}
        self.refused: DestinationFailed | None = None

    def reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self._schema, self._checked())

    def _checked(self) -> Iterator[pa.RecordBatch]:
        for batch in self._rows:
            for name in self._texts:
                self._check(name, batch.column(name))
            batch = self._fitting(batch)
            self.size_bytes += batch.nbytes
            yield batch.cast(self._schema)

    def _check(self, name: str, column: pa.Array) -> None:
        """Delta keeps these two as NULL in a partition column, and readers differ about them."""
        for text in ("", NULL):
            if pc.any(pc.equal(column, text)).as_py():
                self.refused = DestinationFailed(
                    f"Column {name!r} holds the text {text!r}, which a partitioned Delta table "
                    "cannot tell from NULL. Create the sink without partition_by, or change the "
                    "value.",
                    sink=self._definition.name,
                    column=name,
                )
                raise self.refused

    @property
    def may_leave_out(self) -> bool:
        return self._local and bool(self._texts)

    def _fitting(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for name in self._texts if self._local else ():
            room = NAME_BYTES_MAX - len(quote(name, safe="")) - 1
            texts = batch.column(name)
            if 3 * (pc.max(pc.binary_length(texts)).as_py() or 0) <= room:
                continue
            fits = [one is None or len(quote(one, safe="")) <= room for one in texts.to_pylist()]
            if not all(fits):
                self._long.setdefault(name, 0)
                self._long[name] += fits.count(False)
                batch = batch.filter(pa.array(fits))
        return batch

    def tell_left_out(self, chunk: SentChunk) -> None:
        """ChunkRefused when some of the rows were left out, so that they are put aside in sight."""
        if self._long:
            raise ChunkRefused(
                f"Column {next(iter(self._long))!r} holds values that are too long for the name of "
                f"a folder, which Delta makes of them: {NAME_BYTES_MAX} bytes with the column's "
                "name, after encoding. Their rows were left out. Shorten the values and replay, or "
                "create the sink without partition_by.",
                sink=self._definition.name,
                rows=sum(self._long.values()),
                id=chunk.id,
            )
