"""Skipped windows: which rows belonged to a partition that was behind when they were planned.

    _tidelock/sinks/<id>/skipped/<plan>-<hash of the path>.arrow    the positions of its rows

A row of an `inserts` feed belongs where it was when its window was planned, also if its partition
column is updated before the partition catches up: the others have passed it by then.
It ends in a checksum (store/checksums.py).
Invariant: a note counts only if the state names it, as `Lag.skipped` or `Lag.of`; one that it does
not name was left by a plan that never began.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa

from tidelock.model.sinks import SinkDefinition
from tidelock.store import layout
from tidelock.store.checksums import stamped, unstamped
from tidelock.store.objects import Objects
from tidelock.store.sequences import Ids


class Skipped:
    """The notes of one sink."""

    def __init__(self, objects: Objects, definition: SinkDefinition) -> None:
        self._objects = objects
        self._folder = f"{layout.sink(definition.id)}/skipped"

    def note(self, plan: int, path: str, positions: Ids) -> None:
        batch = pa.record_batch({"position": np.unique(positions)})
        stream = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(stream, batch.schema, options=options) as writer:
            writer.write_batch(batch)
        self._objects.put(self._key(plan, path), stamped(stream.getvalue().to_pybytes()))

    def positions(self, plan: int, path: str) -> Ids:
        """The positions of the rows that a partition has in the window of a plan, in order."""
        key = self._key(plan, path)
        data = unstamped(self._objects.get(key), key)
        found: Ids = pa.ipc.open_stream(data).read_all().column(0).to_numpy()
        return found

    def forget(self, plan: int, path: str) -> None:
        self._objects.delete(self._key(plan, path))

    def _key(self, plan: int, path: str) -> str:
        return f"{self._folder}/{plan:012d}-{hashlib.sha256(path.encode()).hexdigest()[:16]}.arrow"
