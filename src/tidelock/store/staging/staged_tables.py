"""The tables of one transaction: those of its snapshot, with what is staged on each.

Owns: which name means which table while a transaction creates and drops some, and the changes that
publishing all of them makes. Nothing here is visible to anybody else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from tidelock.errors import (
    CorruptObject,
    InvalidOption,
    TableExists,
    TableNotFound,
)
from tidelock.model.history.commit import Kind, TableChange, Tables, TableState, with_frontiers
from tidelock.model.names import fold, is_hidden
from tidelock.model.schema.alterations import AddRule, DropRule
from tidelock.model.schema.schema import TableSchema
from tidelock.model.streams import StreamState
from tidelock.store.log.line import Line
from tidelock.store.log.log import Head
from tidelock.store.objects import layout
from tidelock.store.objects.parallel import Together
from tidelock.store.rows.refusals import stream_written
from tidelock.store.schema.change import numbered
from tidelock.store.staging.rehearsal import rehearse
from tidelock.store.staging.staged_table import DefaultsOf, StagedTable, no_defaults
from tidelock.store.tables.datasets import FIRST_PIN, TableFiles
from tidelock.store.upkeep.repair.survivors import surviving_schema


class StagedTables:
    """Owns the tables that one transaction has touched."""

    def __init__(
        self,
        files: TableFiles,
        head: Head,
        together: Together,
        defaults_of: DefaultsOf = no_defaults,
    ) -> None:
        self._files = files
        self.defaults_of = defaults_of
        self.rehearsed = False
        """Whether it is only to be seen how the tables would look."""
        self._head = head
        self._together = together
        self._staged: dict[str, StagedTable] = {}
        self._by_name: dict[str, StagedTable] = {}
        """The last that was staged under each name, as names are found."""
        self.prunings = 0
        """How many operations remove rows because of their age."""

    def find(self, name: str) -> StagedTable | TableState | None:
        """The table of a name: staged already, as the snapshot has it, or not there."""
        if not isinstance(name, str):
            raise InvalidOption(f"A table is named by a string, not {name!r}.", table=str(name))
        staged = self._by_name.get(fold(name))
        if staged is not None and not staged.dropped:
            return staged
        state = self._head.tables.find(name)
        return None if state is not None and state.id in self._staged else state

    def stage(self, name: str) -> StagedTable:
        """The table of a name, to stage something on it."""
        known = self.find(name)
        if isinstance(known, StagedTable):
            return known
        if known is None:
            raise self.unknown(name)
        return self._add(StagedTable(self._files, known, defaults_of=self.defaults_of))

    def stage_by_hand(self, name: str) -> StagedTable:
        """As `stage`, for a user: the rows of stream tables are not changed by hand."""
        staged = self.stage(name)
        if staged.state.stream is not None or is_hidden(staged.state.name):
            raise stream_written(staged.state.name)
        return staged

    def stage_to_alter(self, name: str, alterations: Sequence[object]) -> StagedTable:
        """As `stage_by_hand`; rules may also come to the result of a query, and be dropped."""
        if not all(isinstance(one, AddRule | DropRule) for one in alterations) or is_hidden(name):
            return self.stage_by_hand(name)
        return self.stage(name)

    def following(self, state: TableState) -> StagedTable:
        """A table of the head, to stage on it what follows from operations on others."""
        staged = self._staged.get(state.id)
        if staged is None or not staged.changed:
            staged = self._add(StagedTable(self._files, state))
        return staged

    def forget_derived(self) -> None:
        """Go back to what was asked for."""
        for staged in self._staged.values():
            staged.forget_derived()

    def create(
        self,
        name: str,
        schema: TableSchema,
        stream: StreamState | None = None,
    ) -> StagedTable:
        """A new, empty table."""
        self._refuse_existing(name)
        # What an engine has to compute is computed now, so that it is known to fit.
        self.defaults_of(schema, name)
        return self._create(name, schema, stream)

    def put(self, staged: StagedTable) -> None:
        """Stage a table in a form of its own, under the name that it will have."""
        self._add(staged)

    def drop(self, staged: StagedTable) -> None:
        if staged.created:
            del self._staged[staged.state.id]
            del self._by_name[fold(staged.name)]
        else:
            staged.operations.clear()
            staged.targets.clear()
            staged.name = staged.state.name
            staged.dropped = True

    def drop_kept(self, table: str | TableState) -> None:
        """Drop the table of a name; or one of the snapshot, whichever goes by its name now."""
        if isinstance(table, str):
            self.drop(self.stage(table))
            return
        staged = self._staged.get(table.id)
        if staged is None:
            staged = self._staged[table.id] = StagedTable(self._files, table)
            self._by_name.setdefault(fold(table.name), staged)
        self.drop(staged)

    def rename(self, staged: StagedTable, name: str) -> None:
        """Give a table another name."""
        if fold(name) != fold(staged.name):
            self._refuse_existing(name)
        del self._by_name[fold(staged.name)]
        if staged.created:
            staged.state = replace(staged.state, name=name)
        staged.name = name
        self._by_name[fold(name)] = staged

    def replacing_lost(self, staged: StagedTable) -> StagedTable:
        """The table, or one of the same columns in its place if its pin is lost.

        Not under the same id: nobody knows which row sequences were given out, and who follows the
        table must not take the new rows for what became of the old ones.
        """
        try:
            _ = staged.latest()
        except CorruptObject as error:
            schema = surviving_schema(self._files, staged.state)
            if schema is None:
                raise CorruptObject(
                    f"Nothing is left of table {staged.name!r} that tells its columns, so that it "
                    "cannot be overwritten. Restore its files from a copy, or drop it and create "
                    "it again: one transaction can do both.",
                    **error.evidence,
                ) from error
            self.drop(staged)
            return self._create(staged.name, schema, None)
        return staged

    @contextmanager
    def all_or_none(self) -> Iterator[None]:
        """Around several operations: if one fails, all are forgotten, and those before stay."""
        staged, names, prunings = dict(self._staged), dict(self._by_name), self.prunings
        marks = [one.mark() for one in staged.values()]
        try:
            yield
        except BaseException:
            self._staged, self._by_name, self.prunings = staged, names, prunings
            for one, mark in zip(staged.values(), marks, strict=True):
                one.return_to(mark)
            raise

    def changed(self) -> list[StagedTable]:
        return [staged for staged in list(self._staged.values()) if staged.changed]

    def tables(self) -> Tables:
        """All tables as their transaction sees them."""
        return self._head.tables.after(self.staged_changes())

    def staged_changes(self) -> tuple[TableChange, ...]:
        """What publishing all of them would do, on top of what the transaction reads."""
        version = self._head.version + 1
        return with_frontiers(tuple(one.change(version, "data") for one in self.changed()))

    def unknown(self, name: str) -> TableNotFound:
        return self.tables().unknown(name)

    def kind(self) -> Kind:
        """The kind of the commit that publishing all of them is."""
        changed = self.changed()
        if self.prunings:
            others = sum(len(staged.operations) for staged in changed) > self.prunings
            if others or any(staged.created or staged.dropped for staged in changed):
                raise InvalidOption(
                    "A transaction that prunes does nothing else. Prune in a transaction of its "
                    "own. Nothing was written."
                )
            return "retention"
        if changed and all(staged.only_moved for staged in changed):
            return "maintenance"
        return "schema" if changed and all(staged.only_defined for staged in changed) else "data"

    def follow(self, line: Line, operation_id: str) -> None:
        """Make what is staged follow this line, or raise CommitConflict."""
        changed = self.changed()
        leaving = frozenset(
            staged.state.id for staged in changed if staged.dropped or staged.renamed
        )
        for staged in changed:
            staged.rebase(line, operation_id, leaving)

    def rebase(self, line: Line, operation_id: str) -> tuple[TableChange, ...]:
        """The changes that publishing on top of a line makes, or CommitConflict."""
        self.follow(line, operation_id)
        return self.changes(line)

    def changes(self, line: Line) -> tuple[TableChange, ...]:
        """The changes that publishing on top of a line makes that is followed."""
        changed = self.changed()
        self._together.map(StagedTable.current, [staged for staged in changed if staged.pending])
        kind = self.kind()
        version = line.next_version
        changes = tuple(staged.change(version, kind, durable=True) for staged in changed)
        return with_frontiers(changes)

    @property
    def redefined(self) -> bool:
        """Whether other tables are there afterwards, or tables that mean something else."""
        return any(staged.redefined for staged in self.changed())

    def _create(self, name: str, schema: TableSchema, stream: StreamState | None) -> StagedTable:
        schema = numbered(schema)
        state = TableState(name, layout.new_id(name), FIRST_PIN, 0, 0, schema.key, stream)
        opened = rehearse(schema) if self.rehearsed else None
        return self._add(
            StagedTable(self._files, state, opened, schema, defaults_of=self.defaults_of)
        )

    def _add(self, staged: StagedTable) -> StagedTable:
        self._staged[staged.state.id] = staged
        self._by_name[fold(staged.name)] = staged
        return staged

    def _refuse_existing(self, name: str) -> None:
        known = self.find(name)
        if known is None:
            return
        there = known.name
        alike = "" if there == name else f", and {name!r} is the same name in another case"
        raise TableExists(
            f"The table {there!r} exists{alike}. Drop it first, or choose another name.",
            table=there,
        )
