"""A beat: what renews a lease, a third of the lease apart, in a thread of its own.

Two beats may fail before a lease runs out. The thread ends when it is stopped, or when what it
calls says that there is nothing left to renew.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

logger = logging.getLogger("tidelock")

BEATS_PER_LEASE = 3


class Beat:
    """Owns the thread that renews, until it is stopped."""

    def __init__(self, name: str, lease_seconds: float, renew: Callable[[], bool]) -> None:
        """`renew` says whether there is a next beat; an error of it does not end the thread, for
        that would end every lease."""
        self._seconds = lease_seconds / BEATS_PER_LEASE
        self._renew = renew
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"tidelock-{name}", daemon=True)
        self._thread.start()

    @property
    def goes_on(self) -> bool:
        return self._thread.is_alive() and not self._stopped.is_set()

    def stop(self, *, wait: bool = False) -> None:
        """Renew no more; `wait` until a renewal that is under way has ended."""
        self._stopped.set()
        if wait:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._seconds):
            try:
                if not self._renew():
                    return
            except Exception:
                logger.exception("leases could not be renewed")
