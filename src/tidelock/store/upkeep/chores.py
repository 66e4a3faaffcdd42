"""Chores: what commits leave to be done, done by threads beside them.

Owns: a queue of chores, each of which is there once however often it was asked for, and the threads
that do them: one, or some where they mostly wait for answers. Nobody's commit waits for one.
Invariants: a chore that fails is logged and forgotten, for the next commit finds the same work; at
the end of a handle, or of the process, what is due is done first, for as long as FINISH_SECONDS.
After a crash: a chore was done, or is found again by the next commit.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Hashable

from tidelock.errors import TidelockError

logger = logging.getLogger("tidelock")

Chore = Callable[[], float | None]
"""Gives the seconds after which it is to be done again, or None."""

IDLE_SECONDS = 2.0
FINISH_SECONDS = 5.0


class Chores:
    """Owns the chores of one handle and the threads that do them."""

    def __init__(self, threads: int = 1) -> None:
        self._threads_max = threads
        self._due: dict[Hashable, tuple[float, Chore]] = {}
        self._changed = threading.Condition()
        self._busy: set[Hashable] = set()
        self._threads: set[threading.Thread] = set()
        self._process = os.getpid()
        _all.add(self)

    def ask(self, key: Hashable, chore: Chore, delay_seconds: float = 0.0) -> None:
        """Let a chore be done soon; asked for again before it began, it is done once."""
        at = time.monotonic() + delay_seconds
        with self._changed:
            known = self._due.get(key)
            self._due[key] = (min(at, known[0]) if known else at, chore)
            if len(self._threads) < min(self._threads_max, len(self._due) + len(self._busy)):
                thread = threading.Thread(target=self._run, name="tidelock-chores", daemon=True)
                self._threads.add(thread)
                thread.start()
            self._changed.notify()

    def finish(self, seconds: float = FINISH_SECONDS) -> bool:
        """Wait until all that is due now is done; whatever is left then is forgotten."""
        if self._process != os.getpid():
            return True
        began = time.monotonic()

        def is_done() -> bool:
            return not self._busy and all(at > began for at, _ in self._due.values())

        with self._changed:
            # Threads that ended with the interpreter do nothing any more.
            alive = any(thread.is_alive() for thread in self._threads)
            done = self._changed.wait_for(is_done, seconds) if alive else is_done()
            self._due.clear()
            return done

    def _run(self) -> None:
        while (chosen := self._take()) is not None:
            key, chore = chosen
            again: float | None = None
            try:
                again = chore()
            except TidelockError as error:
                logger.warning("%s was put off: %s", _told(key), error)
            except Exception:
                # Whatever it was, other chores go on.
                logger.exception("%s failed", _told(key))
            with self._changed:
                self._busy.discard(key)
                if again is not None and key not in self._due:
                    self._due[key] = (time.monotonic() + again, chore)
                self._changed.notify_all()

    def _take(self) -> tuple[Hashable, Chore] | None:
        """The next chore, when its time has come; None when there was none for a while.

        One that is being done is not begun a second time.
        """
        idle_until = time.monotonic() + IDLE_SECONDS
        with self._changed:
            while True:
                moment = time.monotonic()
                waiting = [(at, key) for key, (at, _) in self._due.items() if key not in self._busy]
                at, key = min(waiting, key=lambda one: one[0], default=(idle_until, None))
                if key is not None and at <= moment:
                    self._busy.add(key)
                    return key, self._due.pop(key)[1]
                if key is None and moment >= idle_until:
                    self._threads.discard(threading.current_thread())
                    return None
                self._changed.wait(at - moment)


def _told(key: Hashable) -> str:
    return " ".join(map(str, key)) if isinstance(key, tuple) else str(key)


_all: weakref.WeakSet[Chores] = weakref.WeakSet()


@atexit.register
def _finish_all() -> None:
    """At the end of the process: short-lived writers would leave ever more behind."""
    deadline = time.monotonic() + FINISH_SECONDS
    for chores in list(_all):
        chores.finish(max(0.0, deadline - time.monotonic()))
