"""Sessions as their users see them: what they are called, and whether they still answer.

Owns: the names of sessions, so that an error says which engine spoke; the question whether a
session is gone; and the one place in which what a session raised becomes an error of ours.

Invariant: asking whether a session is gone takes at most `ANSWER_SECONDS_MAX`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from tidelock.errors import EngineUnavailable, QueryFailed, TidelockError
from tidelock.store.spark.errors import Failure, own_words, read_failure, told_by_worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ANSWER_SECONDS_MAX = 10.0
"""A server answers at once or not at all; PySpark itself would try for minutes."""

Refused = Callable[[str, str], TidelockError]
"""Makes the error for a query that was refused, from the engine's name and its words."""


@dataclass(frozen=True)
class Speaker:
    """An engine as errors name it: at the beginning of a sentence."""

    name: str
    advice: str
    """What is to be done when it is gone."""

    @property
    def within(self) -> str:
        """The name within a sentence."""
        return self.name.replace("The ", "the ", 1)


SPARK = Speaker("Spark", "Open the lake again with a session that works.")
SERVER = Speaker("The Spark Connect server", "Open the lake again with a session that works.")

_speakers: WeakKeyDictionary[SparkSession, Speaker] = WeakKeyDictionary()


def introduce(session: SparkSession, speaker: Speaker) -> None:
    """Say whose session this is."""
    _speakers[session] = speaker


def speaker_of(session: SparkSession) -> Speaker:
    return _speakers.get(session) or (SERVER if is_client(session) else SPARK)


def is_client(session: SparkSession) -> bool:
    """Whether it is the client of a Spark Connect server."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def why_gone(session: SparkSession) -> str | None:
    """Why a session can no longer be used; None if it answers."""
    return _why_server_gone(session) if is_client(session) else _why_jvm_gone(session)


def _why_jvm_gone(session: Any) -> str | None:
    context = session._sc._jsc
    if context is None:
        return "it was stopped"
    try:
        return "it has stopped by itself" if context.sc().isStopped() else None
    except Exception as error:  # noqa: BLE001
        # Whatever is raised by so simple a question, there is no answer.
        return _words(error)


def _why_server_gone(session: Any) -> str | None:
    import pyspark.sql.connect.proto as messages

    client = session.client
    if client.is_closed:
        return "its session was stopped"
    # As PySpark asks for a setting, but once, and not for long.
    question = messages.ConfigRequest(
        session_id=client._session_id, client_type=client._builder.userAgent
    )
    if client._user_id:
        question.user_context.user_id = client._user_id
    if client._server_session_id:
        question.client_observed_server_side_session_id = client._server_session_id
    question.operation.get_option.keys.append("spark.sql.session.timeZone")
    try:
        client._stub.Config(
            question, metadata=client._builder.metadata(), timeout=ANSWER_SECONDS_MAX
        )
    except Exception as error:  # noqa: BLE001
        return _words(error)
    return None


def _words(error: Exception) -> str:
    found = read_failure(error)
    return found.words if found else own_words(error)


def unavailable(speaker: Speaker, words: str, advice: str | None = None) -> EngineUnavailable:
    return EngineUnavailable(
        f"{speaker.name} is not available: {words.rstrip('. ')}. {advice or speaker.advice}",
        engine=speaker.name,
        cause=words,
    )


def could_not(doing: str, ending: str = "", **evidence: Any) -> Refused:
    """An error that says what the engine could not do, and what it said."""

    def refused(name: str, words: str) -> TidelockError:
        stop = "." if ending and not words.endswith((".", "!", "?")) else ""
        return QueryFailed(f"{name} {doing}: {words}{stop}{ending}", **evidence)

    return refused


def as_error(
    error: Exception, session: SparkSession, refused: Refused | None = None
) -> TidelockError | None:
    """What is to be raised for what a session raised; None if it says nothing of the session."""
    known = told_by_worker(error)
    if known is not None:
        return known
    speaker = speaker_of(session)
    found: Failure | None = read_failure(error)
    if found is None or found.meaning == "refused":
        # An engine that goes away may raise anything.
        gone = why_gone(session)
        if gone is not None:
            return unavailable(speaker, gone)
    if found is None:
        return None
    if found.meaning == "away":
        return unavailable(speaker, found.words, found.advice)
    made = (refused or could_not("could not compute it"))(speaker.name, found.words)
    if found.meaning == "passing":
        made.evidence["passing"] = True
    return made


@contextmanager
def engine_errors(session: SparkSession, refused: Refused | None = None) -> Iterator[None]:
    """Around whatever a session is asked: what it raises becomes an error of ours."""
    try:
        yield
    except TidelockError:
        raise
    except Exception as error:
        told = as_error(error, session, refused)
        if told is None:
            raise
        raise told from error
