"""All commands in one program, and how it ends.

Owns: the table of commands. A command's module is imported when it is called, so that `--help` and
a wrong command line cost no more than this module and typer do.

Invariant: a command that fails prints nothing on stdout that looks like an answer, says why on
stderr, and ends with the exit code of the error's family (failures.py). One that did a part of its
work (`gc`, `stream refresh`) answers with that part, and fails all the same.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from tidelock.cli import failures, interrupts
from tidelock.cli.call import ActorOption, DebugOption, JsonOption, LakeOption, StorageOption

DESCRIPTION = """A lake of tables whose every change is one atomic commit.

Start with [bold]tidelock init shop.lake[/bold]; every command has an example in its --help."""


MAINTENANCE = "Maintenance"


@dataclass(frozen=True)
class Command:
    """What `tidelock --help` says of a command, and the module of commands that registers it."""

    name: str
    module: str
    help: str
    panel: str | None = None


COMMANDS = (
    Command("init", "overview", "Create an empty lake."),
    Command(
        "status",
        "overview",
        "Show a lake as a whole: branches, tables, who is writing, what needs a decision.",
    ),
    Command("load", "load", "Load files into a table as one commit."),
    Command(
        "sql",
        "sql.sql",
        "Run a Spark SQL query over one snapshot, or statements that change tables.",
    ),
    Command(
        "apply",
        "apply",
        "Bring tables and stream tables to what the .sql and .py files of a folder define.",
    ),
    Command(
        "run",
        "run",
        "Read sources, refresh stream tables and deliver to sinks as they become due, until "
        "SIGTERM or Ctrl-C.",
    ),
    Command("log", "history", "Show the commits of a branch, newest first."),
    Command("show", "history", "Show one commit in full."),
    Command("changes", "history", "Show what commits did to the rows of a table, in order."),
    Command("diff", "diff", "Show what leads from one state to another, table by table."),
    Command("schema", "schema", "Show, plan, apply and trace what tables are declared as."),
    Command("table", "table", "Create, list, show, mirror and drop tables."),
    Command("stream", "stream.stream", "Stream tables: defined by a query, kept up to date."),
    Command("source", "source", "Sources: what feeds tables of the lake by itself."),
    Command("sink", "sink", "Sinks: destinations that follow a table."),
    Command("branch", "branches", "Create, list, compare, merge and delete branches."),
    Command("tag", "branches", "Name commits. [bold]tidelock tag NAME[/bold] tags the newest."),
    Command(
        "optimize",
        "maintenance",
        "Compact tables and bring their key indexes up to date. Changes no row.",
        MAINTENANCE,
    ),
    Command(
        "gc",
        "maintenance",
        "Remove what nobody needs: old versions, and what writers left that never committed.",
        MAINTENANCE,
    ),
    Command(
        "recoveries",
        "maintenance",
        "Show what became of operations whose writers died.",
        MAINTENANCE,
    ),
    Command(
        "repair",
        "maintenance",
        "Settle what dead writers left, mend what is damaged, and show what an operator must "
        "decide.",
        MAINTENANCE,
    ),
    Command(
        "verify",
        "verify",
        "Compare every object and every file with the checksum that was kept when it was written.",
        MAINTENANCE,
    ),
)


def load(command: Command) -> Any:
    """The command itself, from its module."""
    part = typer.Typer(rich_markup_mode="rich")
    import_module(f"tidelock.cli.commands.{command.module}").register(part)
    return typer.main.get_group(part).commands[command.name]


class _Program(TyperGroup):
    """Lists the commands of the table, and imports the one that is called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for command in COMMANDS:
            self.add_command(
                TyperCommand(command.name, help=command.help, rich_help_panel=command.panel)
            )

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, _, rest = super().resolve_command(ctx, args)
        return name, next(load(command) for command in COMMANDS if command.name == name), rest


def _epilog() -> str:
    codes = [f"  {code:>3}  {meaning}" for code, meaning in failures.EXIT_CODES]
    return "\n".join(["[bold]Exit codes[/bold]", *codes])


app = typer.Typer(
    name="tidelock",
    cls=_Program,
    help=DESCRIPTION,
    epilog=_epilog(),
    rich_markup_mode="rich",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"tidelock {version('tidelock')}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    lake: LakeOption = None,
    storage_option: StorageOption = None,
    actor: ActorOption = None,
    json: JsonOption = False,
    debug: DebugOption = False,
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    context.obj = {
        "lake": lake,
        "storage_option": storage_option,
        "actor": actor,
        "json": json,
        "debug": debug,
    }


def run(arguments: Sequence[str]) -> int:
    given = list(arguments)
    try:
        # With `standalone_mode` off, an exit is returned as its code, and errors are raised.
        code: Any = typer.main.get_command(app).main(
            args=given, prog_name="tidelock", standalone_mode=False
        )
        if code == interrupts.INTERRUPTED:
            _say(interrupts.TOLD)
        return code if isinstance(code, int) else failures.OK
    except SystemExit:
        # Typer ends the process by itself in one case: nobody reads the help any more.
        return failures.PIPE_CLOSED
    except (KeyboardInterrupt, typer.Abort):
        interrupts.settle()
        _say(interrupts.TOLD)
        return interrupts.INTERRUPTED
    except Exception as error:  # noqa: BLE001
        if interrupts.asked():
            interrupts.settle()
            _say(interrupts.TOLD)
            return interrupts.INTERRUPTED
        # Typer's own errors have these two, whichever click it stands on.
        if hasattr(error, "format_message") and hasattr(error, "show"):
            return _refuse(error, given)
        return _fail(error, given)


def _fail(error: BaseException, arguments: list[str]) -> int:
    as_json, debug = failures.wants_json(arguments), failures.debugging(arguments)
    _say(failures.tell(error, as_json=as_json, debug=debug))
    return failures.exit_code(error)


def _refuse(error: Any, arguments: list[str]) -> int:
    """A command line that cannot be parsed."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return failures.USAGE
    message = error.format_message().replace("Value error, ", "")
    if failures.wants_json(arguments):
        told = {"condition": "USAGE", "action": "never_retry", "message": message}
        _say(failures.dumps(told))
    else:
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "tidelock"
        _say(f"error: {message}\nTry '{path} --help'.")
    return failures.USAGE


def _say(text: str) -> None:
    sys.stderr.write(text.rstrip("\n") + "\n")
