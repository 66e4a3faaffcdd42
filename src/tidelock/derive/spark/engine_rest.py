"""How long an engine that was found away is left alone.

Owns: the wait of one process. To try an engine may take a JVM's start or a server's timeout, and
what one stream table found out holds for all of them. So after an absence nothing is refreshed
until the wait is over, but what is asked for by name; the wait doubles up to a minute, and ends
with the first refresh that found the engine.
"""

from __future__ import annotations

import random
import threading
from datetime import datetime, timedelta

from tidelock.errors import EngineError
from tidelock.model.time.retries import wait_seconds


class EngineRest:
    """Owns until when an engine that was away is left alone."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self._lock = threading.Lock()
        self._chance = chance or random.Random()
        self._times = 0
        self._until: datetime | None = None
        self._error: EngineError | None = None

    def begin(self, error: EngineError, now: datetime) -> datetime:
        """The engine is away; returns when it is to be tried again."""
        with self._lock:
            if self._until is None or now >= self._until:
                # Those that were begun together found out the same.
                self._times += 1
                self._until = now + timedelta(seconds=wait_seconds(self._times, self._chance))
            self._error = error
            return self._until

    def end(self) -> None:
        """The engine was there."""
        with self._lock:
            self._times, self._until, self._error = 0, None, None

    def obstacle(self, now: datetime) -> str | None:
        """Why nothing is to be refreshed now."""
        with self._lock:
            if self._until is None or now >= self._until:
                return None
            assert self._error is not None
            return f"the engine was not there: {self._error}"
