"""Schemas, as methods of the Lake handle: what tables are, and what they shall be."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING

from tidelock.errors import CommitConflict
from tidelock.model.arguments import check_count
from tidelock.model.history.commit import Commit
from tidelock.model.listing import Listing
from tidelock.run.methods.snapshots import SnapshotMethods
from tidelock.store.branches import MAIN

# Imported where it is used and not here: schemas bring the parser of SQL, which most of what a
# lake does has no use for.
if TYPE_CHECKING:
    from tidelock.model.schema.alterations import Alteration
    from tidelock.model.schema.described import DescribedTable
    from tidelock.model.schema.plan.plan import SchemaPlan
    from tidelock.store.schema.history import SchemaVersion
    from tidelock.store.schema.sources import Source

CONFLICTS_MAX = 5


class SchemaMethods(SnapshotMethods):
    """What a lake does with the schemas of its tables."""

    def schema(
        self,
        table: str,
        *,
        branch: str | None = None,
        version: int | None = None,
        commit: str | None = None,
        at: datetime | str | None = None,
        tag: str | None = None,
    ) -> DescribedTable:
        """The columns and the rules of a table, now or at a version, a commit, a time or a tag.

        It shows itself as the statement that creates such a table.
        """
        from tidelock.store.schema.plans import describe

        snapshot = self.snapshot(branch, version=version, commit=commit, at=at, tag=tag)
        files, tables = self._store.files, snapshot.states()
        return describe(files, tables, table, snapshot.branch, snapshot.version)

    def alter_table(
        self,
        table: str,
        *alterations: Alteration | str,
        cascade: bool = False,
        branch: str = MAIN,
        message: str = "",
    ) -> Commit:
        """Change the columns, the rules or the name of a table, as one commit.

        An alteration is what stands behind ALTER TABLE and the name: `lake.alter_table("orders",
        "ADD COLUMN note STRING", "DROP COLUMN old")`. With `cascade`, stream tables that read a
        column that is dropped are dropped too, and those that read one that gets another type
        follow it.
        """
        told = message or f"alter table {table}"
        with self._store.begin(branch, message=told) as transaction:
            transaction.alter_table(table, *alterations, cascade=cascade)
        assert transaction.commit is not None
        return transaction.commit

    def schema_history(
        self, table: str, limit: int | None = 20, *, branch: str = MAIN
    ) -> Listing[SchemaVersion]:
        """Every commit that created, altered or renamed a table, newest first."""
        from tidelock.store.schema.history import schema_history

        if limit is not None:
            check_count(limit, "limit")
        head = self._store.branches.head(branch)
        return Listing.of(
            f"Schema of {head.tables[table].name}",
            islice(schema_history(self._store, head, table), limit),
            {
                "version": lambda v: v.version,
                "time": lambda v: v.time,
                "actor": lambda v: v.actor,
                "changes": lambda v: "; ".join(" ".join(c.split()) for c in v.changes),
            },
        )

    def plan_schema(
        self, source: Source, *, branch: str = MAIN, drop_undeclared: bool = False
    ) -> SchemaPlan:
        """The steps that bring the tables of a branch to what is declared; changes nothing.

        `source` is SQL text of CREATE TABLE statements, a .sql file or a folder of them. Tables
        that are not declared are left alone, unless `drop_undeclared`.
        """
        from tidelock.store.schema.plans import make_plan
        from tidelock.store.schema.sources import read_source

        declared = read_source(source)
        head = self._store.branches.head(branch)
        return make_plan(
            self._store.files,
            head.tables,
            declared.tables,
            branch=head.branch.name,
            version=head.version,
            drop_undeclared=drop_undeclared,
            notes=declared.notes,
        )

    def apply_schema(
        self,
        plan: SchemaPlan | Source,
        *,
        allow_data_loss: bool = False,
        cascade: bool = False,
        branch: str = MAIN,
        message: str = "",
    ) -> Commit | None:
        """Carry a plan out, as one commit; None if there is nothing to do.

        Steps that destroy something need `allow_data_loss`; with `cascade`, stream tables that read
        what is dropped go too, and those that read what is retyped follow. PlanOutdated if a schema
        that the plan is about changed since it was made. In the place of a plan, what it is made
        from may be given.
        """
        from tidelock.model.schema.plan.plan import SchemaPlan
        from tidelock.store.schema.plans import refuse_loss, stage_plan

        if not isinstance(plan, SchemaPlan):
            plan = self.plan_schema(plan, branch=branch)
        refuse_loss(plan, allow_data_loss)
        if not plan:
            return None
        told = message or f"apply schema: {plan.told}"
        for attempt in range(CONFLICTS_MAX):
            try:
                with self._store.begin(plan.branch, message=told) as transaction:
                    stage_plan(transaction, plan, cascade=cascade)
            except CommitConflict:
                # Rows came or changed meanwhile. The plan is for the schemas, which are the same.
                if attempt == CONFLICTS_MAX - 1:
                    raise
                continue
            return transaction.commit
        raise AssertionError("unreachable")
