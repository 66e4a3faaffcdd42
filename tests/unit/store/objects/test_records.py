"""Records are decoded by many threads, also by those that do so first."""

from __future__ import annotations

import subprocess
import sys

# In a process of its own: what it guards against is a crash of the interpreter. Every kind is new,
# so that all threads are the first to decode it.
READERS = """
import sys, threading
from dataclasses import make_dataclass
from tidelock.store.objects.checksums import signed
from tidelock.store.objects.records import decode
sys.setswitchinterval(1e-6)

def read(kind, start):
    data = signed(b'{"of": {"name": "a", "parts": [1, 2]}}')
    start.wait()
    assert decode(data, kind, "k").of.parts == (1, 2)

for number in range(20):
    part = make_dataclass("Part", [("name", str), ("parts", tuple[int, ...])])
    kind = make_dataclass("Kind", [("of", part), ("format", int, 1)])
    start = threading.Barrier(8)
    threads = [threading.Thread(target=read, args=(kind, start)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_threads_may_be_the_first_to_decode_a_kind_of_record_together() -> None:
    done = subprocess.run([sys.executable, "-c", READERS], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
