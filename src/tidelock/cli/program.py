"""All commands in one program, and how it ends.

Invariant: a command that fails prints nothing on stdout that looks like an answer, says why on
stderr, and ends with the exit code of the error's family (failures.py). One that did a part of its
work (`gc`, `stream refresh`) answers with that part, and fails all the same.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from tidelock.cli import (
    apply,
    branches,
    failures,
    history,
    interrupts,
    load,
    maintenance,
    overview,
    sink,
    sql,
    stream,
    table,
)
from tidelock.cli import run as running
from tidelock.cli.call import ActorOption, DebugOption, JsonOption, LakeOption, StorageOption

DESCRIPTION = """A lake of tables whose every change is one atomic commit.

Start with [bold]tidelock init shop.lake[/bold]; every command has an example in its --help."""


def _epilog() -> str:
    codes = [f"  {code:>3}  {meaning}" for code, meaning in failures.EXIT_CODES]
    return "\n".join(["[bold]Exit codes[/bold]", *codes])


app = typer.Typer(
    name="tidelock",
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


PARTS = (
    overview,
    table,
    load,
    sql,
    stream,
    apply,
    sink,
    running,
    history,
    branches,
    maintenance,
)
for part in PARTS:
    part.register(app)


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
