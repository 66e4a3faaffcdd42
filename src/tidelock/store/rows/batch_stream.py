"""Batches on their way to somebody who reads them: counted, and with the reason why they ended.

A library that reads rows wraps what they raise, or keeps only its message, as Arrow's C stream
does. The stream remembers it, so that a failure to read is not taken for one of the reader's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa


class BatchStream:
    """Passes batches on. Owns: how many rows there were, and the error that ended them."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self.rows = 0
        self.error: BaseException | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            batch = next(self._batches)
        except StopIteration:
            raise
        except BaseException as error:
            self.error = error
            raise
        self.rows += batch.num_rows
        return batch
