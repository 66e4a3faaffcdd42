"""A tuple of small values that shows itself as a table, in a terminal and in a notebook."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, TypeVar

from tidelock.model.time.durations import show_moment, show_size

T = TypeVar("T")

ROWS_SHOWN_MAX = 50
COUNTS = frozenset(
    {"rows", "rows in", "rows out", "inserted", "updated", "deleted", "tables", "files"}
    | {"chunks", "bytes", "lagging", "quarantined"}
)
"""The columns that say how many there are; other whole numbers say which one it is."""


class Listing(tuple[T, ...]):
    """Values of one kind, in order. `name in listing` finds a value by its name."""

    columns: dict[str, Callable[[Any], object]]
    title: str

    @classmethod
    def of(
        cls, title: str, values: Iterable[T], columns: dict[str, Callable[[Any], object]]
    ) -> Listing[T]:
        listing = cls(values)
        listing.title = title
        listing.columns = columns
        return listing

    def __contains__(self, item: object) -> bool:
        if isinstance(item, str):
            return any(getattr(value, "name", None) == item for value in self)
        return super().__contains__(item)

    def cells(self) -> list[list[str]]:
        return [
            [_shown(read(value), name) for name, read in self.columns.items()] for value in self
        ]

    def __repr__(self) -> str:
        if not self:
            return f"{self.title}: none"
        rows = [list(self.columns), *self.cells()[:ROWS_SHOWN_MAX]]
        widths = [max(len(row[i]) for row in rows) for i in range(len(self.columns))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        more = len(self) - ROWS_SHOWN_MAX
        if more > 0:
            lines.append(f"… and {more} more")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self.cells()[:ROWS_SHOWN_MAX]
        )
        caption = html.escape(f"{self.title} ({len(self)})")
        return f"<table><caption>{caption}</caption><tr>{head}</tr>{body}</table>"


def _shown(value: object, name: str = "") -> str:
    if value is None:
        return ""
    if isinstance(value, int) and name == "bytes":
        return show_size(value)
    if isinstance(value, int) and name in COUNTS:
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, datetime):
        return show_moment(value)
    if isinstance(value, tuple | list):
        return ", ".join(map(_shown, value))
    return str(value)
