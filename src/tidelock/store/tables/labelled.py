"""The rows of one pin under the columns of another pin of the same table.

A column is found by its id. One that the pin does not have is NULL; one that is wider by now is
widened; a name is what the other pin calls it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidelock.store.tables.fragments import Dataset


@dataclass(frozen=True)
class Labelled:
    """How the rows of a pin are read so that they look like those of another."""

    names: list[str] | None
    """The columns to read, as the pin calls them; None for all as they are."""
    schema: pa.Schema | None = None
    """What they are shown as; None if they need not be changed."""
    places: tuple[int | None, ...] = ()
    """Where each column that is shown is among those read; None for one that is not there."""

    @classmethod
    def of(cls, dataset: Dataset, meant: Dataset, columns: Sequence[str] | None) -> Labelled:
        """For columns of `meant`, by its names."""
        asked = None if columns is None else list(columns)
        if dataset.version == meant.version:
            return cls(asked)
        here, there = column_ids(dataset), column_ids(meant)
        if here == there and dataset.schema.equals(meant.schema):
            return cls(asked)
        wanted = meant.schema.names if asked is None else asked
        labels = {id: name for name, id in here.items()}
        found = [labels.get(there[name]) for name in wanted]
        read = [name for name in found if name is not None]
        if not read and wanted:
            # Some column tells how many rows there are.
            read = [dataset.schema.names[0]]
        places = tuple(None if name is None else read.index(name) for name in found)
        return cls(read, pa.schema([meant.schema.field(name) for name in wanted]), places)

    def shown(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = self.schema
        if schema is None:
            yield from batches
            return
        for batch in batches:
            columns = [
                pa.nulls(batch.num_rows, field.type)
                if place is None
                else batch.column(place).cast(field.type)
                for place, field in zip(self.places, schema, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=_nullable(schema))


def column_ids(dataset: Dataset) -> dict[str, int]:
    """The ids of a pin's columns by their names, in their order."""
    ids = [field.id() for field in dataset.lance_schema.fields()]
    return dict(zip(dataset.schema.names, ids, strict=True))


def _nullable(schema: pa.Schema) -> pa.Schema:
    """Before a column came, it was NULL in every row, also where it may not be now."""
    return pa.schema([field.with_nullable(True) for field in schema])
