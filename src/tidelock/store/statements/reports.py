"""What statements did: one report for each, and what a whole text became."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidelock.model.history.commit import Commit
from tidelock.model.listing import Listing


@dataclass(frozen=True, repr=False)
class StatementReport:
    """One statement: its kind, the table that it changed, and how many rows of it."""

    kind: str
    table: str
    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @property
    def summary(self) -> str:
        """What was done, in a few characters: `MERGE orders +2 ~1`."""
        signs = (("+", self.inserted), ("~", self.updated), ("-", self.deleted))
        counts = [f"{sign}{number:,}" for sign, number in signs if number]
        return " ".join([self.kind, self.table, *counts])

    def __repr__(self) -> str:
        return f"StatementReport({self.summary})"


def list_reports(reports: Iterable[StatementReport]) -> Listing[StatementReport]:
    return Listing.of(
        "Statements",
        reports,
        {
            "statement": lambda r: r.kind,
            "table": lambda r: r.table,
            "inserted": lambda r: r.inserted,
            "updated": lambda r: r.updated,
            "deleted": lambda r: r.deleted,
        },
    )


def told_reports(reports: Iterable[StatementReport]) -> str:
    """What was done, as the message of a commit."""
    return ", ".join(dict.fromkeys(f"{one.kind.lower()} {one.table}" for one in reports))


@dataclass(frozen=True, repr=False)
class Execution:
    """A text of statements that became one commit."""

    commit: Commit
    statements: Listing[StatementReport]
    repeated: bool = False
    """Whether its operation id was published before: then nothing was done, and `commit` is that
    of the first time."""

    @property
    def version(self) -> int:
        return self.commit.version

    def __repr__(self) -> str:
        done = "; ".join(one.summary for one in self.statements)
        again = ", repeated" if self.repeated else ""
        return f"Execution(version={self.version}, [{done}]{again})"
