"""The objects of one handle, for as long as it is open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidelock.errors import LakeClosed
from tidelock.store.objects.protocol import Objects

WRITES = ("put", "put_new", "delete", "delete_many")


class HandleObjects:
    """The store inside, until it is closed: whatever is asked of it then says so. Nothing is
    written unless the lake is the one that was opened."""

    def __init__(self, inner: Objects, uri: str) -> None:
        self.inner = inner
        self._uri = uri
        self._closed = False
        self._check: Callable[[], None] = lambda: None

    def check_before_writes(self, check: Callable[[], None]) -> None:
        """`check` raises if the lake is not the one that was opened."""
        self._check = check

    def __getattr__(self, name: str) -> Any:
        if self._closed:
            raise closed(self._uri)
        if name in WRITES:
            self._check()
        return getattr(self.inner, name)

    def __repr__(self) -> str:
        return repr(self.inner)

    def close(self) -> None:
        self._closed = True


def closed(uri: str) -> LakeClosed:
    return LakeClosed(f"This handle on {uri!r} was closed. Open the lake again.", uri=uri)
