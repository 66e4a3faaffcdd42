"""Writers side by side: threads with group commit, and processes without a coordinator."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

import tidelock
from bench.lakes import new_lake, rows
from bench.measure import Claim, folder, middle
from tidelock.testing.faulty_store import FaultyStore

THREADS = 8
ROWS = 100
ROUNDS = 7
PROCESSES = 8
PROCESS_ROUNDS = 16


def rate(work: Callable[[int, int], None], threads: int, each: int) -> float:
    """Transactions per second of some threads that each run `work(thread, number)`."""
    failures: list[BaseException] = []

    def run(thread: int) -> None:
        try:
            for number in range(each):
                work(thread, number)
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    pool = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    began = time.perf_counter()
    for thread in pool:
        thread.start()
    for thread in pool:
        thread.join()
    took = time.perf_counter() - began
    if failures:
        raise failures[0]
    return threads * each / took


def rates(
    work: Callable[[int, int], None], each_alone: int, each_together: int
) -> tuple[float, float]:
    """The median rates of one thread and of all, measured in turns: disks have moods."""
    alone, together = [], []
    for _ in range(ROUNDS):
        alone.append(rate(work, 1, each_alone))
        together.append(rate(work, THREADS, each_together))
    return middle(alone), middle(together)


def append_to(lake: tidelock.Lake, table: str, row: pa.Table) -> None:
    with lake.transaction() as tx:
        tx.append(table, row)


def threads_on_tables() -> Iterator[Claim]:
    names = [f"t{n}" for n in range(THREADS)]
    prepared = [rows(number, number + 1) for number in range(ROWS)]
    for latency, limit, each in ((0.0, 1.6, (100, 25)), (0.03, 4.0, (8, 8))):
        with folder() as path:
            new_lake(path, names).close()
            lake = tidelock.open(
                path,
                actor="bench",
                objects=lambda inner, latency=latency: FaultyStore(
                    inner, 0, latency_seconds=latency
                ),
            )

            def work(thread: int, number: int, lake: tidelock.Lake = lake) -> None:
                append_to(lake, names[thread], prepared[number])

            rate(work, THREADS, 5)
            alone, together = rates(work, *each)
            lake.close()
            what = "8 threads on 8 tables against 1 thread"
            if latency:
                what += ", with 30 ms added to every object operation"
            yield Claim(
                what,
                together / alone,
                limit,
                at_least=True,
                detail=f"{together:.0f} against {alone:.0f} transactions per second",
            )


def threads_on_one_table() -> Iterator[Claim]:
    with folder() as path:
        lake = new_lake(path, ["a"], key="id")
        prepared = [rows(number, number + 1) for number in range(THREADS * 10)]

        def work(thread: int, number: int) -> None:
            with lake.transaction() as tx:
                tx.upsert("a", prepared[thread * 10 + number % 10])

        rate(work, THREADS, 5)
        alone, together = rates(work, 60, 20)
        versions = [commit.version for commit in lake.log(limit=None)]
        assert versions == list(range(len(versions), 0, -1)), "history is linear"
        assert lake.snapshot().table("a").count() == THREADS * 10
        lake.close()
        yield Claim(
            "8 threads upserting one table against 1 thread",
            together / alone,
            1.0,
            at_least=True,
            detail=f"{together:.0f} against {alone:.0f} transactions per second",
        )


def threads_on_rows() -> Iterator[Claim]:
    with folder() as path:
        lake = new_lake(path, ["a"], key="id")
        append_to(lake, "a", rows(0, THREADS * 10))

        def work(thread: int, number: int) -> None:
            with lake.transaction() as tx:
                tx.update("a", {"v": "v + 1"}, where=f"id = {thread * 10 + number % 10}")

        rate(work, THREADS, 5)
        alone, together = rates(work, 60, 20)
        # A conflict would have been raised, and a lost update is one that is missing here.
        added = sum(lake.table("a").to_arrow(["v"])["v"].to_pylist()) - 1.5 * THREADS * 10
        assert added == THREADS * 5 + ROUNDS * (60 + THREADS * 20)
        lake.close()
        yield Claim(
            "8 threads updating different rows of one table against 1 thread, no conflict",
            together / alone,
            1.0,
            at_least=True,
            detail=f"{together:.0f} against {alone:.0f} transactions per second",
        )


WRITER = """
import sys
from bench.concurrency import append_to, rows
import tidelock
path, start = sys.argv[1], int(sys.argv[2])
lake = tidelock.open(path, actor="bench")
append_to(lake, "a", rows(start, start + 1))
print("ready", flush=True)
for line in sys.stdin:
    start, count = map(int, line.split())
    prepared = [rows(number, number + 1) for number in range(start, start + count)]
    print("prepared", flush=True)
    sys.stdin.readline()
    for row in prepared:
        append_to(lake, "a", row)
    print("done", flush=True)
lake.close()
"""


class Writer:
    """A process that appends rows when it is told to."""

    def __init__(self, path: Path, number: int) -> None:
        self._next = number * 10_000_000
        self._process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(self._next)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def hear(self, line: str) -> None:
        assert self._process.stdout is not None
        heard = self._process.stdout.readline()
        assert heard == line + "\n", heard

    def prepare(self, count: int) -> None:
        self.tell(f"{self._next + 1} {count}")
        self._next += count
        self.hear("prepared")

    def end(self) -> None:
        self._process.communicate()
        assert self._process.returncode == 0


def process_rate(writers: list[Writer], each: int) -> float:
    """Transactions per second of some processes."""
    for writer in writers:
        writer.prepare(each)
    began = time.perf_counter()
    for writer in writers:
        writer.tell("go")
    for writer in writers:
        writer.hear("done")
    return len(writers) * each / (time.perf_counter() - began)


def processes() -> Iterator[Claim]:
    with folder() as path:
        new_lake(path, ["a"]).close()
        writers = [Writer(path, number) for number in range(PROCESSES)]
        for writer in writers:
            writer.hear("ready")
        process_rate(writers, 5)
        alone, together = [], []
        for number in range(PROCESS_ROUNDS):
            alone.append(process_rate([writers[number % PROCESSES]], 80))
            together.append(process_rate(writers, 20))
        for writer in writers:
            writer.end()
        with tidelock.open(path, read_only=True) as lake:
            assert lake.snapshot().table("a").count() == PROCESSES * (
                1 + 5 + PROCESS_ROUNDS * (10 + 20)
            )
        yield Claim(
            "8 processes appending to one table against 1 (medians)",
            middle(together) / middle(alone),
            0.8,
            at_least=True,
            detail=f"{middle(together):.0f} against {middle(alone):.0f} transactions per second",
        )


CLAIMS = [threads_on_tables, threads_on_one_table, threads_on_rows, processes]
