"""What a merge does to each table, decided from the states of tables alone; no row is read.

Tables are matched by their ids. Two states with one origin (model/history/commit.py) are the same
rows and columns, whatever maintenance did to their pins. With `b` the base, `s` the source, `t` the
target:

    s = t, or s = b         the target keeps what it has
    t = b                   the target adopts the source's pin, if that continues its own
    else                    rows and columns are merged (table_merge.py)
    not in b, not in t      created
    not in s, t = b         dropped
    not in s, t changed     conflict; so is a table that the target dropped and the source changed
    not in b, in both       under one name, but two tables: conflict

A pin continues another when it was made from it step by step on one line: only then do its rows
have the ids that they have at the target, and no id stands for another row than before, which is
what change feeds and sinks rely on. It does not where the source has merged the target's own
changes of the table before; then rows are merged, though the target has changed nothing.

Stream tables, and what is kept for them, are decided elsewhere (stream_plan.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from tidelock.model.history.commit import TableState
from tidelock.model.history.conflicts import Conflict, ConflictKind
from tidelock.model.history.merges import Resolutions, Side
from tidelock.model.names import fold, is_hidden
from tidelock.store.kinship.bases import Tip

Step = Literal["keep", "adopt", "rows", "create", "drop"]

TWO_OF_ONE_NAME = "two tables would have this name, one from each side"
STREAM_AND_TABLE = (
    "a table and a stream table would have this name, one from each side; rename or drop one of "
    "them"
)
T = TypeVar("T")


@dataclass(frozen=True)
class TablePlan:
    """One table of the merged lake, or one that goes."""

    step: Step
    name: str
    source: TableState | None
    target: TableState | None
    bases: tuple[TableState | None, ...]

    @property
    def id(self) -> str:
        state = self.source or self.target
        assert state is not None
        return state.id

    @property
    def renamed(self) -> bool:
        return self.target is not None and self.target.name != self.name


@dataclass
class Plan:
    """What a merge does to all tables that are not stream tables."""

    tables: list[TablePlan] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)
    resolved: dict[str, int] = field(default_factory=dict)
    """How many conflicts of a table were resolved, by its name."""
    source_changed: bool = False
    """Whether the source did anything since the bases that is not maintenance."""
    target_changed: bool = False


def decide(bases: Sequence[T], source: T, target: T) -> Side | None:
    """The side whose value is taken; None if both have changed it otherwise."""
    if source == target:
        return "target"
    new_here, new_there = source not in bases, target not in bases
    if new_here == new_there:
        return None
    return "source" if new_here else "target"


class Planner:
    """Decides table by table. `pruned_only` says whether retention alone made a state of a side
    from that of a base."""

    def __init__(
        self,
        source: Tip,
        target: Tip,
        bases: Sequence[Tip],
        resolutions: Resolutions,
        pruned_only: Callable[[Tip, TableState, Tip, TableState], bool],
    ) -> None:
        self._source = source
        self._target = target
        self._bases = bases
        self._resolutions = resolutions
        self._pruned_only = pruned_only
        self.plan = Plan()

    def run(self) -> Plan:
        here, there = _by_id(self._source), _by_id(self._target)
        before = [_by_id(base) for base in self._bases]
        for table_id in {**there, **here}:
            source, target = here.get(table_id), there.get(table_id)
            if source is not None and source == target:
                # Nothing at all happened to it; so it is with most tables.
                continue
            bases = tuple(one.get(table_id) for one in before)
            self.plan.source_changed |= self._has_changed(self._source, source, bases)
            self.plan.target_changed |= self._has_changed(self._target, target, bases)
            planned = self._table(source, target, bases)
            if planned is not None:
                self.plan.tables.append(planned)
        self._refuse_same_names()
        return self.plan

    def _table(
        self,
        source: TableState | None,
        target: TableState | None,
        bases: tuple[TableState | None, ...],
    ) -> TablePlan | None:
        if source is not None and target is not None:
            name = self._name(source, target, bases)
            return TablePlan(self._step(source, target, bases), name, source, target, bases)
        if source is None:
            assert target is not None
            return self._missing("source", target, bases)
        return self._missing("target", source, bases)

    def _missing(
        self, side: Side, left: TableState, bases: tuple[TableState | None, ...]
    ) -> TablePlan | None:
        """A table that is not at one side: it was dropped there, or made at the other."""
        tip = self._target if side == "source" else self._source
        source, target = (None, left) if side == "source" else (left, None)
        if not any(bases):
            if side == "source":
                return None
            return TablePlan("create", left.name, source, target, bases)
        if self._is_unchanged(tip, left, bases):
            step: Step = "drop" if side == "source" else "keep"
            return TablePlan(step, left.name, source, target, bases) if source is None else None
        other = "target" if side == "source" else "source"
        chosen = self._refuse(
            left.name,
            "dropped table",
            f"it was dropped at the {side} and changed at the {other}",
            None if side == "source" else _told(left),
            None if side == "target" else _told(left),
        )
        if side == "source":
            return TablePlan("drop", left.name, None, left, bases) if chosen == "source" else None
        return TablePlan("create", left.name, left, None, bases) if chosen == "source" else None

    def _has_changed(
        self, tip: Tip, state: TableState | None, bases: tuple[TableState | None, ...]
    ) -> bool:
        if state is None:
            return any(bases)
        if len(self._origins(bases)) > 1:
            # What several bases make together may be something that neither side has.
            return True
        return not self._is_unchanged(tip, state, bases)

    def _origins(self, bases: tuple[TableState | None, ...]) -> set[str | None]:
        return {
            None if one is None else tip.origin(one)
            for tip, one in zip(self._bases, bases, strict=True)
        }

    def _is_unchanged(
        self, tip: Tip, state: TableState, bases: tuple[TableState | None, ...]
    ) -> bool:
        for base_tip, base in zip(self._bases, bases, strict=True):
            if base is None or base.name != state.name:
                continue
            if base_tip.origin(base) == tip.origin(state):
                return True
            if self._pruned_only(tip, state, base_tip, base):
                return True
        return False

    def _step(
        self, source: TableState, target: TableState, bases: tuple[TableState | None, ...]
    ) -> Step:
        here, there = self._source.origin(source), self._target.origin(target)
        if here == there or _stand(source) == _stand(target):
            return "keep"
        origins = self._origins(bases)
        if len(origins) == 1:
            if here in origins:
                return "keep"
            pruned = {one.pruned for one in (source, target, *filter(None, bases))}
            if there in origins and len(pruned) == 1 and self._source.has_on_its_line(there):
                return "adopt"
        return "rows"

    def _name(
        self, source: TableState, target: TableState, bases: tuple[TableState | None, ...]
    ) -> str:
        known = [one.name for one in bases if one is not None]
        side = decide(known, source.name, target.name)
        if side is None:
            side = self._refuse(
                target.name,
                "name",
                f"it was renamed to {source.name!r} at the source and to {target.name!r} at the "
                "target",
                {"name": source.name},
                {"name": target.name},
            )
        return source.name if side == "source" else target.name

    def _refuse_same_names(self) -> None:
        """Two tables that would have one name."""
        planned = {one.id: one for one in self.plan.tables}
        names: dict[str, tuple[str, bool]] = {}
        """By folded name: the id, and whether the name comes from the source."""
        for state in self._target.tables.states():
            if state.id not in planned and not self._is_dropped_stream(state):
                names[fold(state.name)] = (state.id, False)
        for one in list(self.plan.tables):
            if one.step == "drop":
                continue
            fresh = one.step == "create" or one.renamed
            known = names.get(fold(one.name))
            if known is None or known[0] == one.id:
                names[fold(one.name)] = (one.id, fresh)
                continue
            self._settle_name(planned, one, known, fresh)

    def _is_dropped_stream(self, state: TableState) -> bool:
        """Whether a stream table of the target leaves with the merge (stream_plan.py): the source
        has dropped it, and the target has not given it another definition since."""
        if state.stream is None or any(one.id == state.id for one in self._source.tables.states()):
            return False
        bases = (one for base in self._bases for one in base.tables.states() if one.id == state.id)
        return any(one.stream and one.stream.definition == state.stream.definition for one in bases)

    def _settle_name(
        self, planned: dict[str, TablePlan], one: TablePlan, known: tuple[str, bool], fresh: bool
    ) -> None:
        kind: ConflictKind = "created table" if one.step == "create" else "name"
        other = self._target.tables.find(one.name)
        told = (
            None if one.source is None else _told(one.source),
            None if other is None else _told(other),
        )
        if other is not None and other.stream is not None and other.id == known[0]:
            self.plan.conflicts.append(
                Conflict(one.name, kind, None, None, *told, (), STREAM_AND_TABLE)
            )
            return
        chosen = self._refuse(one.name, kind, TWO_OF_ONE_NAME, *told)
        if chosen is None:
            return
        gone = one
        if chosen == "source" and fresh:
            found = next(s for s in self._target.tables.states() if s.id == known[0])
            gone = planned.get(known[0]) or TablePlan("keep", found.name, None, found, ())
        self.plan.tables = [other for other in self.plan.tables if other.id != gone.id]
        if gone.target is not None:
            self.plan.tables.append(
                TablePlan("drop", gone.target.name, None, gone.target, gone.bases)
            )

    def _refuse(
        self,
        table: str,
        kind: ConflictKind,
        why: str,
        source: dict[str, object] | None,
        target: dict[str, object] | None,
    ) -> Side | None:
        """Note a conflict, or the side that is taken instead."""
        resolution = self._resolutions.of(table).side
        if resolution == "fail":
            self.plan.conflicts.append(Conflict(table, kind, None, None, source, target, (), why))
            return None
        self.plan.resolved[table] = self.plan.resolved.get(table, 0) + 1
        return resolution


def _by_id(tip: Tip) -> dict[str, TableState]:
    return {one.id: one for one in tip.tables.states() if not _is_kept(one)}


def _is_kept(state: TableState) -> bool:
    """Whether it is a stream table, or kept for one."""
    return state.stream is not None or is_hidden(state.name)


def _stand(state: TableState) -> tuple[object, ...]:
    """The rows and the declared schema: a rule or a default comes without another pin."""
    return state.pin, state.schema, state.key


def _told(state: TableState) -> dict[str, object]:
    return {"name": state.name, "id": state.id, "rows": state.rows}
