"""`tidelock stream`: defining and refreshing stream tables; reports.py shows them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelock.cli import interrupts
from tidelock.cli.background import Background
from tidelock.cli.call import Call, command
from tidelock.cli.commands.sql.sql import read_query
from tidelock.cli.commands.stream import reports
from tidelock.cli.options import BranchOption, StreamArgument
from tidelock.cli.show import documents
from tidelock.cli.show.cells import count
from tidelock.cli.show.engines import starting
from tidelock.errors import InvalidOption, RefreshFailed
from tidelock.model.streams import Consistency, RefreshMode, SchedulePolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelock import Commit
    from tidelock.derive.attempts.attempts import Attempt
    from tidelock.derive.graph.groups import Unit

QUERY = "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer"
SCHEDULE = "30s, 1h30m, '*/5 * * * *' (UTC), upstream, or manual"

ScheduleOption = Annotated[
    str | None, typer.Option("--schedule", "-s", metavar="SCHEDULE", help=f"When: {SCHEDULE}.")
]
ModeOption = Annotated[
    RefreshMode | None,
    typer.Option("--mode", help="How it is refreshed: by delta, anew, or what is cheaper."),
]
ConsistencyOption = Annotated[
    Consistency | None,
    typer.Option("--consistency", help="Whether its group is published in one commit."),
]
PolicyOption = Annotated[
    SchedulePolicy | None,
    typer.Option("--policy", help="A group is due when one member is (fastest), or all are."),
]


def register(app: typer.Typer) -> None:
    stream = typer.Typer(
        no_args_is_help=True, help="Stream tables: defined by a query, kept up to date."
    )
    command(
        stream,
        "create",
        engine=True,
        example=f'tidelock stream create totals --query "{QUERY}"\n'
        "tidelock stream create totals --file totals.sql --schedule 5m --replace",
    )(create)
    command(
        stream, "alter", engine=True, example="tidelock stream alter totals --schedule '0 6 * * *'"
    )(alter)
    command(stream, "drop", example="tidelock stream drop totals --cascade")(drop)
    command(
        stream,
        "refresh",
        engine=True,
        example="tidelock stream refresh\ntidelock stream refresh totals --full",
    )(refresh)
    command(stream, "suspend", example='tidelock stream suspend totals --reason "bad data"')(
        suspend
    )
    command(stream, "resume", example="tidelock stream resume totals")(resume)
    reports.register(stream)
    app.add_typer(stream, name="stream")


def create(
    call: Call,
    name: StreamArgument,
    stdin: Annotated[
        str | None, typer.Argument(metavar="[-]", help="Read the query from stdin.")
    ] = None,
    query: Annotated[
        str | None, typer.Option("--query", "-q", metavar="SQL", help="The query, in Spark SQL.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", metavar="FILE", help="Read the query from a file."),
    ] = None,
    schedule: ScheduleOption = None,
    mode: ModeOption = None,
    consistency: ConsistencyOption = None,
    policy: PolicyOption = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="In the place of a stream table of that name.")
    ] = False,
    branch: BranchOption = "main",
) -> None:
    """Create a table that holds the rows of a query and follows its inputs.

    It is empty until its first refresh: `tidelock stream refresh NAME`, or `tidelock run`. Without
    --schedule it follows its inputs: it is due whenever one of them changed.
    """
    text = _query(stdin, query, file)
    options = _options(schedule, mode, consistency, policy)
    with call.open(write=True) as lake:
        define = lake.create_or_replace_stream_table if replace else lake.create_stream_table
        with call.output.warning(), call.output.waiting(starting(**call.engine)):
            commit = define(name, text, **options, branch=branch)
    verb = "Defined" if replace else "Created"
    _answer(call, commit, f"{verb} stream table {name}")


def _query(stdin: str | None, query: str | None, file: Path | None) -> str:
    given = [one for one in (stdin, query, file) if one is not None]
    if len(given) != 1 or stdin not in (None, "-"):
        raise InvalidOption(
            f'Give the query: --query "{QUERY}", --file FILE, or - to read it from stdin.'
        )
    return read_query(stdin or query, file)


def _options(
    schedule: str | None,
    mode: RefreshMode | None,
    consistency: Consistency | None,
    policy: SchedulePolicy | None,
) -> dict[str, Any]:
    """Those that were given, by the names that the lake has for them."""
    from tidelock.derive.definitions.options import check_option

    options: dict[str, Any] = {
        "refresh_mode": mode,
        "consistency": consistency,
        "schedule_policy": policy,
    }
    options = {option: value for option, value in options.items() if value is not None}
    if schedule is not None:
        options["schedule"] = check_option("schedule", schedule)
    return options


def _answer(call: Call, commit: Commit, told: str) -> None:
    call.output.answer(
        documents.of_commit(commit),
        lambda: call.output.line(f"{told}: version {commit.version}"),
    )


def _answer_nothing(call: Call, told: str) -> None:
    """There was nothing to do, and so no commit."""
    call.output.answer(None, lambda: call.output.line(told))


def alter(
    call: Call,
    name: StreamArgument,
    schedule: ScheduleOption = None,
    mode: ModeOption = None,
    consistency: ConsistencyOption = None,
    policy: PolicyOption = None,
    branch: BranchOption = "main",
) -> None:
    """Change options of a stream table. For another query: tidelock stream create --replace."""
    options = _options(schedule, mode, consistency, policy)
    with call.open(write=True) as lake, call.output.waiting(starting(**call.engine)):
        commit = lake.alter_stream_table(name, branch=branch, **options)
    _answer(call, commit, f"Altered stream table {name}")


def drop(
    call: Call,
    name: StreamArgument,
    cascade: Annotated[
        bool, typer.Option("--cascade", help="Drop the stream tables that read it too.")
    ] = False,
    branch: BranchOption = "main",
) -> None:
    """Drop a stream table. Earlier versions still show it while they are retained."""
    from tidelock.model.names import is_hidden

    with call.open(write=True) as lake:
        commit = lake.drop_stream_table(name, cascade, branch=branch)
    dropped = [change.table for change in commit.tables if not is_hidden(change.table)]
    _answer(call, commit, f"Dropped {', '.join(dropped)}")


def refresh(
    call: Call,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Which; else all.")
    ] = None,
    due: Annotated[
        bool, typer.Option("--due", help="Only what is due by its schedule or by changes.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Compute everything anew.")] = False,
    together: Annotated[
        bool, typer.Option("--together", help="All in one commit, as if they were one group.")
    ] = False,
    branch: BranchOption = "main",
) -> None:
    """Bring all stream tables up to date, or those that are named, upstream first.

    Without --due that includes what is refreshed only when asked, is not due yet, or backs off.

    A group is refreshed as a whole, in one commit, also when one member is named. Ends with exit
    code 9 when a table could not be refreshed, or stands still because it is suspended; the others
    were, and the reason is in its history. Ctrl-C finishes what has begun, and begins nothing else.

    In the report, rows in are the changed rows of the inputs that were read, or, in full, the rows
    that the query gave; rows out are those that were removed from the table and added to it. An
    updated row is one of each.
    """
    from tidelock.cli.show.refresh_view import RefreshView

    view = RefreshView()
    with call.open(write=True) as lake, view.shown(call.output) as drawn:
        background = Background(lake)
        if drawn:
            view.follow(lake.stream_tables(branch=branch))

        def begun(unit: Unit) -> None:
            view.begun(unit)
            background.need_engine()

        found = background.run(
            lambda: lake.refresh(
                names or None,
                due=due,
                full=full,
                consistency="lake" if together else None,
                branch=branch,
                begun=begun,
                progress=view.attempted,
                stop=background.stop,
            )
        )
    # What was not attempted is not in the history either.
    passed_over = {attempt.action for attempt in found} <= {"none", "skipped"}
    call.output.answer(
        [documents.of_attempt(attempt) for attempt in found],
        lambda: call.output.listed(
            found,
            f'No stream tables yet: tidelock stream create NAME --query "{QUERY}"',
            f"tidelock stream {'show' if passed_over else 'history'} NAME",
        ),
    )
    end_by(found, background)


def end_by(attempts: Sequence[Attempt], background: Background) -> None:
    """End with an error when some of the attempts failed, or when the user interrupted them.

    What was skipped, as it or a member of its group is suspended, was not refreshed either.
    """
    failed = [attempt.table for attempt in attempts if attempt.action == "failed"]
    skipped = [attempt.table for attempt in attempts if attempt.action == "skipped"]
    if background.stop.is_set():
        skipped = []
    if failed or skipped:
        listed = [*failed, *skipped]
        why = (
            f"The reason stays in the history: tidelock stream history {failed[0]}"
            if failed
            else f"The reason is told by: tidelock stream show {skipped[0]}"
        )
        raise RefreshFailed(
            f"{count(len(listed), 'stream table')} could not be refreshed: {', '.join(listed)}. "
            f"{why}",
            tables=listed,
        )
    if background.stop.is_set():
        raise typer.Exit(interrupts.INTERRUPTED)


def suspend(
    call: Call,
    name: StreamArgument,
    reason: Annotated[
        str, typer.Option("--reason", "-r", metavar="TEXT", help="Why, for people who look.")
    ] = "by hand",
    branch: BranchOption = "main",
) -> None:
    """Stop refreshing a stream table, and with it its whole group."""
    with call.open(write=True) as lake:
        commit = lake.suspend(name, reason=reason, branch=branch)
    if commit is None:
        _answer_nothing(call, f"{name} is suspended already: tidelock stream show {name}")
    else:
        _answer(call, commit, f"Suspended {name}")


def resume(call: Call, name: StreamArgument, branch: BranchOption = "main") -> None:
    """Refresh a suspended stream table again. One that is backing off is tried again at once."""
    from tidelock.model.names import fold

    with call.open(write=True) as lake:
        before = {fold(one.name): one.status for one in lake.stream_tables(branch=branch)}
        commit = lake.resume(name, branch=branch)
    if commit is None:
        failing = before.get(fold(name), "").startswith("failed")
        done = "It is no longer backing off." if failing else "Nothing was changed."
        _answer_nothing(call, f"{name} is not suspended. {done}")
    else:
        _answer(call, commit, f"Resumed {name}")
