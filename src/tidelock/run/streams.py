"""The part of the Lake handle that is about stream tables."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from tidelock.errors import InvalidOption
from tidelock.model.history.commit import Commit
from tidelock.model.listing import Listing
from tidelock.model.streams import (
    UPSTREAM,
    Consistency,
    Definition,
    RefreshMode,
    SchedulePolicy,
    StreamOptions,
)
from tidelock.run.rooms import Rooms
from tidelock.store.branches import MAIN
from tidelock.store.points import At

if TYPE_CHECKING:
    from tidelock.derive.attempts.attempts import Attempt
    from tidelock.derive.definitions.apply import Applied, Review
    from tidelock.derive.graph.groups import Unit
    from tidelock.derive.reports import (
        Drawing,
        Explanation,
        Freshness,
        GroupState,
        StreamTable,
    )
    from tidelock.run.scheduler import Watcher
    from tidelock.store.leases.single_holder import Holder


class StreamMethods(Rooms):
    """Stream tables: tables that are defined by a query and follow their inputs."""

    def create_stream_table(
        self,
        name: str,
        query: str,
        *,
        schedule: str | None = UPSTREAM,
        refresh_mode: RefreshMode = "auto",
        consistency: Consistency = "atomic",
        schedule_policy: SchedulePolicy = "fastest",
        branch: str = MAIN,
    ) -> Commit:
        """Create a table that holds the rows of a query and follows its inputs by refreshes.

        `schedule` is a duration ("30s", "1h30m"), a cron line in UTC ("*/5 * * * *"), "upstream"
        (whenever an input changed) or None (only when asked). The first refresh fills it.
        """
        definition = Definition(query, schedule, refresh_mode, consistency, schedule_policy)
        return self._definitions.create(name, definition, branch)

    def create_or_replace_stream_table(
        self, name: str, query: str, *, branch: str = MAIN, **options: Unpack[StreamOptions]
    ) -> Commit:
        """As create_stream_table, in the place of a stream table of that name if there is one."""
        definition = Definition(query, **options)
        return self._definitions.create(name, definition, branch, replace_it=True)

    def alter_stream_table(self, name: str, *, branch: str = MAIN, **options: Any) -> Commit:
        """Change schedule, refresh_mode, consistency or schedule_policy; the rows stay."""
        known = ("schedule", "refresh_mode", "consistency", "schedule_policy")
        for option in options:
            if option not in known:
                raise InvalidOption(
                    f"{option!r} cannot be altered. Use one of: {', '.join(known)}; another query "
                    "needs create_or_replace_stream_table.",
                    option=option,
                )
        return self._definitions.alter(name, branch, options)

    def drop_stream_table(self, name: str, cascade: bool = False, *, branch: str = MAIN) -> Commit:
        """Drop a stream table; with `cascade`, also those that read it."""
        return self._definitions.drop(name, branch, cascade=cascade)

    def apply(
        self,
        folder: str | os.PathLike[str],
        *,
        dry_run: bool = False,
        allow_drop: bool = False,
        allow_data_loss: bool = False,
        cascade: bool = False,
        review: Review | None = None,
        branch: str = MAIN,
    ) -> Applied:
        """Bring tables and stream tables to what the .sql and .py files of a folder define.

        Everything is one commit; without a change there is none. Of stream tables only what was
        applied from this folder before and is no longer defined is dropped, and only with
        `allow_drop`. Tables that no file declares are left alone; what a step destroys, such as a
        column, needs `allow_data_loss`, and `cascade` if stream tables read it. `dry_run` checks
        everything and changes nothing. `review` is called with the plan once it is checked, in the
        place of `allow_drop`; when it returns False, nothing is changed.
        """
        from tidelock.derive.definitions.apply import apply_folder, refuse_drops

        self._store.refuse_unusable()
        if review is None:
            review = (lambda plan: True) if allow_drop else refuse_drops
        return apply_folder(
            self._store,
            self._definitions,
            folder,
            branch,
            dry_run=dry_run,
            review=review,
            allow_data_loss=allow_data_loss,
            cascade=cascade,
        )

    def suspend(self, name: str, *, reason: str = "by hand", branch: str = MAIN) -> Commit | None:
        """Stop refreshing a stream table, and with it its whole atomic group.

        None, and nothing is changed, if it is suspended already.
        """
        return self._definitions.suspend(name, branch, reason)

    def resume(self, name: str, *, branch: str = MAIN) -> Commit | None:
        """Refresh a suspended stream table again; one that is backing off is tried at once.

        None, and there is no commit, if it is not suspended.
        """
        return self._definitions.resume(name, branch)

    def refresh(
        self,
        names: str | Sequence[str] | None = None,
        *,
        due: bool = False,
        full: bool = False,
        consistency: str | None = None,
        branch: str = MAIN,
        parallel: bool = True,
        progress: Callable[[Attempt], None] | None = None,
        begun: Callable[[Unit], None] | None = None,
        stop: threading.Event | None = None,
    ) -> Listing[Attempt]:
        """Bring everything up to date, or what is named, upstream first.

        That includes tables that are refreshed only when asked, that are not due yet, or that are
        backing off; what is suspended is told, and left as it is. With `due` only what is due by
        its schedule or by changes, as the scheduler does.
        Every group is one commit; `consistency="lake"` makes the whole graph one. `full` computes
        everything anew. A failure is in the report, and durable, and stops nobody else.
        `begun` is called when a group or a table is begun, `progress` when a table is done. Once
        `stop` is set nothing more is begun; what was, is finished.
        """
        from tidelock.derive.reports import refresh_listing

        if consistency not in (None, "lake"):
            raise InvalidOption(
                f"consistency={consistency!r} is not known here. Use 'lake', or leave it out.",
                consistency=consistency,
            )
        asked = [names] if isinstance(names, str) else names
        attempts = self._refreshes.refresh(
            asked,
            branch,
            due=due,
            full=full,
            together=consistency == "lake",
            parallel=parallel,
            progress=progress,
            begun=begun,
            stop=stop,
        )
        return refresh_listing(attempts)

    def stream_tables(self, *, branch: str = MAIN) -> Listing[StreamTable]:
        """All stream tables, upstream first, and where they stand."""
        return self._reporting.stream_tables(branch)

    def groups(self, *, branch: str = MAIN) -> Listing[GroupState]:
        """The groups that are refreshed in one commit, and what each is waiting for."""
        return self._reporting.groups(branch, self._refreshes.due)

    def graph(self, *, branch: str = MAIN) -> Drawing:
        """The graph of stream tables; shows itself as text, `.mermaid()` and `.dot()` draw it."""
        return self._reporting.graph(branch)

    def explain(self, name: str, *, branch: str = MAIN, at: At | None = None) -> Explanation:
        """How a stream table is kept: operators, state, the mode that is chosen and why.

        `.sql` of it is what the engine is asked. Writes nothing. With `at` (a version, a commit
        id, a tag's name or a time): as it was then.
        """
        from tidelock.derive.explain.explain import explain_stream

        return explain_stream(self._store, self._catalog, name, branch, at)

    def history(self, name: str, limit: int | None = 20, *, branch: str = MAIN) -> Listing[Attempt]:
        """Every attempt to refresh a stream table, newest first, failures included."""
        return self._reporting.history(name, limit, branch)

    def freshness(self, name: str, *, branch: str = MAIN) -> Freshness:
        """How far a stream table is behind what it is computed from."""
        return self._reporting.freshness(name, branch)

    def serve_schedule(
        self,
        *,
        branch: str = MAIN,
        stop: threading.Event | None = None,
        watcher: Watcher | None = None,
    ) -> None:
        """Read, refresh and deliver what is due, by schedule and by changes, until `stop` is set.

        One process at a time does this for a branch; another one waits until it may.
        """
        from tidelock.run.scheduler import Scheduler

        self._store.refuse_read_only()
        Scheduler(self._store, self._refreshes, self._sinks, branch, sources=self._sources).run(
            stop or threading.Event(), watcher
        )

    def scheduler(self, *, branch: str = MAIN) -> Holder | None:
        """Who reads, refreshes and delivers what is due on a branch now; None if nobody does."""
        from tidelock.store.leases.scheduler_post import post_of

        return post_of(self._store, self._store.branches.head(branch).branch.name).holder()
