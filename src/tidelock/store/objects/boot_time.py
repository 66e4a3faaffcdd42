"""The time since the machine was started, which no step of a clock changes."""

from __future__ import annotations

import time


def boot_seconds() -> float:
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)
