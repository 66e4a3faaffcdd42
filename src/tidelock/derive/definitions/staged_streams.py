"""Staging of stream tables in a transaction: creating, replacing, altering and dropping them, and
carrying them along when what they read changes under them.

Owns: what each of these does to the tables of a stream table. Nothing is published here.

    another query, other columns        the table is dropped, and another created under its name
    another query, the same columns     the table stays, and is computed anew by the next refresh
    the same query in other names       everything stays: the rows are those of the new definition
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from tidelock.derive.algebra.alike import Ids, by_ids, canonical
from tidelock.derive.catalog import Catalog
from tidelock.derive.dependents import unmet_needs
from tidelock.derive.graph.graph import Graph
from tidelock.derive.plan.view import ViewPlan
from tidelock.derive.planned import Planned, see_input
from tidelock.derive.refresh.choice import why_not_incremental
from tidelock.derive.refresh.internal_tables import (
    create_internal,
    drop_internal,
    restage_internal,
)
from tidelock.derive.seen import SeenInput, with_reads
from tidelock.derive.sight import label_schema, retyped, see
from tidelock.derive.sql.query import read_view
from tidelock.derive.stream import Stored, Stream
from tidelock.errors import Advice, NotIncremental, TableExists, TidelockError
from tidelock.model.history.commit import Tables, TableState
from tidelock.model.names import fold
from tidelock.model.schema.alterations import AddRule
from tidelock.model.schema.schema import TableSchema
from tidelock.model.schema.widening import is_widening
from tidelock.model.sql.text import same_query
from tidelock.model.streams import Definition, StreamState
from tidelock.store.rules.listing import declared_rules
from tidelock.store.schema.change import SchemaChange
from tidelock.store.transaction import Transaction


class StreamStaging:
    """Owns what a transaction does to stream tables."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    def define(
        self,
        transaction: Transaction,
        name: str,
        definition: Definition,
        *,
        replace_it: bool = False,
    ) -> bool:
        """Stage a new stream table, or a new definition in the place of an old one; whether the
        rows of the old one are those of the new."""
        tables = transaction.tables()
        known = tables.find(name)
        if known is not None and not (replace_it and known.stream is not None):
            raise TableExists(
                f"The table {known.name!r} exists. Drop it first, or choose another name.",
                Advice(
                    "create_or_replace_stream_table replaces a stream table.",
                    "--replace replaces a stream table.",
                ),
                table=known.name,
            )
        plan = self.catalog.plan(tables, transaction, definition)
        refuse_not_incremental(name, plan)
        self._refuse_circle(tables, name, plan)
        if known is not None and self._adopt(transaction, tables, known, plan):
            return True
        seen = tuple(
            see(one, tables[one].id, transaction.table(one).schema, plan.reads[one])
            for one in plan.inputs
        )
        stored = Stored(definition, plan.inputs, plan.view.tells_time, seen=seen)
        definition_id = self._keep(transaction, stored, plan)
        if known is not None:
            if self._replace(transaction, known, plan, definition_id):
                return False
            self._make_anew(transaction, known, plan, definition_id)
        else:
            self._create(transaction, name, plan, definition_id)
        return False

    def _make_anew(
        self, transaction: Transaction, known: TableState, plan: ViewPlan, definition_id: str
    ) -> None:
        """Put another table in the place of one. What was asserted of its rows is asserted of the
        new ones."""
        rules = declared_rules(transaction.files, transaction.tables(), known.name)
        self.drop(transaction, known)
        self._create(transaction, known.name, plan, definition_id)
        if rules:
            transaction.alter_table(known.name, *map(AddRule, rules))

    def _create(
        self, transaction: Transaction, name: str, plan: ViewPlan, definition_id: str
    ) -> None:
        state = StreamState(definition_id, made_on=self.catalog.engine_name)
        staged = transaction.create_kept(name, plan.schema, state)
        create_internal(transaction, staged.state.id, plan)

    def _keep(self, transaction: Transaction, stored: Stored, plan: ViewPlan | None = None) -> str:
        stored_id = self.catalog.keep(stored, durable=not transaction.rehearsed)
        if plan is not None:
            self.catalog.know_plan(stored, plan)
        return stored_id

    def _replace(
        self,
        transaction: Transaction,
        known: TableState,
        plan: ViewPlan,
        definition_id: str,
        *,
        widen: bool = False,
    ) -> bool:
        """Put another definition behind the same table, if its columns stay; else False.

        Readers then see one table whose rows change; it is computed anew at the next refresh. With
        `widen`, its columns may get wider types.
        """
        kept = transaction.table(known.name).dataset.schema
        same = kept.types == plan.schema.types
        if kept.names != plan.schema.names or not (same or (widen and _widens(kept, plan.schema))):
            return False
        restage_internal(transaction, known, plan)
        staged = transaction.stage(known.name)
        if not same:
            staged.add(SchemaChange(staged.schema, _with_types(staged.schema, plan.schema)))
        assert known.stream is not None
        staged.stream = replace(
            known.stream,
            definition=definition_id,
            frontier=(),
            refreshed=0,
            suspended=None,
            made_on=self.catalog.engine_name,
        )
        return True

    def _refuse_circle(self, tables: Tables, name: str, plan: ViewPlan) -> None:
        arrangement = self.catalog.arrange(tables)
        nodes = {one: stream.inputs for one, stream in arrangement.streams.items()}
        nodes.pop(next((one for one in nodes if fold(one) == fold(name)), name), None)
        Graph.of({**nodes, name: plan.inputs})

    # The same query in other names

    def _adopt(
        self, transaction: Transaction, tables: Tables, known: TableState, plan: ViewPlan
    ) -> bool:
        """Put a definition behind a table whose rows are its own already; else False.

        They are if both queries do the same with the same columns of the same tables. What the old
        definition sees, the new one goes on to see, so that what is kept for it stays as it is.
        """
        old = self._planned(transaction, tables, known)
        definition, state = plan.definition, known.stream
        assert state is not None
        if old is None or plan.view.root is None or not state.populated or state.suspended:
            return False
        before = old.plan.definition
        if same_query(before.query, definition.query):
            # A person who defines the same once more wants it computed once more.
            return False
        if (before.refresh_mode == "full") != (definition.refresh_mode == "full"):
            return False
        if state.made_on != self.catalog.engine_name:
            return False
        seen = _in_names_of_today(old)
        if seen is None or not _is_alike(old, plan, seen, transaction):
            return False
        seen = tuple(with_reads(one, plan.reads[one.table]) for one in seen)
        stored = Stored(definition, plan.inputs, plan.view.tells_time, seen=seen)
        stream = self.catalog.stream_with(known, stored, tables)
        new = self.catalog.plan_stream(transaction, stream).plan
        if new.schema != old.plan.schema or [k.schema for k in new.kept] != [
            k.schema for k in old.plan.kept
        ]:
            return False
        staged = transaction.stage(known.name)
        staged.stream = replace(state, definition=self._keep(transaction, stored, new))
        return True

    def _planned(
        self, transaction: Transaction, tables: Tables, known: TableState
    ) -> Planned | None:
        """A stream table as it is, if its query can still be planned just as it was."""
        stream = self.catalog.arrange(tables).streams[known.name]
        try:
            planned = self.catalog.plan_stream(transaction, stream)
        except TidelockError:
            return None
        return None if planned.rebuilt or planned.plan.view.root is None else planned

    # Other options

    def alter(self, transaction: Transaction, stream: Stream, definition: Definition) -> None:
        """Stage other options of a stream table; the query of `definition` is the one it has."""
        altered = replace(stream.stored, definition=definition)
        if (definition.refresh_mode == "full") != (stream.definition.refresh_mode == "full"):
            self.follow(transaction, replace(stream, stored=altered))
            return
        if definition.refresh_mode == "incremental_strict":
            plan = self.catalog.plan_stream(transaction, replace(stream, stored=altered)).plan
            refuse_not_incremental(stream.name, plan)
        staged = transaction.stage(stream.name)
        staged.stream = replace(stream.state, definition=self._keep(transaction, altered))

    # Dropping

    def drop(self, transaction: Transaction, table: TableState) -> None:
        """Stage the end of a stream table, and of what is kept for it."""
        drop_internal(transaction, table)
        transaction.drop_kept(table.name)

    # What follows from changes of inputs

    def carry_along(self, transaction: Transaction, cascade: bool) -> None:
        """Let stream tables see the tables that a transaction puts in the place of others. With
        `cascade`, drop what reads a table or a column that it has dropped, with all that is
        computed from it; and let what reads a column of another type follow it."""
        if cascade:
            self._cascade(transaction)
        else:
            self._see_replaced(transaction)

    def _see_replaced(self, transaction: Transaction) -> None:
        """From now on labels mean the columns that a table in the place of another has now."""
        tables = transaction.tables()
        for stream in self.catalog.arrange(tables).streams.values():
            stored = stream.stored
            for one in stream.reads:
                before = stored.of(one.label)
                if one.state is None or one.seen is not None or before is None:
                    continue
                schema = transaction.table(one.name).schema
                read = {column.label for column in before.columns if column.read}
                after = see(one.label, one.state.id, schema, read)
                others = tuple(other for other in stored.seen if other is not before)
                stored = replace(stored, seen=(*others, after))
            if stored is not stream.stored:
                staged = transaction.stage(stream.name)
                known = staged.stream or stream.state
                staged.stream = replace(known, definition=self._keep(transaction, stored))

    def _cascade(self, transaction: Transaction) -> None:
        tables = transaction.tables()
        arrangement = self.catalog.arrange(tables)
        graph = arrangement.graph
        needs = list(unmet_needs(arrangement.streams.values(), transaction.files))
        gone = {need.stream.name for need in needs if need.type is None}
        gone.update(*(graph.downstream(name) for name in list(gone)))
        for name in reversed(graph.stream_tables):
            if name in gone:
                self.drop(transaction, tables[name])
        touched = {need.stream.name for need in needs}
        touched.update(*(graph.downstream(name) for name in list(touched)))
        anew: set[str] = set()
        for name in graph.stream_tables:
            if name in gone or name not in touched:
                continue
            stream = self.catalog.arrange(transaction.tables()).streams[name]
            retyped = next(unmet_needs([stream], transaction.files), None) is not None
            if (retyped or not anew.isdisjoint(stream.inputs)) and self.follow(transaction, stream):
                anew.add(name)

    def follow(self, transaction: Transaction, stream: Stream) -> bool:
        """Stage the definition that a stream table has once more, over what its inputs are now;
        whether another table is in its place for that."""
        inputs = [see_input(transaction, one) for one in stream.reads]
        seen = tuple(retyped(one.seen, one.schema) for one in inputs)
        known = replace(stream.stored, seen=seen)
        tables = transaction.tables()
        planned = self.catalog.plan_stream(
            transaction, self.catalog.stream_with(stream.table, known, tables)
        )
        plan = planned.plan
        refuse_not_incremental(stream.name, plan)
        definition_id = self._keep(transaction, planned.stored, plan)
        if self._replace(transaction, stream.table, plan, definition_id, widen=True):
            return False
        self._make_anew(transaction, stream.table, plan, definition_id)
        return True


def refuse_not_incremental(name: str, plan: ViewPlan) -> None:
    if plan.definition.refresh_mode == "incremental_strict" and not plan.incremental:
        reason = why_not_incremental(plan)
        raise NotIncremental(
            f"The query of {name!r} cannot be kept by delta, and its mode is "
            f"'incremental_strict': {reason}.",
            Advice(
                "Change the query, or use refresh_mode='auto'.",
                "Change the query, or use --mode auto.",
            ),
            table=name,
            reason=reason,
            line=plan.view.obstacles[0].line,
        )


def _in_names_of_today(old: Planned) -> tuple[SeenInput, ...] | None:
    """What a stream table sees of its inputs, under the names that they have now."""
    found = []
    for one in old.inputs:
        called = one.seen.called(one.schema)
        if called is None:
            return None
        found.append(replace(called, table=one.name))
    return tuple(found)


def _is_alike(
    old: Planned, plan: ViewPlan, seen: tuple[SeenInput, ...], transaction: Transaction
) -> bool:
    """Whether a query, read against what another one sees, is that one; and whether it is the same
    when it is read against all that is there."""
    assert old.plan.view.root is not None
    assert plan.view.root is not None
    if {one.table for one in seen} != set(plan.inputs):
        return False
    view = read_view(plan.definition.query, {one.table: label_schema(one) for one in seen})
    if view.root is None or view.columns != old.plan.view.columns:
        return False
    then = by_ids(old.plan.view.root, _ids({one.label: one.seen for one in old.inputs}))
    now = by_ids(view.root, _ids({one.table: one for one in seen}))
    if then != now or view.notes != old.plan.view.notes:
        return False
    full = {one: see(one, "", transaction.table(one).schema) for one in plan.inputs}
    ids = {one.table: one.table_id for one in seen}
    whole = by_ids(
        plan.view.root, _ids({name: replace(one, table_id=ids[name]) for name, one in full.items()})
    )
    shown = [name for name, _ in plan.view.columns]
    return [name for name, _ in view.columns] == shown and canonical(whole) == canonical(now)


def _ids(seen: dict[str, SeenInput]) -> Ids:
    return {
        name: (one.table_id, {column.label: column.id for column in one.columns})
        for name, one in seen.items()
    }


def _widens(kept: pa.Schema, new: pa.Schema) -> bool:
    return all(map(is_widening, kept.types, new.types))


def _with_types(schema: TableSchema, new: pa.Schema) -> TableSchema:
    columns = tuple(replace(column, type=new.field(column.name).type) for column in schema.columns)
    return replace(schema, columns=columns)
