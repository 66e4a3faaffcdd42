"""Merges as the command line shows them: what became of each table, and every conflict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tidelock.cli.show.cells import count
from tidelock.model.printable import printable

if TYPE_CHECKING:
    from tidelock.cli.output import Output
    from tidelock.model.history.conflicts import Conflict
    from tidelock.model.history.merges import Merge, TableMerge

COUNTS = ("inserted", "updated", "deleted")
EXTRA = ("resolved", "conflicts")
CONFLICTS_SHOWN_MAX = 50
WHAT_TO_DO = (
    "Change one of the two branches, or merge again with --on-conflict TABLE=source or "
    "TABLE=target. With --json all of them are told."
)


def show_merge(output: Output, merge: Merge) -> None:
    total = sum((merge.counts or {}).values())
    if total:
        refused = (
            f"{merge.source} into {merge.target}: would be refused, {count(total, 'conflict')}"
        )
        output.line(printable(refused))
    else:
        output.line(printable(merge.headline))
    if merge.tables:
        output.line()
        _show_tables(output, merge.tables)
    if total:
        output.line()
        show_conflicts(output, merge.conflicts, total)


def _show_tables(output: Output, tables: Sequence[TableMerge]) -> None:
    """What becomes of each table; what there is of none is left out."""
    extra = [name for name in EXTRA if any(getattr(one, name) for one in tables)]
    told = any(one.why for one in tables)
    output.listing(
        ["table", "action", *COUNTS, *extra, *(["reason"] * told)],
        [
            [
                one.table,
                one.action,
                *(f"{getattr(one, name):,}" for name in (*COUNTS, *extra)),
                *([one.why] * told),
            ]
            for one in tables
        ],
        "",
    )


def show_conflicts(output: Output, conflicts: Sequence[Conflict], total: int) -> None:
    """The first conflicts as a table, and what can be done about them."""
    shown = conflicts[:CONFLICTS_SHOWN_MAX]
    told = any(one.why for one in shown)
    output.listing(
        ["table", "key", "kind", "columns", "base", "source", "target", *(["reason"] * told)],
        [[*_cells(one), *([one.why] * told)] for one in shown],
        "",
    )
    if total > len(shown):
        output.line(f"… and {count(total - len(shown), 'more conflict')}", "dim")
    output.line(WHAT_TO_DO)


def _cells(conflict: Conflict) -> list[str]:
    columns = conflict.columns or tuple(conflict.source or conflict.target or ())
    gone = "deleted" if conflict.base is not None else ""
    return [
        conflict.table,
        _pairs(conflict.key, tuple(conflict.key or ())),
        conflict.kind,
        ", ".join(conflict.columns),
        _pairs(conflict.base, columns),
        _pairs(conflict.source, columns) or gone,
        _pairs(conflict.target, columns) or gone,
    ]


def _pairs(values: Mapping[str, Any] | None, columns: Sequence[str]) -> str:
    from tidelock.model.history.diff_text import pairs

    return "" if values is None else pairs({name: values.get(name) for name in columns})
