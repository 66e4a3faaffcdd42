"""What `tidelock apply` would do, as a value: shown as text, given as JSON, then carried out.

Owns: the changes, their order and their wording. What is done with tables is a plan of its own
(`model/schema/plan/plan.py`), which comes first.
Invariant: the changes can be carried out as they come. Drops stand first, a table before those that
it reads; everything else follows, a table after those that it reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from tidelock.model.schema.plan.plan import SchemaPlan
from tidelock.model.streams import Definition

Action = Literal["drop", "create", "replace", "alter", "unchanged"]
_MARKS = {"drop": "-", "create": "+", "replace": "~", "alter": "~", "unchanged": " "}
_WIDTH = max(map(len, get_args(Action)))


@dataclass(frozen=True, slots=True)
class Change:
    """One stream table: what is done with it, and why.

    `create`, `replace` (its query changed: the content is computed anew) and `alter` (options
    alone) bring it to `definition`; for `drop` and `unchanged` that is the one it has.
    """

    action: Action
    name: str
    reason: str
    definition: Definition
    diff: tuple[str, ...] = ()
    """How the query changed, as lines of a unified diff."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "action": self.action,
            "name": self.name,
            "reason": self.reason,
            "origin": self.definition.origin,
            "diff": list(self.diff),
        }


@dataclass(frozen=True, slots=True)
class ApplyPlan:
    """All changes that bring the lake to what the files of a pipeline define."""

    pipeline: str
    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()
    """Files that define nothing, and why."""
    schema: SchemaPlan | None = None
    """What is done with tables; None where no file declares one."""

    def __bool__(self) -> bool:
        return bool(self.pending) or bool(self.schema)

    @property
    def pending(self) -> tuple[Change, ...]:
        """Those that do something."""
        return tuple(change for change in self.changes if change.action != "unchanged")

    @property
    def drops(self) -> tuple[Change, ...]:
        """Those that destroy a table; they need an explicit word."""
        return tuple(change for change in self.changes if change.action == "drop")

    def counts(self) -> dict[str, int]:
        every: tuple[str, ...] = get_args(Action)
        return {action: sum(change.action == action for change in self.changes) for action in every}

    def to_dict(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "counts": self.counts(),
            "schema": None if self.schema is None else self.schema.to_dict(),
            "changes": [change.to_dict() for change in self.changes],
            "notes": list(self.notes),
        }

    def to_text(self) -> str:
        lines = [self._headline()]
        if self.schema is not None:
            lines.extend(self.schema.step_lines())
        width = max((len(change.name) for change in self.pending), default=0)
        for change in self.pending:
            mark = _MARKS[change.action]
            lines.append(
                f"{mark} {change.action:<{_WIDTH}}  {change.name:<{width}}  {change.reason}"
            )
            lines.extend(f"      {line}" for line in change.diff)
        lines.extend(f"note: {note}" for note in self.notes)
        if self.schema is not None:
            lines.extend(self.schema.note_lines())
        return "\n".join(lines)

    def _headline(self) -> str:
        unchanged = self.counts()["unchanged"]
        if not self:
            count = unchanged + (0 if self.schema is None else self.schema.declared)
            return f"{self.pipeline}: nothing to do, {count} unchanged"
        told = [f"{count} to {action}" for action, count in self.counts().items() if count]
        if self.schema:
            lost = len(self.schema.destructive)
            steps = f"{len(self.schema.steps)} {'step' if len(self.schema.steps) == 1 else 'steps'}"
            told.insert(0, f"{steps} for tables" + (f" ({lost} destructive)" if lost else ""))
        return f"{self.pipeline}: {', '.join(told)}".replace("to unchanged", "unchanged")
