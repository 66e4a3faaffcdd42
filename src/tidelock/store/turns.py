"""Turns: processes on one machine that publish one after the other.

A put that loses makes its writer rebase, and with many writers most of that work is for nothing.
On local files, whoever publishes holds a file lock meanwhile, so that the others wait instead.
The lock decides nothing: it is given up after a moment, for a holder may be suspended, and a put is
create-only with or without it. A process that dies leaves no lock behind.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tidelock.store import layout
from tidelock.store.location import Location

WAIT_SECONDS_MAX = 0.25


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
        at_once = _try(lock)
        if not at_once:
            lock = _Wait(lock).result()
        mine[branch_id] = True
        try:
            yield not at_once
        finally:
            del mine[branch_id]
            if lock is not None:
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


class _Wait:
    """A wait for a lock, on a thread of its own: locks can be waited for, but not for so long."""

    def __init__(self, lock: int) -> None:
        self._lock = lock
        self._mutex = threading.Lock()
        self._wanted = True
        self._held = threading.Event()
        threading.Thread(target=self._run, name="tidelock-turn", daemon=True).start()

    def result(self) -> int | None:
        """The lock, held; None when it was not to be had soon."""
        try:
            self._held.wait(WAIT_SECONDS_MAX)
        except BaseException:
            if (held := self._end()) is not None:
                os.close(held)
            raise
        return self._end()

    def _end(self) -> int | None:
        with self._mutex:
            self._wanted = False
            return self._lock if self._held.is_set() else None

    def _run(self) -> None:
        with suppress(OSError):
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        with self._mutex:
            if self._wanted:
                self._held.set()
            else:
                os.close(self._lock)


def _open_file(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)


def _try(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
