"""A snapshot of the database, exported by making a slot, that other connections can read.

The position of the slot and the snapshot are the same moment: what committed before it is in the
snapshot, and what commits after it is in the stream. PostgreSQL finds that moment when every
transaction has ended that was writing when the slot was asked for; until then it is waited for.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable

from psycopg import pq

from tidelock.errors import SourceUnavailable
from tidelock.ingest.postgres.connection import (
    connect_for_replication,
    connected,
    error_of,
)
from tidelock.ingest.postgres.messages import read_lsn
from tidelock.ingest.postgres.settings import Settings

WAIT_SECONDS = 60.0
LOOK_SECONDS = 0.1
_WRITING = """
SELECT pid, usename, state, date_trunc('second', now() - xact_start)::text FROM pg_stat_activity
WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid() ORDER BY xact_start LIMIT 3
"""


class Stopped(Exception):
    """Whoever reads the source was asked to stop."""


class Snapshot:
    """Owns the connection by which the snapshot lives, and with it a slot that is temporary."""

    def __init__(
        self,
        settings: Settings,
        name: str,
        slot: str,
        *,
        temporary: bool,
        stopped: Callable[[], bool],
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        self._settings = settings
        self._source = name
        self._connection = connect_for_replication(settings, name)
        try:
            kind = "TEMPORARY " if temporary else ""
            command = f'CREATE_REPLICATION_SLOT "{slot}" {kind}LOGICAL pgoutput EXPORT_SNAPSHOT'
            result = self._ask(command.encode(), stopped, wait_seconds)
            point, snapshot = result.get_value(0, 1), result.get_value(0, 2)
        except BaseException:
            self._connection.finish()
            raise
        assert point is not None
        assert snapshot is not None
        self.position = read_lsn(point.decode())
        self.name = snapshot.decode()

    def close(self) -> None:
        self._connection.finish()

    def _ask(
        self, command: bytes, stopped: Callable[[], bool], wait_seconds: float
    ) -> pq.abc.PGresult:
        connection = self._connection
        connection.send_query(command)
        ends = time.monotonic() + wait_seconds
        while True:
            connection.consume_input()
            if not connection.is_busy():
                break
            late = time.monotonic() > ends
            if late or stopped():
                connection.get_cancel().cancel()
                raise self._waited(wait_seconds) if late else Stopped
            select.select([connection.socket], [], [], LOOK_SECONDS)
        result = connection.get_result()
        assert result is not None
        if result.status != pq.ExecStatus.TUPLES_OK:
            raise error_of(result, self._settings, self._source)
        return result

    def _waited(self, seconds: float) -> SourceUnavailable:
        with connected(self._settings, self._source) as connection:
            rows = connection.execute(_WRITING).fetchall()
        told = ", ".join(f"process {p} of {user} ({s}, {age})" for p, user, s, age in rows)
        return SourceUnavailable(
            f"Source {self._source!r}: PostgreSQL gives no snapshot while transactions are open "
            f"that began to write before it was asked, and {seconds:g} seconds were not enough. "
            f"Open: {told or 'none any more'}. End them, and it is tried again.",
            source=self._source,
            waiting_for=[row[0] for row in rows],
        )
