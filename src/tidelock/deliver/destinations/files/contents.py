"""Delivered files, read back: how many rows one holds, and which partition its rows are of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

BLOCK_BYTES = 4 * 1024 * 1024
_LINE_FEED, _QUOTE = ord("\n"), ord('"')


def count_rows(kind: str, file: IO[bytes]) -> int:
    """How many rows a file holds. OSError or ArrowException when it is none of its kind."""
    if kind == "parquet":
        return int(pq.ParquetFile(file).metadata.num_rows)
    rows, quoted = 0, False
    while block := file.read(BLOCK_BYTES):
        signs = np.frombuffer(block, np.uint8)
        ends = signs == _LINE_FEED
        if kind == "csv":
            # A line feed within quotes is part of a value; quotes within them come in twos.
            quotes = np.cumsum(signs == _QUOTE) + quoted
            ends &= quotes % 2 == 0
            quoted = bool(quotes[-1] % 2)
        rows += int(ends.sum())
    return rows - 1 if kind == "csv" else rows


def first_values(kind: str, file: IO[bytes], columns: Sequence[str]) -> dict[str, str | None]:
    """The values that some columns of text have in the first row; none for a file without rows."""
    if kind == "jsonl":
        line = file.readline()
        found = json.loads(line) if line else {}
        return {name: found[name] for name in columns if name in found}
    if kind == "parquet":
        batches = pq.ParquetFile(file).iter_batches(1, columns=list(columns))
    else:
        batches = pa_csv.open_csv(
            file,
            parse_options=pa_csv.ParseOptions(newlines_in_values=True),
            convert_options=pa_csv.ConvertOptions(
                column_types=dict.fromkeys(columns, pa.string()), include_columns=list(columns)
            ),
        )
    for batch in batches:
        if batch.num_rows:
            return {name: batch.column(name)[0].as_py() for name in columns}
    return {}
