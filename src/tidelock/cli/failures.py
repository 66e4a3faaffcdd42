"""How a command that failed says so: the exit code, and one or two lines on stderr.

Owns: the table of exit codes. It is part of the command line's contract with scripts, so a number
never changes its meaning.
"""

from __future__ import annotations

import json
import os
import traceback
from typing import Any

from tidelock.cli.interrupts import INTERRUPTED
from tidelock.errors import (
    ConflictError,
    DeliveryError,
    EngineError,
    FormatError,
    InputError,
    OutcomeUnknown,
    RefreshFailed,
    SourceError,
    StoreError,
    TidelockError,
)

OK = 0
UNEXPECTED = 1
USAGE = 2
PIPE_CLOSED = 141

BY_FAMILY: tuple[tuple[type[TidelockError], int], ...] = (
    (InputError, 3),
    (ConflictError, 4),
    (OutcomeUnknown, 5),
    (StoreError, 6),
    (FormatError, 7),
    (EngineError, 8),
    (RefreshFailed, 9),
    (DeliveryError, 10),
    (SourceError, 11),
)

EXIT_CODES: tuple[tuple[int, str], ...] = (
    (OK, "done"),
    (UNEXPECTED, "anything not listed here"),
    (USAGE, "the command line itself is wrong"),
    (3, "the input or a name in it is wrong: correct it, do not retry"),
    (4, "somebody else was first: retry; or a merge has conflicts: resolve them"),
    (5, "the outcome is unknown: run again with the same --operation-id"),
    (6, "the store failed or denied access: back off and retry"),
    (7, "an object in the lake cannot be trusted: an operator must look"),
    (8, "the engine is missing, or refused the query"),
    (9, "a stream table could not be refreshed, or is suspended; the others were"),
    (10, "a sink could not deliver everything; what it delivered counts"),
    (11, "a source could not be read; what was published of it counts"),
    (INTERRUPTED, "interrupted; no commit is half made"),
)


def exit_code(error: BaseException) -> int:
    """The exit code of the family that an error belongs to."""
    return next((code for family, code in BY_FAMILY if isinstance(error, family)), UNEXPECTED)


def describe(error: BaseException) -> dict[str, Any]:
    """The error as plain values, with the same keys for every kind of error."""
    if isinstance(error, TidelockError):
        return error.to_dict("shell")
    message = str(error) or type(error).__name__
    return {
        "condition": "UNEXPECTED",
        "action": "never_retry",
        "message": f"{type(error).__name__}: {message}",
    }


def tell(error: BaseException, *, as_json: bool, debug: bool) -> str:
    """What is written to stderr."""
    trace = "".join(traceback.format_exception(error)) if debug else ""
    described = describe(error)
    if as_json:
        return trace + dumps(described)
    hint = ""
    if not isinstance(error, TidelockError) and not debug:
        hint = "\nThis is unexpected. Run it again with --debug to see where it came from."
    return f"{trace}error: {described['message']}{hint}"


def dumps(described: dict[str, Any]) -> str:
    return json.dumps(described, ensure_ascii=False)


def debugging(arguments: list[str]) -> bool:
    return "--debug" in _options(arguments) or os.environ.get("TIDELOCK_DEBUG") not in (
        None,
        "",
        "0",
    )


def wants_json(arguments: list[str]) -> bool:
    """Whether `--json` was given. It is looked for by hand because parsing may be what failed."""
    return "--json" in _options(arguments)


def _options(arguments: list[str]) -> list[str]:
    return arguments[: arguments.index("--")] if "--" in arguments else arguments
