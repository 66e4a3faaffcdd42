"""A destination as a user would write one: rows in SQLite, and beside them the ids of chunks."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from tidelock.deliver.destinations.protocol import SentChunk, Sink
from tidelock.model.sinks import DeliveryPlan, SinkDefinition, SinkState
from tidelock.store.rows.json_values import encode_lines


class SqliteSink(Sink):
    rows_per_chunk = 100

    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(path)
        with self._connection as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS chunks (id TEXT PRIMARY KEY)")
            connection.execute("CREATE TABLE IF NOT EXISTS lines (line TEXT)")

    def plan(self, plan: DeliveryPlan, schema: pa.Schema) -> None: ...

    def write(self, chunk: SentChunk, rows: Iterator[pa.RecordBatch]) -> int:
        with self._connection as connection:
            known = connection.execute("SELECT 1 FROM chunks WHERE id = ?", [chunk.id])
            if known.fetchone():
                return 0
            connection.execute("INSERT INTO chunks VALUES (?)", [chunk.id])
            for batch in rows:
                lines = [(line,) for line in encode_lines(batch).to_pylist()]
                connection.executemany("INSERT INTO lines VALUES (?)", lines)
        return chunk.rows

    def confirm(self, plan: DeliveryPlan, state: SinkState) -> None: ...

    def close(self) -> None:
        self._connection.close()


class ForgetfulSink(SqliteSink):
    """One that breaks the law: it does not look at ids."""

    def write(self, chunk: SentChunk, rows: Iterator[pa.RecordBatch]) -> int:
        with self._connection as connection:
            connection.execute("DELETE FROM chunks")
        return super().write(chunk, rows)


class EagerSink(SqliteSink):
    """One that breaks the law: what it has read of a broken chunk stays."""

    def write(self, chunk: SentChunk, rows: Iterator[pa.RecordBatch]) -> int:
        for batch in rows:
            with self._connection as connection:
                lines = [(line,) for line in encode_lines(batch).to_pylist()]
                connection.executemany("INSERT INTO lines VALUES (?)", lines)
        return chunk.rows


def open_sqlite(definition: SinkDefinition, options: Mapping[str, Any]) -> SqliteSink:
    return SqliteSink(definition.to)


def lines_at(path: str) -> list[dict[str, Any]]:
    connection = sqlite3.connect(path)
    try:
        return [json.loads(line) for (line,) in connection.execute("SELECT line FROM lines")]
    finally:
        connection.close()
