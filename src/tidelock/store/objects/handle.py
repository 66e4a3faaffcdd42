"""The objects of one handle, for as long as it is open."""

from __future__ import annotations

from typing import Any

from tidelock.errors import LakeClosed
from tidelock.store.objects.protocol import Objects


class HandleObjects:
    """The store inside, until it is closed: whatever is asked of it then says so."""

    def __init__(self, inner: Objects, uri: str) -> None:
        self.inner = inner
        self._uri = uri
        self._closed = False

    def __getattr__(self, name: str) -> Any:
        if self._closed:
            raise closed(self._uri)
        return getattr(self.inner, name)

    def __repr__(self) -> str:
        return repr(self.inner)

    def close(self) -> None:
        self._closed = True


def closed(uri: str) -> LakeClosed:
    return LakeClosed(f"This handle on {uri!r} was closed. Open the lake again.", uri=uri)
