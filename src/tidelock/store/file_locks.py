"""Locks on files, which the system takes back from a process that dies."""

from __future__ import annotations

import fcntl


def try_lock(file: int) -> bool:
    """Lock an open file unless another has it locked; closing the file gives it up."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def is_locked(file: int) -> bool:
    """Whether another has an open file locked."""
    if not try_lock(file):
        return True
    fcntl.flock(file, fcntl.LOCK_UN)
    return False
