"""Explaining a stream table: how it is kept, and what its next refresh does and why.

Owns: putting together what the plan, the state and the estimates say. Nothing is written, so that a
lake that is read only can be explained, and what it was at an older version.
Invariant: `mode` is the action that a refresh of this table would report.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelock.derive.catalog import Catalog, stream_of
from tidelock.derive.explain.inputs import explain_inputs, with_names
from tidelock.derive.graph.due import suspension
from tidelock.derive.plan.explanation import explain_plan, explain_sql
from tidelock.derive.planned import Planned
from tidelock.derive.refresh.choice import choose, find_all_changes
from tidelock.derive.refresh.costs import TRUST, Way
from tidelock.derive.refresh.result_columns import refuse_other_columns
from tidelock.derive.refresh.unit import is_current
from tidelock.derive.reports import Explanation
from tidelock.derive.stream import Stream
from tidelock.errors import FormatError, InputError, TidelockError
from tidelock.model.history.commit import Tables
from tidelock.model.time.schedules import parse_schedule
from tidelock.store import points
from tidelock.store.points import At
from tidelock.store.snapshot import Snapshot
from tidelock.store.spark.sessions import speaker_of
from tidelock.store.store import Store


def explain_stream(
    store: Store, catalog: Catalog, name: str, branch: str, at: At | None
) -> Explanation:
    ref, version = points.point(store, at, branch)
    snapshot = store.snapshot_at(ref, version)
    tables = snapshot.states()
    stream = stream_of(tables, catalog, name)
    idle = _why_idle(catalog, tables, stream, version)
    try:
        planned = catalog.plan_stream(snapshot, stream)
    except (InputError, FormatError) as error:
        return _unplanned(stream, idle, error)
    plan, way, mode = planned.plan, None, ""
    if idle is None:
        idle = _why_refused(store, snapshot, planned)
    if idle is None:
        way = choose(stream, plan, tables, find_all_changes(store, ref, tables, stream))
        mode, reason = way.action, way.reason
        made = "computes nothing:" if way.idle else "is made"
        first_line = f"the next refresh {made} {reason}"
    else:
        mode, reason = idle
        first_line = reason
    shown = with_names(planned)
    return Explanation(
        table=stream.name,
        incremental=plan.incremental,
        obstacles=tuple(one.reason for one in plan.view.obstacles),
        mode=mode,
        reason=reason,
        incremental_seconds=way.incremental_seconds if way else None,
        full_seconds=way.full_seconds if way else None,
        text="\n".join(
            [
                f"{stream.name}: {first_line}",
                *_estimates(stream, way),
                f"Reads {', '.join(stream.inputs) or 'nothing'}",
                *explain_inputs(planned),
                *explain_plan(shown),
            ]
        ),
        sql=tuple(explain_sql(shown)),
    )


def _unplanned(stream: Stream, idle: tuple[str, str] | None, error: TidelockError) -> Explanation:
    """A stream table whose query can no longer be planned."""
    mode, reason = idle if idle and idle[0] == "skipped" else ("failed", error.message)
    return Explanation(
        table=stream.name,
        incremental=False,
        obstacles=(error.message,),
        mode=mode,
        reason=reason,
        incremental_seconds=None,
        full_seconds=None,
        text=f"{stream.name}: {reason}",
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


def _why_refused(store: Store, snapshot: Snapshot, planned: Planned) -> tuple[str, str] | None:
    """The action and the reason of a refresh whose rows its table cannot take."""
    speaker = speaker_of(store.engine.get())
    try:
        refuse_other_columns(snapshot, planned, speaker)
    except TidelockError as error:
        return "failed", error.message
    return None


def _estimates(stream: Stream, way: Way | None) -> Iterator[str]:
    """Both costs where they were compared, and what earlier refreshes took."""
    if way is None or way.incremental_seconds is None or way.full_seconds is None:
        return
    mode = stream.definition.refresh_mode
    decided = "" if mode == "auto" else f"; by delta in any case, for refresh_mode is {mode}"
    yield (
        f"Estimated {way.incremental_seconds:.2f} s by delta against {way.full_seconds:.2f} s in "
        f"full{decided}"
    )
    spent = stream.state.spent
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
