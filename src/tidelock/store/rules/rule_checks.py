"""The rules of one transaction, over all its attempts to publish.

Owns: what was found to hold, and on top of which tables. An attempt that follows a lost race looks
again only if something changed that its rules have to do with: few rows of its own are compared
with the new head as before; many are not, for they agree with the head that they were compared
with, so that what the winners changed since is compared with them instead.

    H1 + ours agrees, and so does H2 = H1 + theirs: then whatever breaks a rule in H2 + ours is a
    row of theirs, or refers to one that they removed, or is of a group that they changed.

After a crash: nothing of it is durable; who publishes the work of another compares it again
(`recheck`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidelock.model.history.commit import TableChange, Tables
from tidelock.store.rules.limits import LIMITS, Limits
from tidelock.store.rules.related import are_concerned, references_of, related_tables

if TYPE_CHECKING:
    from tidelock.store.engine import Engine
    from tidelock.store.log.line import Line
    from tidelock.store.rules.deltas import TableDelta
    from tidelock.store.rules.prospect import Prospect
    from tidelock.store.staging.staged_tables import StagedTables
    from tidelock.store.tables.datasets import TableFiles


@dataclass
class RuleChecks:
    """What is known of the rules of a transaction that is being published."""

    files: TableFiles
    engine: Engine
    limits: Limits = LIMITS
    _tables: Tables | None = None
    """The tables on top of which everything was found to agree."""
    _seen: dict[str, tuple[int, str] | None] = field(default_factory=dict)
    """What that depended on."""
    _changes: tuple[TableChange, ...] = ()
    _followed: bool = False
    _passed: set[tuple[str, str, str]] = field(default_factory=set)

    def rebase(
        self, staged: StagedTables, line: Line, operation_id: str
    ) -> tuple[TableChange, ...]:
        """The changes that publishing on top of these tables makes, with what follows from them;
        CommitConflict, or RuleBroken if a rule would not hold then."""
        tables = line.tables
        if self._followed and (self._tables is None or self._moved(tables, self._changes)):
            staged.forget_derived()
            self._followed, self._tables = False, None
        changes = staged.rebase(line, operation_id)
        if not are_concerned(self.files, tables, changes):
            return changes
        if self._tables is None or self._moved(tables, changes):
            changes = self._check(staged, line, operation_id, changes)
        return changes

    def check_ahead(self, staged: StagedTables, line: Line, operation_id: str) -> None:
        """As `rebase`, for nothing but to know that the rules hold, where there are any."""
        references = references_of(self.files.declarations, line.tables)
        if any(one.state.schema or references.to(one.state.id) for one in staged.changed()):
            self.rebase(staged, line, operation_id)

    def _moved(self, tables: Tables, changes: tuple[TableChange, ...]) -> bool:
        """Whether anything changed that the rules have to do with."""
        return related_tables(self.files, tables, changes) != self._seen

    def _check(
        self,
        staged: StagedTables,
        line: Line,
        operation_id: str,
        changes: tuple[TableChange, ...],
    ) -> tuple[TableChange, ...]:
        # Imported here and not above: they bring the parser of SQL, which tables without rules have
        # no use for.
        from tidelock.store.rules.follow import follow
        from tidelock.store.rules.foundations import refuse_unfounded
        from tidelock.store.rules.verification import check_changes, check_deltas

        tables = line.tables
        prospect = self._prospect(tables, changes)
        references = references_of(self.files.declarations, prospect.tables)
        refuse_unfounded(prospect, changes, references)
        # Retention removes rows and does nothing else.
        if not staged.prunings and follow(prospect, staged, changes, references):
            self._followed, self._tables = True, None
            changes = staged.rebase(line, operation_id)
            prospect = self._prospect(tables, changes)
        theirs = self._theirs(tables, changes)
        if theirs is None:
            check_changes(prospect, changes, references)
        else:
            check_deltas(prospect, theirs, references)
        self._tables, self._changes = tables, changes
        self._seen = related_tables(self.files, tables, changes)
        return changes

    def _prospect(self, tables: Tables, changes: tuple[TableChange, ...]) -> Prospect:
        from tidelock.store.rules.prospect import Prospect

        after = tables.after(changes)
        return Prospect(self.files, self.engine, after, self.limits, self._passed)

    def _theirs(self, tables: Tables, changes: tuple[TableChange, ...]) -> list[TableDelta] | None:
        """What others changed since everything agreed, if that is less than what is changed here,
        and nothing but rows; else None."""
        from tidelock.store.rules.prospect import delta_of
        from tidelock.store.rules.verification import winners

        if self._tables is None:
            return None
        ours = [delta_of(self.files, change) for change in changes]
        rows = sum(one.came + one.left for one in ours)
        if rows <= self.limits.again_rows:
            return None
        theirs = winners(self.files, self._tables, tables, self._seen, changes)
        if theirs is None or sum(one.came + one.left for one in theirs) >= rows:
            return None
        return theirs


def recheck(
    files: TableFiles,
    engine: Engine,
    then: Callable[[], Tables],
    now: Tables,
    changes: tuple[TableChange, ...],
    limits: Limits = LIMITS,
) -> None:
    """RuleBroken if changes that agreed with the tables `then` do not with those of `now`. The
    tables that they are of are the same in both."""
    if not are_concerned(files, now, changes):
        return
    before = then()
    seen = related_tables(files, before, changes)
    if related_tables(files, now, changes) == seen:
        return
    from tidelock.store.rules.foundations import refuse_unfounded
    from tidelock.store.rules.prospect import Prospect
    from tidelock.store.rules.verification import check_changes, check_deltas, winners

    prospect = Prospect(files, engine, now.after(changes), limits)
    references = references_of(files.declarations, prospect.tables)
    refuse_unfounded(prospect, changes, references)
    theirs = winners(files, before, now, seen, changes)
    if theirs is None:
        check_changes(prospect, changes, references)
    else:
        check_deltas(prospect, theirs, references)


def check_replaced(
    files: TableFiles, engine: Engine, tables: Tables, change: TableChange, limits: Limits = LIMITS
) -> None:
    """RuleBroken if rows that somebody else put in the place of all others do not agree."""
    if not are_concerned(files, tables, (change,)):
        return
    from tidelock.store.rules.prospect import Prospect
    from tidelock.store.rules.verification import check_whole

    prospect = Prospect(files, engine, tables.after((change,)), limits)
    check_whole(prospect, change, references_of(files.declarations, prospect.tables))
