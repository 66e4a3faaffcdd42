"""Rules at a merge: what would not hold of the merged tables, as conflicts beside all others.

Owns: which rules have to be compared, and what is told of those that would be broken. Nothing
follows from a merge (ON DELETE): a row that one side added, and that refers to one that the other
side deleted, is a conflict and never disappears.

Law: a rule speaks of the rows of its table and of those that the table refers to. Where all of
these are as the source has them, or all as the target has them, it holds, as it did there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import pyarrow as pa

from tidelock.errors import (
    CommitConflict,
    InvalidSchema,
    RuleBroken,
    TableInUse,
    TidelockError,
)
from tidelock.model.history.commit import TableChange
from tidelock.model.history.conflicts import Conflict, ConflictKind, Conflicts, Values
from tidelock.model.schema.rules import Rule, RuleKind
from tidelock.store.kinship.bases import Tip
from tidelock.store.log.line import Line
from tidelock.store.merge.refusal import as_error
from tidelock.store.rules.foundations import new_rules, refuse_unfounded
from tidelock.store.rules.kinds.kinds import KINDS, check_all
from tidelock.store.rules.prospect import Prospect, delta_of
from tidelock.store.rules.related import (
    References,
    are_concerned,
    references_of,
    related_tables,
    rules_of,
)
from tidelock.store.rules.rule_checks import RuleChecks
from tidelock.store.staging.staged_tables import StagedTables

_KINDS: dict[RuleKind, ConflictKind] = {
    "unique": "uniqueness",
    "check": "value constraint",
    "reference": "orphaned reference",
    "cardinality": "cardinality",
}


@dataclass(kw_only=True)
class MergedRules(RuleChecks):
    """The rules of the tables that a merge leaves. In the place of those of a transaction
    (rules/rule_checks.py), it lets the merge be made again when what they were compared with has
    changed."""

    source: Tip
    target: Tip
    taken: Collection[str]
    """The ids of tables that are as the source has them."""

    # Before publication

    def compare(self, changes: tuple[TableChange, ...], conflicts: Conflicts) -> None:
        """Note what would not hold once these changes are published."""
        for table, rule, error in self._broken(changes):
            self._tell(changes, table, rule, error, conflicts)

    def compare_results(self, changes: tuple[TableChange, ...], conflicts: Conflicts) -> None:
        """The same of stream tables alone, once it is known what they will hold."""
        results = tuple(
            one for one in changes if one.after is not None and one.after.stream is not None
        )
        self.compare(results, conflicts)

    def _broken(
        self, changes: tuple[TableChange, ...]
    ) -> Iterator[tuple[str, Rule | None, TidelockError]]:
        """What is wrong with which table, by its id."""
        if not are_concerned(self.files, self.target.tables, changes):
            return
        prospect = self._merged(changes)
        references = references_of(self.files.declarations, prospect.tables)
        for change in changes:
            try:
                refuse_unfounded(prospect, (change,), references)
            except (TableInUse, InvalidSchema) as error:
                yield change.table_id, None, error
                return
        for table_id, rule, check in self._checks(prospect, changes, references):
            try:
                check()
            except RuleBroken as error:
                yield table_id, rule, error

    def _merged(self, changes: tuple[TableChange, ...]) -> Prospect:
        tables = self.target.tables.after(changes)
        return Prospect(self.files, self.engine, tables, passed=self._passed)

    def _checks(
        self, prospect: Prospect, changes: tuple[TableChange, ...], references: References
    ) -> Iterator[tuple[str, Rule, Any]]:
        by_id = {change.table_id: change for change in changes}
        concerned = dict.fromkeys(by_id)
        for change in changes:
            concerned.update(dict.fromkeys(child for child, _ in references.to(change.table_id)))
        for table_id in concerned:
            state = prospect.find_state(table_id)
            rules = rules_of(self.files.declarations, state)
            if not rules or self._is_settled(table_id, rules, by_id):
                continue
            own = by_id.get(table_id)
            new = [] if own is None else list(new_rules(prospect, own))
            for rule in rules:
                if rule in new:
                    yield table_id, rule, partial(check_all, prospect, table_id, rule)
                    continue
                kind = KINDS[rule.kind]
                if own is not None:
                    delta = delta_of(self.files, own)
                    yield table_id, rule, partial(kind.check, prospect, table_id, rule, delta)
                for parent in self._parents(rule, rules):
                    if kind.check_parents is not None and parent in by_id:
                        delta = delta_of(self.files, by_id[parent])
                        check = kind.check_parents
                        yield table_id, rule, partial(check, prospect, table_id, rule, delta)

    def _parents(self, rule: Rule, rules: Sequence[Rule]) -> list[str]:
        """The tables whose rows a rule speaks of, beyond those of its own."""
        if rule.kind == "reference":
            return [rule.table]
        return list(dict.fromkeys(one.table for one in rules if one.kind == "reference"))

    def _is_settled(
        self, table_id: str, rules: Sequence[Rule], changes: dict[str, TableChange]
    ) -> bool:
        tables = {table_id, *(rule.table for rule in rules if rule.kind == "reference")}
        return all(one not in changes for one in tables) or all(
            one in self.taken or (one not in changes and one in self._alike) for one in tables
        )

    @cached_property
    def _alike(self) -> frozenset[str]:
        """The ids of tables that are the same at both sides."""
        here = {one.id: self.source.origin(one) for one in self.source.tables.states()}
        return frozenset(
            one.id
            for one in self.target.tables.states()
            if here.get(one.id) == self.target.origin(one)
        )

    # What is told

    def _tell(
        self,
        changes: tuple[TableChange, ...],
        table_id: str,
        rule: Rule | None,
        error: TidelockError,
        conflicts: Conflicts,
    ) -> None:
        name = next((one.table for one in changes if one.table_id == table_id), "") or self._merged(
            changes
        ).name(table_id)
        if rule is None or not isinstance(error, RuleBroken):
            conflicts.add(Conflict(name, "schema", why=_reason(error)))
            return
        known = self._is_known_to_both(table_id, rule)
        kind: ConflictKind = _KINDS[rule.kind] if known else "rule against data"
        prospect = self._merged(changes)
        columns = tuple(prospect.labels(table_id, rule.columns))
        rows = error.evidence["rows"]
        key = prospect.schema(table_id).key
        why = f"rule {rule.name!r}: {_reason(error)}"
        sides = [self._rows_at(tip, table_id, key, rows) for tip in (self.source, self.target)]
        for number, row in enumerate(rows):
            told = {one: row[one] for one in key} or None
            here, there = sides[0][number], sides[1][number]
            if told is None:
                here = row
            conflicts.add(Conflict(name, kind, told, None, here, there, columns, why))
        conflicts.count(name, kind, max(0, max(1, error.evidence["count"]) - len(rows)))

    def _is_known_to_both(self, table_id: str, rule: Rule) -> bool:
        for tip in (self.source, self.target):
            state = next((one for one in tip.tables.states() if one.id == table_id), None)
            if not any(one.name == rule.name for one in rules_of(self.files.declarations, state)):
                return False
        return True

    def _rows_at(
        self, tip: Tip, table_id: str, key: Sequence[str], rows: Sequence[dict[str, Any]]
    ) -> list[Values | None]:
        """The rows of some keys as a side has them."""
        found: list[Values | None] = [None] * len(rows)
        there = Prospect(self.files, self.engine, tip.tables)
        if not key or not rows or there.find_state(table_id) is None:
            return found
        schema = there.schema(table_id)
        if set(schema.key) != set(key):
            return found
        keys = pa.table(
            {one: pa.array([row[one] for row in rows], schema.column(one).type) for one in key}
        )
        match = there.find(table_id, [schema.column(one).id for one in key], keys)
        told = there.rows_at(table_id, match.addresses, list(schema.shown.names)).to_pylist()
        for place, row in zip(match.positions.tolist(), told, strict=True):
            found[place] = row
        return found

    # At publication

    def rebase(
        self, staged: StagedTables, line: Line, operation_id: str
    ) -> tuple[TableChange, ...]:
        """The changes on top of a line; CommitConflict if rules would have to be compared again,
        MergeConflict for what a refresh brings."""
        changes = staged.rebase(line, operation_id)
        if not are_concerned(self.files, line.tables, changes):
            return changes
        then = related_tables(self.files, self.target.tables, changes)
        now = related_tables(self.files, line.tables, changes)
        if then != now:
            moved = sorted(one for one in {*then, *now} if then.get(one) != now.get(one))
            raise CommitConflict(
                "Tables that rules compare the merged ones with were changed meanwhile. Merge "
                "again.",
                operation_id=operation_id,
                tables=moved,
            )
        conflicts = Conflicts()
        self.compare_results(changes, conflicts)
        if conflicts.total:
            sides = self.source.branch.name, self.target.branch.name
            raise as_error(*sides, conflicts.found, dict(conflicts.counts))
        return changes

    def check_ahead(self, staged: StagedTables, line: Line, operation_id: str) -> None:
        """Everything was compared already."""


def _reason(error: TidelockError) -> str:
    """What an error says is wrong, without what was not done."""
    reason: str = error.evidence.get("reason") or error.message
    return reason.removesuffix("Nothing was written.").rstrip(" .")
