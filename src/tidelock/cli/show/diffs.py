"""Diffs as the command line answers with them, whichever command was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelock.model.printable import printable

if TYPE_CHECKING:
    from tidelock.cli.call import Call
    from tidelock.model.history.diffs import Diff

EXAMPLES = 5
COUNTS = ("inserted", "updated", "deleted")


def answer_diff(
    call: Call, before: str, after: str | None, branch: str, table: str | None, limit: int
) -> None:
    """Compare two states and answer with what differs."""
    from tidelock.cli import reach

    with call.open() as lake:
        diff = lake.diff(
            reach.point(before),
            None if after is None else reach.point(after),
            table=table,
            branch=branch,
            examples=limit or None,
        )
    call.output.answer(diff.to_dict(), lambda: _show(call, diff))


def _show(call: Call, diff: Diff) -> None:
    from tidelock.model.history.diff_text import details, differs_in, told_points

    output = call.output
    output.line(printable(told_points(diff)))
    if not diff:
        return
    output.line()
    output.listing(
        ["table", *COUNTS, "differs in"],
        [
            [one.name, *(f"{getattr(one, name):,}" for name in COUNTS), differs_in(one)]
            for one in diff.tables
        ],
        "",
    )
    for one in diff.tables:
        told = details(one)
        if told:
            output.line()
            output.line(printable(one.name), "bold")
        for line in told:
            output.line(f"  {printable(line)}")
