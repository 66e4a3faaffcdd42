"""Merging one branch into another: what is read, decided and staged, in this order.

    1. the heads of both branches, and their bases (kinship/bases.py)
    2. what becomes of each table (plan.py) and of each stream table (stream_plan.py)
    3. everything that follows, staged in one transaction on the target: pins that are adopted
       (adopted.py), rows and columns that are merged (table_merge.py)
    4. one commit with two parents

Invariants: conflicts are found for all tables, and then nothing is published; a dry run does all of
this and stages nothing; what the source had at one commit is merged, whatever comes later.
After a crash: before the commit nothing happened; after it the source is an ancestor of the target.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tidelock.errors import InvalidOption
from tidelock.model.history.commit import Commit, TableState
from tidelock.model.history.conflicts import Conflict, ConflictKind, Conflicts
from tidelock.model.history.merges import (
    Merge,
    Outcome,
    TableAction,
    TableMerge,
)
from tidelock.model.names import fold
from tidelock.store.kinship.bases import Tip, find_bases
from tidelock.store.kinship.identity import Path, keep_renumbering, path_between
from tidelock.store.leases.uses import Reader, Use
from tidelock.store.log.log import MERGE
from tidelock.store.log.merges import ancestry_of
from tidelock.store.merge.adopted import adopt, counts_since
from tidelock.store.merge.columns import with_targets
from tidelock.store.merge.options import Options
from tidelock.store.merge.plan import Plan, Planner, TablePlan
from tidelock.store.merge.refusal import as_error
from tidelock.store.merge.rows.pruned import pruned_only
from tidelock.store.merge.rule_conflicts import MergedRules
from tidelock.store.merge.stream_plan import StreamPlanner, StreamPlans
from tidelock.store.merge.table_merge import Merged, MergingTable
from tidelock.store.merge.taken_streams import TakenStreams, tell_stream
from tidelock.store.operations.counts import Counts
from tidelock.store.rules.related import rules_of
from tidelock.store.schema.change import SchemaChange
from tidelock.store.staging.staged_table import StagedTable
from tidelock.store.store import Store
from tidelock.store.transaction import Transaction
from tidelock.store.upkeep.garbage.announcements import check_readable, collection_runs


class Merging:
    """One merge of a branch into another, on top of one head of the target."""

    def __init__(
        self,
        store: Store,
        source: str,
        into: str,
        options: Options,
        transaction: Transaction | None,
        *,
        dry_run: bool = False,
    ) -> None:
        """Without a transaction nothing is staged, and no rules can be compared with it."""
        if fold(source) == fold(into):
            raise InvalidOption(
                f"Branch {source!r} cannot be merged into itself.", source=source, into=into
            )
        self._store = store
        self._options = options
        self._transaction = transaction
        self._dry_run = dry_run
        self.source = Tip.of(store.branches.head(source))
        self.target = Tip.of(store.branches.head(into) if transaction is None else transaction.base)
        self._reader = Reader()
        self._ancestry = ancestry_of(store.log, self.source.branch, self.source.version)
        self.bases: list[Tip] = []
        self._paths: list[tuple[Path, Path]] = []
        self.conflicts = Conflicts()
        self._tables: list[TableMerge] = []
        self._merged: dict[str, Merged] = {}
        self._moving: set[str] = set()
        self.outcome: Outcome = "up to date"
        self.refreshed: list[dict[str, Any]] = []
        self.has_rules = False
        """Whether rules have to be compared with what is staged."""

    @property
    def is_ancestor(self) -> bool:
        """Whether the target descends from the source already."""
        there = ancestry_of(self._store.log, self.target.branch, self.target.version)
        return self.source.version == 0 or self.source.place.is_among(there)

    def run(self) -> Merge:
        """Decide, and stage what follows."""
        self._refuse_unknown_tables()
        if self.is_ancestor:
            self.bases = [self.source]
            return self.report()
        self._hold([self.source])
        self.bases = find_bases(self._store, self.source, self.target)
        options = self._options
        planner = Planner(
            self.source, self.target, self.bases, options.resolutions, self._pruned_only
        )
        plan = planner.run()
        streams = StreamPlanner(
            self.source,
            self.target,
            self.bases,
            _origins(self.source, plan),
            options.resolutions,
            options.units,
            options.describe,
            leaving={one.id for one in plan.tables if one.step == "drop"},
        ).run()
        self.outcome = _outcome(plan, streams)
        if self.outcome == "up to date":
            return self.report()
        self.conflicts.extend([*plan.conflicts, *streams.conflicts])
        self._stage_tables(plan)
        rules = self._compare_rules(plan)
        self._stage_streams(streams)
        self._compare_results(rules)
        self._find_unmet()
        if self.outcome == "fast-forward" and not (self._tables or self.conflicts.total):
            # The source has changed what the target had, and all of it is there: nothing to tell.
            self.outcome = "up to date"
            return self.report()
        if self._transaction is not None and not self.conflicts.total:
            assert rules is not None
            self._transaction.join(self._told(plan, streams), rules)
        return self.report()

    def report(self, commit: Commit | None = None) -> Merge:
        counts = dict(self.conflicts.counts)
        per_table: dict[str, int] = {}
        for (table, _), number in counts.items():
            per_table[table] = per_table.get(table, 0) + number
        tables = [replace(one, conflicts=per_table.pop(one.table, 0)) for one in self._tables]
        tables += [TableMerge(name, "unchanged", conflicts=n) for name, n in per_table.items()]
        return Merge(
            self.source.branch.name,
            self.target.branch.name,
            self.outcome,
            tuple(base.place.commit for base in self.bases if base.version),
            tuple(sorted(tables, key=lambda one: one.table)),
            tuple(self.conflicts.found),
            counts,
            commit,
            self._dry_run,
        )

    def _refuse_unknown_tables(self) -> None:
        """A name that is mistyped would resolve nothing, in silence."""
        for name, _ in self._options.resolutions.tables:
            if self.source.tables.find(name) is None and self.target.tables.find(name) is None:
                raise self.target.tables.unknown(name)

    # Reading

    def _hold(self, tips: Sequence[Tip]) -> None:
        """Keep what is read readable, also if its branch is deleted meanwhile."""
        uses = [Use(tip.branch.id, tip.version, tip.version) for tip in tips]
        self._store.hold_versions(self._reader, uses)
        if collection_runs(self._store):
            while collection_runs(self._store):
                time.sleep(0.05)
            for tip in tips:
                check_readable(self._store, tip.branch, tip.version)

    def _pruned_only(self, tip: Tip, state: TableState, base: Tip, before: TableState) -> bool:
        return pruned_only(self._store, tip, state, base, before)

    # Tables

    def _stage_tables(self, plan: Plan) -> None:
        if any(one.step == "rows" for one in plan.tables):
            self._hold([self.source, *self.bases])
            if self._transaction is not None:
                self._transaction.announce()
        self._paths = [
            (
                path_between(self._store, base, self.source),
                path_between(self._store, base, self.target),
            )
            for base in self.bases
        ]
        self._carry_over(plan)
        for one in self._parents_first(plan.tables):
            told = self._stage_table(one)
            if told is not None:
                resolved = told.resolved + plan.resolved.get(one.name, 0)
                self._tables.append(replace(told, resolved=resolved))

    def _parents_first(self, plans: Sequence[TablePlan]) -> list[TablePlan]:
        """Tables after those that they refer to, of which columns may get other ids."""
        by_id = {one.id: one for one in plans}
        found: dict[str, TablePlan] = {}
        begun: set[str] = set()

        def visit(one: TablePlan) -> None:
            if one.id in begun:
                return
            begun.add(one.id)
            for rule in rules_of(self._store.files.declarations, one.source):
                if rule.table in by_id:
                    visit(by_id[rule.table])
            found[one.id] = one

        for one in plans:
            visit(one)
        return list(found.values())

    def _stage_table(self, plan: TablePlan) -> TableMerge | None:
        match plan.step:
            case "adopt" | "create":
                return self._adopt(plan)
            case "drop":
                assert plan.target is not None
                if self._transaction is not None:
                    self._transaction.drop_kept(plan.target)
                return TableMerge(plan.name, "dropped", deleted=plan.target.rows)
            case "rows":
                return self._merge_rows(plan)
        if not plan.renamed:
            return None
        assert plan.target is not None
        self._place(StagedTable(self._store.files, plan.target, name=plan.name))
        return TableMerge(plan.name, "renamed", why=f"from {plan.target.name!r}")

    def _adopt(self, plan: TablePlan) -> TableMerge:
        assert plan.source is not None
        action: TableAction = "created"
        counts = Counts(inserted=plan.source.rows)
        if plan.target is not None:
            action = "adopted"
            since = int(self.target.origin(plan.target).rpartition("-")[2])
            counts = counts_since(
                self._store.files, self._store.log, self.source, plan.source, plan.target, since
            )
        if self._transaction is not None:
            files = self._store.files
            staged = adopt(files, self.source, plan.source, plan.target, plan.name, counts)
            self._place(staged)
            after = with_targets(staged.schema, self._columns())
            if after is not staged.schema:
                staged.add(SchemaChange(staged.schema, after))
        return TableMerge(plan.name, action, counts.inserted, counts.updated, counts.deleted)

    def _merge_rows(self, plan: TablePlan) -> TableMerge | None:
        assert plan.source is not None
        assert plan.target is not None
        merging = MergingTable.open(
            self._store,
            plan.name,
            (self.source, plan.source),
            (self.target, plan.target),
            [(base, *paths) for base, paths in zip(self.bases, self._paths, strict=True)],
            plan.bases,
            self._options.resolutions.of(plan.name),
            self._options.granularity,
            self.conflicts,
            self._columns(),
        )
        staged = None
        if self._transaction is not None:
            staged = StagedTable(self._store.files, plan.target, name=plan.name)
            self._transaction.place(staged)
        merged = merging.run(staged)
        if staged is not None and staged.changed:
            self._moving.add(plan.id)
        self._merged[plan.id] = merged
        counts = merged.counts
        found = any(table == plan.name for table, _ in self.conflicts.counts)
        if counts.empty and not merged.altered and not merged.resolved and not found:
            return TableMerge(plan.name, "renamed") if plan.renamed else None
        return TableMerge(
            plan.name,
            "merged",
            counts.inserted,
            counts.updated,
            counts.deleted,
            resolved=merged.resolved,
            why="columns merged" if merged.altered else "",
        )

    def _place(self, staged: StagedTable) -> None:
        if self._transaction is not None:
            self._transaction.place(staged)
            self._moving.add(staged.state.id)

    def _compare_rules(self, plan: Plan) -> MergedRules | None:
        """Note what would not hold of the merged tables; what publication asks of rules."""
        self.has_rules = any(
            one.schema for tip in (self.source, self.target) for one in tip.tables.states()
        )
        if self._transaction is None:
            return None
        rules = MergedRules(
            self._store.files,
            self._store.engine,
            source=self.source,
            target=self.target,
            taken=frozenset(one.id for one in plan.tables if one.step in ("adopt", "create")),
        )
        if self.has_rules:
            rules.compare(self._transaction.changes(), self.conflicts)
        return rules

    # Stream tables

    def _compare_results(self, rules: MergedRules | None) -> None:
        """Note what would not hold of results; those that are refreshed with the merge are compared
        when that is done."""
        if rules is None or self._transaction is None or self._options.refresh:
            return
        if self.has_rules and not self.conflicts.total:
            rules.compare_results(self._transaction.changes(), self.conflicts)

    def _stage_streams(self, plans: StreamPlans) -> None:
        for one in plans.streams:
            told = tell_stream(one)
            if told is not None:
                resolved = plans.resolved.get(told.table, 0)
                self._tables.append(replace(told, resolved=resolved))
        if self._transaction is None or self.conflicts.total:
            return
        moving = {
            one.state.id for one in plans.streams if one.step in ("adopt", "create", "define")
        }
        staging = TakenStreams(
            self._store,
            self.source,
            self.target,
            self._transaction,
            self._moving | moving,
            partial(self._options.renumber, self._columns()),
        )
        for one in plans.streams:
            staging.stage(one)
        self.refreshed = staging.refreshed

    def _find_unmet(self) -> None:
        """What stream tables of both sides read, and do not find in the merged tables."""
        if self._transaction is None or self.conflicts.total:
            return
        after = self._transaction.tables()
        for error in self._options.unmet(self.target.tables, after):
            column = error.evidence.get("column")
            kind: ConflictKind = "dropped table" if column is None else "schema"
            columns = () if column is None else (str(column),)
            table = str(error.evidence["table"])
            why = error.message.rstrip(".")
            self.conflicts.add(Conflict(table, kind, columns=columns, why=why))

    def _columns(self) -> dict[str, dict[int, int]]:
        """The columns of the source by their ids, with those at the target where they differ."""
        return {
            table_id: {pair[0]: pair[1] for pair in one.columns}
            for table_id, one in self._merged.items()
            if one.columns is not None
        }

    # What the commit tells

    def _told(self, plan: Plan, streams: StreamPlans) -> dict[str, Any]:
        told: dict[str, Any] = {
            "source": self.source.branch.name,
            "commit": self.source.place.commit,
            "ancestry": self._ancestry,
            "outcome": self.outcome,
            "bases": [base.place.commit for base in self.bases if base.version],
        }
        resolved = {
            one.table: {"by": self._options.resolutions.of(one.table).told(), "rows": one.resolved}
            for one in self._tables
            if one.resolved
        }
        if resolved:
            told["resolved"] = resolved
        for table_id, one in self._merged.items():
            if one.rows is not None:
                told.setdefault("rows", {})[table_id] = keep_renumbering(self._store, one.rows)
            if one.columns is not None:
                told.setdefault("columns", {})[table_id] = one.columns
        return told

    def _carry_over(self, plan: Plan) -> None:
        """What earlier merges told of tables that this one leaves as they are at the target holds
        for the source as it is now."""
        done = {one.id for one in plan.tables if one.step in ("adopt", "create", "rows", "drop")}
        tips = [self.source, self.target]
        for base, (here, there) in zip(self.bases, self._paths, strict=True):
            for table_id in (here.tables() | there.tables()) - done - self._merged.keys():
                before, *sides = (
                    next((one for one in tip.tables.states() if one.id == table_id), None)
                    for tip in (base, *tips)
                )
                if before is None or None in sides:
                    continue
                if len({tip.origin(one) for tip, one in zip(tips, sides, strict=True) if one}) > 1:
                    self._merged[table_id] = self._as_before(before, here, there)

    def _as_before(self, before: TableState, here: Path, there: Path) -> Merged:
        """Which rows and columns of the source are which at the target, as they were at a base."""
        files = self._store.files
        schema = files.known_schema(before) or files.schema(before, files.read(before))
        ids = [one.id for one in schema.columns]
        now, then = here.columns(before.id, ids), there.columns(before.id, ids)
        pairs = [[now[one], then[one]] for one in ids if one in now and one in then]
        same = len(pairs) == len(ids) and all(one == other for one, other in pairs)
        rows = here.rows(before.id).inverse().then(there.rows(before.id))
        return Merged(rows=None if rows.is_identity else rows, columns=None if same else pairs)


def _origins(source: Tip, plan: Plan) -> dict[str, str | None]:
    """What merged tables will be: the source's, or, where rows are merged, nobody's yet."""
    found: dict[str, str | None] = {}
    for one in plan.tables:
        if one.step in ("adopt", "create") and one.source is not None:
            found[one.id] = source.origin(one.source)
        elif one.step in ("rows", "drop"):
            found[one.id] = None
    return found


def _outcome(plan: Plan, streams: StreamPlans) -> Outcome:
    if not (plan.source_changed or streams.source_changed):
        return "up to date"
    if plan.target_changed or streams.target_changed:
        return "merged"
    return "fast-forward"


def refuse_conflicts(merge: Merge) -> None:
    """MergeConflict if there is one."""
    if sum((merge.counts or {}).values()):
        raise as_error(merge.source, merge.target, merge.conflicts, merge.counts or {})


def as_published(source: str, commit: Commit) -> Merge:
    """What became of a merge that was published before under the same operation id."""
    told = commit.properties.get(MERGE, {})
    bases = tuple(told.get("bases", ()))
    outcome = told.get("outcome", "up to date")
    return Merge(told.get("source", source), commit.branch, outcome, bases, (), commit=commit)


def preview(store: Store, source: str, into: str, options: Options) -> Merge:
    """What merging would do, conflicts included. Rules are compared with rows that are staged, and
    then forgotten."""
    merging = Merging(store, source, into, options, None, dry_run=True)
    report = merging.run()
    if not merging.has_rules:
        return report
    transaction = store.begin(into, message=f"preview of merging {source}")
    try:
        return Merging(store, source, into, options, transaction, dry_run=True).run()
    finally:
        transaction.rollback()
