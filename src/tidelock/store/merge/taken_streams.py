"""Stream tables within the transaction of a merge: definitions and results as they are taken over.

Owns: what is staged for each plan (stream_plan.py), for the stream table and for the tables in
which parts of it are kept, and where the content is said to stand. Frontiers, epochs and versions
are those of the target: a result that is adopted was computed from what the merge commit publishes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tidelock.model.history.commit import TableState
from tidelock.model.history.merges import TableMerge
from tidelock.model.streams import PUBLISHING, InputVersion, StreamState
from tidelock.store.kinship.bases import Tip
from tidelock.store.merge.adopted import StreamAt, adopt
from tidelock.store.merge.stream_plan import StreamPlan, kept_tables
from tidelock.store.operations.counts import Counts
from tidelock.store.parts import Parts
from tidelock.store.rules.related import schema_of_state
from tidelock.store.schema.change import SchemaChange, following
from tidelock.store.staging.staged_table import StagedTable
from tidelock.store.transaction import Transaction


class TakenStreams:
    """Stages the stream tables of one merge."""

    def __init__(
        self,
        store: Parts,
        source: Tip,
        target: Tip,
        transaction: Transaction,
        moving: set[str],
        renumber: Callable[[str], str],
    ) -> None:
        """`moving` are the ids of tables that the same commit changes; `renumber` gives the
        definition of the source with the ids that columns have at the target."""
        self._files = store.files
        self._source = source
        self._target = target
        self._transaction = transaction
        self._moving = moving
        self._renumber = renumber
        self._target_states = {one.id: one for one in target.tables.states()}
        self._names = {one.id: one.name for one in source.tables.states()}
        self.refreshed: list[dict[str, Any]] = []
        """What the commit tells of results that were adopted, as a refresh tells of its own."""

    def stage(self, plan: StreamPlan) -> None:
        match plan.step:
            case "adopt" | "create":
                self._take(plan)
            case "define":
                self._define(plan)
            case "keep":
                self._declare(plan)
            case "drop":
                assert plan.target is not None
                self._transaction.drop_kept(plan.target)
                self._replace_kept(plan.target.id, drop=True)

    def _take(self, plan: StreamPlan) -> None:
        source, target = plan.source, plan.target
        assert source is not None
        moved = target is None or self._source.origin(source) != self._target.origin(target)
        counts = Counts(inserted=source.rows) if target is None else Counts()
        state = self._adopted_at(plan) if plan.with_result else self._undone_at(source)
        staged = adopt(
            self._files, self._source, source, target, source.name, counts, state, moved=moved
        )
        self._transaction.place(staged)
        self._replace_kept(source.id)
        if plan.with_result:
            self.refreshed.append(self._told(plan, source))

    def _define(self, plan: StreamPlan) -> None:
        """The target's rows stay until they are computed anew."""
        source, target = plan.source, plan.target
        assert source is not None
        assert target is not None
        assert target.stream is not None
        staged = StagedTable(self._files, target)
        staged.stream = replace(
            self._undone(source), suspended=target.stream.suspended, epoch=target.stream.epoch
        )
        self._transaction.place(staged)
        self._declare(plan)
        self._replace_kept(source.id)

    def _declare(self, plan: StreamPlan) -> None:
        """What the source declared of the result, such as rules and wider types."""
        if not plan.declared:
            return
        assert plan.source is not None
        assert plan.target is not None
        staged = self._transaction.stage(plan.target.name)
        after = schema_of_state(self._files, plan.source)
        staged.add(SchemaChange(staged.schema, following(staged.schema, after)))

    def _undone(self, source: TableState) -> StreamState:
        assert source.stream is not None
        definition = self._renumber(source.stream.definition)
        return replace(
            source.stream,
            definition=definition,
            frontier=(),
            refreshed=0,
            as_of=0,
            suspended=None,
        )

    def _undone_at(self, source: TableState) -> StreamAt:
        return lambda version: self._undone(source)

    def _adopted_at(self, plan: StreamPlan) -> StreamAt:
        source, target = plan.source, plan.target
        assert source is not None
        stream = source.stream
        assert stream is not None
        held = target.stream if target is not None else stream
        suspended = held.suspended if held is not None else None
        inputs = [self._input(one) for one in stream.frontier]
        definition = self._renumber(stream.definition)

        def at(version: int) -> StreamState:
            frontier = tuple(replace(one, version=version) for one in inputs)
            return replace(
                stream,
                definition=definition,
                frontier=frontier,
                as_of=version,
                epoch=plan.epoch,
                refreshed=version,
                suspended=suspended,
            )

        return at

    def _input(self, entry: InputVersion) -> InputVersion:
        """An input as the target will have it."""
        if entry.table_id in self._moving:
            return replace(entry, changed=PUBLISHING, pin=0)
        state = self._target_states[entry.table_id]
        return replace(entry, table=state.name, changed=state.changed, pin=state.pin)

    def _replace_kept(self, owner: str, *, drop: bool = False) -> None:
        """Put the tables in which parts are kept in the place of the target's own."""
        there = {one.id: one for one in kept_tables(self._target, owner)}
        here = [] if drop else kept_tables(self._source, owner)
        for state in there.values():
            if state.id not in {one.id for one in here}:
                self._transaction.drop_kept(state)
        for state in here:
            target = there.get(state.id)
            if target is not None and (self._source.origin(state) == self._target.origin(target)):
                continue
            counts = Counts(inserted=state.rows) if target is None else Counts()
            staged = adopt(self._files, self._source, state, target, state.name, counts)
            self._transaction.place(staged)

    def _told(self, plan: StreamPlan, source: TableState) -> dict[str, Any]:
        return {
            "table": source.name,
            "table_id": source.id,
            "action": "adopted",
            "reason": f"taken from branch {self._source.branch.name!r}, which computed it from the "
            "same inputs",
            "seconds": 0.0,
            "incremental_seconds": None,
            "full_seconds": None,
            "rows_in": 0,
            "rows_out": 0,
            "version": self._target.version,
            "epoch": plan.epoch,
        }


def tell_stream(plan: StreamPlan) -> TableMerge | None:
    """What is said of a stream table; nothing of one that the merge does not concern."""
    name = plan.state.name
    match plan.step:
        case "adopt":
            return TableMerge(name, "adopted", why="computed from the same inputs")
        case "create":
            why = "" if plan.with_result else "computed by the next refresh"
            return TableMerge(name, "created", why=why)
        case "define":
            return TableMerge(name, "stale", why="another definition; the next refresh computes it")
        case "drop":
            return TableMerge(name, "dropped")
    if plan.with_result:
        return None
    return TableMerge(name, "stale", why="the next refresh brings it up to date")
