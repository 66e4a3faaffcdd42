"""`tidelock optimize`, `gc`, `recoveries` and `repair`: keeping a lake quick, small and whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tidelock.cli import interrupts
from tidelock.cli.call import Call, command
from tidelock.cli.commands import verify
from tidelock.cli.options import BranchOption
from tidelock.cli.show import documents
from tidelock.cli.show.cells import count, seconds
from tidelock.cli.show.documents import Document
from tidelock.cli.show.engines import starting
from tidelock.cli.show.writers import Writer, find_writers, show_writers
from tidelock.errors import CorruptObject, StoreError
from tidelock.model.time.durations import show_size

if TYPE_CHECKING:
    from tidelock.store.upkeep.repair.repair import RepairReport


def register(app: typer.Typer) -> None:
    command(app, "optimize", example="tidelock optimize orders")(optimize)
    command(app, "gc", example="tidelock gc --older-than 7d --dry-run")(gc)
    command(app, "recoveries", example="tidelock recoveries")(recoveries)
    command(app, "repair", example="tidelock repair")(repair)


def optimize(
    call: Call,
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="TABLE", help="Which; else all.")
    ] = None,
    branch: BranchOption = "main",
    on_spark: Annotated[
        bool, typer.Option("--on-spark", help="Rewrite fragments on Spark's executors.")
    ] = False,
) -> None:
    """Compact tables and bring their key indexes up to date. Changes no row."""
    with call.open(write=True) as lake:
        states = lake.snapshot(branch).states()
        names = [states[name].name for name in tables] if tables else sorted(states)
        if on_spark:
            with call.output.waiting(starting()):
                _ = lake.spark
            interrupts.raise_from_now(writes=True)
        with call.output.stepping("optimizing") as step:
            commits = lake.optimize(names, branch=branch, on_spark=on_spark, progress=step)
    call.output.answer(
        {"tables": names, "commits": [documents.of_commit(commit) for commit in commits]},
        lambda: call.output.listed(commits, f"Nothing to do in {count(len(names), 'table')}."),
    )


def gc(
    call: Call,
    older_than: Annotated[
        str,
        typer.Option("--older-than", metavar="AGE", help="30s, 1h30m, 7d: keep what is younger."),
    ] = "7d",
    versions: Annotated[
        int,
        typer.Option(
            "--versions", metavar="N", min=0, help="Keep at least so many of each branch."
        ),
    ] = 1,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Say what would be removed; remove nothing.")
    ] = False,
) -> None:
    """Remove what nobody needs: old versions, and what writers left that never committed.

    Kept are tags, holds, what readers and writers use now, and whatever is younger than AGE. When
    a writer died, every branch gets a commit of kind maintenance first, which changes no row: it
    keeps that writer, should it wake up, from publishing what is about to be removed.
    Ends with exit code 6 when a table could not be collected; the others were. Some files are
    compared with their checksums by chance; exit code 7 says that one is damaged.
    """
    from tidelock.cli import reach

    with call.open(write=not dry_run) as lake:
        with call.output.stepping("collecting") as step:
            report = lake.collect_garbage(
                older_than, versions=versions, dry_run=dry_run, progress=step
            )
        document = documents.of_garbage(report, reach.table_names(lake))
    call.output.answer(document, lambda: _show_garbage(call, document))
    if report.damaged:
        verify.show_findings(call, report.damaged)
        raise CorruptObject(
            f"{count(len(report.damaged), 'file')} among some that were looked at by chance are "
            "damaged. `tidelock verify` looks at all.",
            keys=[finding.key for finding in report.damaged],
        )
    if report.errors:
        raise StoreError(
            f"{count(len(report.errors), 'table')} could not be collected: "
            f"{'; '.join(report.errors)}. Run it again.",
            errors=list(report.errors),
        )


def _show_garbage(call: Call, document: Document) -> None:
    verb = "Would remove" if document["dry_run"] else "Removed"
    output = call.output
    if document["files"]:
        output.listing(
            ["table", "files", "bytes", ""],
            [
                [name, f"{files:,}", show_size(total), ""]
                for name, files, total in _by_name(document)
            ],
            "",
        )
        output.line()
    output.line(
        f"{verb} {count(document['files'], 'file')}, {show_size(document['bytes'])}, "
        f"from before {seconds(document['cutoff'])}"
    )


def _by_name(document: Document) -> list[tuple[str, int, int]]:
    """What goes of each table that people know. What is kept for a stream table is part of it, and
    of tables that are on no branch nobody knows more than that they were."""
    found: dict[str | None, list[Document]] = {}
    for table in document["tables"]:
        if not table["error"]:
            found.setdefault(table["table"], []).append(table)
    gone = count(len(found.get(None, ())), "table")
    return [
        (name or f"{gone} on no branch", sum(t["files"] for t in of), sum(t["bytes"] for t in of))
        for name, of in found.items()
    ]


def recoveries(call: Call) -> None:
    """Show what became of operations whose writers died.

    They are settled by the next writer once their lease has ended, which is 60 seconds after
    they died unless it was set. Who is still to be settled is shown below, and by status --json.
    """
    with call.open() as lake:
        found = lake.recoveries()
        writers = find_writers(call)
    ended = any(writer.lease_ended for writer in writers)
    none = "Nothing has been settled yet." if ended else "No writer has died here."

    def show() -> None:
        call.output.listed(found, none)
        show_writers(call, writers)

    call.output.answer([documents.of_recovery(recovery) for recovery in found], show)


def repair(
    call: Call,
    table: Annotated[
        str | None, typer.Argument(metavar="TABLE", help="The table with a foreign commit.")
    ] = None,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Make the foreign commit the table's content.")
    ] = False,
    discard: Annotated[
        bool, typer.Option("--discard", help="Move the Lance HEAD back to the table's content.")
    ] = False,
    discard_intent: Annotated[
        str | None,
        typer.Option("--discard-intent", metavar="FILE", help="Remove an unreadable intent."),
    ] = None,
    discard_object: Annotated[
        str | None,
        typer.Option("--discard-object", metavar="FILE", help="Give up another damaged object."),
    ] = None,
) -> None:
    """Settle what dead writers left, mend what is damaged, and show what an operator must decide.

    A foreign commit is one that somebody made on a table's Lance HEAD, past Tidelock. It is
    adopted or discarded on an explicit word, never by itself. Damaged objects are removed or made
    anew where that harms nobody; others are restored from a copy, or given up on an explicit word.
    """
    # Opening is not to heal: repair itself does, and says what it settled. Also, healing would stop
    # at the very intent that is to be discarded.
    with call.open(write=True, heal=False) as lake:
        report = lake.repair(
            table,
            adopt=adopt,
            discard=discard,
            discard_intent=discard_intent,
            discard_object=discard_object,
        )
        writers = find_writers(call)
    call.output.answer(_of_repair(report, writers), lambda: _show_repair(call, report, writers))


def _of_repair(report: RepairReport, writers: list[Writer]) -> Document:
    return {
        "recovered": [documents.of_recovery(recovery) for recovery in report.recovered],
        "foreign_commits": [documents.of_foreign(foreign) for foreign in report.foreign],
        "adopted": documents.of_commit(report.adopted) if report.adopted else None,
        "discarded": report.discarded,
        "mended": [documents.of_finding(finding) for finding in report.mended],
        "damaged": [documents.of_finding(finding) for finding in report.damaged],
        "strangers": [documents.of_finding(finding) for finding in report.strangers],
        "intents": [documents.of_writer(writer) for writer in writers],
    }


def _show_repair(call: Call, report: RepairReport, writers: list[Writer]) -> None:
    from tidelock.store.leases.recovery import list_recoveries
    from tidelock.store.upkeep.mirror_notes import list_foreign

    output = call.output
    if report.recovered:
        output.line(f"Settled {count(len(report.recovered), 'operation')}:")
        output.listed(list_recoveries(report.recovered), "")
        output.line()
    for finding in report.mended:
        output.line(f"Mended {finding.key}: {finding.why}")
    verify.show_findings(call, report.damaged + report.strangers)
    if report.adopted:
        output.line(f"Adopted as version {report.adopted.version}")
    elif report.discarded:
        what = "" if report.discarded.startswith("_tidelock/") else "the foreign commit of "
        output.line(f"Discarded {what}{report.discarded}")
    elif report.foreign:
        output.listed(list_foreign(report.foreign), "")
        output.line()
        output.line("Decide for each: tidelock repair TABLE --adopt, or --discard")
    elif not report.damaged:
        output.line("Nothing needs a decision.")
    if writers:
        output.line("These writers live, or their lease has not ended yet:")
    show_writers(call, writers)
