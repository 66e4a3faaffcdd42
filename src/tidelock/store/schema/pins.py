"""Pins with other columns: the same rows, as another schema shows them.

Owns: how the columns of a pin are added, dropped, renamed, moved, relaxed and widened. All but the
last write no data file, whatever the size of the table: Lance finds the values of a column by its
id, a column that a file does not have is NULL, and one that the schema does not have is not read.
To widen a column, its values are written once more, in files of their own beside the others.
Invariants: rows keep their ids and their order; a column keeps its id.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import lru_cache

import lance
import pyarrow as pa
from lance.fragment import DataFile, FragmentMetadata

from tidelock.model.schema.schema import Column, TableSchema
from tidelock.store.schema.field_protos import Field, Fields, renumbered
from tidelock.store.tables.datasets import TableFiles
from tidelock.store.tables.fragments import Dataset, data_file, with_plain_paths

GONE = -2
"""What Lance calls a field of a data file that another file has now."""
_WIDENED = "__tidelock_widened"
_GIVEN_AWAY = "__tidelock_given_away_"

Operation = lance.LanceOperation


def next_column_id(schema: TableSchema) -> int:
    """An id that no column of the table has or had. Lance itself forgets those that are gone once
    no file has them any more."""
    return max(schema.next_id, *(column.id + size_of(column.type) for column in schema.columns))


@lru_cache(maxsize=1024)
def size_of(type_: pa.DataType) -> int:
    """How many ids a column of a type takes: one for itself and one for each field inside."""
    return len(Fields.of_arrow(pa.field("c", type_)).fields)


@dataclass
class Widened:
    """The files that hold widened columns, by the data file that they stand beside, so that a
    fragment is read once, however often the alteration is applied again."""

    files: dict[tuple[str, int], DataFile] = field(default_factory=dict)


def alter_pin(
    files: TableFiles,
    table_id: str,
    base: Dataset,
    before: TableSchema,
    after: TableSchema,
    widened: Widened,
) -> Dataset:
    """The next pin, whose columns are those of `after`."""
    retyped = _retyped(before, after)
    if retyped and _gives_names_away(before, after):
        # Lance takes a column that is merged under the name of another for that one.
        base, before = _relabelled(files, table_id, base, before, after)
    known = Fields.of(base.lance_schema)
    fields = [one for column in after.columns for one in _fields(known, column, before)]
    schema = known.schema(fields)
    if not retyped:
        # A projection lists no fragment, so that it costs the same whatever the table holds; it may
        # be onto a column that no file has.
        return files.commit(table_id, base, Operation.Project(schema))
    fragments = [fragment.metadata for fragment in base.get_fragments()]
    for column in retyped:
        numbers = [one.id for one in known.column(column.id)]
        fragments = [
            _with_widened(
                files, table_id, base, one, _old(before, column), column, numbers, widened
            )
            for one in fragments
        ]
    return files.commit(table_id, base, Operation.Merge(fragments, schema))


def _retyped(before: TableSchema, after: TableSchema) -> list[Column]:
    pairs = [(before.with_id(column.id), column) for column in after.columns]
    return [new for old, new in pairs if old is not None and old.type != new.type]


def _gives_names_away(before: TableSchema, after: TableSchema) -> bool:
    """Whether another column has a name now that one had before."""
    owners = {column.name: column.id for column in before.columns}
    return any(owners.get(column.name, column.id) != column.id for column in after.columns)


def _relabelled(
    files: TableFiles, table_id: str, base: Dataset, before: TableSchema, after: TableSchema
) -> tuple[Dataset, TableSchema]:
    """The same columns under the names that they have afterwards; those that go step aside."""
    columns = []
    for column in before.columns:
        kept = after.with_id(column.id)
        name = f"{_GIVEN_AWAY}{column.id}" if kept is None else kept.name
        columns.append(replace(column, name=name))
    now = replace(before, columns=tuple(columns))
    known = Fields.of(base.lance_schema)
    fields = [one for column in columns for one in _fields(known, column, before)]
    return files.commit(table_id, base, Operation.Project(known.schema(fields))), now


def _old(schema: TableSchema, column: Column) -> Column:
    found = schema.with_id(column.id)
    assert found is not None
    return found


def _fields(known: Fields, column: Column, before: TableSchema) -> Sequence[Field]:
    """A column of the new schema and what is inside of it."""
    old = before.with_id(column.id)
    if old is not None and old.type == column.type:
        fields = known.column(column.id)
    else:
        made = Fields.of_arrow(pa.field(column.name, column.type, column.nullable)).fields
        ids = [one.id for one in known.column(column.id)] if old is not None else []
        fields = renumbered(made, ids or range(column.id, column.id + len(made)))
    return fields[0].labelled(column.name, column.nullable), *fields[1:]


def _with_widened(
    files: TableFiles,
    table_id: str,
    base: Dataset,
    fragment: FragmentMetadata,
    old: Column,
    new: Column,
    numbers: Sequence[int],
    widened: Widened,
) -> FragmentMetadata:
    """A fragment whose values of a column are read from a file that has them in the new type."""
    place = (data_file(fragment), new.id)
    if place not in widened.files:
        widened.files[place] = _write_widened(files, table_id, base, fragment, old, new, numbers)
    kept = []
    for one in fragment.files:
        fields = [GONE if number in numbers else number for number in one.fields]
        # The first names the fragment's content for good.
        if one is fragment.files[0] or any(number != GONE for number in fields):
            kept.append(_with_fields(one, fields))
    return with_plain_paths(replace(fragment, files=[*kept, widened.files[place]]))


def _with_fields(file: DataFile, fields: Sequence[int]) -> DataFile:
    """The same file, read as columns of these ids."""
    changed = copy(file)
    changed.fields = list(fields)
    return changed


def _write_widened(
    files: TableFiles,
    table_id: str,
    base: Dataset,
    fragment: FragmentMetadata,
    old: Column,
    new: Column,
    numbers: Sequence[int],
) -> DataFile:
    wanted = pa.schema([pa.field(_WIDENED, new.type, new.nullable)])

    def widen(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([batch.column(old.name).cast(new.type)], schema=wanted)

    written, schema = base.get_fragment(fragment.id).merge_columns(widen, columns=[old.name])
    alone = with_plain_paths(replace(written, files=[written.files[-1]]))
    files.sums.written(table_id, [alone])
    (file,) = alone.files
    # A file names the fields that have values of their own: not a STRUCT, but what is inside.
    made = [one.id for one in Fields.of(schema).fields][-len(numbers) :]
    ids = dict(zip(made, numbers, strict=True))
    return _with_fields(file, [ids[one] for one in file.fields])
