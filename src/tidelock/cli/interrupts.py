"""What Ctrl-C does: one line, exit code 130, and nothing left behind.

Owns: the handlers of SIGINT and SIGTERM, of the program alone; who calls commands from Python keeps
theirs.

    until a lake is opened    the process ends at once: there is nothing to undo
    from then on              KeyboardInterrupt, so that staged work is given up in order; an engine
                              that has a handler of its own, as Spark does, is asked to stop first
    at the second Ctrl-C      a reader ends at once; a writer finishes giving up, because work that
                              is staged completely and left behind would be published by healing

A command that runs until it is told to stop is asked to finish by either signal (`finishing`), and
ended at once by a second one.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

INTERRUPTED = 130
TOLD = "interrupted"
PATIENCE_SECONDS = 10.0


class _Interrupts:
    ours = False
    asked = False
    writes = False
    engine: Callable[[int, FrameType | None], Any] | None = None
    patience: threading.Timer | None = None


def end_at_once() -> None:
    """Be the one who handles Ctrl-C, from now on."""
    _Interrupts.ours = True
    signal.signal(signal.SIGINT, _end)


def raise_from_now(*, writes: bool) -> None:
    """Let Ctrl-C unwind the command. To be called again when an engine has started, which may have
    put its own handler in place."""
    if not _Interrupts.ours:
        return
    _Interrupts.writes = writes
    found = signal.getsignal(signal.SIGINT)
    if callable(found) and found not in (_end, _raise):
        _Interrupts.engine = found
    signal.signal(signal.SIGINT, _raise)


@contextmanager
def finishing(finish: Callable[[], None]) -> Iterator[Callable[[], None]]:
    """Within the block the first SIGINT or SIGTERM calls `finish`, a second one ends the process.

    The yielded function is called when an engine has started, and may have taken the signals.
    `finish` runs in the main thread, wherever that is: it may not wait for what that one holds.
    """
    if not _Interrupts.ours:
        yield lambda: None
        return
    signals = (signal.SIGINT, signal.SIGTERM)
    asked = False

    def receive(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            os._exit(128 + number)
        asked = True
        os.write(2, b"Finishing what has begun. Once more ends it at once.\n")
        finish()

    def take() -> None:
        for each in signals:
            signal.signal(each, receive)

    before = [signal.getsignal(each) for each in signals]
    take()
    try:
        yield take
    finally:
        for each, handler in zip(signals, before, strict=True):
            signal.signal(each, handler)


def asked() -> bool:
    """Whether there was a Ctrl-C. What fails after it, fails because of it."""
    return _Interrupts.asked


def settle() -> None:
    """Say that the command has ended in order."""
    if _Interrupts.patience is not None:
        _Interrupts.patience.cancel()


def _raise(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN if _Interrupts.writes else _end)
    _Interrupts.asked = True
    if not _Interrupts.writes:
        # An engine that does not stop, as PySpark when a query ends in this very moment, is left.
        _Interrupts.patience = threading.Timer(PATIENCE_SECONDS, _end, (number, frame))
        _Interrupts.patience.daemon = True
        _Interrupts.patience.start()
    if _Interrupts.engine is not None:
        _Interrupts.engine(number, frame)
    raise KeyboardInterrupt


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, f"{TOLD}\n".encode())
    os._exit(INTERRUPTED)
