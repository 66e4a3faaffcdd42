"""Random work in a PostgreSQL database, and what a lake has to hold of it.

Owns: several connections that work at the same time, step by step under one thread, and what all
tables held after each commit. A lake that follows the database holds at the position of each of
its commits just what the tables held then, value by value, as PostgreSQL prints them.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pyarrow as pa
from tests.support.postgres import Server

from tidelock import Lake
from tidelock.ingest.postgres.catalog import describe_tables, find_tables
from tidelock.ingest.postgres.mapping import TEXTS
from tidelock.ingest.postgres.messages import read_lsn
from tidelock.ingest.postgres.types import kept_beside, map_columns, text_of
from tidelock.model.sources import SOURCE

SCHEMA = """
CREATE TABLE keyed (id BIGINT PRIMARY KEY, n NUMERIC(10,2), big TEXT, at TIMESTAMPTZ, tags INT[]);
ALTER TABLE keyed ALTER COLUMN big SET STORAGE EXTERNAL;
CREATE TABLE pairs (a INT, b TEXT, v DOUBLE PRECISION, j JSONB, PRIMARY KEY (a, b));
CREATE TABLE whole (id INT PRIMARY KEY, v TEXT, big TEXT);
ALTER TABLE whole REPLICA IDENTITY FULL;
ALTER TABLE whole ALTER COLUMN big SET STORAGE EXTERNAL;
CREATE TABLE bag (x DOUBLE PRECISION, y TEXT, d DATE);
ALTER TABLE bag REPLICA IDENTITY FULL;
CREATE TABLE other (id BIGINT PRIMARY KEY, v TEXT);
"""
TABLES = ("keyed", "pairs", "whole", "bag")
LONG = "repeat(md5({n}::text), 100)"
TEXT_SETTINGS = (
    "SET timezone = 'UTC'; SET datestyle = 'ISO'; SET extra_float_digits = 1; "
    "SET bytea_output = 'hex'; SET intervalstyle = 'postgres'"
)
Content = dict[str, Counter[tuple[Any, ...]]]


@dataclass
class Session:
    """One connection, and how deep in savepoints it is."""

    connection: psycopg.Connection[Any]
    depth: int = 0
    is_open: bool = False


@dataclass
class Work:
    """Owns the connections, and what was there after each commit."""

    server: Server
    chance: random.Random
    sessions: list[Session] = field(default_factory=list)
    contents: list[tuple[int, Content]] = field(default_factory=list)
    columns_added: int = 0

    def __post_init__(self) -> None:
        for _ in range(3):
            connection = self.server.connect()
            connection.execute("SET lock_timeout = '20ms'")
            self.sessions.append(Session(connection))
        self._watcher = self.server.connect()
        self._watcher.execute(TEXT_SETTINGS)
        self.note(0)

    def close(self) -> None:
        for session in self.sessions:
            session.connection.close()
        self._watcher.close()

    def note(self, position: int) -> None:
        """What is there now; `position` is where the log was before it came to be so."""
        self.contents.append((position, {table: self._content(table) for table in TABLES}))

    def position(self) -> int:
        """Where the log is."""
        (row,) = self._watcher.execute("SELECT pg_current_wal_insert_lsn()::text").fetchall()
        return read_lsn(row[0])

    def _content(self, table: str) -> Counter[tuple[Any, ...]]:
        names = [
            row[0]
            for row in self._watcher.execute(
                "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
                " AND NOT attisdropped ORDER BY attname",
                (table,),
            ).fetchall()
        ]
        listed = ", ".join(f'"{name}"::text' for name in names)
        found = self._watcher.execute(f"SELECT {listed} FROM {table}").fetchall()  # type: ignore[arg-type]
        return Counter(frozenset(zip(names, row, strict=True)) for row in found)  # type: ignore[arg-type, misc]

    def steps(self, count: int, *, ddl: bool = False) -> None:
        for _ in range(count):
            self._step(self.chance.choice(self.sessions))
            if ddl and self.chance.random() < 0.02:
                self._alter()

    def finish(self) -> None:
        """End every transaction."""
        for session in self.sessions:
            self._end(session, commit=self.chance.random() < 0.7)

    def _step(self, session: Session) -> None:
        if not session.is_open:
            session.connection.execute("BEGIN")
            session.is_open = True
        what = self.chance.random()
        try:
            if what < 0.1:
                session.depth += 1
                session.connection.execute(f"SAVEPOINT s{session.depth}")  # type: ignore[arg-type]
            elif what < 0.17 and session.depth:
                word = self.chance.choice(["ROLLBACK TO", "RELEASE"])
                session.connection.execute(f"{word} s{session.depth}")  # type: ignore[arg-type]
                session.depth -= 1
            elif what < 0.27:
                self._end(session, commit=self.chance.random() < 0.75)
            elif what < 0.29:
                self._truncate(session)
            else:
                session.connection.execute(self._statement())  # type: ignore[arg-type]
        except psycopg.Error:
            self._end(session, commit=False)

    def _truncate(self, session: Session) -> None:
        """Empty tables. Nobody can look at them until that has ended, so that it ends at once."""
        gone = self.chance.choice(["bag", "pairs", "keyed, whole"])
        undone = self.chance.random() < 0.5
        if undone:
            session.connection.execute("SAVEPOINT emptied")
        session.connection.execute(f"TRUNCATE {gone}")  # type: ignore[arg-type]
        session.connection.execute("INSERT INTO bag VALUES (7, 'after', NULL)")
        if undone:
            session.connection.execute("ROLLBACK TO emptied")
        else:
            self._end(session, commit=self.chance.random() < 0.7)

    def _end(self, session: Session, *, commit: bool) -> None:
        if session.is_open:
            before = self.position()
            session.connection.execute("COMMIT" if commit else "ROLLBACK")
            session.is_open, session.depth = False, 0
            if commit:
                self.note(before)

    def _statement(self) -> str:
        chance = self.chance
        n, m = chance.randrange(12), chance.randrange(12)
        many = chance.choice([1, 1, 1, 5, 60])
        long = LONG.format(n=n)
        letter = chance.choice(["x", "", "ü"])
        number = chance.choice(["1.5", "'NaN'", "-0.0", "1e23"])
        float_ = chance.choice(["1", "'NaN'", "NULL"])
        day = chance.choice(["'infinity'", "'2024-01-01'", "NULL"])
        return chance.choice(
            [
                f"INSERT INTO keyed SELECT i, i * 1.5, {long}, now(), '{{1,NULL,{n}}}' "
                f"FROM generate_series({n}, {n} + {many}) i ON CONFLICT (id) DO NOTHING",
                f"UPDATE keyed SET n = {n} WHERE id = {m}",
                f"UPDATE keyed SET n = 'NaN', at = 'infinity' WHERE id % 5 = {n % 5}",
                f"UPDATE keyed SET big = {long} WHERE id = {m}",
                f"UPDATE keyed SET id = id + 1000 WHERE id = {m}",
                f"UPDATE keyed SET id = {n}, tags = NULL WHERE id = {m}",
                f"DELETE FROM keyed WHERE id BETWEEN {n} AND {n + 2}",
                f"INSERT INTO pairs VALUES ({n}, '{letter}', {number}, '{{\"a\": {n}}}') "
                "ON CONFLICT (a, b) DO UPDATE SET v = excluded.v",
                f"UPDATE pairs SET a = {n} WHERE a = {m}",
                f"DELETE FROM pairs WHERE a = {n}",
                f"INSERT INTO whole SELECT i, 'v' || i, {long} "
                f"FROM generate_series({n}, {n + many}) i "
                "ON CONFLICT (id) DO UPDATE SET v = excluded.v",
                f"UPDATE whole SET v = v || 'x' WHERE id = {n}",
                f"UPDATE whole SET id = {m} WHERE id = {n}",
                f"DELETE FROM whole WHERE id = {n}",
                f"INSERT INTO bag SELECT {float_}, 'same', {day} FROM generate_series(1, {many})",
                "DELETE FROM bag WHERE ctid = (SELECT min(ctid) FROM bag)",
                "UPDATE bag SET y = 'other' WHERE ctid = (SELECT max(ctid) FROM bag)",
                "DELETE FROM bag WHERE x IS NULL",
                f"INSERT INTO other VALUES ({n}) ON CONFLICT (id) DO NOTHING",
            ]
        )

    def _alter(self) -> None:
        if any(session.is_open for session in self.sessions):
            return
        self.columns_added += 1
        before = self.position()
        self._watcher.execute(f"ALTER TABLE keyed ADD COLUMN c{self.columns_added} BIGINT")  # type: ignore[arg-type]
        self.note(before)


def content_at(work: Work, position: int) -> Content:
    """What the database held at a position of its log."""
    place = bisect_left([before for before, _ in work.contents], position)
    return work.contents[place - 1][1]


def content_of(lake: Lake, work: Work, version: int, into: str) -> Content:
    """What the lake holds at a version, as PostgreSQL prints it."""
    snapshot = lake.snapshot(version=version)
    found: Content = {}
    with work.server.connect() as connection:
        tables = {one.name: one for one in find_tables(connection, ["public.*"])}
        described = describe_tables(connection, [tables[name].oid for name in TABLES])
    for table in described:
        state = snapshot.states()[into.format(table=table.name)]
        rows = lake._store.files.read(state).to_table()
        columns = {}
        beside = rows.column(TEXTS).combine_chunks()
        for mapped in map_columns(table.columns):
            if mapped.name not in rows.column_names:
                continue
            values = rows.column(mapped.name).combine_chunks()
            if isinstance(values, pa.ChunkedArray):
                values = pa.concat_arrays(values.chunks)
            columns[mapped.name] = text_of(values, mapped, kept_beside(beside, mapped.name))
        names = sorted(columns)
        lists = [columns[name].to_pylist() for name in names]
        found[table.name] = Counter(
            frozenset(zip(names, row, strict=True)) for row in zip(*lists, strict=True)
        )
    return found


def check_lake(lake: Lake, work: Work, into: str) -> int:
    """Compare every commit of the source with what the database held then; how many there were."""
    compared = 0
    for commit in lake.log(limit=None):
        told = commit.properties.get(SOURCE)
        if told is None or not (told["transactions"] or told.get("loaded")):
            continue
        lake_has = content_of(lake, work, commit.version, into)
        was = content_at(work, read_lsn(told["position"]))
        for table in TABLES:
            here, there = _without_none(lake_has[table]), _without_none(was[table])
            assert here == there, (
                f"{table} at version {commit.version}, {told}: too many {here - there}, "
                f"too few {there - here}"
            )
        compared += 1
    return compared


def _without_none(rows: Counter[Any]) -> Counter[Any]:
    """Rows without the columns that are NULL: a column may have come later."""
    found: Counter[Any] = Counter()
    for row, count in rows.items():
        found[frozenset(pair for pair in row if pair[1] is not None)] += count
    return found
