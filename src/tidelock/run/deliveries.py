"""Deliveries by schedule: one loop that delivers to the sinks of a branch, until it is stopped.

Owns: when sinks are looked at. What there is to deliver is told by the lake alone, so that a loop
that was killed is resumed by starting another.
Invariant: a sink that is slow or fails keeps no other waiting, up to SINKS_AT_ONCE.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime

from tidelock.deliver.reports import DeliveryReport
from tidelock.derive.schedules import parse_schedule
from tidelock.errors import SinkBusy, SinkNotFound, TidelockError
from tidelock.model.sinks import SinkDefinition
from tidelock.run.sinks import Sinks, failed

logger = logging.getLogger("tidelock")

SINKS_AT_ONCE = 4


class Deliveries:
    def __init__(self, sinks: Sinks, branch: str, look_seconds: float) -> None:
        self._sinks = sinks
        self._branch = branch
        self._look_seconds = look_seconds
        self._running: dict[str, Future[None]] = {}
        self._last: dict[str, datetime] = {}
        self._said: dict[str, str] = {}

    def run(self, stop: threading.Event, tell: Callable[[DeliveryReport], None]) -> None:
        """Deliver what is due until `stop` is set; what is being sent then ends first."""
        with ThreadPoolExecutor(SINKS_AT_ONCE, thread_name_prefix="tidelock-sink") as pool:
            begun = False
            while not stop.is_set():
                try:
                    if not begun:
                        self._sinks.release_leftovers()
                        begun = True
                    for definition in self._due():
                        work = pool.submit(self._deliver, definition, stop, tell)
                        self._running[definition.id] = work
                except TidelockError as error:
                    # The store may answer at the next look; refreshes say so if it does not.
                    logger.warning("sinks could not be looked at: %s", error)
                stop.wait(self._look_seconds)

    def _due(self) -> list[SinkDefinition]:
        now = datetime.now(UTC)
        return [
            one
            for one in self._sinks.ledger.definitions()
            if one.branch == self._branch and not self._is_running(one) and self._is_due(one, now)
        ]

    def _is_running(self, definition: SinkDefinition) -> bool:
        work = self._running.get(definition.id)
        return work is not None and not work.done()

    def _is_due(self, definition: SinkDefinition, now: datetime) -> bool:
        schedule = parse_schedule(definition.schedule)
        if schedule.is_manual:
            return False
        if schedule.is_upstream:
            return True
        last = self._last.get(definition.id) or self._sinks.last_delivery(definition)
        return schedule.latest_due(last, now) is not None

    def _deliver(
        self,
        definition: SinkDefinition,
        stop: threading.Event,
        tell: Callable[[DeliveryReport], None],
    ) -> None:
        began = datetime.now(UTC)
        try:
            report = self._sinks.deliver(definition.name, forced=False, stop=stop)
        except (SinkBusy, SinkNotFound):
            return
        except TidelockError as error:
            report = failed(definition, error)
        if report.action != "waiting":
            self._last[definition.id] = began
        if report.action == "failed" and self._said.get(definition.id) == report.reason:
            # Whatever it was, it was said when it began.
            return
        self._said[definition.id] = report.reason if report.action == "failed" else ""
        if report.action in ("delivered", "failed"):
            tell(report)
