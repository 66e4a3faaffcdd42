"""Applying a folder of definitions: from its files to one commit.

Owns: carrying out a plan. What is to be done is decided by reconciliation.py.

    1. the files are read, and planned against the tables that a transaction sees
    2. what is to be done with tables is staged; then every change of stream tables, which checks
       every query; what follows from it is added to the plan
    3. the plan is reviewed, by the function that the caller gave
    4. one commit publishes all

Invariants: everything of a plan is published or nothing; a dry run does all but the last step, so
that a plan which was shown can be carried out, and leaves nothing in the lake; a plan without a
change makes no commit.
After a crash: before the commit nothing happened; after it everything did.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tidelock.derive.catalog import Catalog, stream_of
from tidelock.derive.definitions.apply_plan import ApplyPlan, Change
from tidelock.derive.definitions.define import CONFLICTS_MAX, StreamDefinitions
from tidelock.derive.definitions.folder import read_files
from tidelock.derive.definitions.pipeline import Pipeline, read_pipeline
from tidelock.derive.definitions.reconciliation import plan_changes
from tidelock.derive.definitions.written import Defined
from tidelock.derive.graph.due import suspension
from tidelock.derive.stream import Stream
from tidelock.errors import Advice, CommitConflict, InputError, InvalidOption, QueryFailed
from tidelock.model.history.commit import Commit
from tidelock.model.names import fold, is_hidden
from tidelock.model.schema.declared import DeclaredTable
from tidelock.model.schema.plan.plan import SchemaPlan
from tidelock.model.sql.text import same_query
from tidelock.model.streams import Definition
from tidelock.store.schema.plans import make_plan, refuse_loss, stage_plan
from tidelock.store.store import Store
from tidelock.store.transaction import Transaction

Review = Callable[[ApplyPlan], bool]
# How errors say where in a query they are, which here is told by the line of the file.
_QUERY_PLACE = re.compile(r"^Line \d+, column \d+: |; line \d+,? pos \d+;?$")


@dataclass(frozen=True)
class Applied:
    """What became of a folder of definitions."""

    plan: ApplyPlan
    commit: Commit | None
    """None when nothing was to be done, or nothing was meant to be."""

    def __repr__(self) -> str:
        done = f"\nversion {self.commit.version}" if self.commit is not None else ""
        return self.plan.to_text() + done


def apply_folder(
    store: Store,
    definitions: StreamDefinitions,
    folder: str | os.PathLike[str],
    branch: str,
    *,
    dry_run: bool,
    review: Review,
    allow_data_loss: bool = False,
    cascade: bool = False,
) -> Applied:
    """Bring the tables and stream tables of a branch to what the files of a folder define."""
    pipeline = read_pipeline(Path(folder))
    read = read_files(pipeline)
    _warn_of_configuration(pipeline)
    reviewed: ApplyPlan | None = None
    for attempt in range(CONFLICTS_MAX):
        with store.begin(branch, message=f"apply {pipeline.name}") as transaction:
            transaction.rehearsed = dry_run
            schema = _stage_tables(store, transaction, read.tables, cascade=cascade)
            if schema is not None and not dry_run:
                refuse_loss(schema, allow_data_loss)
            staging = _Staging(definitions, transaction, pipeline.name, read.defined)
            plan = replace(staging.run(), schema=schema)
            plan = replace(plan, notes=(*read.notes, *staging.standing_still(plan)))
            wanted = bool(plan) and not dry_run
            if wanted and plan != reviewed:
                wanted = review(plan)
            if not wanted:
                transaction.rollback()
                return Applied(plan, None)
            reviewed = plan
            try:
                transaction.publish()
            except CommitConflict:
                # A refresh was published meanwhile. The plan is made again, on top of it.
                if attempt == CONFLICTS_MAX - 1:
                    raise
                continue
        definitions.warn(store.branches.head(branch).tables)
        return Applied(plan, transaction.commit)
    raise AssertionError("unreachable")


def _stage_tables(
    store: Store,
    transaction: Transaction,
    declared: tuple[DeclaredTable, ...],
    *,
    cascade: bool,
) -> SchemaPlan | None:
    """Stage what brings tables to what is declared; None if nothing is."""
    if not declared:
        return None
    plan = make_plan(
        store.files,
        transaction.tables(),
        declared,
        branch=transaction.branch.name,
        version=transaction.base_version,
    )
    stage_plan(transaction, plan, cascade=cascade)
    # Tables that no file declares belong to nobody here: an application of files does not care.
    return replace(plan, notes=tuple(note for table in declared for note in table.notes))


def refuse_drops(plan: ApplyPlan) -> bool:
    """The review of a caller who did not say that tables may be dropped."""
    if plan.drops:
        names = ", ".join(repr(change.name) for change in plan.drops)
        raise InvalidOption(
            f"{names} would be dropped, because no file defines it any more. Nothing was changed.",
            Advice("Say allow_drop=True, or define it again.", "Say --yes, or define it again."),
            tables=[change.name for change in plan.drops],
        )
    return True


def _warn_of_configuration(pipeline: Pipeline) -> None:
    if pipeline.configuration:
        names = ", ".join(name for name, _ in pipeline.configuration)
        warnings.warn(
            f"The configuration of pipeline {pipeline.name!r} has no effect ({names}): a lake has "
            "one session for all. Set it in [spark.conf] of tidelock.toml.",
            stacklevel=4,
        )


class _Staging:
    """One plan within its transaction."""

    def __init__(
        self,
        definitions: StreamDefinitions,
        transaction: Transaction,
        pipeline: str,
        defined: tuple[Defined, ...],
    ) -> None:
        self._definitions = definitions
        self._catalog: Catalog = definitions.catalog
        self._transaction = transaction
        self._pipeline = pipeline
        self._defined = defined
        self._here: Mapping[str, Defined] = {fold(one.name): one for one in defined}

    def run(self) -> ApplyPlan:
        """The plan, with everything staged that it asks for."""
        plan = self._plan()
        staged: dict[str, Change] = {}
        for change in plan.pending:
            with self._naming_place(change.name, change.definition):
                staged[fold(change.name)] = self._stage(change)
        changes = tuple(staged.get(fold(one.name), one) for one in plan.changes)
        return self._with_followers(replace(plan, changes=changes))

    def _plan(self) -> ApplyPlan:
        tables = self._transaction.tables()
        held = self._catalog.arrange(tables).streams
        streams = {fold(name): stream for name, stream in held.items()}

        def inputs(one: Defined) -> tuple[str, ...]:
            # Who has the same query as a table of the lake, reads what that one reads.
            known = streams.get(fold(one.name))
            same = known is not None and same_query(known.definition.query, one.definition.query)
            return known.inputs if known is not None and same else one.tables

        return plan_changes(
            self._defined,
            {name: stream.definition for name, stream in held.items()},
            [name for name in tables if not is_hidden(name)],
            inputs,
            pipeline=self._pipeline,
        )

    def _stage(self, change: Change) -> Change:
        staging, transaction = self._definitions.staging, self._transaction
        if change.action in ("create", "replace"):
            kept = staging.define(
                transaction,
                change.name,
                change.definition,
                replace_it=change.action == "replace",
            )
            told = f"{change.reason}; it gives the same rows, which stay"
            return replace(change, reason=told) if kept else change
        stream = stream_of(transaction.tables(), self._catalog, change.name)
        if change.action == "alter":
            staging.alter(transaction, stream, change.definition)
        else:
            staging.drop(transaction, stream.table)
        return change

    def standing_still(self, plan: ApplyPlan) -> Iterator[str]:
        """What is as the files define it, and not refreshed all the same."""
        streams = self._catalog.arrange(self._transaction.tables()).streams
        for change in plan.changes:
            state = streams[change.name].state if change.name in streams else None
            if state is not None and state.suspended is not None:
                yield f"{change.name!r} is {suspension(state.suspended)}"

    def _with_followers(self, plan: ApplyPlan) -> ApplyPlan:
        """Replace the tables too whose query is the same, and whose columns are no longer.

        They read a table that was replaced, as `SELECT *` does, or that was created anew since. A
        query that can no longer be computed is refused, though nobody changed it.
        """
        moved = {fold(one.name) for one in plan.changes if one.action == "replace"}
        done = {fold(one.name) for one in plan.changes if one.action in ("create", "replace")}
        arrangement = self._catalog.arrange(self._transaction.tables())
        followers: dict[str, Change] = {}
        for name in arrangement.graph.stream_tables:
            stream = arrangement.streams[name]
            read = [one for one in stream.inputs if fold(one) in moved]
            if fold(name) in self._here:
                read += [one for one in self._made_anew(stream) if one not in read]
            if not read or fold(name) in done:
                continue
            with self._naming_place(name, stream.definition):
                follows = self._has_other_columns(stream)
                if follows:
                    self._replace_follower(stream, read[0])
            if follows:
                moved.add(fold(name))
                reason = f"the columns of {read[0]!r} changed"
                followers[fold(name)] = Change("replace", name, reason, stream.definition)
        return replace(
            plan, changes=tuple(followers.get(fold(one.name), one) for one in plan.changes)
        )

    def _made_anew(self, stream: Stream) -> list[str]:
        """The inputs that are other tables than those that it was last computed from, or planned
        for; all of them where it cannot be told."""
        return [one.name for one in stream.reads if one.state is not None and one.then is None]

    def _has_other_columns(self, stream: Stream) -> bool:
        plan = self._catalog.plan_stream(self._transaction, stream).plan
        kept = self._transaction.table(stream.name).dataset.schema
        return [*zip(kept.names, kept.types, strict=True)] != [
            *zip(plan.schema.names, plan.schema.types, strict=True)
        ]

    def _replace_follower(self, stream: Stream, read_table: str) -> None:
        if fold(stream.name) not in self._here:
            raise InvalidOption(
                f"{stream.name!r}, which was created elsewhere, reads {read_table!r} and would get "
                f"other columns. Drop {stream.name!r} first, or keep the columns of {read_table!r}."
            )
        self._definitions.staging.follow(self._transaction, stream)

    @contextmanager
    def _naming_place(self, name: str, definition: Definition) -> Iterator[None]:
        """Whatever is wrong with a definition, as an error at the line of the file."""
        try:
            yield
        except (InputError, QueryFailed) as error:
            one = self._here.get(fold(name))
            if one is None:
                raise
            # The lake may hold the same query with other white space, and so with other lines.
            same = definition.query == one.definition.query
            line = one.file_line(error.evidence.get("line") if same else None)
            message = _QUERY_PLACE.sub("", error.message)
            raise line.refuse(
                f"{name!r}: {message}", table=name, cause=error.condition, advice=error.advice
            ) from error
