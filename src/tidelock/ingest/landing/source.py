"""A landing place as a source: its files become commits, each file in exactly one.

    1. what there is is listed, and compared with the ledger        discovery.py
    2. files that are new are put in order, and into commits        plan.py
    3. each is read as the state that was listed                    taking.py
    4. one commit has the rows, the records that are none, and an entry for each file

Law: a file is taken if and only if the ledger has no entry of its name, and no file is in two
commits. Both follow from 4, and from the position, which each commit moves on by one from where the
ledger was read: whoever else has read the same ledger publishes nothing.
After a crash: a file is in a commit with its entry, or it is new.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Self

import pyarrow as pa

from tidelock.errors import Advice, InvalidOption, SourceStopped
from tidelock.ingest.files.infer import infer_schema
from tidelock.ingest.files.marks import checksum_of
from tidelock.ingest.files.quarantine import QUARANTINE, refuse_other
from tidelock.ingest.files.row_file import RowFile
from tidelock.ingest.intake.incoming import Incoming
from tidelock.ingest.landing import settings as options_of
from tidelock.ingest.landing.discovery import NOTHING, Found, Memory, discover, memory_of
from tidelock.ingest.landing.entries import Position, Taken, entries_of
from tidelock.ingest.landing.places import ListedFile, Moved, Place, open_place
from tidelock.ingest.landing.plan import (
    before_unready,
    in_order,
    listed_files,
    plan_round,
    sample_of,
)
from tidelock.ingest.landing.settings import Settings, read_settings
from tidelock.ingest.landing.taking import Taking
from tidelock.ingest.protocol import Desk, Source, SourceTable
from tidelock.model.names import fold
from tidelock.model.schema.schema import TableSchema
from tidelock.model.sources import Reading, SourceDefinition, TableStanding
from tidelock.store.objects.failpoints import hit
from tidelock.store.rows.defaults import Defaults

SAMPLE_FILES = 100
SAMPLE_BYTES = 16 * 1024 * 1024
NAMED_MAX = 3


class FilesSource(Source):
    """Owns what one source of files does in one round."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._place: Place = open_place(settings.pattern, settings.storage_options)

    @classmethod
    def settle(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        return options_of.settle(options)

    @classmethod
    def open(cls, definition: SourceDefinition) -> Self:
        return cls(read_settings(definition))

    # Its tables

    def discover(self) -> Sequence[SourceTable]:
        settings = self._settings
        rows = SourceTable(settings.table, self._columns, settings.key)
        if settings.on_error != "quarantine":
            return [rows]
        aside = SourceTable(settings.quarantine, QUARANTINE, called=settings.quarantine)
        return [rows, aside]

    def accept(self, table: SourceTable, schema: TableSchema) -> None:
        settings = self._settings
        if table.name == settings.quarantine:
            refuse_other(table.name, schema)
            return
        key = ", ".join(schema.key)
        if settings.key and [*map(fold, settings.key)] != [*map(fold, schema.key)]:
            raise InvalidOption(
                f"The table {settings.table!r} exists and has "
                f"{f'the key ({key})' if key else 'no key'}, not ({', '.join(settings.key)}).",
                option="key",
            )
        if schema.key and settings.mode == "append":
            raise InvalidOption(
                f"The table {settings.table!r} has the key ({key}): files are upserted into it. "
                "Say mode='upsert'.",
                option="mode",
            )
        if settings.mode == "upsert" and not schema.key:
            raise InvalidOption(
                f"The table {settings.table!r} has no key to upsert by. Leave mode= out, or give "
                "the columns of a key for a table that is created: key='id'.",
                option="key",
            )

    def _columns(self) -> object:
        """The columns of a table that is to be created: as they were given, or as files tell."""
        settings = self._settings
        if settings.schema is not None:
            return settings.schema
        page = self._place.pages()
        sampled = sample_of(pa.concat_tables([NOTHING, *page]), SAMPLE_FILES, SAMPLE_BYTES)
        with ExitStack() as stack:
            stack.enter_context(suppress(Moved))
            files = [
                RowFile(
                    settings.pattern.shown(file.name),
                    settings.format,
                    settings.reading,
                    stack.enter_context(self._place.fetched(file)),
                )
                for file in sampled
            ]
            if files:
                return infer_schema(files, SAMPLE_BYTES).ddl
        raise InvalidOption(
            f"There is no file yet that would tell the columns of table {settings.table!r}, at "
            f"{settings.pattern.text}.",
            Advice(
                'Give them: schema="id BIGINT NOT NULL, name STRING".',
                'Give them: --option schema="id BIGINT NOT NULL, name STRING".',
            ),
            option="schema",
        )

    # A round

    def poll(self, desk: Desk) -> Iterator[Incoming]:
        settings = self._settings
        memory = self._memory(desk)
        after = Position.parse(desk.position).last if settings.names == "ascending" else ""
        found = discover(self._place, desk.ledger, memory, settings.settle_seconds, after)
        if found.is_nothing:
            self._tell(desk, found, 0, ())
            return
        files = in_order(self._wanted(found, memory), settings.order)
        if settings.names == "ascending":
            files = before_unready(files, found.unready)
        cuts = plan_round(files, settings.files_per_commit, settings.bytes_per_commit)
        defaults = self._defaults(desk) if cuts else None
        left = sum(files.column("size").to_pylist())
        for cut in cuts:
            assert defaults is not None
            some = listed_files(files, cut)
            self._tell(desk, found, left, some)
            incoming, whole = self._take(desk, some, defaults)
            if incoming is not None:
                yield incoming
            left -= sum(file.size for file in some)
            if desk.stopped() or not whole:
                return
        self._tell(desk, found, left, ())

    def _memory(self, desk: Desk) -> Memory:
        return memory_of(desk.store.location.uri, desk.definition.id)

    def _take(
        self, desk: Desk, files: Sequence[ListedFile], defaults: Defaults
    ) -> tuple[Incoming | None, bool]:
        """The transaction of some files, if any was taken, and whether the round may go on."""
        incoming, moment = desk.begin(), desk.store.clock.now()
        taking = Taking(self._settings, self._place, incoming, defaults, moment)
        ascending = self._settings.names == "ascending"
        taken: list[Taken] = []
        whole = True
        try:
            for file in files:
                if desk.stopped():
                    break
                try:
                    taken.append(taking.take(file))
                except Moved:
                    # It is there in another state, or gone: the next round sees which.
                    if ascending:
                        whole = False
                        break
                hit("ingest.after_file")
        except BaseException:
            incoming.drop()
            raise
        if not taken:
            incoming.drop()
            return None, whole
        incoming.note(entries_of(taken, moment))
        before = Position.parse(desk.position)
        position = Position(before.commits + 1, taken[-1].file.name if ascending else "")
        return self._finished(incoming, taken, position), whole

    def _finished(self, incoming: Incoming, taken: list[Taken], position: Position) -> Incoming:
        bad = sum(one.bad for one in taken)
        names = ", ".join(one.file.name for one in taken[:NAMED_MAX])
        more = f" and {len(taken) - NAMED_MAX:,} more" if len(taken) > NAMED_MAX else ""
        incoming.transactions = len(taken)
        return incoming.finish(
            str(position),
            properties={"files": len(taken), **({"quarantined": bad} if bad else {})},
            message=f"{self._settings.source}: {names}{more}",
        )

    def _wanted(self, found: Found, memory: Memory) -> pa.Table:
        """The files that are to be taken, or SourceStopped."""
        on_change = self._settings.on_change
        if on_change == "ignore":
            return found.new
        changed = pa.concat_tables([found.changed, self._doubtful(found, memory)])
        if not changed.num_rows:
            return found.new
        if on_change == "again":
            return pa.concat_tables([found.new, changed])
        names = sorted(changed.column("name").to_pylist())
        shown = ", ".join(self._settings.pattern.shown(name) for name in names[:NAMED_MAX])
        more = f" and {len(names) - NAMED_MAX:,} more" if len(names) > NAMED_MAX else ""
        reason = f"{shown}{more} changed after it was taken."
        again = "takes it again," if self._settings.mode == "upsert" else "needs mode='upsert',"
        raise SourceStopped(
            f"{reason} Nothing was taken. Put back what was there, or say what a change means: "
            f"on_change='ignore' leaves it as it was taken; on_change='again' {again} by "
            "lake.alter_source.",
            source=self._settings.source,
            state="file_changed",
            reason=reason,
            file=self._settings.pattern.shown(names[0]),
            files=[self._settings.pattern.shown(name) for name in names[:100]],
        )

    def _doubtful(self, found: Found, memory: Memory) -> pa.Table:
        """Of the files in doubt those that are not what was taken."""
        changed: list[dict[str, Any]] = []
        for row in found.doubted.to_pylist():
            checksum = row.pop("checksum")
            file = ListedFile(**row)
            if memory.sure.get(file.name) == (file.mark, checksum):
                continue
            with suppress(Moved), self._place.fetched(file) as path:
                if checksum_of(path) != checksum:
                    changed.append(row)
                else:
                    memory.sure[file.name] = (file.mark, checksum)
        return pa.Table.from_pylist(changed, NOTHING.schema)

    def _defaults(self, desk: Desk) -> Defaults:
        transaction = desk.store.begin(desk.definition.branch)
        try:
            return transaction.defaults(desk.tables[self._settings.table])
        finally:
            transaction.rollback()

    def _tell(self, desk: Desk, found: Found, left: int, files: Sequence[ListedFile]) -> None:
        """Tell how far the round is."""
        notes = [f"{found.listed:,} files listed"]
        if found.unready.num_rows:
            notes.append(f"{found.unready.num_rows:,} not settled yet")
        if found.changed.num_rows:
            notes.append(f"{found.changed.num_rows:,} changed after they were taken")
        oldest = min((file.modified for file in files), default=None)
        table = self._settings.table
        desk.tell(
            Reading(
                "reading",
                position=desk.position,
                lag_bytes=left,
                lag_seconds=None if oldest is None else max(0.0, time.time() - oldest / 1e9),
                tables=(TableStanding(table, desk.tables[table], "streaming"),),
                notes=tuple(notes),
            )
        )
