"""A store that waits at a gate: a call that was begun, and lands when the test lets it.

As when a process is suspended inside of a system call, or a request is under way for long: whatever
its caller looked at before may have changed when it has its effect.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tidelock.store.objects.protocol import ObjectInfo, Objects


class GatedStore:
    """The store inside, but that matching puts wait until a file exists."""

    def __init__(self, inner: Objects, gate: Path, matches: Callable[[str, bytes], bool]) -> None:
        self.inner = inner
        self._gate = gate
        self._matches = matches

    def _wait(self, key: str, data: bytes) -> None:
        if self._matches(key, data):
            Path(f"{self._gate}.reached").touch()
            while not self._gate.exists():
                time.sleep(0.005)

    def get(self, key: str) -> bytes:
        return self.inner.get(key)

    def info(self, key: str) -> ObjectInfo | None:
        return self.inner.info(key)

    def put_new(self, key: str, data: bytes) -> None:
        self._wait(key, data)
        self.inner.put_new(key, data)

    def put(self, key: str, data: bytes) -> None:
        self._wait(key, data)
        self.inner.put(key, data)

    def delete(self, key: str) -> None:
        self.inner.delete(key)

    def delete_many(self, keys: Sequence[str]) -> None:
        self.inner.delete_many(keys)

    def keys(self, folder: str, after: str = "") -> list[str]:
        return self.inner.keys(folder, after)

    def list_folders(self, folder: str) -> list[str]:
        return self.inner.list_folders(folder)

    def list(self, folder: str) -> list[ObjectInfo]:
        return self.inner.list(folder)
