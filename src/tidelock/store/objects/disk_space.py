"""Disk space: what is done about a disk that is full.

Garbage collection makes room, and writes before it removes anything: that it runs, and whom it
gives up. So a lake on files keeps an object that means nothing and has RESERVE_BYTES. A collection
that finds no room removes it and begins again; one that ends puts it back.

What is written again as it was, such as the lease of somebody who only reads, needs no room: its
date is all that changes.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress

from tidelock.errors import StoreError
from tidelock.store.objects import layout
from tidelock.store.objects.protocol import Objects

RESERVE_BYTES = 256 * 1024
FULL = (errno.ENOSPC, errno.EDQUOT)
_SAID = ("No space left on device", "Disk quota exceeded")


def is_full(error: BaseException) -> bool:
    """Whether the operating system says that there is no room, through whichever library."""
    return any(said in str(error) for said in _SAID)


def touch_same(path: str, data: bytes) -> bool:
    """Date a file anew that has this content; False if it has another."""
    try:
        with open(path, "rb") as file:
            if file.read(len(data) + 1) != data:
                return False
        os.utime(path)
    except OSError:
        return False
    return True


def keep_reserve(objects: Objects) -> None:
    """Put something aside, while there is room. Of bytes that no file system can make smaller."""
    with suppress(StoreError):
        if objects.info(layout.RESERVE) is None:
            objects.put_new(layout.RESERVE, os.urandom(RESERVE_BYTES))


def use_reserve(objects: Objects) -> bool:
    """Give back what was put aside; False if there was nothing."""
    if objects.info(layout.RESERVE) is None:
        return False
    objects.delete(layout.RESERVE)
    return True
