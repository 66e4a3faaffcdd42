"""What became of a query: its operators, or the obstacles to keeping it up to date by delta."""

from __future__ import annotations

from dataclasses import dataclass

from tidelock.derive.algebra.operators import Operator
from tidelock.errors import TidelockError
from tidelock.model.sql.functions import THE_TIME


@dataclass(frozen=True)
class Obstacle:
    """Why a query can only be computed anew: the part of its text that says so, and where."""

    reason: str
    sql: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.reason}: {self.sql} (line {self.line}, column {self.column})"


@dataclass(frozen=True)
class View:
    """A query, read against the schemas of a lake.

    Invariant: `root` is None exactly when there is an obstacle; with a doubt there is one.
    """

    root: Operator | None
    columns: tuple[tuple[str, str], ...]
    """(visible name, column of `root`), in the order of the query; empty with an obstacle."""
    tables: tuple[str, ...]
    """The tables that the query reads, as the lake spells them, in the order of the text."""
    obstacles: tuple[Obstacle, ...] = ()
    notes: tuple[str, ...] = ()
    """What was settled where SQL leaves a choice, in sentences for the user."""
    doubt: TidelockError | None = None
    """What seems to be wrong with the query; it is, if the engine refuses it too."""

    @property
    def tells_time(self) -> bool:
        """Whether the query asks for the time."""
        return any(one.reason == THE_TIME for one in self.obstacles)
