"""Delta tables as destinations, by delta-rs.

    txn  tidelock/<sink id>                 version = generation
    txn  tidelock/<sink id>/<generation>    version = the position after the mark
    txn  tidelock/<sink id>/plan            version = the identity of the plan, as a number
    txn  tidelock/<sink id>/columns         version = the digest of the columns that rows came with
    description  "Tidelock sink <sink id>"  who made the table

The mark is four of Delta's own application transactions, in the commit that adds the rows. Two
commits with the same application that do not know of each other cannot both succeed, so that a
chunk is not added twice even by two processes.

Options: `storage_options` as delta-rs takes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn
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

from tidelock.deliver.destinations.evolution import Evolution, spelled
from tidelock.deliver.destinations.lake_table import ForeignTable, Mark, TableSink, plain, uri_of
from tidelock.deliver.destinations.partitions import NAME_BYTES_MAX, NULL
from tidelock.deliver.destinations.protocol import SentChunk
from tidelock.errors import DestinationFailed
from tidelock.model.sinks import SinkDefinition
from tidelock.model.types import TIMESTAMP_NTZ, walk
from tidelock.store.rows.batch_stream import BatchStream

OWNED_BY = "Tidelock sink "
NTZ = "timestampNtz"
ENCODED_GROWTH_MAX = 3
"""A byte that is percent-encoded takes so many."""
SHOWN_LENGTH = 20


class DeltaSink(TableSink):
    """A Delta table that follows a table."""

    keeps_dropped = True

    def __init__(self, definition: SinkDefinition, options: Mapping[str, Any]) -> None:
        super().__init__(definition, options)
        self._uri = uri_of(definition)
        self._options = {k: str(v) for k, v in (options.get("storage_options") or {}).items()}
        self._table: DeltaTable | None = None

    @property
    def title(self) -> str:
        return f"The Delta table at {self.definition.to}"

    def load(self) -> ForeignTable | None:
        try:
            table = self._table = DeltaTable(self._uri, storage_options=self._options)
        except TableNotFoundError:
            return None
        mark = None
        generation = table.transaction_version(self._application)
        if generation is not None:
            until = table.transaction_version(f"{self._application}/{generation}")
            plan = table.transaction_version(f"{self._application}/plan")
            columns = table.transaction_version(f"{self._application}/columns")
            if until is not None and plan is not None:
                told = f"{columns:014x}" if columns else ""
                mark = Mark(generation, until - 1, f"{plan:014x}", told)
        description = table.metadata().description or ""
        owner = description.removeprefix(OWNED_BY) if description.startswith(OWNED_BY) else None
        return ForeignTable(plain(pa.schema(table.schema().to_arrow())), owner, mark)

    def create(self, schema: pa.Schema, mark: Mark) -> None:
        self._table = DeltaTable.create(
            self._uri,
            schema,
            partition_by=list(self.divided),
            description=f"{OWNED_BY}{self.definition.id}",
            storage_options=self._options,
            commit_properties=self._properties(mark),
        )

    def append(
        self, chunk: SentChunk, rows: Iterator[pa.RecordBatch], evolution: Evolution, mark: Mark
    ) -> int:
        table = self._table
        assert table is not None
        self._allow_types(table, evolution.added)
        stream = _Stream(self.definition, self.held(chunk.schema), rows, self.divided)
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
            return 0
        return stream.size_bytes

    def take_back(self, column: str, after: int, mark: Mark) -> None:
        assert self._table is not None
        self._table.delete(f"{column} > {after}", commit_properties=self._properties(mark))

    def rows_above(self, column: str, after: int) -> int:
        assert self._table is not None
        counted = QueryBuilder().register("t", self._table)
        found = counted.execute(f"SELECT count(*) AS n FROM t WHERE {column} > {after}").read_all()
        return int(pa.table(found).column("n")[0].as_py())

    def missing_files(self) -> list[str]:
        assert self._table is not None
        return sorted(self._table.repair(dry_run=True)["files_removed"])

    def why_not(self, table: ForeignTable, evolution: Evolution) -> str | None:
        """Rows without a column have NULL there, and everything else is beyond the library."""
        for old, new in evolution.renamed:
            return f"delta-rs cannot rename a column, and {old!r} is {new!r} now"
        for name, old_type, new_type in evolution.widened:
            kinds = f"{spelled(old_type)} there and {spelled(new_type)} now"
            return f"delta-rs cannot widen a column, and {name!r} is {kinds}"
        for name in self.divided:
            if name in evolution.dropped:
                return f"column {name!r}, which divides it, was dropped"
        return None

    def _allow_types(self, table: DeltaTable, added: Sequence[pa.Field]) -> None:
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
                Transaction(f"{self._application}/columns", int(mark.columns or "0", 16)),
            ]
        )


class _Stream:
    """The rows of a chunk on their way; remembers why it stopped them.

    Delta names a folder after every value of a partition column, and the library cannot be told
    another name: a value that it cannot name one after is refused before the commit that would
    hold it.
    """

    def __init__(
        self,
        definition: SinkDefinition,
        schema: pa.Schema,
        rows: Iterator[pa.RecordBatch],
        divided: Sequence[str],
    ) -> None:
        self._definition = definition
        self._schema = schema
        self._rows = rows
        self._local = uri_of(definition).startswith("/")
        self._texts = [name for name in divided if schema.field(name).type == pa.string()]
        self.size_bytes = 0
        self._passed_on = BatchStream(self._checked())

    def reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self._schema, self._passed_on)

    @property
    def refused(self) -> DestinationFailed | None:
        """Why it stopped the rows; None when it did not."""
        error = self._passed_on.error
        return error if isinstance(error, DestinationFailed) else None

    def _checked(self) -> Iterator[pa.RecordBatch]:
        for batch in self._rows:
            for name in self._texts:
                self._refuse_nulls(name, batch.column(name))
                if self._local:
                    self._refuse_long(name, batch.column(name))
            self.size_bytes += batch.nbytes
            yield batch.cast(self._schema)

    def _refuse_nulls(self, name: str, column: pa.Array) -> None:
        """Delta keeps these two as NULL in a partition column, and readers differ about them."""
        for text in ("", NULL):
            if pc.any(pc.equal(column, text)).as_py():
                self._refuse(
                    f"Column {name!r} holds the text {text!r}, which a partitioned Delta table "
                    "cannot tell from NULL. Nothing of its chunk was written. "
                    f"{self._advice('Change')}",
                    name,
                )

    def _refuse_long(self, name: str, column: pa.Array) -> None:
        """A file system has no folder for a value whose name would be longer than it allows."""
        room_bytes = NAME_BYTES_MAX - len(quote(name, safe="")) - 1
        longest_bytes = pc.max(pc.binary_length(column)).as_py() or 0
        if longest_bytes * ENCODED_GROWTH_MAX <= room_bytes:
            return
        for text in column.unique().to_pylist():
            size_bytes = 0 if text is None else len(quote(text, safe=""))
            if size_bytes > room_bytes:
                self._refuse(
                    f"Column {name!r} holds a value of {len(text)} characters, which begins "
                    f"{text[:SHOWN_LENGTH]!r}. Delta names a folder after it, which takes "
                    f"{size_bytes} bytes once it is encoded, and {room_bytes} fit. Nothing of its "
                    f"chunk was written. {self._advice('Shorten')}",
                    name,
                    length=len(text),
                )

    def _advice(self, verb: str) -> str:
        return (
            f"{verb} the value, and run `tidelock sink replay {self._definition.name}`; or create "
            "the sink without partition_by."
        )

    def _refuse(self, what: str, column: str, **evidence: object) -> NoReturn:
        raise DestinationFailed(what, sink=self._definition.name, column=column, **evidence)
