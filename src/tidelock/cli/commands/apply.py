"""`tidelock apply`: a folder of definitions, brought to the lake in one commit."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidelock.cli.call import Call, command
from tidelock.cli.options import BranchOption, CascadeOption
from tidelock.cli.show import documents
from tidelock.cli.show.cells import count
from tidelock.cli.show.engines import starting
from tidelock.model.printable import printable

if TYPE_CHECKING:
    from tidelock.derive.definitions.apply_plan import ApplyPlan


def register(app: typer.Typer) -> None:
    command(
        app,
        "apply",
        engine=True,
        example="tidelock apply pipelines/shop --dry-run\ntidelock apply pipelines/shop --yes",
    )(apply)


def apply(
    call: Call,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of definitions.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Check and show the plan; change nothing.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Drop what is no longer defined, without asking.")
    ] = False,
    allow_data_loss: Annotated[
        bool,
        typer.Option(
            "--allow-data-loss", help="Also do what destroys something, such as drop a column."
        ),
    ] = False,
    cascade: CascadeOption = False,
    branch: BranchOption = "main",
) -> None:
    """Bring tables and stream tables to what the .sql and .py files of a folder define.

    Everything is one commit, or nothing is changed; without a change there is no commit. Tables are
    declared by CREATE TABLE, in schema/*.sql or beside stream tables; those that no file declares
    are left alone. A stream table that was applied from this folder and is no longer defined is
    dropped: a terminal asks first, elsewhere it needs --yes. What was created elsewhere is never
    touched.
    """
    from tidelock.derive.definitions.apply import refuse_drops

    asks = not yes and not call.json and sys.stdin.isatty() and call.output.notes.is_terminal
    asked = False
    spinner = ExitStack()

    def review(plan: ApplyPlan) -> bool:
        nonlocal asked
        if yes or not plan.drops:
            return True
        if not asks:
            return refuse_drops(plan)
        spinner.close()
        asked = True
        _show(call, plan)
        what = count(len(plan.drops), "stream table")
        return typer.confirm(f"Drop {what}, and apply the rest?", err=True)

    with call.open(write=True) as lake, call.output.warning(), spinner:
        spinner.enter_context(call.output.waiting(starting(**call.engine)))
        applied = lake.apply(
            folder,
            dry_run=dry_run,
            review=review,
            allow_data_loss=allow_data_loss,
            cascade=cascade,
            branch=branch,
        )
    plan, commit = applied.plan, applied.commit
    document = {
        **plan.to_dict(),
        "dry_run": dry_run,
        "commit": documents.of_commit(commit) if commit is not None else None,
    }

    def show() -> None:
        if not asked:
            _show(call, plan)
        if commit is not None:
            call.output.line(f"Applied: version {commit.version}")
        elif plan:
            call.output.line("Nothing was changed.")

    call.output.answer(document, show)


def _show(call: Call, plan: ApplyPlan) -> None:
    for line in plan.to_text().splitlines():
        call.output.line(printable(line.replace("\t", "    ")))
