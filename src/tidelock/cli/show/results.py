"""Rows of data in every form that the command line gives them in.

Owns: the formats of `tidelock sql`. All of them are exact: a value that is read back is the same.

    table    for people
    csv      with a header, as sinks write it; NULL is an empty field, an empty string is ""
    json     an array of objects
    jsonl    one object per line
    parquet  to a file, or to a pipe
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa

from tidelock.cli.output import Output
from tidelock.cli.show.cells import shown_values
from tidelock.errors import InvalidOption
from tidelock.model.types import type_name
from tidelock.store.rows.json_values import encode_lines, join_lines, python_values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS_PER_BATCH = 10_000
FORMATS = ("table", "csv", "json", "jsonl", "parquet")
BY_SUFFIX = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}


def show_rows(output: Output, rows: pa.Table) -> None:
    columns = [shown_values(column) for column in rows.columns]
    numeric = [is_number(field.type) for field in rows.schema]
    output.rows(rows.schema.names, list(zip(*columns, strict=True)), numeric)


def fetch(frame: DataFrame, rows_max: int, *, counted: bool) -> tuple[pa.Table, int]:
    """The first rows, and how many more there are, if that is asked for."""
    if not rows_max:
        return frame.toArrow(), 0
    rows = frame.limit(rows_max + 1).toArrow()
    if rows.num_rows <= rows_max:
        return rows, 0
    return rows.slice(0, rows_max), frame.count() - rows_max if counted else 1


def as_document(rows: pa.Table, more: int) -> dict[str, Any]:
    """The columns and rows of a result, for a document."""
    return {
        "columns": [{"name": f.name, "type": type_name(f.type)} for f in rows.schema],
        "rows": rows_as_objects(rows),
        "complete": not more,
    }


def rows_as_objects(rows: pa.Table) -> list[dict[str, Any]]:
    refuse_twins(rows.schema)
    names = rows.schema.names
    columns = [python_values(column) for column in rows.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def refuse_twins(schema: pa.Schema) -> None:
    """Objects and Parquet files cannot hold two columns of one name."""
    twins = [name for name, number in Counter(schema.names).items() if number > 1]
    if twins:
        raise InvalidOption(
            f"The result has more than one column named {twins[0]!r}. Give them names of their "
            "own: SELECT a.id AS a_id, b.id AS b_id.",
            columns=twins,
        )


def is_number(type_: pa.DataType) -> bool:
    """Whether values of the type stand at the right of their column."""
    kinds = pa.types
    return bool(kinds.is_integer(type_) or kinds.is_floating(type_) or kinds.is_decimal(type_))


def choose_format(given: str | None, file: Path | None) -> str:
    """The format that was asked for, or that a file's name stands for."""
    if given is not None:
        return given
    if file is None:
        return "table"
    found = BY_SUFFIX.get(file.suffix.lower())
    if found is None:
        raise InvalidOption(
            f"The format cannot be told from {file.name!r}. Say --format csv, json, jsonl or "
            "parquet.",
            file=str(file),
        )
    return found


def check_target(file: Path) -> None:
    """Refuse a file that cannot be written, before the rows for it are computed."""
    folder = file.parent
    reason = None
    if file.is_dir():
        reason = "it is a folder"
    elif not folder.is_dir():
        reason = f"there is no folder {str(folder)!r}"
    elif not os.access(folder, os.W_OK | os.X_OK):
        reason = f"the folder {str(folder)!r} may not be written to"
    if reason is not None:
        raise InvalidOption(f"{str(file)!r} cannot be written: {reason}.", file=str(file))


def write_rows(rows: pa.Table, format_: str, file: Path | None) -> None:
    """Write the rows to a file, which exists completely or not at all, or to stdout."""
    with _destination(file) as stream:
        WRITERS[format_](rows, stream)


@contextmanager
def _destination(file: Path | None) -> Iterator[IO[bytes]]:
    if file is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    part = file.with_name(f".{file.name}.part")
    try:
        with part.open("wb") as stream:
            yield stream
        part.replace(file)
    except OSError as error:
        raise InvalidOption(
            f"{str(file)!r} cannot be written: {error.strerror or error}.", file=str(file)
        ) from error
    finally:
        part.unlink(missing_ok=True)


def _write_csv(rows: pa.Table, stream: IO[bytes]) -> None:
    from tidelock.deliver.destinations.files.csv_lines import encode_csv, encode_header

    stream.write(encode_header(rows.schema.names))
    for batch in rows.to_batches(max_chunksize=ROWS_PER_BATCH):
        stream.write(encode_csv(batch))


def _write_json(rows: pa.Table, stream: IO[bytes]) -> None:
    stream.write(b"[")
    separator = b"\n"
    for lines in _lines(rows):
        for line in lines.to_pylist():
            stream.write(separator + line.rstrip("\n").encode())
            separator = b",\n"
    stream.write(b"\n]\n")


def _write_jsonl(rows: pa.Table, stream: IO[bytes]) -> None:
    for lines in _lines(rows):
        stream.write(join_lines(lines))


def _lines(rows: pa.Table) -> Iterator[pa.Array]:
    refuse_twins(rows.schema)
    for batch in rows.to_batches(max_chunksize=ROWS_PER_BATCH):
        yield encode_lines(batch)


def _write_parquet(rows: pa.Table, stream: IO[bytes]) -> None:
    import pyarrow.parquet

    refuse_twins(rows.schema)
    pyarrow.parquet.write_table(rows, stream)


WRITERS: dict[str, Callable[[pa.Table, IO[bytes]], None]] = {
    "csv": _write_csv,
    "json": _write_json,
    "jsonl": _write_jsonl,
    "parquet": _write_parquet,
}
