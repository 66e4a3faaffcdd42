"""Sessions with a Spark Connect server: begun, and ended without waiting for who does not answer.

Owns: the first contact with a server, and the last.
Invariants: a server that is not there is told apart at once; to leave takes at most
`LEAVE_SECONDS_MAX`, whatever the server does.
"""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tidelock.errors import EngineUnavailable, InvalidOption
from tidelock.run.engine import jvm
from tidelock.store.spark.sessions import ANSWER_SECONDS_MAX, why_gone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT_PORT = 15002
LEAVE_SECONDS_MAX = 2.0
# A server that goes away while it computes is tried so many times again, for half a minute in all.
# PySpark's own policy is ten minutes; but a server that comes back has forgotten the session.
RETRIES_MAX = 12
RETRY_MILLISECONDS_MAX = 5000


def connect(url: str) -> SparkSession:
    """A new session with the server at a `sc://` URL."""
    jvm.hush_pyspark()
    try:
        from pyspark.errors import PySparkValueError
        from pyspark.sql.connect.client.retries import DefaultPolicy
        from pyspark.sql.connect.session import SparkSession as ConnectSession
    except ImportError as error:
        raise EngineUnavailable(
            "Spark Connect needs packages that are not installed. "
            f"Install them: pip install 'tidelock[connect]'. ({error})",
            remote=url,
        ) from error
    knock(url)
    try:
        session: Any = ConnectSession.builder.remote(url).create()
    except PySparkValueError as error:
        raise InvalidOption(
            f"{url!r} is not a Spark Connect URL: {error} It looks like sc://host:15002.",
            remote=url,
        ) from error
    patience = DefaultPolicy(
        max_retries=RETRIES_MAX, backoff_multiplier=2.0, max_backoff=RETRY_MILLISECONDS_MAX
    )
    session.client.set_retry_policies([patience])
    # What accepts a connection may still be no server, or one that is stuck.
    silent = why_gone(session)
    if silent is not None:
        leave(session)
        raise EngineUnavailable(
            f"What listens at {place_of(url)} does not answer as a Spark Connect server: "
            f"{silent.rstrip('. ')}. Look at it, or correct the URL.",
            remote=url,
        )
    return session  # type: ignore[no-any-return]


def knock(url: str) -> None:
    """EngineUnavailable if nobody listens: PySpark would try to reach it for minutes."""
    try:
        socket.create_connection(_address(url), ANSWER_SECONDS_MAX).close()
    except OSError as error:
        raise EngineUnavailable(
            f"No Spark Connect server answers at {place_of(url)} ({error}). "
            "Start it, or correct the URL.",
            remote=url,
        ) from error


def place_of(url: str) -> str:
    host, port = _address(url)
    return f"{host}:{port}"


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or CONNECT_PORT


def leave(session: Any) -> None:
    """End a session. The server forgets it, if it can be told so."""
    client = session.client
    client.set_retry_policies([])
    ending = threading.Thread(target=session.stop, name="tidelock-leave", daemon=True)
    ending.start()
    ending.join(LEAVE_SECONDS_MAX)
    if ending.is_alive():
        # What waits for an answer is given up with its channel.
        client._channel.close()
        client._closed = True
