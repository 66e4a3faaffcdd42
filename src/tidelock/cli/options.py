"""Arguments and options that several commands share: spelt, explained and read alike.

A POINT is a place in the history: a version, a tag, a commit id or a time (reach.py reads it).
"""

from __future__ import annotations

from typing import Annotated

import typer

POINT = "A version, a tag, a commit id or a time (2026-03-01T12:00Z)"
STATE = "A branch, a version, a tag, a commit id or a time (2026-03-01T12:00Z)"
SNAPSHOT_PANEL = "The snapshot"

TableArgument = Annotated[str, typer.Argument(metavar="TABLE", help="The table.")]
StreamArgument = Annotated[str, typer.Argument(metavar="NAME", help="The stream table.")]
BranchOption = Annotated[str, typer.Option("--branch", "-b", metavar="BRANCH", help="The branch.")]
SnapshotBranchOption = Annotated[
    str | None,
    typer.Option(
        "--branch",
        "-b",
        metavar="BRANCH",
        help="The branch. Else main, or that of the tag or commit.",
        rich_help_panel=SNAPSHOT_PANEL,
    ),
]
AtOption = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="POINT",
        help=f"{POINT}. Else the newest.",
        rich_help_panel=SNAPSHOT_PANEL,
    ),
]
DiffTableOption = Annotated[
    str | None,
    typer.Option("--table", "-t", metavar="TABLE", help="Only the table of this name."),
]
DiffLimitOption = Annotated[
    int,
    typer.Option(
        "--limit",
        "-n",
        metavar="N",
        min=0,
        help="How many rows of each table that were inserted, updated and deleted; 0 shows all.",
    ),
]
CascadeOption = Annotated[
    bool,
    typer.Option(
        "--cascade",
        help="Carry stream tables along: those that read what is dropped go too, those that read "
        "what gets another type follow it.",
    ),
]
MessageOption = Annotated[str, typer.Option("--message", "-m", metavar="TEXT", help="Why.")]
