"""Rows that are given with a text, visible to its statements as tables under their keywords.

Owns: the forms in which they may be given, and their frames, which are made when they are first
read. Rows that are in this process go to the engine whole.
Invariant: no relation has the name of a table of the lake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidelock.errors import InvalidOption, WrongType
from tidelock.model.names import check_table_name, fold
from tidelock.model.types import normal_type
from tidelock.store.rows.inputs import is_spark_frame
from tidelock.store.spark.scan import spark_schema
from tidelock.store.table import Table

if TYPE_CHECKING:
    from tidelock.store.spark.types import DataFrame, SparkSession

_FORMS = (
    "Give a Spark DataFrame, a table of a snapshot, a pyarrow Table or RecordBatchReader, a list "
    "of dicts, a dict of lists, or a pandas or polars DataFrame."
)


class Relations(Mapping[str, "DataFrame"]):
    """The relations of one text, by name. Asking for one makes its frame."""

    def __init__(self, given: Mapping[str, Any], session: Callable[[], SparkSession]) -> None:
        seen: set[str] = set()
        for name in given:
            check_table_name(name)
            if fold(name) in seen:
                raise InvalidOption(
                    f"Two relations are named {name!r}; names are compared without regard to case. "
                    "Rename one.",
                    relation=name,
                )
            seen.add(fold(name))
        self._given = dict(given)
        self._start = session
        self._frames: dict[str, DataFrame] = {}
        self._tables: dict[str, pa.Table] = {}

    @property
    def session(self) -> SparkSession | None:
        """The session of the frames that were given, if some were."""
        for data in self._given.values():
            if is_spark_frame(data):
                return data.sparkSession  # type: ignore[no-any-return]
        return None

    def refuse_clash(self, is_table: Callable[[str], bool]) -> None:
        """InvalidOption for a relation that would hide a table."""
        for name in self._given:
            if is_table(name):
                raise InvalidOption(
                    f"The relation {name!r} would hide the table of that name. Give it by another "
                    "name.",
                    relation=name,
                )

    def __getitem__(self, name: str) -> DataFrame:
        if name not in self._frames:
            self._frames[name] = self._frame(name, self._given[name])
        return self._frames[name]

    def rows_here(self, name: str) -> pa.Table | None:
        """The rows of a relation that are in this process."""
        found = next((one for one in self._given if fold(one) == fold(name)), None)
        if found is None or isinstance(self._given[found], Table):
            return None
        return None if is_spark_frame(self._given[found]) else self._rows(found)

    def _rows(self, name: str) -> pa.Table:
        if name not in self._tables:
            # A stream is read once, however often it is asked for.
            self._tables[name] = _normal(arrow_rows(name, self._given[name]), name)
        return self._tables[name]

    def __contains__(self, name: object) -> bool:
        return name in self._given

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)

    def _frame(self, name: str, data: Any) -> DataFrame:
        if is_spark_frame(data):
            return data  # type: ignore[no-any-return]
        if isinstance(data, Table):
            return data.to_spark()
        rows = self._rows(name)
        session = self.session or self._start()
        return session.createDataFrame(rows, schema=spark_schema(rows.schema))


def arrow_rows(name: str, data: Any) -> pa.Table:
    """The rows of a relation that is in this process, with the types that they have."""
    try:
        found = _arrow(data)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise WrongType(
            f"The relation {name!r} cannot be read from {type(data).__name__}: {error}.",
            relation=name,
            cause=str(error),
        ) from error
    if found is None:
        raise WrongType(
            f"The relation {name!r} cannot be read from {type(data).__name__}. {_FORMS}",
            relation=name,
            actual=type(data).__name__,
        )
    if not found.num_columns:
        raise WrongType(
            f"The relation {name!r} has no columns. Where there may be no rows, give a pyarrow "
            "Table, which has its columns all the same.",
            relation=name,
        )
    return found


def _arrow(data: Any) -> pa.Table | None:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, pa.RecordBatchReader):
        return data.read_all()
    if isinstance(data, list | tuple) and all(isinstance(row, Mapping) for row in data):
        names = dict.fromkeys(column for row in data for column in row)
        return pa.table({str(one): [row.get(one) for row in data] for one in names})
    if isinstance(data, Mapping):
        return pa.table({str(one): values for one, values in data.items()})
    if type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "iloc"):
        return pa.Table.from_pandas(data, preserve_index=False)
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data).read_all()
    return None


def _normal(rows: pa.Table, name: str) -> pa.Table:
    """The rows in the types of Spark SQL; a column of NULLs alone has none, and needs none."""
    seen: set[str] = set()
    fields: list[pa.Field] = []
    for one in rows.schema:
        if fold(one.name) in seen:
            raise WrongType(
                f"The relation {name!r} has two columns named {one.name!r}; names are compared "
                "without regard to case. Rename one.",
                relation=name,
                column=one.name,
            )
        seen.add(fold(one.name))
        type_ = one.type if pa.types.is_null(one.type) else normal_type(one.type, one.name)
        fields.append(pa.field(one.name, type_, nullable=True))
    schema = pa.schema(fields)
    return rows if rows.schema.equals(schema) else rows.cast(schema)
