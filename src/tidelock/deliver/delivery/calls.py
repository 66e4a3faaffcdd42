"""Calls to a destination: each is waited for, one that hangs can be left, and each fails typed.

Owns: the thread that calls. A request may hang for as long as its timeout allows, and a process
that delivers is to end in seconds when it is told to: then the call gets a moment to end, and is
left. What became of it is not known; what was planned is sent again under the same ids.
Invariant: at most one call at a time; after one was left, no other is made.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, TypeVar

from tidelock.errors import ChunkRefused, DestinationFailed, SinkBusy, SinkStopped
from tidelock.model.sinks import SinkDefinition
from tidelock.store.rows.batch_stream import BatchStream

T = TypeVar("T")

GRACE_SECONDS = 2.0
"""How long a call may still take once it is to stop."""
LOOK_SECONDS = 0.1


class Interrupted(Exception):
    """It was asked to stop."""


class Calls:
    """The calls of one delivery to its destination."""

    def __init__(self, stopped: Callable[[], bool]) -> None:
        self._stopped = stopped
        self._work: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self.left = False
        """Whether a call was left that had not ended."""

    def run(self, work: Callable[[], T]) -> T:
        """What the work returns or raises; Interrupted when it hangs and is to stop."""
        if self.left:
            raise Interrupted
        if self._thread is None:
            # A daemon: a call that hangs does not keep the process from ending.
            self._thread = threading.Thread(
                target=_serve, args=(self._work,), name="tidelock-destination", daemon=True
            )
            self._thread.start()
        answer: Future[T] = Future()
        self._work.put((work, answer))
        try:
            self._wait(answer)
        except BaseException:
            self.left = not answer.done()
            raise
        return answer.result()

    def _wait(self, answer: Future[Any]) -> None:
        ends: float | None = None
        while True:
            try:
                answer.exception(timeout=LOOK_SECONDS)
                return
            except TimeoutError:
                if not self._stopped():
                    continue
                ends = ends or time.monotonic() + GRACE_SECONDS
                if time.monotonic() > ends:
                    raise Interrupted from None

    def close(self) -> None:
        self._work.put(None)


def _serve(work: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None]) -> None:
    while (given := work.get()) is not None:
        call, answer = given
        try:
            answer.set_result(call())
        except BaseException as error:  # noqa: BLE001 - it is raised to the thread that waits
            answer.set_exception(error)
        # What it holds is not kept until the next call comes.
        del given, call, answer


@contextmanager
def destination(definition: SinkDefinition, rows: BatchStream | None = None) -> Iterator[None]:
    """Whatever a destination raises stops its partition, and nothing else.

    What reading the rows raised is raised as it was.
    """
    try:
        yield
    except (DestinationFailed, ChunkRefused, SinkStopped, SinkBusy, Interrupted):
        raise
    except Exception as error:
        if rows is not None and rows.error is not None:
            raise rows.error from None
        raise DestinationFailed(
            f"Sink {definition.name!r} could not write to {definition.to}: "
            f"{str(error).rstrip('.')}. It is tried again.",
            sink=definition.name,
            cause=str(error),
        ) from error
