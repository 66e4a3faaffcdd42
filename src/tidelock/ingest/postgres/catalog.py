"""What a database says of its tables: which there are, their columns, keys and sizes.

Owns: the questions that are asked of PostgreSQL's catalogs, and of its replication slots.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import psycopg

from tidelock.ingest.postgres.messages import read_lsn
from tidelock.ingest.postgres.settings import matches
from tidelock.ingest.postgres.types import NO_TYPMOD, PgColumn, PgType

FREE_SECONDS = 5.0
LOOK_SECONDS = 0.02
Identity = Literal["key", "full", "nothing"]
"""What the source tells of a row that was updated or deleted: its key, all of it, or nothing."""

_TABLES = """
SELECT c.oid, n.nspname, c.relname, c.relreplident, c.reltuples::bigint, c.relpages::bigint,
       c.relkind, c.relispartition, c.relpersistence
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
  AND n.nspname !~ '^pg_toast' AND c.relpersistence = 'p'
ORDER BY n.nspname, c.relname
"""
_COLUMNS = """
SELECT a.attrelid, a.attnum, a.attname, a.atttypid, a.atttypmod, a.attnotnull, a.attgenerated,
       a.attidentity
FROM pg_attribute a
WHERE a.attrelid = ANY(%s) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum
"""
_KEYS = """
SELECT i.indrelid, i.indisprimary, i.indisreplident,
       ARRAY(SELECT a.attname FROM unnest(i.indkey::int2[]) WITH ORDINALITY k(num, place)
             JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.num
             WHERE k.place <= i.indnkeyatts ORDER BY k.place)::text[]
FROM pg_index i
WHERE i.indrelid = ANY(%s) AND (i.indisprimary OR i.indisreplident) AND i.indisvalid
"""
_TYPES = """
WITH RECURSIVE wanted(oid) AS (
  SELECT unnest(%s::oid[])
  UNION
  SELECT unnest(ARRAY[t.typbasetype, CASE WHEN t.typcategory = 'A' THEN t.typelem ELSE 0 END])
  FROM wanted w JOIN pg_type t ON t.oid = w.oid
)
SELECT t.oid, t.typtype, t.typbasetype, t.typtypmod,
       CASE WHEN t.typcategory = 'A' AND t.typtype = 'b' THEN t.typelem ELSE 0 END, t.typdelim
FROM wanted w JOIN pg_type t ON t.oid = w.oid
"""
_KINDS = {"e": "enum", "d": "domain", "c": "composite", "r": "range", "m": "multirange"}


@dataclass(frozen=True)
class PgTable:
    """A table of a database."""

    oid: int
    namespace: str
    name: str
    columns: tuple[PgColumn, ...]
    key: tuple[str, ...]
    """The columns that identify a row, in the source and so in the lake."""
    identity: Identity
    rows: int
    """About how many it has; -1 if nobody knows."""
    pages: int
    partitioned: bool

    @property
    def shown(self) -> str:
        return f"{self.namespace}.{self.name}"


@dataclass(frozen=True)
class Server:
    """Which server it is, and how far it is."""

    system: str
    timeline: int
    position: int
    version: int
    database: str


@dataclass(frozen=True)
class Slot:
    """A replication slot as the server has it."""

    plugin: str
    database: str
    active_pid: int | None
    confirmed: int
    restart: int
    lost: str
    """Why it cannot be read any more; empty if it can."""


def find_server(connection: psycopg.Connection[Any]) -> Server:
    row = _one(
        connection,
        "SELECT (SELECT system_identifier::text FROM pg_control_system()),"
        " (SELECT timeline_id FROM pg_control_checkpoint()),"
        " CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END"
        "::text, current_setting('server_version_num')::int, current_database()",
    )
    return Server(row[0], row[1], read_lsn(row[2]), row[3] // 10000, row[4])


def find_slot(connection: psycopg.Connection[Any], name: str) -> Slot | None:
    version = connection.info.server_version // 10000
    reason = "invalidation_reason" if version >= 17 else "NULL::text"
    row = connection.execute(
        "SELECT plugin, database, active_pid, confirmed_flush_lsn::text, restart_lsn::text,"
        f" wal_status, {reason} FROM pg_replication_slots WHERE slot_name = %s",
        (name,),
    ).fetchone()
    if row is None:
        return None
    plugin, database, pid, confirmed, restart, status, why = row
    lost = why or ("its log was removed" if status == "lost" else "")
    return Slot(plugin, database, pid, read_lsn(confirmed or ""), read_lsn(restart or ""), lost)


def find_free_slot(connection: psycopg.Connection[Any], name: str) -> Slot | None:
    """The slot, once nobody reads it: a server takes a moment to see that a reader has gone."""
    ends = time.monotonic() + FREE_SECONDS
    while True:
        slot = find_slot(connection, name)
        if slot is None or slot.active_pid is None or time.monotonic() > ends:
            return slot
        time.sleep(LOOK_SECONDS)


def find_tables(connection: psycopg.Connection[Any], patterns: Sequence[str]) -> list[PgTable]:
    """The tables that are meant; of a partitioned table the whole, and not its partitions."""
    found = connection.execute(_TABLES).fetchall()
    rows = [row for row in found if matches(patterns, row[1], row[2])]
    roots = {row[0] for row in rows if row[6] == "p"}
    if roots:
        inside = connection.execute(
            "SELECT relid::oid FROM unnest(%s::oid[]) r(root), pg_partition_tree(r.root)"
            " WHERE relid::oid <> r.root",
            (list(roots),),
        ).fetchall()
        rows = [row for row in rows if row[0] not in {one for (one,) in inside}]
    return _described(connection, rows)


def describe_tables(connection: psycopg.Connection[Any], oids: Sequence[int]) -> list[PgTable]:
    """The tables with these oids that are still there."""
    wanted = set(oids)
    found = connection.execute(_TABLES).fetchall()
    return _described(connection, [row for row in found if row[0] in wanted])


def _described(connection: psycopg.Connection[Any], rows: list[Any]) -> list[PgTable]:
    oids = [row[0] for row in rows]
    columns: dict[int, list[Any]] = {oid: [] for oid in oids}
    for row in connection.execute(_COLUMNS, (oids,)).fetchall():
        columns[row[0]].append(row)
    keys: dict[int, dict[str, tuple[str, ...]]] = {oid: {} for oid in oids}
    for oid, primary, replident, names in connection.execute(_KEYS, (oids,)).fetchall():
        if primary:
            keys[oid]["primary"] = tuple(names)
        if replident:
            keys[oid]["identity"] = tuple(names)
    every = [row for many in columns.values() for row in many]
    types = Types(connection, {(row[3], row[4]) for row in every})
    tables = []
    for oid, namespace, name, identity, tuples, pages, kind, _, _ in rows:
        own = keys[oid]
        key = own.get("identity", ()) if identity == "i" else own.get("primary", ())
        told: Identity = (
            "key" if identity in "di" and key else "full" if identity == "f" else "nothing"
        )
        tables.append(
            PgTable(
                oid,
                namespace,
                name,
                tuple(
                    PgColumn(
                        column[2],
                        column[1],
                        types.of(column[3], column[4]),
                        column[5],
                        column[6] != "",
                        column[7] != "",
                    )
                    for column in columns[oid]
                ),
                key,
                told,
                tuples,
                pages,
                kind == "p",
            )
        )
    return tables


class Types:
    """Some types, each with the types that it is made of."""

    def __init__(
        self, connection: psycopg.Connection[Any], wanted_pairs: Iterable[tuple[int, int]]
    ) -> None:
        """By oid and typmod."""
        pairs = set(wanted_pairs)
        wanted = sorted({oid for oid, _ in pairs})
        self._rows = {row[0]: row for row in connection.execute(_TYPES, (wanted,)).fetchall()}
        for row in self._rows.values():
            pairs |= {(row[0], NO_TYPMOD), (row[2], row[3])}
            pairs |= {(row[4], typmod) for oid, typmod in list(pairs) if oid == row[0]}
        listed = sorted(pairs)
        names = connection.execute(
            "SELECT format_type(oid, typmod) FROM unnest(%s::oid[], %s::int[]) WITH ORDINALITY"
            " AS t(oid, typmod, place) ORDER BY place",
            ([one for one, _ in listed], [one for _, one in listed]),
        ).fetchall()
        self._names = dict(zip(listed, (name for (name,) in names), strict=True))

    def of(self, oid: int, typmod: int) -> PgType:
        _, kind, base, base_typmod, element, delimiter = self._rows[oid]
        name = self._names.get((oid, typmod)) or self._names[oid, NO_TYPMOD]
        if element:
            return PgType(oid, name, typmod, "array", None, self.of(element, typmod), delimiter)
        told: Any = _KINDS.get(kind, "base")
        inner = self.of(base, base_typmod) if told == "domain" else None
        return PgType(oid, name, typmod, told, inner, None, delimiter)


def _one(connection: psycopg.Connection[Any], query: str) -> Any:
    row = connection.execute(query).fetchone()
    assert row is not None
    return row
