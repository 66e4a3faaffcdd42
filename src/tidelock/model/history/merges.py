"""Merges as values: what is asked for, what was decided for each table, and what became of it.

outcome         when
up to date      the target has everything of the source already; nothing is published
fast-forward    the target has changed nothing since the merge base
merged          both have

action of a table
adopted         the target has not changed it: it takes the source's pin; no row is read
merged          what the source changed is applied to the target's rows, or to its columns
created         it is new to the target, and taken as it is
dropped         the source dropped it
renamed         it gets another name, and nothing else
refreshed       a stream table whose result follows from the merged inputs
stale           a stream table that the next refresh brings up to date
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from tidelock.errors import InvalidOption
from tidelock.model.history.commit import Commit
from tidelock.model.history.conflicts import Conflict, tell_conflicts
from tidelock.model.names import fold

Outcome = Literal["up to date", "fast-forward", "merged"]
TableAction = Literal[
    "adopted", "merged", "created", "dropped", "renamed", "refreshed", "stale", "unchanged"
]
Granularity = Literal["column", "row"]
Side = Literal["source", "target"]
Choice: TypeAlias = Literal["fail", "source", "target"] | Mapping[str, str]
OnConflict: TypeAlias = Choice | Mapping[str, Choice]


@dataclass(frozen=True, slots=True)
class Resolution:
    """How conflicts of one table are resolved: by a side, or by an expression for each column."""

    side: Literal["fail", "source", "target"] = "fail"
    expressions: tuple[tuple[str, str], ...] = ()
    """Columns and SQL over `base`, `source` and `target`."""

    def told(self) -> Any:
        return dict(self.expressions) if self.expressions else self.side


FAIL = Resolution()
EVERY_OTHER = "*"
"""Stands in a mapping for the tables, or the columns, that it does not name."""


@dataclass(frozen=True)
class Resolutions:
    """How conflicts are resolved, table by table."""

    every: Resolution = FAIL
    tables: tuple[tuple[str, Resolution], ...] = ()

    def of(self, table: str) -> Resolution:
        named = {fold(name): one for name, one in self.tables}
        return named.get(fold(table), self.every)

    @classmethod
    def read(cls, given: object) -> Resolutions:
        """What a user gave as on_conflict."""
        if given is None:
            return cls()
        if isinstance(given, str):
            return cls(_resolution(given))
        if not isinstance(given, Mapping):
            raise _unknown(given)
        tables = {str(name): _resolution(one) for name, one in given.items()}
        every = tables.pop(EVERY_OTHER, FAIL)
        return cls(every, tuple(tables.items()))


def _resolution(given: object) -> Resolution:
    if isinstance(given, str):
        if given not in ("fail", "source", "target"):
            raise _unknown(given)
        return Resolution(given)  # type: ignore[arg-type]
    if not isinstance(given, Mapping) or not given:
        raise _unknown(given)
    columns = dict(given)
    rest = columns.pop(EVERY_OTHER, "fail")
    if rest not in ("fail", "source", "target"):
        raise _unknown(rest)
    for name, sql in columns.items():
        if not isinstance(name, str) or not isinstance(sql, str) or not sql.strip():
            raise _unknown(given)
    return Resolution(rest, tuple(columns.items()))


def _unknown(given: object) -> InvalidOption:
    return InvalidOption(
        f"on_conflict={given!r} is not known. Use 'fail', 'source' or 'target', for all tables or "
        "by table, or for a table a mapping of columns to SQL over base, source and target, such "
        "as {'stock': {'amount': 'target.amount + source.amount - base.amount'}}.",
        on_conflict=repr(given),
    )


def check_granularity(given: object) -> Granularity:
    if given not in get_args(Granularity):
        raise InvalidOption(
            f"granularity={given!r} is not known. Use 'column' or 'row'.", granularity=repr(given)
        )
    return given  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class TableMerge:
    """What a merge does to one table of the target."""

    table: str
    action: TableAction
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    conflicts: int = 0
    resolved: int = 0
    why: str = ""

    @property
    def summary(self) -> str:
        signs = (("+", self.inserted), ("~", self.updated), ("-", self.deleted))
        counts = [f"{sign}{number:,}" for sign, number in signs if number]
        if self.resolved:
            counts.append(f"{self.resolved:,} resolved")
        if self.conflicts:
            counts.append(f"{self.conflicts:,} in conflict")
        return " ".join([self.action, *counts])

    def to_dict(self) -> dict[str, Any]:
        names = "table action inserted updated deleted conflicts resolved why"
        return {name: getattr(self, name) for name in names.split()}


@dataclass(frozen=True)
class Merge:
    """What became of a merge, or what would."""

    source: str
    target: str
    outcome: Outcome
    bases: tuple[str, ...]
    """The commits that both sides last had in common."""
    tables: tuple[TableMerge, ...]
    conflicts: tuple[Conflict, ...] = ()
    counts: Mapping[tuple[str, str], int] | None = None
    """How many conflicts there are of each kind in each table."""
    commit: Commit | None = None
    """None when there was nothing to merge, or nothing was meant to be published."""
    dry_run: bool = False
    deleted_branch: bool = False

    @property
    def version(self) -> int | None:
        return None if self.commit is None else self.commit.version

    def table(self, name: str) -> TableMerge:
        """What it does to the named table."""
        for one in self.tables:
            if fold(one.table) == fold(name):
                return one
        return TableMerge(name, "unchanged")

    def to_dict(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "target": self.target,
            "outcome": self.outcome,
            "bases": list(self.bases),
            "tables": [one.to_dict() for one in self.tables],
            "conflicts": [one.to_dict() for one in self.conflicts],
            "conflict_count": sum((self.counts or {}).values()),
            "version": self.version,
            "commit": None if self.commit is None else self.commit.id,
            "dry_run": self.dry_run,
            "deleted_branch": self.deleted_branch,
        }

    def to_text(self) -> str:
        lines = [self.headline]
        width = max((len(one.table) for one in self.tables), default=0)
        for one in self.tables:
            why = f"  ({one.why})" if one.why else ""
            lines.append(f"  {one.table:<{width}}  {one.summary}{why}")
        if self.counts:
            lines.append(f"conflicts: {tell_conflicts(self.conflicts, self.counts)}")
        return "\n".join(lines)

    @property
    def headline(self) -> str:
        """What became of it, in one line."""
        if self.outcome == "up to date":
            told = f"{self.target} is up to date with {self.source}"
        else:
            would = "would be " if self.dry_run else ""
            told = f"{self.source} into {self.target}: {would}{self.outcome}"
            told += f" as version {self.version}" if self.commit is not None else ""
        return told + (f"; branch {self.source} was deleted" if self.deleted_branch else "")

    def __repr__(self) -> str:
        return self.to_text()
