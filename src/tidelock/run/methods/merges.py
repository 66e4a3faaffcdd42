"""The part of the Lake handle that merges branches.

Owns: the composition. The store merges tables (`store/merge`); derive says which stream tables
belong together, what their definitions are, and refreshes them within the commit of the merge.
"""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from tidelock.errors import Action, ConflictError
from tidelock.model.arguments import check_text
from tidelock.store.branches import MAIN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelock.derive.catalog import Catalog
    from tidelock.errors import TableInUse
    from tidelock.model.history.commit import Tables
    from tidelock.model.history.conflicts import Values
    from tidelock.model.history.merges import Granularity, Merge, OnConflict
    from tidelock.store.merge.options import Columns, Options
    from tidelock.store.store import Store
    from tidelock.store.transaction import Transaction

ATTEMPTS_MAX = 20
PAUSE_SECONDS_MAX = 0.5


class MergeMethods:
    """Merging branches."""

    _store: Store
    _catalog: Catalog

    def merge(
        self,
        source: str,
        into: str = MAIN,
        *,
        on_conflict: OnConflict | None = None,
        granularity: Granularity = "column",
        refresh: bool = False,
        delete_branch: bool = False,
        dry_run: bool = False,
        message: str = "",
        actor: str | None = None,
        operation_id: str | None = None,
    ) -> Merge:
        """Merge a branch into another, as one commit with two parents, or not at all.

        Rows are matched by key, or by row id in tables without one; a table that one side alone
        changed is adopted as it is. What both sides changed otherwise is a conflict: all are
        reported together by MergeConflict, and nothing is published. `on_conflict` resolves them,
        for all tables or by table: "source", "target", or SQL for each column over `base`, `source`
        and `target`. With granularity="row" two changes of one row are a conflict also where they
        are of different columns. `refresh` brings the stream tables that follow from merged inputs
        up to date in the same commit; else the next refresh does. `dry_run` tells what would be
        done, conflicts included, and publishes nothing. `delete_branch` deletes the source
        afterwards. An `operation_id` names one merge, which is published once.
        """
        from tidelock.model.history.merges import Resolutions, check_granularity
        from tidelock.store.merge.merge import preview
        from tidelock.store.merge.options import Options

        store = self._store
        options = Options(
            Resolutions.read(on_conflict),
            check_granularity(granularity),
            self._units,
            self._describe,
            self._renumber,
            self._unmet,
            refresh,
        )
        check_text(message, "A message")
        if dry_run:
            return preview(store, source, into, options)
        with ExitStack() as stack:
            for attempt in count():
                try:
                    transaction = store.begin(
                        into,
                        message=message or f"merge {source}",
                        actor=actor,
                        operation_id=operation_id,
                    )
                    done, merged = self._merge_once(source, options, refresh, transaction)
                    break
                except ConflictError as error:
                    # The target moved: it is merged again, into what is there now.
                    retried = error.action is Action.REFRESH_AND_RETRY
                    if not retried or attempt >= ATTEMPTS_MAX:
                        raise
                if attempt == 0:
                    branch = store.branches.resolve(into)
                    stack.enter_context(store.publisher.precedence.taken(branch.id))
                else:
                    time.sleep(random.uniform(0, min(PAUSE_SECONDS_MAX, 0.005 * 2**attempt)))
        if delete_branch and merged is not None:
            store.close_branch(source, merged)
            done = replace(done, deleted_branch=True)
        return done

    def _merge_once(
        self, source: str, options: Options, refresh: bool, transaction: Transaction
    ) -> tuple[Merge, int | None]:
        """What became of one attempt, and the version of the source that is merged now."""
        from tidelock.derive.refresh.merged import refresh_merged
        from tidelock.store.merge.merge import Merging, as_published, refuse_conflicts

        store, into = self._store, transaction.branch.name
        try:
            if transaction.earlier is not None:
                transaction.rollback()
                return as_published(source, transaction.earlier), None
            merging = Merging(store, source, into, options, transaction)
            report = merging.run()
            refuse_conflicts(report)
            if report.outcome == "up to date":
                transaction.rollback()
                return report, merging.source.version
            if merging.refreshed:
                transaction.properties["refresh"] = merging.refreshed
            if refresh:
                report = refresh_merged(store, self._catalog, transaction, report)
            transaction.publish()
        except BaseException:
            transaction.rollback()
            raise
        return replace(report, commit=transaction.commit), merging.source.version

    def _units(self, tables: Tables) -> list[tuple[str, ...]]:
        return [unit.members for unit in self._catalog.arrange(tables).units]

    def _describe(self, definition: str) -> Values:
        stored = self._catalog.stored(definition)
        names = "query schedule refresh_mode consistency schedule_policy"
        told = {name: getattr(stored.definition, name) for name in names.split()}
        # A `*` stands for the columns that it was expanded to, whatever their ids are.
        sees = {
            one.table: [f"{column.label} {column.type}" for column in one.columns]
            for one in stored.seen
        }
        return {**told, "sees": sees}

    def _renumber(self, columns: Columns, definition: str) -> str:
        stored = self._catalog.stored(definition)
        if not any(one.table_id in columns for one in stored.seen):
            return definition
        seen = tuple(one.renumbered(columns.get(one.table_id, {})) for one in stored.seen)
        return self._catalog.keep(replace(stored, seen=seen))

    def _unmet(self, before: Tables, after: Tables) -> Iterable[TableInUse]:
        from tidelock.derive.dependents import all_unmet, unmet_needs

        files = self._store.files
        streams = self._catalog.arrange(after).streams.values()
        return all_unmet(unmet_needs(streams, files), before, files)
