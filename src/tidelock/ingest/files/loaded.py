"""Which files were loaded into a table before, for loads of what is new alone.

A hidden table for each table that was ever loaded so; its rows are entries like those of a source's
ledger (../ledger.py): the absolute name of a file, its mark, how many files there were.
Invariant: entries and rows are published by one commit, which moves the table's position on by one
from where it was read. So of two loads at a time one is published, and the other looks again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import datetime

import pyarrow as pa

from tidelock.errors import Advice, InvalidOption
from tidelock.ingest.files.marks import IN_DOUBT, checksum_of, doubted, is_in_doubt, mark_of
from tidelock.ingest.files.row_file import STDIN, RowFile
from tidelock.ingest.ledger import SCHEMA, Entry, entries_table
from tidelock.model.names import HIDDEN
from tidelock.store.transaction import Transaction


class Loaded:
    """The files that were loaded into a table, as one transaction sees them."""

    def __init__(self, table: str, transaction: Transaction) -> None:
        self._transaction = transaction
        self._table = table
        self._ledger = f"{HIDDEN}loaded_{transaction.tables()[table].id}"

    def unloaded(self, files: Sequence[RowFile], *, again: bool) -> tuple[RowFile, ...]:
        """The files that were not loaded before; `again`: those too that were in another state,
        which are refused otherwise."""
        known = self._known([_item(file) for file in files])
        new: list[RowFile] = []
        for file in files:
            mark = known.get(_item(file))
            if mark is None:
                new.append(file)
            elif not _is_same(file, mark):
                if not again:
                    raise InvalidOption(
                        f"{file.shown} was loaded into table {self._table!r} before, and has "
                        "changed since. Nothing was loaded.",
                        Advice(
                            "Load it without only_new=True, or with mode='upsert'.",
                            "Load it without --only-new, or with --mode upsert.",
                        ),
                        file=file.shown,
                        table=self._table,
                    )
                new.append(file)
        return tuple(new)

    def note(self, marks: Sequence[tuple[RowFile, str]], moment: datetime) -> None:
        """Remember files in the states that were loaded."""
        transaction = self._transaction
        if self._ledger not in transaction.tables():
            transaction.create_ledger(self._ledger, SCHEMA)
        told = {"loaded": moment.isoformat(timespec="seconds")}
        transaction.note_entries(
            self._ledger, entries_table(Entry(_item(file), mark, told) for file, mark in marks)
        )
        state = transaction.tables()[self._ledger]
        transaction.move_position(self._ledger, state.position, str(int(state.position or 0) + 1))

    def _known(self, items: Sequence[str]) -> dict[str, str]:
        if self._ledger not in self._transaction.tables():
            return {}
        keys = pa.table({"item": pa.array(sorted(set(items)), pa.string())})
        rows, _ = self._transaction.rows_of(self._ledger, keys)
        return {row["item"]: row["mark"] for row in rows.to_pylist()}


def full_mark(file: RowFile) -> str:
    """The mark of a file that is about to be loaded."""
    status = os.stat(file.name)
    young = is_in_doubt(status.st_mtime_ns, time.time_ns())
    return doubted(mark_of(status), checksum_of(file.name) if young else None)


def refuse_stdin(files: Sequence[RowFile]) -> None:
    if any(file.name == STDIN for file in files):
        raise InvalidOption(
            "What comes through stdin has no name to be known by.",
            Advice("Leave only_new= out.", "Leave --only-new out, or use --operation-id."),
        )


def _item(file: RowFile) -> str:
    return os.path.realpath(file.name)


def _is_same(file: RowFile, mark: str) -> bool:
    plain, _, checksum = mark.partition(IN_DOUBT)
    if mark_of(os.stat(file.name)) != plain:
        return False
    return not checksum or checksum_of(file.name) == checksum
