"""Applying a folder of definitions: from its files to one commit.

Owns: carrying out a plan. What is to be done is decided by reconciliation.py.

    1. the files are read, and planned against the tables that a transaction sees
    2. every change is staged, which checks every query; what follows from it is added to the plan
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

from tidelock.derive.catalog import Catalog, Stream, stream_of
from tidelock.derive.definitions.apply_plan import ApplyPlan, Change
from tidelock.derive.definitions.define import CONFLICTS_MAX, StreamDefinitions
from tidelock.derive.definitions.folder import read_files
from tidelock.derive.definitions.pipeline import Pipeline, read_pipeline
from tidelock.derive.definitions.reconciliation import plan_changes
from tidelock.derive.definitions.written import Defined
from tidelock.derive.graph.due import suspension
from tidelock.errors import Advice, CommitConflict, InputError, InvalidOption, QueryFailed
from tidelock.model.commit import Commit
from tidelock.model.names import fold, is_hidden
from tidelock.model.streams import Definition
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
) -> Applied:
    """Bring the stream tables of a branch to what the files of a folder define."""
    pipeline = read_pipeline(Path(folder))
    read = read_files(pipeline)
    _warn_of_configuration(pipeline)
    reviewed: ApplyPlan | None = None
    for attempt in range(CONFLICTS_MAX):
        with store.begin(branch, message=f"apply {pipeline.name}") as transaction:
            transaction.rehearsed = dry_run
            staging = _Staging(definitions, transaction, pipeline.name, read.defined)
            plan = staging.run()
            plan = replace(plan, notes=(*read.notes, *staging.standing_still(plan)))
            wanted = bool(plan.pending) and not dry_run
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
        for change in plan.pending:
            with self._naming_place(change.name, change.definition):
                self._stage(change)
        return self._with_followers(plan)

    def _plan(self) -> ApplyPlan:
        tables = self._transaction.tables()
        held = self._catalog.arrange(tables).streams
        inputs = {one.state.definition: one.stored.inputs for one in held.values()}
        return plan_changes(
            self._defined,
            {name: stream.definition for name, stream in held.items()},
            [name for name in tables if not is_hidden(name)],
            # Who has the same definition as a table of the lake, reads what that one reads.
            lambda one: inputs.get(one.definition.id, one.tables),
            pipeline=self._pipeline,
        )

    def _stage(self, change: Change) -> None:
        definitions, transaction = self._definitions, self._transaction
        if change.action in ("create", "replace"):
            definitions.stage_definition(
                transaction,
                change.name,
                change.definition,
                replace_it=change.action == "replace",
            )
            return
        stream = stream_of(transaction.tables(), self._catalog, change.name)
        if change.action == "alter":
            definitions.stage_alteration(transaction, stream, change.definition)
        else:
            definitions.stage_drop(transaction, stream.table)

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
            read = [one for one in stream.stored.inputs if fold(one) in moved]
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
        known = {entry.table: entry.table_id for entry in stream.state.frontier}
        tables = self._transaction.tables()
        return [
            name
            for name in stream.stored.inputs
            if (found := tables.find(name)) is not None and known.get(name) != found.id
        ]

    def _has_other_columns(self, stream: Stream) -> bool:
        plan = self._catalog.plan(self._transaction.tables(), self._transaction, stream.definition)
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
        self._definitions.stage_definition(
            self._transaction, stream.name, stream.definition, replace_it=True
        )

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
