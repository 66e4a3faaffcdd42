"""Refreshing in the background, while the main thread has the engine and the signals.

Owns: who does what. Python gives signals to the main thread alone, and engines take them: Spark
cancels its jobs at Ctrl-C, Sail ends its server. A refresh that was cut off so would be recorded as
a failure of its table. So the work runs in a thread of its own; when it needs the engine, the main
thread starts it, and takes the signals back.

    the first SIGINT or SIGTERM     `stop` is set: what has begun is finished, nothing else begins
    the second one                  the process ends at once; what was staged is never seen
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from tidelock.cli import interrupts

if TYPE_CHECKING:
    from tidelock import Lake

T = TypeVar("T")

LOOK_SECONDS = 1.0
"""How often the main thread looks whether there is something to show."""


class Background:
    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._news: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self.stop = threading.Event()

    def run(self, work: Callable[[], T], look: Callable[[], None] = lambda: None) -> T:
        """What the work returns. `look` is called by the main thread now and then."""
        with (
            interrupts.finishing(self.stop.set) as take_signals,
            ThreadPoolExecutor(1, "background") as pool,
        ):
            done = pool.submit(work)
            done.add_done_callback(lambda _: self._news.put("done"))
            try:
                while not done.done():
                    try:
                        news = self._news.get(timeout=LOOK_SECONDS)
                    except queue.Empty:
                        look()
                        continue
                    if news == "engine" and not self._ready.is_set():
                        self._start_engine()
                        take_signals()
            except BaseException:
                self.stop.set()
                self._ready.set()
                raise
        return done.result()

    def need_engine(self) -> None:
        """Wait until the engine runs; for the work, from any of its threads."""
        self._news.put("engine")
        self._ready.wait()
        if self._failure is not None:
            raise self._failure

    def _start_engine(self) -> None:
        try:
            _ = self._lake.spark
        except Exception as error:  # noqa: BLE001
            # It ends the work, and with it the command.
            self._failure = error
        self._ready.set()
