"""Turns: processes on one machine that publish one after the other.

A put that loses makes its writer rebase, and with many writers most of that work is for nothing. On
local files, the process that publishes holds a file lock meanwhile, so that the others wait
instead. The lock decides nothing: it is given up after a moment, for a holder may be suspended, and
a put is create-only with or without it. A process that dies leaves no lock behind.

The locked file tells which record was published last, so that the next process need not read all
that others have published. That is a hint: it may be old, or anything.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tidelock.store.objects import layout
from tidelock.store.objects.followers import taken_lock
from tidelock.store.objects.kinds.location import Location

WAIT_SECONDS_MAX = 0.25
IDLE_SECONDS = 5.0
WAITERS_MAX = 8
"""While so many wait for a holder that is suspended, nobody else does."""
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
        """Tell the next process which record was published."""
        if self._lock is not None:
            with suppress(OSError):
                os.pwrite(self._lock, b"%0*d" % (NUMBER_BYTES, record), 0)


class Turns:
    """Owns the lock files of one lake on this machine, and the threads that wait for them."""

    def __init__(
        self,
        location: Location,
        idle_seconds: float = IDLE_SECONDS,
        wait_seconds: float = WAIT_SECONDS_MAX,
    ) -> None:
        self._folder = location.shared_folder(layout.TURNS)
        self._mine = threading.local()
        self._idle_seconds = idle_seconds
        self.wait_seconds = wait_seconds
        self._waiters: list[_Waiter] = []
        self._idle: list[_Waiter] = []

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
            at_once = _try_lock(lock)
            if not at_once:
                self._wait(lock)
            mine[branch_id] = Turn(not at_once, lock)
            yield mine[branch_id]
        finally:
            mine.pop(branch_id, None)
            os.close(lock)

    @contextmanager
    def alone(self, what: str) -> Iterator[bool]:
        """Do something that one process at a time is to do; False when another does it."""
        lock = self._open(what)
        try:
            yield lock is None or _try_lock(lock)
        finally:
            if lock is not None:
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

    def _wait(self, lock: int) -> None:
        """Wait for a lock, but not for long: what is not to be had soon is done without."""
        try:
            waiter = self._idle.pop()
        except IndexError:
            if len(self._waiters) >= WAITERS_MAX:
                return
            waiter = _Waiter(self._waiters, self._idle, self._idle_seconds)
        waiter.wait(_Wish(lock), self.wait_seconds)

    def _open(self, name: str) -> int | None:
        """A descriptor of its own for each turn: closing it gives the lock up."""
        if self._folder is None:
            return None
        path = self._path(name)
        try:
            return _open_file(path)
        except FileNotFoundError:
            with suppress(OSError):
                with suppress(FileExistsError):
                    # Nothing above it: the lake may have been removed.
                    os.mkdir(os.path.dirname(path))
                return _open_file(path)
        except OSError:
            pass
        # A place without locks works all the same, with more puts that lose.
        return None

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}.lock"


class _Wish:
    """A lock that is waited for, by a descriptor of its own."""

    def __init__(self, lock: int) -> None:
        # Of the same open file: it may be waited for still when the other is closed. Then nobody
        # has the lock that it gets.
        self._lock = os.dup(lock)
        self.done = taken_lock()

    def wait(self) -> None:
        """Wait until the lock is had."""
        with suppress(OSError):
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        os.close(self._lock)


class _Waiter(threading.Thread):
    """A thread that waits for a lock on behalf of another, which can then give up waiting.

    The system gives a lock to the thread that waited longest and wakes no other. To ask again and
    again instead takes the holder's time. A waiter stays for a while: to start one takes as long as
    a turn does.
    """

    def __init__(self, alive: list[_Waiter], idle: list[_Waiter], idle_seconds: float) -> None:
        super().__init__(name="tidelock-turns", daemon=True)
        self._alive = alive
        self._idle = idle
        self._idle_seconds = idle_seconds
        self._asked = taken_lock()
        self._wish: _Wish | None = None
        alive.append(self)
        self.start()

    def wait(self, wish: _Wish, seconds: float) -> None:
        """Return when the lock is had, or when that takes too long."""
        self._wish = wish
        self._asked.release()
        wish.done.acquire(timeout=seconds)

    def run(self) -> None:
        while True:
            if self._asked.acquire(timeout=self._idle_seconds):
                wish = self._wish
                assert wish is not None
                wish.wait()
                self._idle.append(self)
                wish.done.release()
            else:
                try:
                    self._idle.remove(self)
                except ValueError:
                    # It is being asked.
                    continue
                self._alive.remove(self)
                return


def _told(lock: int) -> int:
    told = os.pread(lock, NUMBER_BYTES, 0)
    return int(told) if told.isdigit() else 0


def _open_file(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)


def _try_lock(file: int) -> bool:
    """Lock an open file unless another has it locked; closing the file gives it up."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
