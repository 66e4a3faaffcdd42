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
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tidelock.store import layout
from tidelock.store.location import Location

WAIT_SECONDS_MAX = 0.25
POLL_SECONDS = 0.001


class Turns:
    def __init__(self, location: Location) -> None:
        self._folder = Path(location.uri) / layout.TURNS if location.kind == "file" else None
        self._files: dict[str, int] = {}
        self._lock = threading.Lock()

    @contextmanager
    def taken(self, branch_id: str) -> Iterator[bool]:
        """Wait for this process's turn on a branch, but not for long; True when it had to wait."""
        descriptor = self._descriptor(branch_id)
        if descriptor is None:
            yield False
            return
        at_once = _try(descriptor)
        held = at_once or _wait_for(descriptor)
        try:
            yield not at_once
        finally:
            if held:
                # A handle that is closed meanwhile has given the lock up with the file.
                with suppress(OSError):
                    fcntl.flock(descriptor, fcntl.LOCK_UN)

    def _descriptor(self, branch_id: str) -> int | None:
        if self._folder is None:
            return None
        with self._lock:
            if branch_id not in self._files:
                try:
                    self._folder.mkdir(parents=True, exist_ok=True)
                    path = self._folder / f"{branch_id}.lock"
                    self._files[branch_id] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
                except OSError:
                    # A place without locks works all the same, with more puts that lose.
                    return None
            return self._files[branch_id]

    def close(self) -> None:
        with self._lock:
            for descriptor in self._files.values():
                os.close(descriptor)
            self._files.clear()


def _wait_for(descriptor: int) -> bool:
    until = time.monotonic() + WAIT_SECONDS_MAX
    while time.monotonic() < until:
        time.sleep(POLL_SECONDS)
        if _try(descriptor):
            return True
    return False


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
