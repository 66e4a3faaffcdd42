"""Processes: telling that one of this machine has died.

Owns: a name for a running process that no other has, now or later: the boot of the machine, the
space in which process ids count (a container has its own), the id, and when it began. Hosts may
share a name, and ids are given out again; these four together are not.

Law: `has_died` is true only of a process that is certainly gone. Of another machine, another
container, or a system that does not say, nothing is known, and it counts as living.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

UNKNOWN = ""
"""The name where a system does not tell enough."""


def own_process() -> str:
    """The name of this process."""
    here, began = place(), _began(os.getpid())
    return f"{here}/{os.getpid()}/{began}" if here and began else UNKNOWN


def has_died(process: str) -> bool:
    """Whether a process, by its name, has certainly ended."""
    there, _, rest = process.rpartition("/")[0].rpartition("/")
    began = process.rpartition("/")[2]
    if not rest.isdecimal() or not there or there != place():
        return False
    try:
        os.kill(int(rest), 0)
    except ProcessLookupError:
        return True
    except OSError:
        # It is there, and belongs to somebody else.
        pass
    return _began(int(rest)) not in (None, began)


@functools.cache
def place() -> str | None:
    """The boot of the machine and the space of process ids; None where that is not told."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def _began(pid: int) -> str | None:
    """When a process began, in the kernel's ticks; `ended` for one that waits to be buried."""
    try:
        # The name of its program is in brackets, and may have any sign in it.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return "ended" if fields[0] in ("Z", "X") else fields[19]
