"""Arguments and options that several commands share: spelt, explained and read alike.

A POINT is a place in the history: a version, a tag, a commit id or a time (reach.py reads it).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from tidelock.errors import InvalidOption

POINT = "A version, a tag, a commit id or a time (2026-03-01T12:00Z)"
STATE = "A branch, a version, a tag, a commit id or a time (2026-03-01T12:00Z)"
SNAPSHOT_PANEL = "The snapshot"

WORDS = {"true": True, "false": False}

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
NamedOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="NAME=VALUE",
        help="An option of the kind. Secrets as env:NAME or file:PATH.",
    ),
]
MessageOption = Annotated[str, typer.Option("--message", "-m", metavar="TEXT", help="Why.")]


def named_options(given: Sequence[str]) -> dict[str, Any]:
    """NAME=VALUE, where NAME.KEY=VALUE makes one entry of an option that has several, and a NAME
    that is given again a list. Digits are a number, `true` and `false` are what they say."""
    options: dict[str, Any] = {}
    for one in given:
        name, equals, text = one.partition("=")
        if not equals or not name:
            raise InvalidOption(f"--option {one!r} is not of the form NAME=VALUE.", option=one)
        outer, dot, inner = name.partition(".")
        value: Any = int(text) if text.isdigit() else WORDS.get(text, text)
        if dot:
            options.setdefault(outer, {})[inner] = text
        elif name in options:
            before = options[name]
            options[name] = [*(before if isinstance(before, list) else [before]), value]
        else:
            options[name] = value
    return options
