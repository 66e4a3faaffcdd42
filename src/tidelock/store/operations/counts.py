"""What operations are applied to, what they count, and how most follow an altered table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tidelock.model.schema.schema import TableSchema


@dataclass(frozen=True)
class Target:
    """The table that operations are applied to."""

    name: str
    id: str
    schema: TableSchema

    @property
    def key(self) -> list[str]:
        return list(self.schema.key)


@dataclass
class Counts:
    inserted: int = 0
    updated: int = 0
    deleted: int = 0


Labels: TypeAlias = Mapping[str, str]
"""What the columns of a table are called now, by what they were called when rows were staged."""


class ByColumnId:
    """An operation whose rows are in fragments, which know their columns by id."""

    def follow(self, target: Target, labels: Labels) -> None:
        """Nothing is to be done when another commit altered the table."""
