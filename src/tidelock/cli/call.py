"""One call of the command line: which lake it is about, and how it answers.

Owns: the options that every command has, and how a command is registered. They may stand before the
command or after it; after it wins. What was not given comes from the environment:

    --lake    TIDELOCK_LAKE, else the current directory if it is a lake
    --actor   TIDELOCK_ACTOR, else the user's name
"""

from __future__ import annotations

import functools
import inspect
import os
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelock.cli import failures, interrupts
from tidelock.cli.output import Output
from tidelock.errors import InvalidOption, LakeNotFound

if TYPE_CHECKING:
    from tidelock import Lake

LAKE_FILE = Path("_tidelock", "lake.json")
PANEL = "The lake and the answer"
ENGINE_PANEL = "The engine"

LakeOption = Annotated[
    str | None,
    typer.Option(
        "--lake",
        "-l",
        metavar="URI",
        help="A path, file://, s3://bucket/prefix. Else $TIDELOCK_LAKE, else the current "
        "directory if it is a lake.",
        rich_help_panel=PANEL,
    ),
]
StorageOption = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE",
        help="An option of the object store, such as aws_endpoint=…; may be repeated.",
        rich_help_panel=PANEL,
    ),
]
ActorOption = Annotated[
    str | None,
    typer.Option(
        "--actor",
        metavar="NAME",
        help="Who commits. Else $TIDELOCK_ACTOR, else your user name.",
        rich_help_panel=PANEL,
    ),
]
JsonOption = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Answer with one JSON document; an error is a JSON object on stderr.",
        rich_help_panel=PANEL,
    ),
]
DebugOption = Annotated[
    bool,
    typer.Option(
        "--debug",
        help="Show where an error came from. Also TIDELOCK_DEBUG=1.",
        rich_help_panel=PANEL,
    ),
]

COMMON: dict[str, tuple[Any, Any]] = {
    "lake": (LakeOption, None),
    "storage_option": (StorageOption, None),
    "actor": (ActorOption, None),
    "json": (JsonOption, False),
    "debug": (DebugOption, False),
}

EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="ENGINE",
        help="spark, or sail, which starts sooner. Else $TIDELOCK_ENGINE.",
        rich_help_panel=ENGINE_PANEL,
    ),
]
MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="MASTER",
        help="Of the Spark to start, such as local[4]. Else $TIDELOCK_SPARK_MASTER.",
        rich_help_panel=ENGINE_PANEL,
    ),
]
RemoteOption = Annotated[
    str | None,
    typer.Option(
        "--remote",
        metavar="URL",
        help="A Spark Connect server, sc://host:15002. Else $TIDELOCK_SPARK_REMOTE.",
        rich_help_panel=ENGINE_PANEL,
    ),
]

ENGINE: dict[str, tuple[Any, Any]] = {
    "engine": (EngineOption, None),
    "master": (MasterOption, None),
    "remote": (RemoteOption, None),
}
"""The options of commands that run queries."""


@dataclass(frozen=True)
class Call:
    lake: str | None = None
    storage_option: tuple[str, ...] = ()
    actor: str | None = None
    json: bool = False
    output: Output = field(default_factory=Output)
    engine: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def storage_options(self) -> dict[str, str]:
        options = {}
        for given in self.storage_option:
            key, equals, value = given.partition("=")
            if not key or not equals:
                raise InvalidOption(f"--storage-option {given!r} is not KEY=VALUE.", option=given)
            options[key.strip()] = value
        return options

    @property
    def uri(self) -> str:
        """The lake that is meant, or an error that says how to name one."""
        if self.lake:
            return self.lake
        named = os.environ.get("TIDELOCK_LAKE")
        if named:
            return named
        if LAKE_FILE.is_file():
            return "."
        raise LakeNotFound(
            "Which lake? The current directory is not one. Name it with --lake URI or "
            "TIDELOCK_LAKE=URI, or create one: tidelock init shop.lake"
        )

    def open(self, *, write: bool = False, heal: bool = True) -> Lake:
        """Open the lake. Commands that only read need no permission to write, and leave nothing."""
        uri, options = self.uri, self.storage_options
        if "://" not in uri and not Path(uri).expanduser().exists():
            # Told before the libraries of the store are loaded, which takes longer than all else.
            raise _no_lake(uri, str(Path(uri).expanduser().absolute()))
        from tidelock.run.open import open as open_lake

        interrupts.raise_from_now(writes=write)
        try:
            return open_lake(
                uri,
                read_only=not write,
                actor=self.actor,
                storage_options=options,
                heal=heal,
                **self.engine,  # type: ignore[arg-type]
            )
        except LakeNotFound as error:
            raise _no_lake(uri, error.evidence.get("uri", uri)) from error


def _no_lake(given: str, uri: str) -> LakeNotFound:
    return LakeNotFound(
        f"There is no lake at {given!r}. Create one: tidelock init {shlex.quote(given)}", uri=uri
    )


def command(
    app: typer.Typer, name: str, *, example: str, engine: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register `function(call, ...)` as a command that has the common options too, and with
    `engine` those of commands that run queries."""
    added = {**ENGINE, **COMMON} if engine else COMMON

    def register(function: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        context = inspect.Parameter(
            "context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context
        )
        common = [
            inspect.Parameter(
                key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
            )
            for key, (annotation, default) in added.items()
        ]

        @functools.wraps(function)
        def run(**given: Any) -> None:
            call = make_call(given.pop("context"), {key: given.pop(key) for key in added})
            try:
                function(call, **given)
                sys.stdout.flush()
            except BrokenPipeError:
                _close_stdout()
                raise typer.Exit(failures.PIPE_CLOSED) from None

        parameters = [
            *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own),
            *common,
            context,
        ]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        app.command(name, epilog=shown_example(example))(run)
        return function

    return register


def make_call(context: typer.Context, given: dict[str, Any]) -> Call:
    before: dict[str, Any] = context.find_object(dict) or {}
    merged = {key: given[key] or before.get(key) for key in COMMON}
    return Call(
        merged["lake"],
        (*(before.get("storage_option") or ()), *(given["storage_option"] or ())),
        merged["actor"],
        bool(merged["json"]),
        Output(bool(merged["json"])),
        {key: given[key] for key in ENGINE if key in given},
    )


def shown_example(example: str) -> str:
    lines = example.strip().splitlines()
    return "\n".join(["[bold]Example[/bold]", *(f"  {_escaped(line.strip())}" for line in lines)])


def _escaped(text: str) -> str:
    return text.replace("[", r"\[")


def _close_stdout() -> None:
    """The reader of stdout is gone; what is still buffered must not fail again at exit."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
