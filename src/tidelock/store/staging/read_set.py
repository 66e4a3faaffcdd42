"""The read set of a serializable transaction: what it has read through its own handle.

    rows      of a table, for which a condition is true, or all of them
    names     of tables that were asked for, whether they were there or not
    tables    all that there are

Law: a transaction whose read set others have not changed when it commits is as good as one that ran
alone at that moment: it would have read the same. So a commit is in its way that removed or added a
row for which a condition is true, or that dropped or created a table that was named or, where all
were listed, any. What its own operations would have done to rows of others is decided by their
conditions, which are reads as well.

A condition that Lance evaluates is checked on the rows that commits changed; any other counts for
all rows of its table, and so does each beyond CONDITIONS_MAX. Cost: the rows that others changed in
tables that were read. Memory: the conditions.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

from tidelock.errors import CorruptObject, SnapshotExpired
from tidelock.model.history.commit import Tables, TableState
from tidelock.model.names import fold, is_hidden
from tidelock.model.sql.expressions import Filter
from tidelock.store.changes.changed_rows import changes_a_row
from tidelock.store.log.line import Line
from tidelock.store.log.table_changes import changes_of
from tidelock.store.staging.conflicts import name_conflict, read_conflict, table_conflict
from tidelock.store.tables.datasets import TableFiles

CONDITIONS_MAX = 1024
"""How many conditions are kept for one table."""
CONDITIONS_AT_ONCE = 64
"""So many are evaluated as one."""

Conditions = dict[str, str]
"""Conditions in Lance's words, with the words in which they were asked."""


class ReadSet:
    """Owns what one transaction has read. Readers may be threads of their own."""

    def __init__(self, files: TableFiles, tables: Tables, version: int) -> None:
        self._files = files
        self._tables = tables
        self._version = version
        self._lock = threading.Lock()
        self._rows: dict[str, Conditions | None] = {}
        """Per table that was read its conditions; None when all of its rows count."""
        self._names: dict[str, str] = {}
        """Names that were asked for, by how they are found."""
        self._listed = False

    @property
    def empty(self) -> bool:
        return not (self._rows or self._names or self._listed)

    def note_name(self, name: str) -> None:
        """A table was asked for by name."""
        self._names[fold(name)] = name

    def note_tables(self) -> None:
        """All tables were listed."""
        self._listed = True

    def note_rows(self, table_id: str, condition: Filter | None) -> None:
        """Rows of a table were read for which a condition is true, or all of them."""
        with self._lock:
            known = self._rows.setdefault(table_id, {})
            if condition is None or condition.lance is None:
                self._rows[table_id] = None
            elif known is not None:
                known[condition.lance] = condition.sql
                if len(known) > CONDITIONS_MAX:
                    self._rows[table_id] = None

    def refuse_changed(self, line: Line, operation_id: str) -> None:
        """CommitConflict when commits on a line changed what was read."""
        self._refuse_other_tables(line, operation_id)
        with self._lock:
            rows = dict(self._rows)
        for state in self._tables.states():
            if state.id in rows:
                self._refuse_changed_rows(line, state, rows[state.id], operation_id)

    def _refuse_other_tables(self, line: Line, operation_id: str) -> None:
        names = list(self._names.values())
        if self._listed:
            every = {fold(name): name for name in (*self._tables, *line.tables)}
            names.extend(name for name in every.values() if not is_hidden(name))
        for name in names:
            before, now = self._tables.find(name), line.tables.find(name)
            if (before and before.id) != (now and now.id):
                raise name_conflict(name, self._version, before, now, operation_id)

    def _refuse_changed_rows(
        self, line: Line, state: TableState, conditions: Conditions | None, operation_id: str
    ) -> None:
        now = line.tables.same(state)
        if now is None:
            raise table_conflict(state.name, state.changed, None, "dropped", operation_id)
        if now.changed == state.changed:
            return
        changes = list(changes_of(line, line.branch, state.id, now.changed, state.changed))
        for version, change in reversed(changes):
            assert change.before is not None
            assert change.after is not None
            if not change.inserted + change.updated + change.deleted:
                continue
            try:
                found = self._first_matching(change.before, change.after, conditions)
            except (SnapshotExpired, CorruptObject):
                # Nobody can tell any more which rows they were.
                found = ""
            if found is not None:
                raise read_conflict(state, now, found or None, version, operation_id)

    def _first_matching(
        self, before: TableState, after: TableState, conditions: Conditions | None
    ) -> str | None:
        """A condition, in the reader's words, that is true for a row which a commit changed: empty
        if there is none because all rows were read. None if no changed row was read."""
        if conditions is None:
            return ""
        older, newer = self._files.read(before), self._files.read(after)
        read = self._files.reader(before.id)

        def holds(condition: str) -> bool:
            with self._files.reading(before, after):
                return changes_a_row(read, older, newer, condition)

        for some in _parts(list(conditions)):
            if holds(" OR ".join(f"({one})" for one in some)):
                return next(conditions[one] for one in some if len(some) == 1 or holds(one))
        return None


def _parts(conditions: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(conditions), CONDITIONS_AT_ONCE):
        yield conditions[start : start + CONDITIONS_AT_ONCE]
