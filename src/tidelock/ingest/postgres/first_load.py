"""The first load of tables: a snapshot of them, taken in pieces, onto a branch of its own.

    1. the source's position is that of the snapshot, which a slot exports
    2. each table is divided by its pages; each piece is read under the snapshot and is a commit on
       the branch, with an entry in the branch's ledger that says that it is there
    3. if the snapshot was lost on the way (a process or a connection died), the rest is read under
       a newer one, and the stream is read on the branch until it is past both
    4. one commit on the source's branch adopts the tables by their pins: no row is written again

Invariants: nobody sees a table before it is whole; a piece is loaded once, whatever dies; memory is
bounded by a piece's batches. A table without a key cannot take a change twice: if its snapshot was
lost it begins anew.
After a crash: the branch and its ledger say what is there.
"""

from __future__ import annotations

import io
import json
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import psycopg
import psycopg.sql
import pyarrow as pa
import pyarrow.csv

from tidelock.errors import BranchNotFound
from tidelock.ingest.intake.incoming import Incoming
from tidelock.ingest.ledger import Entry, Ledger, entries_table
from tidelock.ingest.postgres.catalog import PgTable
from tidelock.ingest.postgres.connection import connected
from tidelock.ingest.postgres.followed import TableEntry
from tidelock.ingest.postgres.mapping import SentColumn, TableMapping
from tidelock.ingest.postgres.messages import read_lsn, show_lsn
from tidelock.ingest.postgres.settings import Settings
from tidelock.ingest.postgres.snapshot import Snapshot
from tidelock.ingest.postgres.types import map_column, taken_columns, text_of
from tidelock.model.schema.schema import TableSchema
from tidelock.model.sources import SOURCE, SourceDefinition, TableStanding
from tidelock.store.kinship.bases import Tip
from tidelock.store.merge.adopted import adopt
from tidelock.store.objects.failpoints import hit
from tidelock.store.operations.counts import Counts
from tidelock.store.operations.operations import Append
from tidelock.store.operations.upserts import StagedUpsert
from tidelock.store.staging.writes import write_stream
from tidelock.store.store import Store

PIECE_PAGES = 16_384
"""128 MiB of a table: some hundred thousand rows."""
BLOCK_BYTES = 4 * 1024 * 1024
WORKERS = 2


@dataclass(frozen=True)
class Piece:
    """Some pages of one table, or of one partition of it."""

    oid: int
    number: int
    relation: tuple[str, str]
    first: int
    last: int | None
    """None for the piece that has all that comes after `first`."""

    @property
    def item(self) -> str:
        return f"piece:{self.oid}:{self.number}"


class FirstLoad:
    """The loading of some tables onto a branch."""

    def __init__(
        self,
        store: Store,
        definition: SourceDefinition,
        settings: Settings,
        tables: Sequence[tuple[PgTable, TableEntry]],
        stopped: Callable[[], bool],
        tell: Callable[[Sequence[TableStanding]], None],
    ) -> None:
        self._store = store
        self._definition = definition
        self._settings = settings
        self._tables = {table.oid: (table, entry) for table, entry in tables}
        self._stopped = stopped
        self._tell = tell
        self.branch = f"{definition.name}: first load {min(self._tables)}"
        self._lock = threading.Lock()
        self._rows: dict[int, int] = {}
        self._error: BaseException | None = None

    # The branch

    def open(self) -> Ledger:
        """The ledger on the branch; the branch is made if it is not there."""
        try:
            head = self._store.branches.head(self.branch)
        except BranchNotFound:
            main = self._store.branches.head(self._definition.branch)
            self._store.branches.create(self.branch, main.branch, main.version, self._store.actor)
            head = self._store.branches.head(self.branch)
        return Ledger(self._store, self._definition, head)

    def run(self, snapshot: Snapshot, *, mixed: bool) -> bool:
        """Load what is missing under a snapshot; False if stopped first. `mixed` if some of it was
        loaded under another one."""
        pieces = self._missing(self.open(), mixed=mixed)
        waiting: queue.SimpleQueue[Piece] = queue.SimpleQueue()
        for piece in pieces:
            waiting.put(piece)
        threads = [
            threading.Thread(target=self._work, args=(waiting, snapshot, mixed), daemon=True)
            for _ in range(min(WORKERS, len(pieces)))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._error is not None:
            raise self._error
        return not self._stopped()

    @property
    def is_loaded(self) -> bool:
        """Whether every piece is there, under whichever snapshots."""
        return not self._missing(self.open(), mixed=True)

    def newest(self, oid: int | None = None) -> int:
        """The position of the newest snapshot that was loaded under; that of one table."""
        entries = [one for one in self.open().entries() if one.mark == "loaded"]
        mine = [one for one in entries if oid is None or one.item.startswith(f"piece:{oid}:")]
        return max((read_lsn(dict(one.told or {})["at"]) for one in mine), default=0)

    def _missing(self, ledger: Ledger, *, mixed: bool) -> list[Piece]:
        """The pieces that are not there yet; how tables are divided is remembered."""
        known = {one.item: one for one in ledger.entries()}
        planned: list[Entry] = []
        pieces: list[Piece] = []
        with connected(self._settings, self._definition.name) as connection:
            for table, _ in self._tables.values():
                item = f"plan:{table.oid}"
                if item in known:
                    told: Any = known[item].told
                else:
                    told = {"parts": self._parts(connection, table)}
                    planned.append(Entry(item, "planned", told))
                pieces += _pieces(table, told["parts"])
        if planned:
            self._note(planned, "how tables are divided")
        self._rows.clear()
        for piece in pieces:
            if piece.item in known:
                told = known[piece.item].told
                self._rows[piece.oid] = self._rows.get(piece.oid, 0) + told["rows"]
        if mixed:
            known = self._begin_anew(known, pieces)
        return [piece for piece in pieces if piece.item not in known]

    def _begin_anew(self, known: dict[str, Entry], pieces: Sequence[Piece]) -> dict[str, Entry]:
        """Forget what is there of tables without a key that are not whole."""
        for table, entry in self._tables.values():
            mine = [piece.item for piece in pieces if piece.oid == table.oid]
            there = [item for item in mine if item in known and known[item].mark == "loaded"]
            if entry.key or len(there) == len(mine) or not there:
                continue
            with self._store.begin(self.branch, message=f"begin {table.shown} anew") as transaction:
                transaction.delete(entry.table, "true")
                gone = [Entry(item, "gone", {"rows": 0}) for item in there]
                transaction.note_entries(self._definition.ledger, entries_table(gone))
            self._rows[table.oid] = 0
            known = {item: one for item, one in known.items() if item not in there}
        return {item: one for item, one in known.items() if one.mark != "gone"}

    def _parts(self, connection: psycopg.Connection[Any], table: PgTable) -> list[list[Any]]:
        """The table, or its partitions, and how many pages each has."""
        query = "SELECT relid::oid FROM pg_partition_tree(%s) WHERE isleaf"
        leaves = [row[0] for row in connection.execute(query, (table.oid,)).fetchall()]
        rows = connection.execute(
            "SELECT n.nspname, c.relname, pg_relation_size(c.oid) / 8192 FROM pg_class c"
            " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = ANY(%s)"
            " AND c.relkind = 'r' ORDER BY 1, 2",
            (leaves or [table.oid],),
        ).fetchall()
        return [list(row) for row in rows]

    def _note(self, entries: Sequence[Entry], message: str) -> None:
        with self._store.begin(self.branch, message=message) as transaction:
            transaction.note_entries(self._definition.ledger, entries_table(entries))

    # Pieces

    def _work(self, waiting: queue.SimpleQueue[Piece], snapshot: Snapshot, mixed: bool) -> None:
        try:
            with connected(self._settings, self._definition.name) as connection:
                connection.autocommit = False
                connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                connection.read_only = True
                connection.execute(
                    psycopg.sql.SQL("SET TRANSACTION SNAPSHOT {}").format(snapshot.name)
                )
                while self._error is None and not self._stopped():
                    try:
                        piece = waiting.get_nowait()
                    except queue.Empty:
                        return
                    self._load(connection, piece, snapshot.position, mixed=mixed)
        except BaseException as error:  # noqa: BLE001 - raised where the threads are waited for
            self._error = error

    def _load(
        self, connection: psycopg.Connection[Any], piece: Piece, position: int, *, mixed: bool
    ) -> None:
        table, entry = self._tables[piece.oid]
        with self._store.begin(
            self.branch, message=f"{self._definition.name}: {table.shown}, piece {piece.number}"
        ) as transaction:
            transaction.announce()
            staged = transaction.stage(entry.table)
            mapping = mapping_of(table, entry, staged.schema)
            counted = _Counted(self._batches(connection, mapping, piece))
            fragments = write_stream(staged.files, staged.current(), staged.target, counted)
            hit("load.after_piece")
            if fragments:
                # Under one snapshot no key occurs twice.
                upsert = mixed and entry.key
                staged.add(StagedUpsert(fragments) if upsert else Append(fragments=fragments))
            at = show_lsn(position)
            told = Entry(piece.item, "loaded", {"rows": counted.rows, "at": at})
            transaction.note_entries(self._definition.ledger, entries_table([told]))
        hit("load.after_commit")
        with self._lock:
            self._rows[piece.oid] = self._rows.get(piece.oid, 0) + counted.rows
            self._tell(self.standings())

    def standings(self) -> list[TableStanding]:
        return [
            TableStanding(
                table.shown,
                entry.table,
                "loading",
                rows=self._rows.get(oid, 0),
                expected=table.rows if table.rows >= 0 else None,
            )
            for oid, (table, entry) in self._tables.items()
        ]

    def _batches(
        self, connection: psycopg.Connection[Any], mapping: TableMapping, piece: Piece
    ) -> Iterator[pa.RecordBatch]:
        names = [one.mapped.name for one in mapping.sent]
        with connection.cursor() as cursor, cursor.copy(_query(piece, names)) as copy:
            for texts in read_csv(copy, len(names)):
                given = {one.name: texts.column(number) for number, one in enumerate(mapping.sent)}
                yield from mapping.rows(given, texts.num_rows).to_batches()

    # Rows that nobody knows

    def note_missing(self, incoming: Incoming, table: str, keys: pa.Table) -> None:
        """Remember keys of rows that are left out for now: they changed between two snapshots, and
        the stream does not bring all of their values."""
        source, entry = next(one for one in self._tables.values() if one[1].table == table)
        mapped = {
            one.name: one.mapped for one in mapping_of(source, entry, self._schema(table)).sent
        }
        texts = [
            text_of(keys.column(name).combine_chunks(), mapped[name]).to_pylist()
            for name in keys.column_names
        ]
        names = [mapped[name].name for name in keys.column_names]
        found = []
        for values in zip(*texts, strict=True):
            key = dict(zip(names, values, strict=True))
            item = f"missing:{source.oid}:{json.dumps(key, sort_keys=True)}"
            found.append(Entry(item, "missing", {"oid": source.oid, "key": key}))
        incoming.note(entries_table(found))

    def fetch_missing(self) -> int | None:
        """Read rows that were left out from the database. The position up to which the stream has
        to be read then; None if there were none."""
        ledger = self.open()
        missing = [one for one in ledger.entries() if one.mark == "missing"]
        if not missing:
            return None
        by_table: dict[int, list[Any]] = {}
        for entry in missing:
            told: Any = entry.told
            by_table.setdefault(told["oid"], []).append(told["key"])
        with self._store.begin(self.branch, message="rows between two snapshots") as transaction:
            with connected(self._settings, self._definition.name) as connection:
                for oid, keys in by_table.items():
                    table, entry_of = self._tables[oid]
                    schema = transaction.stage(entry_of.table).schema
                    mapping = mapping_of(table, entry_of, schema)
                    rows = _rows_of(connection, table, mapping, keys)
                    if rows.num_rows:
                        transaction.upsert(entry_of.table, rows)
                row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
            settled = [Entry(one.item, "settled", one.told) for one in missing]
            transaction.note_entries(self._definition.ledger, entries_table(settled))
        assert row is not None
        return read_lsn(row[0])

    def _schema(self, table: str) -> TableSchema:
        state = self._store.branches.head(self.branch).tables[table]
        return self._store.files.schema(state, self._store.files.read(state))

    # The end

    def begin_streaming(self) -> None:
        """Let the stream of the branch take the rows of the tables."""
        entries = []
        for table, entry in self._tables.values():
            since = "" if entry.key else show_lsn(self.newest(table.oid))
            entries.append(replace(entry, state="streaming", since=since).as_entry())
        self._note(entries, "read on from the snapshots")

    def adopt(self, expected: str, position: str) -> None:
        """Let the source's branch have the tables as they are on this one."""
        tip = Tip.of(self._store.branches.head(self.branch))
        message = f"{self._definition.name}: first load"
        told = {
            "name": self._definition.name,
            "id": self._definition.id,
            "position": position,
            "transactions": 0,
            "loaded": [entry.table for _, entry in self._tables.values()],
        }
        with self._store.begin(
            self._definition.branch, message=message, properties={SOURCE: told}
        ) as transaction:
            entries = []
            for _, entry in self._tables.values():
                taken = tip.tables[entry.table]
                now = transaction.base.tables[entry.table]
                if taken.pin != now.pin:
                    counts = Counts(inserted=taken.rows)
                    staged = adopt(self._store.files, tip, taken, now, now.name, counts)
                    transaction.place(staged)
                entries.append(replace(entry, state="streaming").as_entry())
            transaction.note_entries(self._definition.ledger, entries_table(entries))
            transaction.move_position(self._definition.ledger, expected, position)
        hit("load.after_adoption")
        self._store.close_branch(self.branch)


class _Counted:
    """Batches, and how many rows they had."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = batches
        self.rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.rows += batch.num_rows
            yield batch


class _Copied(io.RawIOBase):
    """What COPY gives, as a file."""

    def __init__(self, copy: psycopg.Copy) -> None:
        self._copy = copy
        self._rest = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        parts, length = [self._rest], len(self._rest)
        while length < size or size < 0:
            data = self._copy.read()
            if not data:
                break
            parts.append(bytes(data))
            length += len(data)
        whole = b"".join(parts)
        self._rest = whole[size:] if size >= 0 else b""
        return whole[:size] if size >= 0 else whole


def read_csv(copy: psycopg.Copy, columns: int) -> Iterator[pa.RecordBatch]:
    """What COPY gives as columns of texts, a block at a time."""
    source = _Copied(copy)
    first = source.read(1)
    if not first:
        return
    source._rest = first + source._rest
    names = [str(number) for number in range(columns)]
    reader = pa.csv.open_csv(
        pa.PythonFile(source, mode="r"),
        pa.csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES, column_names=names),
        pa.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        pa.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    yield from reader


def _rows_of(
    connection: psycopg.Connection[Any],
    table: PgTable,
    mapping: TableMapping,
    keys: Sequence[Mapping[str, str]],
) -> pa.Table:
    """The rows that have these keys now."""
    sql = psycopg.sql
    names = sql.SQL(", ").join(
        sql.SQL("{}::text").format(sql.Identifier(one.mapped.name)) for one in mapping.sent
    )
    one = sql.SQL("({})").format(
        sql.SQL(" AND ").join(
            sql.SQL("{}::text = {}").format(sql.Identifier(name), sql.Placeholder())
            for name in keys[0]
        )
    )
    query = sql.SQL("SELECT {} FROM {} WHERE {}").format(
        names,
        sql.Identifier(table.namespace, table.name),
        sql.SQL(" OR ").join([one] * len(keys)),
    )
    values = [value for key in keys for value in key.values()]
    found = connection.execute(query, values).fetchall()
    columns = list(zip(*found, strict=True)) or [()] * len(mapping.sent)
    texts = {
        one.name: pa.array(column, pa.string())
        for one, column in zip(mapping.sent, columns, strict=True)
    }
    return mapping.rows(texts, len(found))


def _query(piece: Piece, names: Sequence[str]) -> Any:
    first = psycopg.sql.Literal(f"({piece.first},0)")
    where = psycopg.sql.SQL("ctid >= {}::tid").format(first)
    if piece.last is not None:
        last = psycopg.sql.Literal(f"({piece.last},0)")
        where = psycopg.sql.SQL("{} AND ctid < {}::tid").format(where, last)
    return psycopg.sql.SQL("COPY (SELECT {} FROM ONLY {} WHERE {}) TO STDOUT (FORMAT csv)").format(
        psycopg.sql.SQL(", ").join(map(psycopg.sql.Identifier, names)),
        psycopg.sql.Identifier(*piece.relation),
        where,
    )


def _pieces(table: PgTable, parts: Sequence[Sequence[Any]]) -> list[Piece]:
    found: list[Piece] = []
    for namespace, name, pages in parts:
        starts = list(range(0, max(pages, 1), PIECE_PAGES))
        for start, end in zip(starts, [*starts[1:], None], strict=True):
            found.append(Piece(table.oid, len(found), (namespace, name), start, end))
    return found


def mapping_of(table: PgTable, entry: TableEntry, schema: Any) -> TableMapping:
    """How rows of a table are read that are asked for by their columns. Columns that came since the
    load began are added by the stream, with the first row that has them."""
    sent = []
    for place, column in enumerate(taken_columns(table.columns).columns):
        known = schema.find(column.name)
        if known is not None:
            mapped = map_column(column, entry.types.get(column.name))
            sent.append(SentColumn(place, mapped, known.name))
    return TableMapping(entry.table, schema, tuple(sent), len(sent), tuple(schema.key))
