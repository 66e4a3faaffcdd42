"""The tables of a lake: one Lance dataset each, of which we use immutable versions only.

Owns: opening a pin, creating a dataset, writing fragments, and making the next pin from a base pin
and an operation. A pin is a Lance version, nearly always a detached one.
Invariant: nothing here makes anything visible; a new pin is known to its writer alone until a
commit record names it.
After a crash: files that no commit names are garbage, which garbage collection sweeps.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
from lance.fragment import FragmentMetadata

from tidelock.errors import (
    BrokenInvariant,
    CorruptObject,
    SnapshotExpired,
    TidelockError,
)
from tidelock.model.history.commit import TableState
from tidelock.model.schema.schema import Column, TableSchema
from tidelock.store.objects import layout
from tidelock.store.objects.failpoints import hit
from tidelock.store.objects.kinds.location import Location
from tidelock.store.objects.parallel import Together
from tidelock.store.schema.declarations import Declarations
from tidelock.store.tables.damage import (
    Damage,
    corrupt,
    is_failure,
    is_of_the_store,
    is_panic,
    manifest_checksum,
    manifest_damage,
    panicked,
    refuse_damaged,
    unavailable,
)
from tidelock.store.tables.file_sums import Sums, TableObjects, data_files
from tidelock.store.tables.fragments import (
    Addresses,
    Dataset,
    are_small,
    delete_addresses,
    deletion_file,
    fragment_files,
    with_plain_paths,
)
from tidelock.store.tables.indexes import index_segments
from tidelock.store.tables.lance_writer import write_rows
from tidelock.store.tables.wholeness import Wholeness

OPEN_DATASETS_MAX = 1024
FIRST_PIN = 1
"""The version of Lance's that a table is created as, without rows."""
INDEX_CACHE_BYTES = 1024 * 1024 * 1024
METADATA_CACHE_BYTES = 256 * 1024 * 1024

Operation = lance.LanceOperation


class TableFiles:
    """All access to the Lance datasets of one lake."""

    def __init__(
        self,
        location: Location,
        together: Together,
        durability: str,
        declarations: Declarations,
        is_newest: Callable[[TableState], bool] = lambda state: False,
        refuse_unusable: Callable[[], None] = lambda: None,
    ) -> None:
        """`is_newest` says whether a branch has this very pin at its head, `refuse_unusable` that
        the handle was closed."""
        self.refuse_unusable = refuse_unusable
        self.location = location
        self.declarations = declarations
        self.together = together
        self._is_newest = is_newest
        # Whether what is written is on the disk before it is published.
        self.durable = durability == "fsync" and location.kind == "file"
        self._session = lance.Session(INDEX_CACHE_BYTES, METADATA_CACHE_BYTES)
        self._open: OrderedDict[tuple[str, int], tuple[Dataset, pa.Schema]] = OrderedDict()
        """With their schemas, which Lance makes anew whenever it is asked."""
        self._last: dict[str, int] = {}
        """The pin of each table that was opened last."""
        self._alike: dict[tuple[str, str], int] = {}
        """A pin of each table with each declared schema that it had."""
        self._schemas: dict[str, TableSchema] = {}
        """Of tables that are as they were created."""
        self._plain: dict[str, bool] = {}
        """Whether the manifests of a table are always written alike."""
        self.sums = Sums(location.table_objects(durability))
        self._wholeness = Wholeness(self, is_near=location.kind != "s3")
        self._lock = threading.Lock()

    @cached_property
    def objects(self) -> TableObjects:
        """The files of all tables, as objects."""
        return self.location.table_objects()

    def uri(self, table_id: str) -> str:
        return self.location.lance_uri(layout.table(table_id))

    def open(self, table_id: str, pin: int, expected: int = 0) -> Dataset:
        """The dataset at a pin; SnapshotExpired when garbage collection removed it.

        `expected` is the checksum that its manifest had, 0 if that is not known.
        """
        self.refuse_unusable()
        with self._lock:
            found = self._open.get((table_id, pin))
            if found is not None:
                self._open.move_to_end((table_id, pin))
                return found[0]
            another = self._open.get((table_id, self._last.get(table_id, 0)))
        key = f"{layout.table(table_id)}/{manifest_file(pin)}"
        try:
            if another is not None:
                # From another pin of the table it is a third quicker.
                dataset = another[0].checkout_version(pin)
            else:
                dataset = self._open_first(table_id, pin)
            if expected not in (0, self.checksum(table_id, dataset)):
                raise corrupt(table_id, Damage(key, "damaged", "it is not what was committed"))
        except BaseException as error:
            if not is_failure(error) or isinstance(error, TidelockError):
                raise
            raise manifest_damage(self.objects, key, error) or _expired(table_id, pin) from error
        self._remember(table_id, dataset, dataset.schema)
        return dataset

    def checksum(self, table_id: str, dataset: Dataset) -> int:
        """The checksum of a pin's manifest; 0 if it has none that is always the same.

        Lance writes the properties of a table in any order. Ours have none, but a version that
        somebody else wrote, and that was adopted, may.
        """
        if table_id not in self._plain:
            self._plain[table_id] = not (dataset.config() or dataset.schema.metadata)
        return manifest_checksum(dataset) if self._plain[table_id] else 0

    def opened(self, state: TableState) -> Dataset | None:
        """The dataset of a table in a snapshot if it is open: nothing is asked of the store."""
        found = self._open.get((state.id, state.pin))
        return None if found is None else found[0]

    def any_pin(self, state: TableState) -> Dataset:
        """A pin of a table with the columns of a state, whichever is open: to write fragments that
        belong to none. What is written says which columns it is of by the numbers that they have
        there: at a pin from before the schema changed, they are those of others."""
        known = self._open.get((state.id, self._alike.get((state.id, state.schema), 0)))
        return self.read(state) if known is None else known[0]

    def _open_first(self, table_id: str, pin: int) -> Dataset:
        return lance.dataset(
            self.uri(table_id),
            version=pin,
            storage_options=self.location.lance_options,
            session=self._session,
        )

    def read(self, state: TableState) -> Dataset:
        """The dataset of a table in a snapshot, or the error that says what became of it."""
        try:
            dataset = self.open(state.id, state.pin, state.checksum)
        except SnapshotExpired as error:
            raise self._lost(state) from error
        self._alike[state.id, state.schema] = state.pin
        return dataset

    @contextmanager
    def reading(self, *states: TableState | None, trusting: bool = False) -> Iterator[None]:
        """Around reading the rows of a pin, or of several of one table.

        Whatever fails is looked into: what is damaged or gone, and a store that does not answer, is
        said so. All else is passed on. Unless it is `trusting`, small files are looked at first.
        """
        given = [one for one in states if one is not None]
        self.refuse_unusable()
        try:
            for state in () if trusting else given:
                self._wholeness.look_at(state)
            yield
        except TidelockError:
            raise
        except BaseException as error:
            if not is_failure(error) or isinstance(error, MemoryError):
                raise
            found = self._wholeness.explain(given, error)
            if found is error:
                raise
            raise found from error

    def refuse_damaged(self, table_id: str, fragments: Iterable[FragmentMetadata]) -> None:
        """CorruptObject when files of fragments are not what they were."""
        refuse_damaged(self.objects, layout.table(table_id) + "/", table_id, fragments)

    def missing(self, state: TableState) -> CorruptObject:
        """The error for a table whose files are gone although garbage collection left them."""
        return CorruptObject(
            f"Files of table {state.name!r} are missing in {self.uri(state.id)}. Its newest "
            "version needs them, or one that is still there, so that they were removed by "
            "something other than Tidelock. Restore them from a copy, read an earlier version that "
            "is still whole, or overwrite or drop the table.",
            table=state.name,
            pin=state.pin,
            path=self.uri(state.id),
        )

    def _lost(self, state: TableState) -> TidelockError:
        """The error for a table whose pin is gone. Garbage collection keeps what is newest."""
        if self._is_newest(state):
            return self.missing(state)
        return SnapshotExpired(
            f"The data of table {state.name!r} at this snapshot was removed by garbage "
            "collection. Read a newer version; tag a commit to keep it readable.",
            table=state.name,
            pin=state.pin,
        )

    def reader(self, table_id: str) -> Callable[[str], bytes]:
        """What reads a file of a table, by its path in the dataset."""
        return lambda path: self.objects.get(f"{layout.table(table_id)}/{path}")

    def create(self, table_id: str, schema: TableSchema) -> Dataset:
        """A new, empty dataset. Its version 1 is the table's first pin."""
        hit("table.before_create")
        with lance_failures(self.uri(table_id)):
            dataset = lance.write_dataset(
                schema.arrow.empty_table(),
                self.uri(table_id),
                mode="create",
                enable_stable_row_ids=True,
                storage_options=self.location.lance_options,
                session=self._session,
            )
        hit("table.after_create")
        if self.durable:
            self._sync_tree(table_id)
        self._remember(table_id, dataset, dataset.schema)
        return dataset

    def write(self, base: Dataset, data: pa.Table | pa.RecordBatchReader) -> list[FragmentMetadata]:
        """Write rows as fragments that belong to no version yet."""
        hit("table.before_write")
        with lance_failures(base.uri):
            fragments = write_rows(data, data.schema, base)
        for fragment in fragments:
            with_plain_paths(fragment)
        self.sums.written(_table_id(base), fragments)
        hit("table.after_write")
        return fragments

    def commit(self, table_id: str, base: Dataset, operation: Any) -> Dataset:
        """The next pin: the operation applied to a base pin."""
        hit("table.before_commit")
        with lance_failures(base.uri):
            dataset = lance.LanceDataset.commit(
                base, operation, read_version=base.version, detached=True
            )
        self._finish_sums(table_id, operation)
        self._wholeness.follow(table_id, base.version, dataset.version)
        hit("table.after_commit")
        if self.durable:
            self._sync_version(table_id, base, dataset)
        altered = isinstance(operation, Operation.Merge | Operation.Project)
        schema = dataset.schema if altered else self.arrow_schema(table_id, base)
        self._remember(table_id, dataset, schema)
        return dataset

    def _finish_sums(self, table_id: str, operation: Any) -> None:
        """See to it that the checksums of the files are kept that an operation adds."""
        match operation:
            case Operation.Append():
                new = data_files(operation.fragments)
            case Operation.Delete():
                new = [deletion_file(fragment) for fragment in operation.updated_fragments]
            case Operation.Update():
                new = data_files(operation.new_fragments)
                new += [deletion_file(fragment) for fragment in operation.updated_fragments]
            case Operation.Rewrite():
                new = [f for group in operation.groups for f in data_files(group.new_fragments)]
            case Operation.CreateIndex():
                for index in operation.new_indices:
                    self.sums.begin_index(table_id, str(index.uuid), index.fragment_ids)
                new = [f"_indices/{index.uuid}" for index in operation.new_indices]
            case Operation.Merge():
                new = data_files(operation.fragments)
            case Operation.Project():
                new = []
            case _:
                raise BrokenInvariant(f"{operation!r} adds files whose checksums nobody keeps.")
        self.sums.finish(table_id, new)

    def keep_sums(self, table_id: str, dataset: Dataset) -> None:
        """Keep the checksums of all files of a pin that somebody else made."""
        metadata = [fragment.metadata for fragment in dataset.get_fragments()]
        for segment in index_segments(dataset):
            self.sums.begin_index(table_id, segment.uuid, segment.fragments)
        indices = [f"_indices/{segment.uuid}" for segment in index_segments(dataset)]
        files = [file for one in metadata for file in fragment_files(one)]
        self.sums.finish(table_id, [*files, *indices], named=False)

    def append(
        self, table_id: str, base: Dataset, fragments: Iterable[FragmentMetadata]
    ) -> Dataset:
        return self.commit(table_id, base, Operation.Append(list(fragments)))

    def replace_rows(
        self,
        table_id: str,
        base: Dataset,
        removed: Addresses,
        added: Sequence[FragmentMetadata],
    ) -> Dataset:
        """Take the rows at these addresses out and add these fragments.

        Lance's own `Update` operation does both at once, but looks for the origin of every row id
        that is carried over in the fragments that lose rows: worth it where these are small.
        """
        updated, emptied = delete_addresses(base, removed)
        self.sums.deleted(table_id, updated)
        if added and (updated or emptied) and are_small(base, removed):
            operation = Operation.Update(
                emptied, updated, list(added), [], update_mode="rewrite_rows"
            )
            return self.commit(table_id, base, operation)
        return self._replace(table_id, base, updated, emptied, added)

    def replace_all(
        self, table_id: str, base: Dataset, added: Sequence[FragmentMetadata]
    ) -> Dataset:
        """All rows out, these fragments in; row sequences go on from where they were."""
        ids = [fragment.fragment_id for fragment in base.get_fragments()]
        return self._replace(table_id, base, [], ids, added)

    def _replace(
        self,
        table_id: str,
        base: Dataset,
        updated: list[FragmentMetadata],
        emptied: list[int],
        added: Sequence[FragmentMetadata],
    ) -> Dataset:
        dataset = base
        if updated or emptied:
            dataset = self.commit(table_id, base, Operation.Delete(updated, emptied, "true"))
        return self.append(table_id, dataset, added) if added else dataset

    def arrow_schema(self, table_id: str, dataset: Dataset) -> pa.Schema:
        """The columns of a pin as Arrow has them."""
        known = self._open.get((table_id, dataset.version))
        return dataset.schema if known is None else known[1]

    def schema(self, state: TableState, dataset: Dataset) -> TableSchema:
        """The schema of a table in a snapshot, whose pin is open. The object is the same for as
        long as the schema is."""
        if state.schema:
            return self.declarations.read(state.schema)
        known = self._schemas.get(state.id)
        if known is None:
            # Its columns are those that it was created with, at every pin.
            known = self._schemas[state.id] = schema_of(dataset, state.key)
        return known

    def known_schema(self, state: TableState) -> TableSchema | None:
        """The schema of a table if this handle has met it."""
        if state.schema:
            return self.declarations.read(state.schema)
        return self._schemas.get(state.id)

    def forget(self, table_id: str) -> None:
        """Drop cached handles of a table whose files were swept."""
        with self._lock:
            for key in [key for key in self._open if key[0] == table_id]:
                del self._open[key]

    def _remember(self, table_id: str, dataset: Dataset, schema: pa.Schema) -> None:
        with self._lock:
            self._open[table_id, dataset.version] = (dataset, schema)
            self._last[table_id] = dataset.version
            if len(self._open) > OPEN_DATASETS_MAX:
                self._open.popitem(last=False)

    def _sync_version(self, table_id: str, base: Dataset, dataset: Dataset) -> None:
        known = {file for f in base.get_fragments() for file in fragment_files(f.metadata)}
        root = Path(self.uri(table_id))
        files = {file for f in dataset.get_fragments() for file in fragment_files(f.metadata)}
        paths = [root / file for file in files - known]
        paths.append(root / manifest_file(dataset.version))
        known_indices = {segment.uuid for segment in index_segments(base)}
        for segment in index_segments(dataset):
            if segment.uuid not in known_indices:
                paths.extend((root / "_indices" / segment.uuid).iterdir())
        for path in paths:
            _fsync(path)
        for folder in {path.parent for path in paths} | {root}:
            _fsync(folder)

    def _sync_tree(self, table_id: str) -> None:
        root = Path(self.uri(table_id))
        for path in [*root.rglob("*"), root, root.parent, root.parent.parent]:
            _fsync(path)


def _table_id(dataset: Dataset) -> str:
    return str(dataset.uri).rsplit("/", 1)[1]


def manifest_file(version: int) -> str:
    """Where Lance keeps a version's manifest, relative to its dataset."""
    detached = version >> 63 == 1
    name = f"d{version}" if detached else f"{2**64 - 1 - version:020d}"
    return f"_versions/{name}.manifest"


def schema_of(dataset: Dataset, key: tuple[str, ...]) -> TableSchema:
    """The schema that the pin of a table without a declaration tells."""
    ids = [field.id() for field in dataset.lance_schema.fields()]
    columns = tuple(
        Column(field.name, field.type, field.nullable, id)
        for field, id in zip(dataset.schema, ids, strict=True)
    )
    return TableSchema(columns, key)


@contextmanager
def lance_failures(uri: str) -> Iterator[None]:
    """Lance reports a failing store as OSError; here it becomes the error of our tree."""
    try:
        yield
    except (OSError, pa.ArrowInvalid) as error:
        if not is_of_the_store(error):
            raise
        what = f"Lance could not write to {uri}"
        raise unavailable(what, error, "Nothing was published. ") from error
    except BaseException as error:
        if not is_panic(error):
            raise
        raise panicked(f"writing to {uri}", error) from error


def _expired(table_id: str, pin: int) -> SnapshotExpired:
    return SnapshotExpired(
        f"The data of table {table_id!r} at this snapshot was removed by garbage collection. "
        "Read a newer version; tag a commit to keep it readable.",
        table_id=table_id,
        pin=pin,
    )


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
