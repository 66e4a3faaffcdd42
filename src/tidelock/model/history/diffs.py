"""Diffs: what leads from one state of a lake to another, table by table.

A diff has two points, before and after, of any branches. It tells states apart, and not how they
came about: what was changed and changed back is no difference, nor is maintenance.

    inserted    rows that only the state after has
    deleted     rows that only the state before has
    updated     rows that both have, with other values in columns that the state after has
    created, dropped, replaced (by another table of the name), changed: what became of a table

A column that the state before does not have is NULL there. One that the state after does not have
is told as dropped, and its values are not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tidelock.errors import TableNotFound
from tidelock.model.history import diff_text
from tidelock.model.names import fold, suggest
from tidelock.model.plain_values import plain_row
from tidelock.model.types import type_name

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelock.model.schema.schema import Column

What = Literal["created", "dropped", "replaced", "changed"]
RowWhat = Literal["inserted", "updated", "deleted"]
ROW_WHATS: tuple[RowWhat, ...] = ("inserted", "updated", "deleted")


@dataclass(frozen=True, slots=True)
class DiffPoint:
    """One of the two states: what the user called it, and which commit that is."""

    name: str
    branch: str
    version: int
    commit: str | None
    """None for the empty lake."""

    @property
    def told(self) -> str:
        version = f"version {self.version}"
        return version if self.name == version else f"{self.name} ({version})"

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "branch": self.branch,
            "version": self.version,
            "commit": self.commit,
        }


@dataclass(frozen=True)
class ColumnDiff:
    """A column that is not the same at both points; None where it is not."""

    before: Column | None
    after: Column | None

    @property
    def name(self) -> str:
        column = self.after or self.before
        assert column is not None
        return column.name

    @property
    def what(self) -> tuple[str, ...]:
        """What became of it: added, dropped, or some of renamed, retyped, required, default and
        comment."""
        before, after = self.before, self.after
        if before is None or after is None:
            return ("added",) if before is None else ("dropped",)
        pairs = {
            "renamed": (before.name, after.name),
            "retyped": (before.type, after.type),
            "required": (before.nullable, after.nullable),
            "default": (before.default, after.default),
            "comment": (before.comment, after.comment),
        }
        return tuple(name for name, (one, other) in pairs.items() if one != other)

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "what": list(self.what),
            "before": _column(self.before),
            "after": _column(self.after),
        }


def _column(column: Column | None) -> dict[str, Any] | None:
    if column is None:
        return None
    return {
        "name": column.name,
        "id": column.id,
        "type": type_name(column.type),
        "nullable": column.nullable,
        "default": column.default,
        "comment": column.comment,
    }


@dataclass(frozen=True, slots=True)
class DefinitionDiff:
    """A rule of a table, its comment, or an option of a stream table, before and after; None where
    there is none."""

    name: str
    before: str | None
    after: str | None

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "before": self.before, "after": self.after}


@dataclass(frozen=True, slots=True)
class StreamDiff:
    """A stream table's definition where it differs, and where its content stands at each point."""

    definition: tuple[DefinitionDiff, ...]
    before: str | None
    """`current`, or why it is not; None where it is not a stream table."""
    after: str | None

    def to_dict(self) -> dict[str, Any]:
        return {
            "definition": [one.to_dict() for one in self.definition],
            "before": self.before,
            "after": self.after,
        }


@dataclass(frozen=True, slots=True)
class RowDiff:
    """One row that differs."""

    what: RowWhat
    key: Mapping[str, Any] | None
    """Its key, or its row sequence in a table without one; None in a stream table."""
    columns: tuple[str, ...]
    """Those that differ, of a row that both points have."""
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None

    def to_dict(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "key": plain_row(self.key),
            "columns": list(self.columns),
            "before": plain_row(self.before),
            "after": plain_row(self.after),
        }


@dataclass(frozen=True)
class TableDiff:
    """How one table differs."""

    name: str
    """What it is called after, or was before if it is not there any more."""
    id: str
    what: What
    was: str | None = None
    """What it was called before, if it was renamed."""
    columns: tuple[ColumnDiff, ...] = ()
    rules: tuple[DefinitionDiff, ...] = ()
    comment: DefinitionDiff | None = None
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    by_column: Mapping[str, int] = field(default_factory=dict)
    """How many rows were updated in each column."""
    examples: tuple[RowDiff, ...] = ()
    stream: StreamDiff | None = None
    read: Callable[[], pa.RecordBatchReader] | None = field(default=None, repr=False, compare=False)

    @property
    def rows_differ(self) -> int:
        return self.inserted + self.updated + self.deleted

    @property
    def differs(self) -> bool:
        stream = self.stream
        return bool(
            self.what != "changed"
            or self.was is not None
            or self.columns
            or self.rules
            or self.comment
            or self.rows_differ
            or (stream is not None and (stream.definition or stream.before != stream.after))
        )

    def rows(self) -> pa.RecordBatchReader:
        """All rows that differ, as a stream in bounded memory: `what` became of each, the `columns`
        that differ, and the row `before` and `after` as STRUCTs, NULL where it is not."""
        assert self.read is not None
        return self.read()

    def to_dict(self) -> dict[str, Any]:
        return {
            "table": self.name,
            "id": self.id,
            "what": self.what,
            "was": self.was,
            **{name: getattr(self, name) for name in ROW_WHATS},
            "by_column": dict(self.by_column),
            "columns": [one.to_dict() for one in self.columns],
            "rules": [one.to_dict() for one in self.rules],
            "comment": None if self.comment is None else self.comment.to_dict(),
            "stream": None if self.stream is None else self.stream.to_dict(),
            "examples": [one.to_dict() for one in self.examples],
        }

    def to_text(self) -> str:
        return "\n".join([diff_text.headline(self), *diff_text.details(self)])

    def __repr__(self) -> str:
        return diff_text.headline(self)


@dataclass(frozen=True)
class Diff:
    """What leads from one state of a lake to another. Shows itself as a summary."""

    before: DiffPoint
    after: DiffPoint
    tables: tuple[TableDiff, ...]
    """Those that differ, by name."""
    alike: tuple[TableDiff, ...] = ()
    """Those that do not."""

    @property
    def same(self) -> tuple[str, ...]:
        """The names of the tables that do not differ."""
        return tuple(one.name for one in self.alike)

    def __bool__(self) -> bool:
        """Whether anything differs."""
        return bool(self.tables)

    def table(self, name: str) -> TableDiff:
        """How a table differs that is called so after, or else was before."""
        every = [*self.tables, *self.alike]
        called = [one for one in every if fold(one.name) == fold(name)]
        called.sort(key=lambda one: one.what == "dropped")
        for one in called or [one for one in every if fold(one.was or "") == fold(name)]:
            return one
        raise TableNotFound(
            f"No table {name!r} was compared. {suggest(name, [one.name for one in every])}",
            table=name,
        )

    def to_dict(self) -> dict[str, Any]:
        """The diff as plain values that JSON can hold."""
        return {
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "tables": [one.to_dict() for one in self.tables],
            "same": list(self.same),
        }

    def to_text(self) -> str:
        """The summary, and then each table with its examples."""
        parts = [repr(self)]
        for one in self.tables:
            found = diff_text.details(one)
            if found:
                parts.append("\n".join([f"\n{one.name}", *(f"  {line}" for line in found)]))
        return "\n".join(parts)

    def __repr__(self) -> str:
        return diff_text.summary(self)

    def _repr_html_(self) -> str:
        return diff_text.as_html(self.to_text())
