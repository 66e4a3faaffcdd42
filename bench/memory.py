"""Peak memory of appending from a reader: it must not grow with the size of the input."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from bench.measure import Claim, folder, middle

APPEND = """
import sys
import numpy as np
import pyarrow as pa
import tidelock

def peak():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024

def batches(count):
    random = np.random.default_rng(7)
    for number in range(count):
        columns = [pa.array(random.integers(0, 2**62, ROWS)) for _ in range(8)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)

ROWS = 65536
path, size = sys.argv[1], float(sys.argv[2])
schema = pa.schema([(f"c{n}", pa.int64()) for n in range(8)])
lake = tidelock.open(path, create=True)
lake.create_table("t", schema)
idle = peak()
with lake.transaction() as tx:
    count = int(size * 2**30 / (ROWS * 64))
    tx.append("t", pa.RecordBatchReader.from_batches(schema, batches(count)))
print(peak() - idle, lake.snapshot().table("t").count())
lake.close()
"""


ROUNDS = 3


def above_idle(size_gib: float) -> int:
    with folder() as path:
        command = [sys.executable, "-c", APPEND, str(path / "lake"), str(size_gib)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peak, count = map(int, done.stdout.split())
        assert count == int(size_gib * 2**30 / (65536 * 64)) * 65536
        return peak


def appending() -> Iterator[Claim]:
    peaks = [(above_idle(0.5), above_idle(5)) for _ in range(ROUNDS)]
    small, large = (middle(list(one)) for one in zip(*peaks, strict=True))
    yield Claim(
        "peak memory of appending 5 GB from a reader above idle, against 0.5 GB (medians)",
        large / small,
        1.2,
        detail=f"{large / 2**20:.0f} MiB against {small / 2**20:.0f} MiB",
    )


CLAIMS = [appending]
