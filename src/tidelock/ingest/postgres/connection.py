"""Connections to PostgreSQL, with settings that make its text the same everywhere.

Owns: how a database is reached, and which error of ours each failure is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq.abc import PGconn, PGresult

from tidelock.errors import (
    Advice,
    SourceBusy,
    SourceDenied,
    SourceError,
    SourceStopped,
    SourceUnavailable,
)
from tidelock.ingest.postgres.settings import Settings

APPLICATION = "tidelock"
CONNECT_SECONDS = 10
TEXT = {
    "timezone": "UTC",
    "datestyle": "ISO",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "intervalstyle": "postgres",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
}
"""What the text of values depends on, and what would end a long load."""
_DENIED = ("28000", "28P01", "42501", "3D000")
"""Not authorized, a wrong password, a permission that is missing, a database that is not there."""


def conninfo(settings: Settings, *, replication: bool = False) -> str:
    given = conninfo_to_dict(settings.dsn)
    options = " ".join(f"-c {name}={value}" for name, value in TEXT.items())
    if replication:
        options += f" -c logical_decoding_work_mem={settings.work_memory}"
        given["replication"] = "database"
    own = {
        "options": f"{given.get('options') or ''} {options}".strip(),
        "client_encoding": "UTF8",
        "application_name": given.get("application_name") or APPLICATION,
        "connect_timeout": given.get("connect_timeout") or CONNECT_SECONDS,
        "keepalives_idle": given.get("keepalives_idle") or 10,
    }
    if settings.password is not None:
        own["password"] = settings.password
    return make_conninfo(**{**given, **own})  # type: ignore[arg-type]


def address(settings: Settings) -> str:
    """Where the database is, without any secret."""
    given = conninfo_to_dict(settings.dsn)
    where = given.get("host") or given.get("hostaddr") or "the local socket"
    port = f":{given['port']}" if given.get("port") else ""
    return f"{where}{port}/{given.get('dbname') or given.get('user') or ''}"


@contextmanager
def connected(settings: Settings, name: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection whose statements are transactions of their own."""
    with failures(settings, name):
        connection = psycopg.connect(conninfo(settings), autocommit=True)
    try:
        with failures(settings, name):
            yield connection
    finally:
        connection.close()


def connect_for_replication(settings: Settings, name: str) -> PGconn:
    with failures(settings, name):
        connection: PGconn = pq.PGconn.connect(conninfo(settings, replication=True).encode())
        if connection.status != pq.ConnStatus.OK:
            message = connection.error_message.decode(errors="replace")
            connection.finish()
            raise psycopg.OperationalError(message)
    return connection


@contextmanager
def failures(settings: Settings, name: str) -> Iterator[None]:
    """Around what asks the database: its errors become ours."""
    try:
        yield
    except psycopg.Error as error:
        raise typed(error, settings, name) from error


def typed(error: psycopg.Error, settings: Settings, name: str) -> SourceError | SourceBusy:
    """The error of ours that an error of the database is."""
    said = said_by(error)
    code = error.sqlstate or ""
    evidence = {"source": name, "sqlstate": code, "cause": said}
    where = address(settings)
    if code in _DENIED or _says_denied(said):
        return SourceDenied(
            f"Source {name!r}: PostgreSQL at {where} refused: {said}",
            Advice(
                "The role needs REPLICATION and SELECT on the tables, and the right to create a "
                "publication unless publication= names one.",
                "The role needs REPLICATION and SELECT on the tables, and the right to create a "
                "publication unless --option publication=NAME names one.",
            ),
            **evidence,
        )
    if code == "55006":
        return SourceBusy(
            f"Source {name!r}: its replication slot {settings.slot!r} is in use: {said}",
            **evidence,
            owner=said,
        )
    if code in ("55000", "42704", "58P01", "0A000", "42P01", "22023", "53400"):
        return SourceStopped(f"Source {name!r}: PostgreSQL at {where} says: {said}", **evidence)
    return SourceUnavailable(f"Source {name!r}: PostgreSQL at {where}: {said}", **evidence)


def error_of(result: PGresult, settings: Settings, name: str) -> SourceError | SourceBusy:
    """The error of ours that a result of a command is which failed."""
    found = result.error_field(pq.DiagnosticField.SQLSTATE)
    message = result.error_message.decode(errors="replace")
    try:
        kind = psycopg.errors.lookup("58000" if found is None else found.decode())
    except KeyError:
        kind = psycopg.OperationalError
    return typed(kind(message), settings, name)


def said_by(error: BaseException) -> str:
    """What the database said, in one line."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    told = " ".join(lines) or type(error).__name__
    return told if told.endswith((".", "?")) else f"{told}."


def _says_denied(said: str) -> bool:
    """A connection that is refused for who asks has no code."""
    words = ("password authentication failed", "no pg_hba.conf entry", "permission denied")
    missing = "FATAL" in said and ("does not exist" in said)
    return any(word in said for word in words) or missing or "no password supplied" in said
