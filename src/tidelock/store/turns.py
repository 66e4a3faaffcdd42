"""Turns: processes on one machine that publish one after the other.

A put that loses makes its writer rebase, and with many writers most of that work is for nothing.
On local files, whoever publishes holds a file lock meanwhile, so that the others wait instead.
The lock decides nothing: it is given up after a moment, for a holder may be suspended, and a put is
create-only with or without it. A process that dies leaves no lock behind.
"""

from __future__ import annotations

import fcntl
import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tidelock.store import layout
from tidelock.store.location import Location

WAIT_SECONDS_MAX = 0.25
PAUSE_SECONDS_MIN = 0.0003
PAUSE_SECONDS_MAX = 0.003


class Turns:
    def __init__(self, location: Location) -> None:
        self._folder = Path(location.uri) / layout.TURNS if location.kind == "file" else None
        self._mine = threading.local()

    @contextmanager
    def taken(self, branch_id: str) -> Iterator[bool]:
        """Wait for this process's turn on a branch, but not for long; True when it had to wait.

        A thread whose turn it is takes it again at once.
        """
        mine = self._mine.__dict__
        lock = None if branch_id in mine else self._open(branch_id)
        if lock is None:
            yield False
            return
        try:
            at_once = _try(lock)
            if not at_once:
                _wait(lock)
            mine[branch_id] = True
            yield not at_once
        finally:
            mine.pop(branch_id, None)
            os.close(lock)

    def _open(self, branch_id: str) -> int | None:
        """A descriptor of its own for each turn: closing it gives the lock up."""
        if self._folder is None:
            return None
        path = self._folder / f"{branch_id}.lock"
        try:
            return _open_file(path)
        except FileNotFoundError:
            with suppress(OSError):
                self._folder.mkdir(parents=True, exist_ok=True)
                return _open_file(path)
        except OSError:
            pass
        # A place without locks works all the same, with more puts that lose.
        return None


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


def _open_file(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)


def _try(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
