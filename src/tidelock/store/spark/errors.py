"""What the exceptions of an engine mean, and what they say.

Owns: the table of cases. Every exception that a session raises means one of three things:

    away       nothing is said about the query: the process, the server or the session that was to
               run it is gone, or its workers lack what they need        -> EngineUnavailable
    passing    this attempt was lost, and another may succeed: an executor died, memory ran out
                                                                          -> QueryFailed, passing
    refused    the engine looked at the query, or computed it, and said no -> QueryFailed

An exception that no case knows, of a session that is found to be gone, means `away` too
(sessions.py). Exceptions are told apart by the names of their classes and by conditions,
not by words that data could hold; only the beginning of a message is looked at, where a condition
has to be read there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from tidelock import errors
from tidelock.errors import TidelockError

Meaning = Literal["away", "passing", "refused"]

CLIENTS = ("py4j", "pyspark", "grpc")
"""The packages by which a session is spoken to."""

_NETWORK = "py4j.protocol.Py4JNetworkError"
_JAVA = "py4j.protocol.Py4JJavaError"
_PY4J = "py4j.protocol.Py4JError"
_PYSPARK = "pyspark.errors.exceptions.base.PySparkException"
_RPC = "grpc.RpcError"
_GONE_CODES = ("UNAVAILABLE", "DEADLINE_EXCEEDED")
_GONE_CONDITIONS = (
    "NO_ACTIVE_SESSION",
    "NO_ACTIVE_OR_DEFAULT_SESSION",
    "SESSION_OR_CONTEXT_NOT_EXISTS",
    "JAVA_GATEWAY_EXITED",
    "INVALID_HANDLE.SESSION_CHANGED",
    "INVALID_HANDLE.SESSION_CLOSED",
    "INVALID_HANDLE.SESSION_NOT_FOUND",
    "INVALID_HANDLE.OPERATION_ABANDONED",
    "INVALID_HANDLE.OPERATION_NOT_FOUND",
    "INVALID_CURSOR.DISCONNECTED",
    "INVALID_CURSOR.NOT_REATTACHABLE",
    "INVALID_CURSOR.POSITION_NOT_AVAILABLE",
    "INVALID_CURSOR.POSITION_NOT_FOUND",
)
_PASSING_CONDITIONS = (
    "AGGREGATE_OUT_OF_MEMORY",
    "OPERATION_CANCELED",
    "POINTER_ARRAY_OUT_OF_MEMORY",
    "SPARK_JOB_CANCELLED",
    "SPILL_OUT_OF_MEMORY",
    "UNABLE_TO_ACQUIRE_MEMORY",
)
_NEEDED = "tidelock|lance|pyarrow|pandas|numpy|pyroaring|obstore|msgspec|sqlglot"
_CLASS = r"(?:\(?(?:[\w$]+\.)+[\w$]+\)?:? )?"
_STOPPED = re.compile(
    _CLASS + r"(?:Cannot call methods on a stopped Spark\w+"
    r"|Job \d+ cancelled because Spark\w+ was shut down)"
)
_LOST_TASK = re.compile(
    r"Python worker exited unexpectedly|ExecutorLostFailure|java\.lang\.OutOfMemoryError"
    r"|FetchFailed|Python worker failed to connect back"
)
_UNIMPORTABLE = re.compile(
    rf"(?:ModuleNotFoundError: No module named '(?:{_NEEDED})\b"
    rf"|ImportError: cannot import name '[^']*' from '(?:{_NEEDED})\b"
    rf"|AttributeError: Can't get attribute '[^']*' on <module '(?:{_NEEDED})\b)"
)
_UNFIT_WORKER = re.compile(
    r"Cannot run program \"|\[PYTHON_VERSION_MISMATCH\]|\[PACKAGE_NOT_INSTALLED\]"
)
_TOLD = re.compile(r"^tidelock\.errors\.(\w+): (.+)", re.MULTILINE)
_NOISE = ("'", "+-", "JVM stacktrace", "\tat ", "Driver stacktrace")
WORKERS_NEED = (
    "Install the same version of Tidelock beside every executor, under the Python that "
    "PYSPARK_PYTHON names there."
)


@dataclass(frozen=True)
class Failure:
    """What an exception means, in words; what to do about it, where the case says so."""

    meaning: Meaning
    words: str
    advice: str | None = None


@dataclass(frozen=True)
class Case:
    meaning: Meaning
    fits: Callable[[BaseException], bool]
    introduction: str = ""
    """What is said before the exception's own words."""
    advice: str | None = None


CASES: tuple[Case, ...] = (
    Case("away", lambda e: _is(e, _NETWORK), "its process broke off: "),
    Case("away", lambda e: _is_unanswered(e), "its process does not answer: "),
    Case(
        "away",
        lambda e: isinstance(e, OSError | EOFError) and _raised_by_client(e),
        "its process does not answer: ",
    ),
    Case("away", lambda e: condition_of(e) in _GONE_CONDITIONS),
    Case("away", lambda e: _is_named(e) and _code_of(e) in _GONE_CODES),
    Case("away", lambda e: _is_plain(e) and bool(_STOPPED.match(own_words(e)))),
    Case(
        "away",
        lambda e: _is_plain(e) and bool(_UNIMPORTABLE.match(own_words(e))),
        "its Python workers cannot import what they need: ",
        WORKERS_NEED,
    ),
    Case(
        "away",
        lambda e: _is_plain(e) and bool(_UNFIT_WORKER.search(own_words(e))),
        "its Python workers cannot run: ",
        WORKERS_NEED,
    ),
    Case("passing", lambda e: condition_of(e) in _PASSING_CONDITIONS),
    Case("passing", lambda e: _is_plain(e) and bool(_LOST_TASK.search(own_words(e)))),
    Case("refused", lambda e: _is_named(e)),
)


def read_failure(error: BaseException) -> Failure | None:
    """What an exception means; None if it is none of an engine's."""
    for case in CASES:
        if case.fits(error):
            words = f"{case.introduction}{own_words(error)}"
            return Failure(case.meaning, words, case.advice)
    return None


def told_by_worker(error: BaseException) -> TidelockError | None:
    """The error of Tidelock's that is told in one of an engine's, because a task raised it."""
    if not _is_plain(error):
        return None
    for name, message in _TOLD.findall(_text(error)):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, TidelockError):
            return kind(message.strip())
    return None


def condition_of(error: BaseException) -> str | None:
    """The condition that Spark gives an error, such as DIVIDE_BY_ZERO."""
    if not _is(error, _PYSPARK):
        return None
    try:
        told: str | None = error.getCondition()  # type: ignore[attr-defined]
    except Exception:  # noqa: BLE001
        # Some errors ask the JVM for it, which may be gone by now.
        told = None
    if told is not None:
        return told
    found = re.match(r"(?:\([\w.$]+\) )?\[([A-Z][A-Z0-9_.]+)\]", _text(error))
    return found[1] if found else None


def own_words(error: BaseException) -> str:
    """An exception's own message: what happened, without the plans and stacks around it."""
    text = _text(error).strip()
    for read in (_rpc_details, _python_words, _java_words):
        found = read(text)
        if found:
            return found.strip()
    return next(_before_noise(text), type(error).__name__)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001
        # An error of the JVM asks the JVM for its words, which may be gone by now.
        return str(getattr(error, "errmsg", "")) or type(error).__name__


def _rpc_details(text: str) -> str | None:
    found = re.search(r'^<_\w+ of RPC .*?\tdetails = "(.*?)"\n', text, re.DOTALL)
    return found[1] if found else None


def _python_words(text: str) -> str | None:
    """Of an exception in a Python worker: its class and message, below the frames."""
    _, found, trace = text.rpartition("Traceback (most recent call last):\n")
    if not found:
        return None
    lines = trace.splitlines()
    below = next((n for n, line in enumerate(lines) if line and not line[0].isspace()), None)
    if below is None:
        return None
    return " ".join(line.strip() for line in _before_noise("\n".join(lines[below:])))


def _java_words(text: str) -> str | None:
    """Of an exception in the JVM: the message of what caused it."""
    if not re.match(r"An error occurred while calling ", text):
        return None
    causes = re.findall(r"^(?:Caused by|): (?:[\w$]+\.)+[\w$]+: (.+)$", text, re.MULTILINE)
    return next((cause for cause in reversed(causes) if not _is_wrapper(cause)), None)


def _is_wrapper(cause: str) -> bool:
    return cause.startswith("Exception thrown in awaitResult")


def _before_noise(text: str) -> Iterator[str]:
    """The lines of a message up to the plan or the stack that follows it."""
    for line in text.splitlines():
        if line.startswith(_NOISE) or line.strip().startswith("SQLSTATE"):
            return
        if line.strip():
            yield line.strip()


def _is(error: BaseException, name: str) -> bool:
    return any(f"{one.__module__}.{one.__qualname__}" == name for one in type(error).__mro__)


def _is_named(error: BaseException) -> bool:
    """Whether it is of a class that only sessions raise."""
    return _is(error, _PYSPARK) or _is(error, _PY4J) or _is(error, _RPC)


def _is_plain(error: BaseException) -> bool:
    """Whether no condition says what happened, so that its words have to be read. What a query says
    about data has one."""
    return _is_named(error) and condition_of(error) in (None, "PYTHON_EXCEPTION")


def _is_unanswered(error: BaseException) -> bool:
    """py4j raises its plainest error where it has no answer; others come with a trace."""
    return _is(error, _PY4J) and not _is(error, _JAVA) and "Trace:" not in _text(error)


def _code_of(error: BaseException) -> str | None:
    read = getattr(error, "getGrpcStatusCode", None) or getattr(error, "code", None)
    code = read() if callable(read) else None
    return getattr(code, "name", None)


def _raised_by_client(error: BaseException) -> bool:
    trace = error.__traceback__
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0] in CLIENTS:
            return True
        trace = trace.tb_next
    return False
