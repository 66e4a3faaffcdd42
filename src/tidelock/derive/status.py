"""Reporting: where stream tables stand, told from what is durable and from the head.

Owns: the answers; reports.py has their forms. Reads, and changes nothing. Needs neither an engine
nor a table that is opened.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from tidelock.derive.attempts.attempts import Attempt, keys_by_table, recorded, told_failures
from tidelock.derive.attempts.failures import Failures
from tidelock.derive.catalog import Arrangement, Catalog, stream_of
from tidelock.derive.definitions.options import MANUAL
from tidelock.derive.graph.due import Due, suspension
from tidelock.derive.graph.groups import Group, Unit
from tidelock.derive.reports import Drawing, Freshness, GroupState, StreamTable
from tidelock.derive.stream import LostDefinition, Stream
from tidelock.model.listing import Listing
from tidelock.store.log.log import Head
from tidelock.store.parts import Parts

DueOf = Callable[[Head, Arrangement, Unit], Due]


class Reporting:
    """What is told of the stream tables of one lake."""

    def __init__(self, store: Parts, catalog: Catalog, failures: Failures) -> None:
        self._store = store
        self._catalog = catalog
        self._failures = failures

    def stream_tables(self, branch: str) -> Listing[StreamTable]:
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

    def groups(self, branch: str, due_of: DueOf) -> Listing[GroupState]:
        """The groups that are refreshed in one commit, and what each is waiting for."""
        head, arrangement = self._arranged(branch)
        return Listing.of(
            "Groups",
            [self._group(head, arrangement, group, due_of) for group in arrangement.groups],
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

    def graph(self, branch: str) -> Drawing:
        """The graph of stream tables; shows itself as text, `.mermaid()` and `.dot()` draw it."""
        _, arrangement = self._arranged(branch)
        return Drawing(arrangement.graph, arrangement.groups)

    def history(self, name: str, limit: int | None, branch: str) -> Listing[Attempt]:
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

    def freshness(self, name: str, branch: str) -> Freshness:
        """How far a stream table is behind what it is computed from."""
        head, arrangement = self._arranged(branch)
        stream = stream_of(head.tables, self._catalog, name)
        late = arrangement.changed_since(stream, head.tables)
        changed = {head.tables[one].changed for one in late}
        waiting = timedelta(0)
        if changed:
            first = self._store.published_at(head, min(changed))
            waiting = timedelta(0) if first is None else self._store.clock.now() - first
        return Freshness(stream.name, stream.state.as_of, len(changed), waiting, tuple(late))

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
            elif failures := self._failures.of(head, stream, keys):
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
            inputs=stream.inputs,
            rows=stream.table.rows,
            as_of=state.as_of,
            epoch=state.epoch,
            group=group,
            status=status,
            origin=definition.origin,
            expected_seconds=state.spent.delta_seconds or state.spent.full_seconds or None,
        )

    def _group(
        self, head: Head, arrangement: Arrangement, group: Group, due_of: DueOf
    ) -> GroupState:
        members = [arrangement.streams[name] for name in group.members]
        unit = Unit(group.name, group.members, group, 0)
        due = due_of(head, arrangement, unit)
        failed = [(m, f) for m in members if (f := self._failures.of(head, m))]
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
