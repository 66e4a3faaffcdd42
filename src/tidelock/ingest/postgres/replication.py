"""Receiving a replication stream: blocks of messages, keepalives, and how far is acknowledged.

Owns: one replication connection, and a thread that alone uses it. The thread answers the server in
time whatever the reader is busy with, and stops reading the socket while as much is waiting as may.
Invariants: messages come out in the order of the stream; what is acknowledged is what the reader
said, never what was received; bytes that wait <= WAITING_BYTES_MAX + one block.
"""

from __future__ import annotations

import contextlib
import os
import select
import struct
import threading
import time
from collections import deque
from dataclasses import dataclass

import psycopg
from psycopg import pq
from psycopg.pq.abc import PGconn

from tidelock.errors import SourceBusy, SourceError, SourceUnavailable
from tidelock.ingest.postgres.catalog import find_free_slot
from tidelock.ingest.postgres.connection import (
    address,
    connect_for_replication,
    connected,
    error_of,
    typed,
)
from tidelock.ingest.postgres.messages import EPOCH, show_lsn
from tidelock.ingest.postgres.settings import Settings

BLOCK_BYTES = 4 * 1024 * 1024
WAITING_BYTES_MAX = 32 * 1024 * 1024
STATUS_SECONDS = 1.0
"""How often the server is told how far we are."""
PROTOCOL = "2"


@dataclass(frozen=True)
class Block:
    """Messages that came together, and how far the server had read its log by then."""

    messages: list[bytes]
    keepalive: int = 0
    """Everything up to here was sent before; 0 if the server did not say."""


class Replication:
    """The stream of one slot from a position on."""

    def __init__(
        self, settings: Settings, name: str, position: int, acknowledged: int | None = None
    ) -> None:
        """It is read from `position` on; what was acknowledged may be less."""
        self._settings = settings
        self._name = name
        with connected(settings, name) as connection:
            find_free_slot(connection, settings.slot)
        self._connection = connect_for_replication(settings, name)
        self._start(position)
        self._socket = self._connection.socket
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._changed = threading.Condition()
        self._blocks: deque[Block] = deque()
        self._waiting_bytes = 0
        self._error: BaseException | None = None
        self._closed = False
        self._asks = False
        self._acknowledged = position if acknowledged is None else acknowledged
        self.server_position = position
        """How far the server's log is, as it last said."""
        self._thread = threading.Thread(target=self._run, name="tidelock-receive", daemon=True)
        self._thread.start()

    def _start(self, position: int) -> None:
        publication = self._settings.publication.replace('"', '""').replace("'", "''")
        command = (
            f'START_REPLICATION SLOT "{self._settings.slot}" LOGICAL {show_lsn(position)} '
            f"(proto_version '{PROTOCOL}', publication_names '\"{publication}\"', streaming 'on')"
        )
        result = self._connection.exec_(command.encode())
        if result.status != pq.ExecStatus.COPY_BOTH:
            self._connection.finish()
            raise error_of(result, self._settings, self._name)

    # For the reader

    def next(self, seconds: float) -> Block | None:
        """The next block; None if none came for so long. Raises what ended the stream, once all
        that came before is read."""
        with self._changed:
            if not self._blocks and self._error is None:
                self._changed.wait(seconds)
            if not self._blocks:
                if self._error is not None:
                    raise self._error
                return None
            block = self._blocks.popleft()
            was_full = self._waiting_bytes > WAITING_BYTES_MAX
            self._waiting_bytes -= _size(block)
        if was_full:
            self._wake()
        return block

    @property
    def is_waiting(self) -> bool:
        """Whether more was received than was read."""
        return bool(self._blocks)

    def acknowledge(self, position: int) -> None:
        """Everything up to here is durable in the lake."""
        if position > self._acknowledged:
            self._acknowledged = position
            self._wake()

    def ask(self) -> None:
        """Let the server say how far it is."""
        self._asks = True
        self._wake()

    def close(self) -> None:
        with self._changed:
            self._closed = True
        self._wake()
        self._thread.join()
        self._connection.finish()
        for end in (self._wake_read, self._wake_write):
            os.close(end)

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, b"\0")

    # In the thread

    def _run(self) -> None:
        try:
            self._receive()
        except (psycopg.Error, OSError, SourceError, SourceBusy) as error:
            self._end(
                typed(error, self._settings, self._name)
                if isinstance(error, psycopg.Error)
                else error
                if isinstance(error, SourceError | SourceBusy)
                else self._lost(str(error))
            )
        except BaseException as error:  # noqa: BLE001 - raised again where the blocks are read
            self._end(error)

    def _end(self, error: BaseException) -> None:
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def _receive(self) -> None:
        told = -1
        told_at = 0.0
        while not self._closed:
            full = self._waiting_bytes > WAITING_BYTES_MAX
            asked = False if full else self._drain()
            now = time.monotonic()
            asks, self._asks = self._asks, False
            if asked or asks or self._acknowledged != told or now - told_at >= STATUS_SECONDS:
                told, told_at = self._acknowledged, now
                self._send_status(told, reply=asks)
            watched = [self._wake_read] if full else [self._wake_read, self._socket]
            ready, _, _ = select.select(watched, [], [], STATUS_SECONDS)
            if self._wake_read in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake_read, 4096)
            if self._socket in ready:
                self._connection.consume_input()
        with contextlib.suppress(psycopg.Error, OSError):
            self._send_status(self._acknowledged)

    def _drain(self) -> bool:
        """Take everything that has arrived; whether the server asks for an answer."""
        connection = self._connection
        messages: list[bytes] = []
        size, asked = 0, False
        while True:
            count, data = connection.get_copy_data(1)
            if count == 0:
                break
            if count < 0:
                raise self._ended(count)
            message = bytes(data)
            if message[0] == 119:  # w: rows and what they belong to
                messages.append(message)
                size += count
                if size >= BLOCK_BYTES:
                    self._hand_over(Block(messages))
                    messages, size = [], 0
                    if self._waiting_bytes > WAITING_BYTES_MAX:
                        break
            elif message[0] == 107:  # k: a keepalive
                end, _, reply = struct.unpack_from("!QqB", message, 1)
                self.server_position = max(self.server_position, end)
                asked = asked or reply == 1
                self._hand_over(Block(messages, end))
                messages, size = [], 0
        if messages:
            self._hand_over(Block(messages))
        return asked

    def _hand_over(self, block: Block) -> None:
        if block.messages:
            (end,) = struct.unpack_from("!Q", block.messages[-1], 9)
            self.server_position = max(self.server_position, end)
        with self._changed:
            self._blocks.append(block)
            self._waiting_bytes += _size(block)
            self._changed.notify_all()

    def _send_status(self, position: int, *, reply: bool = False) -> None:
        micros = int((time.time() - EPOCH.timestamp()) * 1_000_000)
        self._connection.put_copy_data(
            struct.pack("!cQQQqB", b"r", position, position, position, micros, reply)
        )
        while self._connection.flush():
            select.select([], [self._socket], [], STATUS_SECONDS)

    def _ended(self, count: int) -> Exception:
        if count == -2:
            return psycopg.OperationalError(_error_of(self._connection))
        result = self._connection.get_result()
        if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
            return error_of(result, self._settings, self._name)
        return self._lost("the server ended the stream.")

    def _lost(self, why: str) -> SourceUnavailable:
        return SourceUnavailable(
            f"Source {self._name!r}: the connection to PostgreSQL at "
            f"{address(self._settings)} was lost: {why}",
            source=self._name,
            cause=why,
        )


def _size(block: Block) -> int:
    return sum(map(len, block.messages))


def _error_of(connection: PGconn) -> str:
    return connection.error_message.decode(errors="replace") or "the connection was lost"
