"""Explaining a stream table: how it is kept, and what its next refresh does and why.

Owns: putting together what the plan, the state and the estimates say. Nothing is written, so that a
lake that is read only can be explained, and what it was at an older version.
Invariant: `mode` is the action that a refresh of this table would report.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelock.derive.catalog import Catalog, Stream, stream_of
from tidelock.derive.choosing import choose, find_all_changes
from tidelock.derive.costs import TRUST, Way
from tidelock.derive.due import suspension
from tidelock.derive.explaining import explain_plan, explain_sql
from tidelock.derive.refreshing import is_current
from tidelock.derive.schedules import parse_schedule
from tidelock.model.commit import Tables
from tidelock.run import places
from tidelock.run.places import At
from tidelock.run.stream_reports import Explanation
from tidelock.store.store import Store


def explain_stream(
    store: Store, catalog: Catalog, name: str, branch: str, at: At | None
) -> Explanation:
    ref, version = places.point(store, at, branch)
    snapshot = store.snapshot_at(ref, version)
    tables = snapshot.states()
    stream = stream_of(tables, catalog, name)
    prepared = catalog.plan(tables, snapshot, stream.definition)
    idle = _why_idle(catalog, tables, stream, version)
    way = None
    if idle is None:
        way = choose(stream, prepared, tables, find_all_changes(store, ref, tables, stream))
        mode = "full" if way.full else "incremental"
        reason = way.reason
        head = f"the next refresh is {mode}, because {reason}"
    else:
        mode, reason = idle
        head = reason
    return Explanation(
        table=stream.name,
        incremental=prepared.incremental,
        obstacles=tuple(one.reason for one in prepared.view.obstacles),
        mode=mode,
        reason=reason,
        incremental_seconds=way.incremental_seconds if way else None,
        full_seconds=way.full_seconds if way else None,
        text="\n".join(
            [
                f"{stream.name}: {head}",
                *_spent(stream, way),
                f"Reads {', '.join(prepared.sources) or 'nothing'}",
                *explain_plan(prepared),
            ]
        ),
        sql=tuple(explain_sql(prepared)),
    )


def _why_idle(
    catalog: Catalog, tables: Tables, stream: Stream, version: int
) -> tuple[str, str] | None:
    """The action and the reason of a refresh that would compute nothing; None if one would."""
    arrangement = catalog.arrange(tables)
    unit = next(one for one in arrangement.units if stream.name in one.members)
    for member in unit.members:
        suspended = arrangement.streams[member].state.suspended
        if suspended is not None:
            who = "it is" if member == stream.name else f"{member!r} of its group is"
            return "skipped", (
                f"no refresh is made: {who} {suspension(suspended)}: "
                f"tidelock stream resume {member}"
            )
    if not is_current(arrangement, tables, unit.members):
        return None
    for member in unit.members:
        one = arrangement.streams[member]
        if one.stored.tells_time and not parse_schedule(one.definition.schedule).is_upstream:
            return None
    late = [
        name
        for name in arrangement.graph.upstream(stream.name)
        if name in arrangement.streams and not is_current(arrangement, tables, [name])
    ]
    if late:
        return "none", (
            f"current with what it reads at version {version}; nothing to do before "
            f"{', '.join(map(repr, late))} is refreshed"
        )
    return "none", f"current at version {version}; nothing to do"


def _spent(stream: Stream, way: Way | None) -> Iterator[str]:
    """What earlier refreshes took, where there are estimates that it counted in."""
    spent = stream.state.spent
    if way is None or way.full_seconds is None:
        return
    took = [
        f"{seconds:.2f} s {how}"
        for seconds, how in ((spent.delta_seconds, "by delta"), (spent.full_seconds, "in full"))
        if seconds
    ]
    if took:
        yield (
            f"The estimates follow what the last took ({', '.join(took)}), up to {TRUST:g} times "
            "what the model says"
        )
