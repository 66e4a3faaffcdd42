"""Turns: processes on one machine that publish one after the other.

A put that loses makes its writer rebase, and with many writers most of that work is for nothing.
On local files, whoever publishes holds a file lock meanwhile, so that the others wait instead.
The lock decides nothing: it is given up after a moment, for a holder may be suspended, and a put is
create-only with or without it. A process that dies leaves no lock behind.

The locked file tells which record was published last, so that whoever is next need not read all
that others have published. That is a hint, like the one of log.py: it may be old, or anything.
"""

from __future__ import annotations

import fcntl
import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tidelock.store import layout
from tidelock.store.location import Location

WAIT_SECONDS_MAX = 0.25
PAUSE_SECONDS_MIN = 0.0003
PAUSE_SECONDS_MAX = 0.003
NUMBER_BYTES = 19


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn on a branch, for as long as it is taken."""

    waited: bool
    """Whether others were in the way."""
    _lock: int | None

    def newest(self) -> int:
        """The number of the record that was published last, by a turn; 0 if that is not known."""
        return 0 if self._lock is None else _told(self._lock)

    def leave(self, record: int) -> None:
        """Tell whoever is next which record was published."""
        if self._lock is not None:
            with suppress(OSError):
                os.pwrite(self._lock, b"%0*d" % (NUMBER_BYTES, record), 0)


class Turns:
    def __init__(self, location: Location) -> None:
        self._folder = f"{location.uri}/{layout.TURNS}" if location.kind == "file" else None
        self._mine = threading.local()

    @contextmanager
    def taken(self, branch_id: str) -> Iterator[Turn]:
        """Wait for this process's turn on a branch, but not for long.

        A thread whose turn it is takes it again at once.
        """
        mine: dict[str, Turn] = self._mine.__dict__
        if branch_id in mine:
            yield mine[branch_id]
            return
        lock = self._open(branch_id)
        if lock is None:
            yield Turn(False, None)
            return
        try:
            at_once = _try(lock)
            if not at_once:
                _wait(lock)
            mine[branch_id] = Turn(not at_once, lock)
            yield mine[branch_id]
        finally:
            mine.pop(branch_id, None)
            os.close(lock)

    def newest(self, branch_id: str) -> int:
        """What the last turn on a branch left, without a turn."""
        if self._folder is None:
            return 0
        try:
            lock = os.open(self._path(branch_id), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return 0
        try:
            return _told(lock)
        finally:
            os.close(lock)

    def _open(self, branch_id: str) -> int | None:
        """A descriptor of its own for each turn: closing it gives the lock up."""
        if self._folder is None:
            return None
        path = self._path(branch_id)
        try:
            return _open_file(path)
        except FileNotFoundError:
            with suppress(OSError):
                os.makedirs(os.path.dirname(path), exist_ok=True)
                return _open_file(path)
        except OSError:
            pass
        # A place without locks works all the same, with more puts that lose.
        return None

    def _path(self, branch_id: str) -> str:
        return f"{self._folder}/{branch_id}.lock"


def _told(lock: int) -> int:
    told = os.pread(lock, NUMBER_BYTES, 0)
    return int(told) if told.isdigit() else 0


def _wait(lock: int) -> None:
    """Wait for a lock, but not for long: what is not to be had soon is done without.

    It is asked for again and again. A lock can be waited for as well, though only for ever; a
    thread that does so takes longer to start and to hear of than a turn lasts.
    """
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    pause = PAUSE_SECONDS_MIN
    while time.monotonic() < deadline and not _try(lock):
        time.sleep(pause * random.uniform(0.5, 1.5))
        pause = min(pause * 1.3, PAUSE_SECONDS_MAX)


def _open_file(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)


def _try(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
