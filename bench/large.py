"""Large operations over keyed tables, at n rows and at 4n: time must follow the rows, and what is
kept in memory must not exceed what the keys take.

Each runs in a process of its own, over a table of as many rows as it brings.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

from bench.measure import Claim, folder, middle

ROWS = 500_000
COLUMNS = 400
BYTES_PER_ROW_MAX = 200
"""A key of 8 bytes, numbered, sorted and matched against the table's, with the batches on the way;
the rows themselves have 8 columns more."""
ROUNDS = 3

SCRIPT = """
import json, sys, time
import numpy as np
import pyarrow as pa
import tidelock

def peak():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024

def batches(ids):
    for start in range(0, len(ids), 65536):
        some = pa.array(ids[start : start + 65536])
        yield pa.RecordBatch.from_arrays([some] * 9, schema=SCHEMA)

def reader(ids):
    return pa.RecordBatchReader.from_batches(SCHEMA, batches(ids))

path, what, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
random = np.random.default_rng(7)
names = ["id", *(f"c{n}" for n in range(8))]
SCHEMA = pa.schema([pa.field(name, pa.int64(), nullable=name != "id") for name in names])
lake = tidelock.open(path, create=True)
if what == "changes":
    wide = pa.table({f"c{n}": np.arange(1000) for n in range(count)})
    lake.create_table("t", wide.schema)
else:
    lake.create_table("t", SCHEMA, key="id")
with lake.transaction() as tx:
    tx.append("t", wide if what == "changes" else reader(random.permutation(count)))
with lake.transaction() as tx:
    if what == "changes":
        tx.delete("t", "c0 % 100 = 7")
listed = ", ".join(map(str, random.permutation(count)[: count // 10].tolist()))
new = random.permutation(count)
idle, began = peak(), time.perf_counter()
with lake.transaction() as tx:
    if what == "upsert":
        tx.upsert("t", reader(new + count // 2))
    elif what == "append":
        tx.append("t", reader(new + count))
    elif what == "delete":
        tx.delete("t", f"id IN ({listed})")
if what == "changes":
    lake.changes("t", since=2).read_all()
taken = time.perf_counter() - began
expected = {"upsert": count + count // 2, "append": 2 * count, "delete": count - count // 10}
assert lake.table("t").count() == expected.get(what, 990)
print(json.dumps([taken, peak() - idle]))
lake.close()
"""


def run(what: str, count: int) -> tuple[float, float]:
    """Seconds, and bytes above what the process had before."""
    with folder(steady=True) as path:
        command = [sys.executable, "-c", SCRIPT, str(path / "lake"), what, str(count)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    taken, above = json.loads(done.stdout)
    return taken, above


def four_times(what: str, count: int, told: str) -> Iterator[Claim]:
    runs = [(run(what, count), run(what, 4 * count)) for _ in range(ROUNDS)]
    small, large = (middle([one[side][0] for one in runs]) for side in (0, 1))
    yield Claim(told, large / small, 5.0, detail=f"{large:.2f} s against {small:.2f} s (medians)")
    above = middle([one[1][1] for one in runs])
    if what in ("upsert", "append"):
        yield Claim(
            "  bytes of memory for each row of it, above idle",
            above / (4 * count),
            BYTES_PER_ROW_MAX,
            detail=f"{above / 2**20:.0f} MiB",
        )


def upserts() -> Iterator[Claim]:
    yield from four_times("upsert", ROWS, "upsert of 2 million rows into as many, against 0.5")


def appends() -> Iterator[Claim]:
    yield from four_times("append", ROWS, "keyed append of 2 million rows to as many, against 0.5")


def deletes() -> Iterator[Claim]:
    yield from four_times("delete", ROWS, "delete by IN of 200,000 keys of 2 million, against 0.5")


def wide_changes() -> Iterator[Claim]:
    yield from four_times("changes", COLUMNS, "changes of a table of 1,600 columns, against 400")


CLAIMS = [upserts, appends, deletes, wide_changes]
