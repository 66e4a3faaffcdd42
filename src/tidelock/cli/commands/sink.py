"""`tidelock sink`: destinations that follow a table."""

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
from tidelock.errors import DeliveryError, InvalidOption
from tidelock.model.sinks import HOLDS, Feed
from tidelock.model.time.durations import show_moment

if TYPE_CHECKING:
    from tidelock.deliver.reports import DeliveryReport, SinkStatus

NONE = "No sinks yet: tidelock sink add NAME --table TABLE --kind parquet --to FOLDER"

DAMAGE_SHOWN_MAX = 20

SinkArgument = Annotated[str, typer.Argument(metavar="NAME", help="The sink.")]


def register(app: typer.Typer) -> None:
    sink = typer.Typer(no_args_is_help=True, help="Sinks: destinations that follow a table.")
    command(
        sink,
        "add",
        example="tidelock sink add archive --table orders --kind parquet --to archive "
        "--partition-by customer",
    )(add)
    command(sink, "list", example="tidelock sink list")(show_all)
    command(
        sink,
        "status",
        example="tidelock sink status archive\ntidelock sink status archive --verify",
    )(status)
    command(sink, "deliver", example="tidelock sink deliver\ntidelock sink deliver archive --json")(
        deliver
    )
    command(sink, "suspend", example='tidelock sink suspend archive --reason "disk is full"')(
        suspend
    )
    command(sink, "resume", example="tidelock sink resume archive")(resume)
    command(
        sink,
        "replay",
        example="tidelock sink replay archive --since 0\n"
        "tidelock sink replay archive --partition customer=ann",
    )(replay)
    command(sink, "repair", example="tidelock sink repair archive")(repair)
    command(sink, "resync", example="tidelock sink resync archive")(resync)
    command(
        sink,
        "quarantine",
        example="tidelock sink quarantine archive\ntidelock sink quarantine archive --discard",
    )(quarantine)
    command(sink, "drop", example="tidelock sink drop archive")(drop)
    app.add_typer(sink, name="sink")


def add(
    call: Call,
    name: SinkArgument,
    table: Annotated[
        str, typer.Option("--table", "-t", metavar="TABLE", help="The table, or stream table.")
    ],
    kind: Annotated[
        str,
        typer.Option(
            "--kind",
            "-k",
            metavar="KIND",
            help="parquet, jsonl, csv, http, iceberg, delta, or module:name of your own.",
        ),
    ],
    to: Annotated[
        str, typer.Option("--to", metavar="ADDRESS", help="A folder, s3://…, or an address.")
    ],
    feed: Annotated[
        Feed,
        typer.Option("--feed", help="inserts: new rows alone. changes: updates and deletions too."),
    ] = "inserts",
    partition_by: Annotated[
        list[str] | None,
        typer.Option("--partition-by", metavar="COLUMN", help="May be given several times."),
    ] = None,
    schedule: Annotated[
        str,
        typer.Option(
            "--schedule",
            "-s",
            metavar="SCHEDULE",
            help="For `tidelock run`: 30s, 1h30m, '*/5 * * * *' (UTC), upstream, or manual.",
        ),
    ] = "upstream",
    start: Annotated[
        str,
        typer.Option("--start", metavar="START", help="beginning, now, or version:N."),
    ] = "beginning",
    hold: Annotated[
        str,
        typer.Option(
            "--hold", metavar="DURATION", help="How long what it has not delivered is kept for it."
        ),
    ] = "7d",
    option: NamedOptions = None,
    branch: BranchOption = "main",
) -> None:
    """Attach a destination to a table. Nothing is sent before the first delivery.

    A destination that wants a secret gets it as a reference: --kind http --to https://example.com/
    --option token=env:TOKEN. docs/sinks.md says what each kind takes and guarantees.
    """
    with call.open(write=True) as lake:
        made = lake.create_sink(
            name,
            table=table,
            kind=kind,
            to=to,
            feed=feed,
            partition_by=partition_by,
            schedule=None if schedule == "manual" else schedule,
            start=start,
            hold=hold,
            branch=branch,
            **named_options(option or []),
        )
    call.output.answer(
        documents.of_sink(made),
        lambda: call.output.note(
            f"Added sink {name}. {HOLDS[feed]}. `tidelock sink deliver {name}` delivers now, "
            "`tidelock run` by schedule."
        ),
    )


def show_all(call: Call) -> None:
    """List all sinks, and where each stands."""
    with call.open() as lake:
        found = lake.sinks()
    call.output.answer(
        [documents.of_sink(one) for one in found], lambda: call.output.listed(found, NONE)
    )


def status(
    call: Call,
    name: SinkArgument,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Compare what was delivered with what is there."),
    ] = False,
) -> None:
    """Show where a sink stands, which partitions are behind, and what to do about it.

    With --verify it ends with exit code 10 when something that was delivered is gone, or was
    changed by somebody else.
    """
    with call.open() as lake:
        found = lake.sink_status(name, verify=verify)
    call.output.answer(documents.of_sink(found), lambda: _show(call, found))
    if found.damage:
        raise DeliveryError(
            f"{found.to} is not as it was delivered: {found.reason}",
            sink=name,
            damage=list(found.damage),
        )
    if verify:
        call.output.note(f"All that {name} has delivered is there.")


def _show(call: Call, found: SinkStatus) -> None:
    facts = [
        ("sink", found.name),
        ("state", found.state + (f": {found.reason}" if found.reason else "")),
        ("table", f"{found.table} on {found.branch}"),
        ("to", f"{found.to} ({found.kind})"),
        ("feed", found.feed),
        ("partitions", ", ".join(found.partition_by) or "none"),
        ("schedule", found.schedule or "manual"),
        ("watermark", f"{found.watermark} of {'?' if found.newest is None else found.newest}"),
        ("plan", f"{found.plan}" + (", and one in flight" if found.in_flight else "")),
        ("quarantined", f"{found.quarantined:,}"),
    ]
    if found.retry_at is not None:
        facts.append(("tried again", show_moment(found.retry_at)))
    call.output.facts(facts)
    if found.damage:
        shown = [[one] for one in found.damage[:DAMAGE_SHOWN_MAX]]
        call.output.listing([f"damage ({len(found.damage)})"], shown, "")
    if found.lagging:
        rows = [
            [one.path, str(one.watermark), one.trouble.reason if one.trouble else ""]
            for one in found.lagging
        ]
        call.output.listing(["behind", "watermark", "why"], rows, "")


def deliver(
    call: Call,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]…", help="The sinks. Else all of them.")
    ] = None,
) -> None:
    """Deliver what is new, now. Ends with exit code 10 when a destination did not take it."""
    with call.open(write=True) as lake:
        background = Background(lake)

        def work() -> list[DeliveryReport]:
            if not names:
                return list(lake.deliver(stop=background.stop))
            return [lake.deliver(name, stop=background.stop) for name in names]

        with call.output.waiting("Delivering"):
            found = background.run(work)
    from tidelock.run.sinks import list_deliveries

    call.output.answer(
        [documents.of_delivery(one) for one in found],
        lambda: call.output.listed(list_deliveries(found), NONE, "tidelock sink status NAME"),
    )
    end_by(found, background)


def end_by(reports: Sequence[DeliveryReport], background: Background) -> None:
    """End with an error when something was not delivered, or when the user interrupted it."""
    failed = [report.sink for report in reports if report.is_incomplete]
    if failed:
        raise DeliveryError(
            f"{count(len(failed), 'sink')} could not deliver everything: {', '.join(failed)}. What "
            f"was delivered counts; see: tidelock sink status {failed[0]}",
            sinks=failed,
        )
    refused = [report.sink for report in reports if report.quarantined]
    if refused:
        raise DeliveryError(
            f"{count(len(refused), 'sink')} had chunks refused, which are in quarantine: "
            f"{', '.join(refused)}. The rest was delivered. See them, send them again or give them "
            f"up: tidelock sink quarantine {refused[0]}",
            sinks=refused,
        )
    if background.stop.is_set():
        raise typer.Exit(interrupts.INTERRUPTED)


def suspend(
    call: Call,
    name: SinkArgument,
    reason: Annotated[
        str, typer.Option("--reason", "-r", metavar="TEXT", help="Why, for people who look.")
    ] = "by hand",
) -> None:
    """Deliver nothing to a sink until it is resumed."""
    with call.open(write=True) as lake:
        lake.suspend_sink(name, reason)
        _answer(call, lake.sink_status(name), f"Suspended {name}")


def resume(call: Call, name: SinkArgument) -> None:
    """Let a suspended sink go on where it was."""
    with call.open(write=True) as lake:
        lake.resume_sink(name)
        _answer(call, lake.sink_status(name), f"Resumed {name}")


def replay(
    call: Call,
    name: SinkArgument,
    partition: Annotated[
        str | None,
        typer.Option("--partition", metavar="PATH", help="Of this partition only: region=EU."),
    ] = None,
    since: Annotated[
        int,
        typer.Option(
            "--since", metavar="POSITION", help="After this sequence, or version for changes."
        ),
    ] = -1,
    lose_rows: Annotated[
        bool,
        typer.Option(
            "--lose-rows", help="Also if rows go that the lake has no longer, or never had."
        ),
    ] = False,
) -> None:
    """Let the next delivery send again what comes after a position."""
    with call.open(write=True) as lake:
        found = lake.replay(name, partition=partition, since=since, lose_rows=lose_rows)
    _answer(call, found, f"The next delivery of {name} sends again what comes after {since}")


def repair(call: Call, name: SinkArgument) -> None:
    """Write a manifest that is gone or cannot be read anew, from the names of the files there.

    Nothing else at the destination is changed.
    """
    with call.open(write=True) as lake:
        found = lake.repair_sink(name)
    call.output.answer(
        documents.of_repair(found),
        lambda: call.output.note(
            f"The manifest lists {count(found.files, 'file')} with {count(found.rows, 'row')}."
        ),
    )
    for first, last in found.missing:
        call.output.note(f"No file holds {first} to {last}, which were delivered.")


def resync(call: Call, name: SinkArgument) -> None:
    """Accept what a lapsed sink has lost, and go on with what is there."""
    with call.open(write=True) as lake:
        found = lake.resync_sink(name)
    _answer(call, found, f"{name} goes on with what is there")


def drop(call: Call, name: SinkArgument) -> None:
    """Forget a sink. What it delivered stays where it is."""
    with call.open(write=True) as lake:
        lake.drop_sink(name)
    call.output.answer({"dropped": name}, lambda: call.output.note(f"Dropped sink {name}"))


def quarantine(
    call: Call,
    name: SinkArgument,
    retry: Annotated[bool, typer.Option("--retry", help="Send them again.")] = False,
    discard: Annotated[bool, typer.Option("--discard", help="Give them up.")] = False,
    number: Annotated[
        str | None, typer.Option("--number", metavar="NUMBER", help="Only this one.")
    ] = None,
) -> None:
    """List the chunks that a destination refused; send them again, or give them up."""
    if retry and discard:
        raise InvalidOption("Choose one of --retry and --discard.")
    with call.open(write=retry or discard) as lake:
        if retry:
            sent = lake.retry_quarantined(name, number)
            call.output.note(
                f"{count(len(sent.taken), 'chunk')} taken, {len(sent.refused):,} refused again."
            )
        if discard:
            given_up = lake.discard_quarantined(name, number)
            call.output.note(f"{count(len(given_up), 'chunk')} given up.")
        found = lake.quarantine(name)
    call.output.answer(
        [documents.of_quarantined(one) for one in found],
        lambda: call.output.listed(
            found,
            f"Nothing of {name} is in quarantine.",
            f"tidelock sink quarantine {name} --json",
        ),
    )


def _answer(call: Call, found: SinkStatus, note: str) -> None:
    call.output.answer(documents.of_sink(found), lambda: call.output.note(note))
