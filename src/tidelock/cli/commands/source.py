"""`tidelock source`: what feeds tables of the lake by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tidelock.cli import interrupts
from tidelock.cli.background import Background
from tidelock.cli.call import Call, command
from tidelock.cli.options import BranchOption, NamedOptions, named_options
from tidelock.cli.show import documents
from tidelock.cli.show.cells import count
from tidelock.cli.show.sources import lag, rates, table_rows
from tidelock.errors import SourceError
from tidelock.model.time.durations import show_moment

if TYPE_CHECKING:
    from tidelock.ingest.reports import IngestReport, SourceStatus

NONE = "No sources yet: tidelock source add NAME --kind files --option path=FOLDER"

SourceArgument = Annotated[str, typer.Argument(metavar="NAME", help="The source.")]


def register(app: typer.Typer) -> None:
    source = typer.Typer(
        no_args_is_help=True, help="Sources: what feeds tables of the lake by itself."
    )
    command(
        source,
        "add",
        example="tidelock source add shop --kind postgres --into 'shop_{table}' "
        "-o dsn=postgresql://reader@db/shop -o password=env:SHOP_PASSWORD -o tables=public.*",
    )(add)
    command(source, "list", example="tidelock source list")(show_all)
    command(source, "status", example="tidelock source status shop")(status)
    command(source, "ingest", example="tidelock source ingest\ntidelock source ingest shop --json")(
        ingest
    )
    command(source, "suspend", example='tidelock source suspend shop --reason "migration"')(suspend)
    command(source, "resume", example="tidelock source resume shop")(resume)
    command(
        source,
        "resnapshot",
        example="tidelock source resnapshot shop\n"
        "tidelock source resnapshot shop --table public.orders",
    )(resnapshot)
    command(source, "drop", example="tidelock source drop shop")(drop)
    app.add_typer(source, name="source")


def add(
    call: Call,
    name: SourceArgument,
    kind: Annotated[
        str,
        typer.Option(
            "--kind", "-k", metavar="KIND", help="postgres, files, or module:Class of your own."
        ),
    ],
    into: Annotated[
        str | None,
        typer.Option(
            "--into",
            metavar="PATTERN",
            help="What its tables are called: a name, or a pattern with {table} and {schema}.",
        ),
    ] = None,
    schedule: Annotated[
        str,
        typer.Option(
            "--schedule",
            "-s",
            metavar="SCHEDULE",
            help="For `tidelock run`: live, 30s, 1h30m, '*/5 * * * *' (UTC), or manual.",
        ),
    ] = "live",
    option: NamedOptions = None,
    branch: BranchOption = "main",
) -> None:
    """Define a source, and create the tables that it feeds. Nothing is read before it is ingested.

    A name that is given several times makes a list: -o tables=public.orders -o tables=public.items.
    docs/ingest.md says what each kind takes and guarantees.
    """
    with call.open(write=True) as lake:
        made = lake.create_source(
            name,
            kind=kind,
            into=into,
            schedule=None if schedule == "manual" else schedule,
            branch=branch,
            **named_options(option or []),
        )
    call.output.answer(
        documents.of_source(made),
        lambda: call.output.note(
            f"Added source {name}. `tidelock source ingest {name}` reads it now, `tidelock run` by "
            "schedule."
        ),
    )


def show_all(call: Call) -> None:
    """List all sources, and where each stands."""
    with call.open() as lake:
        found = lake.sources()
    call.output.answer(
        [documents.of_source(one) for one in found],
        lambda: call.output.listed(found, NONE, "tidelock source status NAME"),
    )


def status(call: Call, name: SourceArgument) -> None:
    """Show where a source stands: its state, its position, how far it is behind, what is open."""
    with call.open() as lake:
        found = lake.source_status(name)
    call.output.answer(documents.of_source(found), lambda: _show(call, found))


def _show(call: Call, found: SourceStatus) -> None:
    facts = [
        ("source", f"{found.name} ({found.kind})"),
        ("state", found.state + (f": {found.reason}" if found.reason else "")),
        ("branch", found.branch),
        ("schedule", found.schedule or "manual"),
        ("position", found.position or "none yet"),
        ("behind", lag(found) or "unknown"),
        ("rates", rates(found)),
        ("last commit", "none yet" if found.commit is None else f"version {found.commit}"),
        ("read by", found.reader or "nobody now"),
    ]
    if found.retry_at is not None:
        facts.append(("tried again", show_moment(found.retry_at)))
    facts += [("note", one) for one in found.notes]
    call.output.facts(facts)
    if found.tables:
        call.output.listing(["table", "as", "state", "rows", "reason"], table_rows(found), "")
    if found.open:
        rows = [
            [one.name, f"{one.rows:,}", f"{one.size_bytes:,}", show_moment(one.since)]
            for one in found.open
        ]
        call.output.listing(["open transaction", "rows", "bytes", "since"], rows, "")


def ingest(
    call: Call,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]…", help="The sources. Else all of them.")
    ] = None,
) -> None:
    """Read what there is by now. Ends with exit code 11 when a source could not be read."""
    from tidelock.ingest.reports import list_reports

    with call.open(write=True) as lake:
        background = Background(lake)
        with call.output.counting("Ingesting") as counted:

            def work() -> list[IngestReport]:
                if not names:
                    return list(lake.ingest(stop=background.stop, progress=counted))
                return [lake.ingest(name, stop=background.stop, progress=counted) for name in names]

            found = background.run(work)
    call.output.answer(
        [documents.of_ingest(one) for one in found],
        lambda: call.output.listed(list_reports(found), NONE, "tidelock source status NAME"),
    )
    end_by(found, background)


def end_by(reports: Sequence[IngestReport], background: Background) -> None:
    """End with an error when a source was not read, or when the user interrupted it."""
    wrong = [one for one in reports if one.action in ("failed", "waiting")]
    if wrong:
        raise SourceError(
            f"{count(len(wrong), 'source')} could not be read: "
            f"{', '.join(one.source for one in wrong)}. What was published of it counts; see: "
            f"tidelock source status {wrong[0].source}",
            sources=[one.source for one in wrong],
        )
    if background.stop.is_set():
        raise typer.Exit(interrupts.INTERRUPTED)


def suspend(
    call: Call,
    name: SourceArgument,
    reason: Annotated[
        str, typer.Option("--reason", "-r", metavar="TEXT", help="Why, for people who look.")
    ] = "by hand",
) -> None:
    """Read nothing of a source until it is resumed."""
    with call.open(write=True) as lake:
        lake.suspend_source(name, reason)
        _answer(call, lake.source_status(name), f"Suspended {name}")


def resume(call: Call, name: SourceArgument) -> None:
    """Let a suspended source go on where it was; try one that is stopped again at once."""
    with call.open(write=True) as lake:
        lake.resume_source(name)
        _answer(call, lake.source_status(name), f"Resumed {name}")


def resnapshot(
    call: Call,
    name: SourceArgument,
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table", "-t", metavar="TABLE", help="Only this one; may be given several times."
        ),
    ] = None,
) -> None:
    """Bring the tables of a source to what the source has, where they differ."""
    with call.open(write=True) as lake:
        background = Background(lake)
        with call.output.waiting("Loading"):
            found = background.run(
                lambda: lake.resnapshot(name, tables=table, stop=background.stop)
            )
    call.output.answer(
        documents.of_ingest(found),
        lambda: call.output.note(
            f"Loaded {name} anew: {count(found.rows, 'row')} in {count(found.commits, 'commit')}"
        ),
    )
    end_by([found], background)


def drop(call: Call, name: SourceArgument) -> None:
    """Forget a source, with what was made for it at the source. Its tables stay."""
    with call.open(write=True) as lake:
        lake.drop_source(name)
    call.output.answer({"dropped": name}, lambda: call.output.note(f"Dropped source {name}"))


def _answer(call: Call, found: SourceStatus, note: str) -> None:
    call.output.answer(documents.of_source(found), lambda: call.output.note(note))
