"""Iceberg tables as destinations, by PyIceberg.

    tidelock.owner = <sink id>                                   who made the table
    tidelock.<sink id> = {"generation": 1, "until": 4711, "plan": "5d…"}    the mark

are properties of the table, set in the commit that adds the rows.

Options: `catalog` holds the properties of any PyIceberg catalog, and its `name`; `identifier` names
the table in it. Without `catalog`, `to` is a folder with a catalog of its own, in SQLite:

    <to>/catalog.db                     the catalog
    <to>/<namespace>/<table>/           metadata and data

The folders of partitions are named by PyIceberg after their values; a value that is too long for a
name is shortened as in partitions.py. Readers take values from the metadata, never from names.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.partitioning import PartitionKey
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.locations import SimpleLocationProvider

from tidelock.deliver.destinations.evolution import Evolution, spelled
from tidelock.deliver.destinations.lake_table import ForeignTable, Mark, TableSink, plain, uri_of
from tidelock.deliver.destinations.partitions import DIGEST_SIGN, shorten
from tidelock.deliver.destinations.protocol import SentChunk
from tidelock.errors import DestinationFailed, InvalidOption
from tidelock.model.sinks import SinkDefinition
from tidelock.model.types import inner_fields, is_list_like
from tidelock.store.objects.parallel import side_by_side

OWNER = "tidelock.owner"
BYTES_AT_ONCE = 256 * 1024 * 1024
"""So much of a chunk is in memory; a larger one is committed as several snapshots at once."""
TRIES = 5
_RETRIES = "commit.retry.num-retries"
_LOCATIONS = TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL


class ShortLocations(SimpleLocationProvider):
    """Data files where PyIceberg puts them, in folders whose names fit."""

    def new_data_location(
        self, data_file_name: str, partition_key: PartitionKey | None = None
    ) -> str:
        if partition_key is None:
            return super().new_data_location(data_file_name)
        folder = "/".join(shorten(name) for name in partition_key.to_path().split("/"))
        # The name of a file is its own, and a location may be read as a URL.
        return f"{self.data_path}/{folder.replace(DIGEST_SIGN, '~')}/{data_file_name}"


class IcebergSink(TableSink):
    """An Iceberg table that follows a table."""

    def __init__(self, definition: SinkDefinition, options: Mapping[str, Any]) -> None:
        super().__init__(definition, options)
        self._identifier = str(options.get("identifier", f"tidelock.{definition.name}"))
        if "." not in self._identifier:
            raise InvalidOption(
                f"identifier={self._identifier!r} has no namespace. Write namespace.table.",
                identifier=self._identifier,
            )
        self._catalog = _open_catalog(definition, options.get("catalog"))
        self._table: Table | None = None

    @property
    def title(self) -> str:
        return f"The Iceberg table {self._identifier} at {self.definition.to}"

    def load(self) -> ForeignTable | None:
        try:
            table = self._table = self._catalog.load_table(self._identifier)
        except NoSuchTableError:
            return None
        _use_own_ways(table)
        told = table.properties.get(self._mark)
        mark = Mark(**json.loads(told)) if told else None
        return ForeignTable(plain(table.schema().as_arrow()), table.properties.get(OWNER), mark)

    def held(self, schema: pa.Schema) -> pa.Schema:
        """Iceberg has no integers below 32 bits."""
        return pa.schema([field.with_type(_wide(field.type)) for field in plain(schema)])

    def create(self, schema: pa.Schema, mark: Mark) -> None:
        namespace = self._identifier.rpartition(".")[0]
        self._catalog.create_namespace_if_not_exists(namespace)
        properties = {
            OWNER: self.definition.id,
            **self._property(mark),
            # Each commit writes the metadata anew; a hundred of them are enough to look back.
            "write.metadata.delete-after-commit.enabled": "true",
        }
        transaction = self._catalog.create_table_transaction(
            self._identifier, schema, properties=properties
        )
        with transaction, transaction.update_spec() as spec:
            for column in self.divided:
                spec.add_identity(column)

    def append(
        self, chunk: SentChunk, rows: Iterator[pa.RecordBatch], evolution: Evolution, mark: Mark
    ) -> int:
        schema = self.held(chunk.schema)
        tables = _bounded(rows, schema)
        first = next(tables, schema.empty_table())
        second = next(tables, None)
        for attempt in range(1, TRIES + 1):
            try:
                if second is None:
                    return self._commit(iter([first]), schema, evolution, mark)
                return self._commit(_all(first, second, tables), schema, evolution, mark)
            except CommitFailedException as error:
                if self.has_since(chunk):
                    return 0
                if second is not None or attempt == TRIES:
                    raise DestinationFailed(
                        f"Others write to {self._identifier} all the time, and were faster: "
                        f"{error}. It is tried again.",
                        sink=self.definition.name,
                        cause=str(error),
                    ) from error
        raise AssertionError

    def _commit(
        self, tables: Iterator[pa.Table], schema: pa.Schema, evolution: Evolution, mark: Mark
    ) -> int:
        table = self._table
        assert table is not None
        known = {snapshot.snapshot_id for snapshot in table.snapshots()}
        with table.transaction() as transaction:
            _evolve(transaction, schema, evolution)
            for rows in tables:
                transaction.append(rows)
            transaction.set_properties(self._property(mark))
        # The transaction has left what it made in the copy, which counts as loaded.
        _use_own_ways(table)
        made = [one for one in table.snapshots() if one.snapshot_id not in known]
        return sum(int((one.summary and one.summary["added-files-size"]) or 0) for one in made)

    def why_not(self, table: ForeignTable, evolution: Evolution) -> str | None:
        for name, old, new in evolution.widened:
            if not _promotes(old, new):
                return (
                    f"Iceberg cannot make column {name!r} {spelled(new)}, which is {spelled(old)}"
                )
        assert self._table is not None
        fields = self._table.schema()
        divided = {fields.find_column_name(one.source_id) for one in self._table.spec().fields}
        for name in evolution.dropped:
            if name in divided:
                return f"column {name!r}, which divides it, was dropped"
        return None

    def take_back(self, column: str, after: int, mark: Mark) -> None:
        assert self._table is not None
        with warnings.catch_warnings(), self._table.transaction() as transaction:
            # It warns when nothing is there to be deleted.
            warnings.simplefilter("ignore")
            transaction.delete(f"{column} > {after}")
            transaction.set_properties(self._property(mark))

    def rows_above(self, column: str, after: int) -> int:
        assert self._table is not None
        return self._table.scan(f"{column} > {after}", selected_fields=(column,)).count()

    def missing_files(self) -> list[str]:
        table = self._table
        assert table is not None
        paths = sorted(task.file.file_path for task in table.scan().plan_files())
        there = side_by_side(lambda path: table.io.new_input(path).exists(), paths)
        return [path for path, found in zip(paths, there, strict=True) if not found]

    def close(self) -> None:
        super().close()
        self._catalog.close()

    @property
    def _mark(self) -> str:
        return f"tidelock.{self.definition.id}"

    def _property(self, mark: Mark) -> dict[str, str]:
        return {self._mark: json.dumps(asdict(mark))}


def _open_catalog(definition: SinkDefinition, given: Mapping[str, Any] | None) -> Catalog:
    warehouse = uri_of(definition)
    local = warehouse.startswith("/")
    uri = Path(warehouse).as_uri() if local else warehouse
    properties = {name: str(value) for name, value in (given or {}).items()}
    if not properties:
        if not local:
            raise InvalidOption(
                f"{definition.to} cannot hold a catalog in SQLite. Give the option catalog={{...}} "
                "with the properties of a PyIceberg catalog, such as type and uri.",
                to=definition.to,
            )
        try:
            Path(warehouse).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidOption(
                f"The folder {warehouse} cannot be made: {error}. Choose another address.",
                to=definition.to,
            ) from error
        properties = {"type": "sql", "uri": f"sqlite:///{warehouse}/catalog.db"}
    name = properties.pop("name", "tidelock")
    return load_catalog(name, **{"warehouse": uri, **properties})


def _use_own_ways(table: Table) -> None:
    """Settings for this process alone. They are not written back: what is loaded is a copy."""
    properties = table.metadata.properties
    # The library would add the rows again on top of a commit that was faster, and that may have
    # been another process's of the same chunk.
    properties[_RETRIES] = "0"
    if TableProperties.OBJECT_STORE_ENABLED not in properties:
        properties.setdefault(_LOCATIONS, f"{__name__}.{ShortLocations.__name__}")


def _evolve(transaction: Transaction, schema: pa.Schema, evolution: Evolution) -> None:
    """Make the columns of a table those of rows. Names are freed before they are given anew."""
    if evolution.dropped:
        with transaction.update_schema() as update:
            for name in evolution.dropped:
                update.delete_column((name,))
    if evolution.renamed:
        # Crosswise, too: Iceberg knows columns by ids, and looks at names when all are given.
        with transaction.update_schema() as update:
            for old, new in evolution.renamed:
                update.rename_column((old,), new)
    if evolution.added or evolution.widened or evolution.relaxed:
        added = {field.name for field in evolution.added}
        fields = [one.with_nullable(True) if one.name in added else one for one in schema]
        with transaction.update_schema() as update:
            update.union_by_name(pa.schema(fields))


def _promotes(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether Iceberg makes one type of the other, here or inside."""
    if spelled(old) == spelled(new):
        return True
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        return bool(old.scale == new.scale and old.precision <= new.precision)
    if pa.types.is_nested(old) and old.id == new.id:
        # A map's key is what it is.
        if pa.types.is_map(old) and old.key_type != new.key_type:
            return False
        pairs = zip(inner_fields(old), inner_fields(new), strict=True)
        return all(_promotes(one.type, other.type) for one, other in pairs)
    return (old, new) in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))


def _wide(kind: pa.DataType) -> pa.DataType:
    if kind in (pa.int8(), pa.int16()):
        return pa.int32()
    if is_list_like(kind):
        return pa.list_(kind.value_field.with_type(_wide(kind.value_type)))
    if pa.types.is_map(kind):
        value = kind.item_field.with_type(_wide(kind.item_type))
        return pa.map_(_wide(kind.key_type), value)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_wide(field.type)) for field in kind])
    return kind


def _bounded(rows: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Rows in tables that are small enough for memory; one table when all of them are."""
    batches: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in rows:
        batches.append(batch.cast(schema))
        size_bytes += batch.nbytes
        if size_bytes >= BYTES_AT_ONCE:
            yield pa.Table.from_batches(batches, schema)
            batches, size_bytes = [], 0
    if batches:
        yield pa.Table.from_batches(batches, schema)


def _all(first: pa.Table, second: pa.Table, rest: Iterator[pa.Table]) -> Iterator[pa.Table]:
    yield first
    yield second
    yield from rest
