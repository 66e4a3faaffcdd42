"""`tidelock diff`: what differs between two states."""

from __future__ import annotations

from typing import Annotated

import typer

from tidelock.cli.call import Call, command
from tidelock.cli.options import STATE, BranchOption, DiffLimitOption, DiffTableOption
from tidelock.cli.show.diffs import EXAMPLES, answer_diff


def register(app: typer.Typer) -> None:
    command(app, "diff", example="tidelock diff 1\ntidelock diff 1 2 --table orders")(diff)


def diff(
    call: Call,
    before: Annotated[str, typer.Argument(metavar="BEFORE", help=f"{STATE}.")],
    after: Annotated[
        str | None, typer.Argument(metavar="AFTER", help="The same. Else the newest.")
    ] = None,
    branch: BranchOption = "main",
    table: DiffTableOption = None,
    limit: DiffLimitOption = EXAMPLES,
) -> None:
    """Show what leads from one state to another, table by table.

    Columns, rules, definitions of stream tables, and rows: + for one that only AFTER has, - for one
    that only BEFORE has, ~ for one that both have with other values. It tells states apart, however
    they came about, so that what was changed and changed back does not differ. What commits did one
    by one is shown by `tidelock changes`.
    """
    answer_diff(call, before, after, branch, table, limit)
