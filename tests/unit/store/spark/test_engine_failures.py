"""What an engine's exceptions mean, case by case, without an engine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkRuntimeError
from pyspark.errors.exceptions.connect import (
    AnalysisException,
    ArithmeticException,
    PythonException,
    SparkConnectGrpcException,
    UnknownException,
)

from tidelock.store.spark.errors import own_words, read_failure

RPC_TEXT = """<_InactiveRpcError of RPC that terminated with:
\tstatus = StatusCode.UNAVAILABLE
\tdetails = "failed to connect to all addresses; last error: Connection refused"
\tdebug_error_string = "UNAVAILABLE:failed to connect"
>"""
WORKER_TEXT = """
  An exception was thrown from the Python worker. Please see the stack trace below.
[PYTHON_EXCEPTION] An exception was thrown: Traceback (most recent call last):
  File "/opt/spark/python/pyspark/worker.py", line 1, in main
    read()
    ~~~~^^
{raised}
 SQLSTATE: 38000"""
JAVA_TEXT = """org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.spark.util.ThreadUtils$.awaitResult(ThreadUtils.scala:359)
Caused by: org.apache.spark.SparkException: Job aborted: {raised}
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""


def raised_in(module: str, error: BaseException) -> BaseException:
    """The error as it is after a module of that name has raised it."""
    try:
        exec("raise error", {"__name__": module, "error": error})
    except type(error) as caught:
        return caught
    raise AssertionError("unreachable")


def of_java(text: str) -> Py4JJavaError:
    """An error of the JVM, which is asked for its words when they are needed."""
    answer = "ys" + text.replace("\n", "\\n")
    client = SimpleNamespace(send_command=lambda command: answer)
    what = "An error occurred while calling o91.getResult.\n"
    return Py4JJavaError(what, SimpleNamespace(_target_id="o1", _gateway_client=client))


def of_worker(raised: str) -> PythonException:
    return PythonException(message=WORKER_TEXT.format(raised=raised))


def from_server(message: str, condition: str | None = None, **options: Any) -> BaseException:
    return UnknownException(message, errorClass=condition, **options)


AWAY: dict[str, BaseException] = {
    "the JVM was killed while it was asked": Py4JNetworkError("Error while sending or receiving"),
    "the JVM was killed while it answered": Py4JError("An error occurred while calling o70.get"),
    "the JVM is dead": raised_in("py4j.clientserver", ConnectionRefusedError(111, "refused")),
    "the JVM broke off its rows": raised_in("pyspark.serializers", EOFError()),
    "no session": PySparkRuntimeError(errorClass="NO_ACTIVE_SESSION", messageParameters={}),
    "no context": PySparkRuntimeError(
        errorClass="SESSION_OR_CONTEXT_NOT_EXISTS", messageParameters={}
    ),
    "Java ended at once": PySparkRuntimeError(
        errorClass="JAVA_GATEWAY_EXITED", messageParameters={}
    ),
    "nobody listens": SparkConnectGrpcException(
        RPC_TEXT, grpc_status_code=grpc.StatusCode.UNAVAILABLE
    ),
    "nobody answers": SparkConnectGrpcException(
        "Deadline Exceeded", grpc_status_code=grpc.StatusCode.DEADLINE_EXCEEDED
    ),
    "the server was restarted": from_server(
        "[INVALID_HANDLE.SESSION_CHANGED] The existing Spark server driver instance has restarted.",
        "INVALID_HANDLE.SESSION_CHANGED",
    ),
    "the server forgot the session": from_server(
        "(org.apache.spark.SparkSQLException) [INVALID_HANDLE.SESSION_NOT_FOUND] The handle x is "
        "invalid. Session not found. SQLSTATE: HY000"
    ),
    "the server closed the session": from_server(
        "[INVALID_HANDLE.SESSION_CLOSED] Session was closed.", "INVALID_HANDLE.SESSION_CLOSED"
    ),
    "the server forgot the query": from_server(
        "[INVALID_HANDLE.OPERATION_NOT_FOUND] Operation not found.",
        "INVALID_HANDLE.OPERATION_NOT_FOUND",
    ),
    "the server is stopping": from_server(
        "(java.lang.IllegalStateException) Cannot call methods on a stopped SparkContext.\nThis "
        "stopped SparkContext was created at:"
    ),
    "the context shut down under a query": of_java(
        "org.apache.spark.SparkException: Job 0 "
        "cancelled because SparkContext was shut down\n\tat x"
    ),
    "tidelock is missing": of_worker("ModuleNotFoundError: No module named 'tidelock'"),
    "a part of tidelock is missing": of_worker(
        "ModuleNotFoundError: No module named 'tidelock.store.spark.scan'"
    ),
    "tidelock is another": of_worker(
        "ImportError: cannot import name 'read_parts' from 'tidelock.store.spark.scan' (/opt/x.py)"
    ),
    "lance is missing": of_worker("ModuleNotFoundError: No module named 'lance'"),
    "Python is missing": of_java(
        JAVA_TEXT.format(raised='Cannot run program "python9": error=2, No such file')
    ),
    "Python is another": of_worker(
        "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in "
        "worker has different version: 3.9 than that in driver: 3.11"
    ),
}
PASSING: dict[str, BaseException] = {
    "a worker was killed": of_java(
        JAVA_TEXT.format(raised="Python worker exited unexpectedly (crashed)")
    ),
    "an executor was lost": of_java(
        JAVA_TEXT.format(raised="ExecutorLostFailure (executor 1 exited)")
    ),
    "a task had no memory": of_java(
        JAVA_TEXT.format(raised="java.lang.OutOfMemoryError: Java heap space")
    ),
    "no memory was given": from_server(
        "[UNABLE_TO_ACQUIRE_MEMORY] Unable to acquire 1 bytes", "UNABLE_TO_ACQUIRE_MEMORY"
    ),
    "somebody cancelled it": from_server(
        "[OPERATION_CANCELED] Operation has been canceled.", "OPERATION_CANCELED"
    ),
}
# Data may hold whatever words; what a query says about data has a condition of its own.
REFUSED: dict[str, BaseException] = {
    "a column is missing": AnalysisException(
        "[UNRESOLVED_COLUMN] `x`", errorClass="UNRESOLVED_COLUMN"
    ),
    "a division by zero": ArithmeticException(
        "[DIVIDE_BY_ZERO] Division by zero.", errorClass="DIVIDE_BY_ZERO"
    ),
    "data that says that the context was stopped": from_server(
        "[CAST_INVALID_INPUT] The value 'Cannot call methods on a stopped SparkContext' is no INT.",
        "CAST_INVALID_INPUT",
    ),
    "a user who raises what a worker would": from_server(
        "[USER_RAISED_EXCEPTION] ModuleNotFoundError: No module named 'tidelock'",
        "USER_RAISED_EXCEPTION",
    ),
    "a function of the user that lacks a module": of_worker(
        "ModuleNotFoundError: No module named 'tidelockish'"
    ),
    "a function of the user that fails": of_worker("ZeroDivisionError: division by zero"),
    "a method that is not there": Py4JError(
        "An error occurred while calling o1.nope. Trace:\npy4j.Py4JException: Method nope"
    ),
}
NOTHING: dict[str, BaseException] = {
    "a bug": KeyError("x"),
    "a file that is not there": raised_in("tidelock.store.tables.datasets", FileNotFoundError("x")),
    "a store that refuses": raised_in("obstore.store", ConnectionRefusedError(111, "refused")),
}
CASES = [
    pytest.param(error, meaning, id=name)
    for meaning, cases in {
        "away": AWAY,
        "passing": PASSING,
        "refused": REFUSED,
        None: NOTHING,
    }.items()
    for name, error in cases.items()
]


@pytest.mark.parametrize(("error", "meaning"), CASES)
def test_an_exception_means_one_thing(error: BaseException, meaning: str | None) -> None:
    found = read_failure(error)
    assert (found and found.meaning) == meaning


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            AWAY["nobody listens"],
            "failed to connect to all addresses; last error: Connection refused",
        ),
        (AWAY["tidelock is missing"], "ModuleNotFoundError: No module named 'tidelock'"),
        (AWAY["the server is stopping"], "Cannot call methods on a stopped SparkContext."),
        (
            AWAY["the context shut down under a query"],
            "Job 0 cancelled because SparkContext was shut down",
        ),
        (
            PASSING["a worker was killed"],
            "Job aborted: Python worker exited unexpectedly (crashed)",
        ),
        (REFUSED["a division by zero"], "[DIVIDE_BY_ZERO] Division by zero."),
        (of_worker("ValueError: first line\nsecond line"), "ValueError: first line second line"),
        (RuntimeError(), "RuntimeError"),
    ],
)
def test_the_words_are_those_of_the_exception(error: BaseException, words: str) -> None:
    assert own_words(error).removeprefix("(java.lang.IllegalStateException) ") == words


def test_an_error_whose_words_the_jvm_took_along_is_still_told() -> None:
    def gone(command: str) -> str:
        raise ConnectionRefusedError(111, "refused")

    client = SimpleNamespace(send_command=gone)
    error = Py4JJavaError("it failed", SimpleNamespace(_target_id="o1", _gateway_client=client))
    assert own_words(error) == "it failed"
    assert read_failure(error) is not None
