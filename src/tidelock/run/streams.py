"""The part of the Lake handle that is about stream tables."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Unpack

from tidelock.deliver.sinks import Sinks
from tidelock.derive.catalog import Arrangement, Catalog, LostDefinition, Stream, stream_of
from tidelock.derive.definitions.apply import Applied, Review, apply_folder, refuse_drops
from tidelock.derive.definitions.define import StreamDefinitions, checked
from tidelock.derive.definitions.options import MANUAL
from tidelock.derive.graph.due import suspension
from tidelock.derive.graph.groups import Group, Unit
from tidelock.derive.refresh.attempts import Attempt, keys_by_table, recorded, told_failures
from tidelock.derive.refresh.explain import explain_stream
from tidelock.derive.refresh.refreshes import StreamRefreshes
from tidelock.derive.reports import (
    Drawing,
    Explanation,
    Freshness,
    GroupState,
    StreamTable,
    refresh_listing,
)
from tidelock.errors import InvalidOption
from tidelock.model.commit import Commit
from tidelock.model.listing import Listing
from tidelock.model.streams import (
    UPSTREAM,
    Consistency,
    Definition,
    RefreshMode,
    SchedulePolicy,
    StreamOptions,
)
from tidelock.run.scheduler import Scheduler, Watcher, post_of
from tidelock.store.branches import MAIN
from tidelock.store.leases.single_holder import Holder
from tidelock.store.log.log import Head
from tidelock.store.points import At
from tidelock.store.store import Store


class StreamMethods:
    """Stream tables: tables that are defined by a query and follow their inputs."""

    _store: Store
    _catalog: Catalog
    _definitions: StreamDefinitions
    _refreshes: StreamRefreshes
    _sinks: Sinks

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
        return self._definitions.create(name, checked(definition), branch)

    def create_or_replace_stream_table(
        self, name: str, query: str, *, branch: str = MAIN, **options: Unpack[StreamOptions]
    ) -> Commit:
        """As create_stream_table, in the place of a stream table of that name if there is one."""
        definition = checked(Definition(query, **options))
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
        review: Review | None = None,
        branch: str = MAIN,
    ) -> Applied:
        """Bring the stream tables to what the .sql and .py files of a folder define.

        Everything is one commit; without a change there is none. Only what was applied from this
        folder before and is no longer defined is dropped, and only with `allow_drop`. `dry_run`
        checks everything and changes nothing. `review` is called with the plan once it is checked,
        in the place of `allow_drop`; when it returns False, nothing is changed.
        """
        self._store.refuse_unusable()
        if review is None:
            review = (lambda plan: True) if allow_drop else refuse_drops
        return apply_folder(
            self._store, self._definitions, folder, branch, dry_run=dry_run, review=review
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
        head, arrangement = self._arranged(branch)
        statuses = self._statuses(head, arrangement)
        return Listing.of(
            "Stream tables",
            [
                self._told(arrangement, arrangement.streams[name], statuses[name])
                for name in arrangement.graph.stream_tables
            ],
            {
                "name": lambda s: s.name,
                "schedule": lambda s: s.schedule or MANUAL,
                "mode": lambda s: s.refresh_mode,
                "group": lambda s: s.group,
                "rows": lambda s: s.rows,
                "as of": lambda s: s.as_of,
                "epoch": lambda s: s.epoch,
                "status": lambda s: s.status,
                "inputs": lambda s: s.inputs,
            },
        )

    def groups(self, *, branch: str = MAIN) -> Listing[GroupState]:
        """The groups that are refreshed in one commit, and what each is waiting for."""
        head, arrangement = self._arranged(branch)
        return Listing.of(
            "Groups",
            [self._group(head, arrangement, group) for group in arrangement.groups],
            {
                "name": lambda g: g.name,
                "members": lambda g: g.members,
                "converges at": lambda g: g.convergence_points,
                "policy": lambda g: g.policy,
                "consistency": lambda g: g.consistency,
                "epoch": lambda g: g.epoch,
                "last result": lambda g: g.last_result,
                "not due because": lambda g: g.not_due_because,
            },
        )

    def graph(self, *, branch: str = MAIN) -> Drawing:
        """The graph of stream tables; shows itself as text, `.mermaid()` and `.dot()` draw it."""
        _, arrangement = self._arranged(branch)
        return Drawing(arrangement.graph, arrangement.groups)

    def explain(self, name: str, *, branch: str = MAIN, at: At | None = None) -> Explanation:
        """How a stream table is kept: operators, state, the mode that is chosen and why.

        `.sql` of it is what the engine is asked. Writes nothing. With `at` (a version, a commit
        id, a tag's name or a time): as it was then.
        """
        return explain_stream(self._store, self._catalog, name, branch, at)

    def history(self, name: str, limit: int | None = 20, *, branch: str = MAIN) -> Listing[Attempt]:
        """Every attempt to refresh a stream table, newest first, failures included."""
        head = self._store.branches.head(branch)
        stream = stream_of(head.tables, self._catalog, name)
        found = [
            *self._published(head, stream, limit),
            *recorded(self._store.objects, head.branch.id, stream.table.id),
        ]
        found.sort(key=lambda attempt: attempt.time, reverse=True)
        return Listing.of(
            f"History of {stream.name}",
            found[:limit],
            {
                "time": lambda a: a.time,
                "action": lambda a: a.action,
                "rows in": lambda a: a.rows_in,
                "rows out": lambda a: a.rows_out,
                "seconds": lambda a: a.seconds,
                "version": lambda a: a.version,
                "commit": lambda a: a.commit,
                "epoch": lambda a: a.epoch,
                "reason": lambda a: a.reason,
            },
        )

    def freshness(self, name: str, *, branch: str = MAIN) -> Freshness:
        """How far a stream table is behind what it is computed from."""
        head, arrangement = self._arranged(branch)
        stream = stream_of(head.tables, self._catalog, name)
        graph = arrangement.graph
        bases = [one for one in graph.upstream(stream.name) if not graph.is_stream(one)]
        late = [one for one in bases if head.tables[one].changed > stream.state.as_of]
        changed = {head.tables[one].changed for one in late}
        waiting = timedelta(0)
        if changed:
            first = self._store.published_at(head, min(changed))
            waiting = timedelta(0) if first is None else self._store.clock.now() - first
        return Freshness(stream.name, stream.state.as_of, len(changed), waiting, tuple(late))

    def serve_schedule(
        self,
        *,
        branch: str = MAIN,
        stop: threading.Event | None = None,
        watcher: Watcher | None = None,
    ) -> None:
        """Refresh and deliver what is due, by schedule and by changes, until `stop` is set.

        One process at a time does this for a branch; another one waits until it may.
        """
        self._store.refuse_read_only()
        Scheduler(self._store, self._refreshes, self._sinks, branch).run(
            stop or threading.Event(), watcher
        )

    def scheduler(self, *, branch: str = MAIN) -> Holder | None:
        """Who refreshes and delivers what is due on a branch now; None if nobody does."""
        return post_of(self._store, self._store.branches.head(branch).branch.name).holder()

    def _arranged(self, branch: str) -> tuple[Head, Arrangement]:
        head = self._store.branches.head(branch)
        return head, self._catalog.arrange(head.tables)

    def _statuses(self, head: Head, arrangement: Arrangement) -> dict[str, str]:
        """Where each stream table stands. Nothing of a group is published while one member cannot
        be refreshed, so that the others are held back."""
        keys = keys_by_table(self._store.objects, head.branch.id)
        obstacles: dict[str, tuple[str, str]] = {}
        for name, stream in arrangement.streams.items():
            if isinstance(stream.definition, LostDefinition):
                obstacles[name] = ("its definition cannot be read", "has no definition")
            elif stream.state.suspended is not None:
                obstacles[name] = (suspension(stream.state.suspended), "is suspended")
            elif failures := self._definitions.failures(head, stream, keys):
                obstacles[name] = (told_failures(failures), "failed")
        statuses = {}
        for unit in arrangement.units:
            blamed = next((name for name in unit.members if name in obstacles), None)
            for name in unit.members:
                if name in obstacles:
                    statuses[name] = obstacles[name][0]
                elif blamed is not None:
                    statuses[name] = f"held back: {blamed!r} of its group {obstacles[blamed][1]}"
                else:
                    populated = arrangement.streams[name].state.populated
                    statuses[name] = "refreshed" if populated else "never refreshed"
        return statuses

    def _told(self, arrangement: Arrangement, stream: Stream, status: str) -> StreamTable:
        group = next((g.name for g in arrangement.groups if stream.name in g.members), None)
        definition, state = stream.definition, stream.state
        return StreamTable(
            name=stream.name,
            query=definition.query,
            schedule=definition.schedule,
            refresh_mode=definition.refresh_mode,
            consistency=definition.consistency,
            schedule_policy=definition.schedule_policy,
            inputs=stream.stored.inputs,
            rows=stream.table.rows,
            as_of=state.as_of,
            epoch=state.epoch,
            group=group,
            status=status,
            origin=definition.origin,
            expected_seconds=state.spent.delta_seconds or state.spent.full_seconds or None,
        )

    def _group(self, head: Head, arrangement: Arrangement, group: Group) -> GroupState:
        members = [arrangement.streams[name] for name in group.members]
        unit = Unit(group.name, group.members, group, 0)
        due = self._refreshes.due(head, arrangement, unit)
        failed = [(m, f) for m in members if (f := self._definitions.failures(head, m))]
        last = "never refreshed"
        if failed:
            member, failures = failed[-1]
            last = f"{member.name!r} failed: {failures[-1].reason}"
        elif all(member.state.populated for member in members):
            last = f"published in version {max(m.state.refreshed for m in members)}"
        return GroupState(
            name=group.name,
            members=group.members,
            convergence_points=group.convergence_points,
            inputs=group.inputs,
            policy=group.policy,
            consistency=group.consistency,
            epoch=max(member.state.epoch for member in members),
            frontier={member.name: member.state.as_of for member in members},
            last_result=last,
            not_due_because=None if due.due else due.reason,
        )

    def _published(self, head: Head, stream: Stream, limit: int | None) -> list[Attempt]:
        """The refreshes that were published, newest first: each commit names the one before."""
        found: list[Attempt] = []
        state = stream.state
        while state.populated and (limit is None or len(found) < limit):
            commit = self._store.log.commit_at(head.branch, state.refreshed)
            change = next(c for c in commit.tables if c.table_id == stream.table.id)
            told = next(
                one for one in commit.properties["refresh"] if one["table_id"] == stream.table.id
            )
            found.append(Attempt(**told, time=commit.time, commit=commit.id, actor=commit.actor))
            if change.before is None or change.before.stream is None:
                break
            state = change.before.stream
        return found
