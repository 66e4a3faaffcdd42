"""Sinks: ticks that cost what is new, exports against the bare thing, memory that stays flat."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tidelock
from bench.measure import Claim, folder, in_turns, middle, seconds
from bench.outside import measure_export

MILLION = 1_000_000


def rows(start: int, stop: int) -> pa.Table:
    ids = np.arange(start, stop)
    return pa.table(
        {
            "id": ids,
            "region": pa.array(ids % 1000).cast(pa.string()),
            "amount": ids * 0.25,
            "note": pa.array(np.char.add("note ", (ids % 5000).astype(str))),
        }
    )


def orders(path: Path, count: int) -> tidelock.Lake:
    lake = tidelock.open(path, create=True, actor="bench")
    lake.create_table("orders", rows(0, 1).schema)
    for start in range(0, count, MILLION):
        some = rows(start, min(count, start + MILLION))
        lake.run(lambda tx, some=some: tx.append("orders", some))
    return lake


def ticks() -> Iterator[Claim]:
    with folder(steady=True) as path:
        lakes = []
        for name, count in (("small", 10_000), ("large", 10 * MILLION)):
            lake = orders(path / name, count)
            to = str(path / f"{name}-files")
            lake.create_sink("files", table="orders", kind="parquet", to=to, start="now")
            lake.run(lambda tx: tx.append("orders", rows(0, 10)))
            lake.deliver("files")
            lakes.append(lake)
        small, large = lakes

        def idle(lake: tidelock.Lake) -> None:
            assert lake.deliver("files").action == "idle"

        def head(lake: tidelock.Lake) -> None:
            assert lake.snapshot().version

        for lake in lakes:
            idle(lake)
        larges, smalls = in_turns(lambda _: idle(large), lambda _: idle(small), 300)
        heads = [seconds(lambda: head(large)) for _ in range(300)]
        idles = [seconds(lambda: idle(large)) for _ in range(300)]
        yield Claim(
            "idle tick on 10 million rows against 10 thousand (medians)",
            middle(larges) / middle(smalls),
            1.2,
            detail=f"{middle(larges) * 1e6:.0f} µs against {middle(smalls) * 1e6:.0f} µs",
        )
        yield Claim(
            "idle tick against reading the head (medians)",
            middle(idles) / middle(heads),
            2,
            detail=f"{middle(idles) * 1e6:.0f} µs against {middle(heads) * 1e6:.0f} µs",
        )

        def tick(lake: tidelock.Lake, number: int) -> float:
            some = rows(number * 100, number * 100 + 100)
            lake.run(lambda tx: tx.append("orders", some))
            return seconds(lambda: lake.deliver("files"))

        pairs = [(tick(large, number), tick(small, number)) for number in range(40)]
        bigs, littles = (list(one) for one in zip(*pairs, strict=True))
        yield Claim(
            "tick with 100 new rows at 10 million against 10 thousand (medians)",
            middle(bigs) / middle(littles),
            1.5,
            detail=f"{middle(bigs) * 1e3:.1f} ms against {middle(littles) * 1e3:.1f} ms",
        )
        for lake in lakes:
            lake.close()


def partitions() -> Iterator[Claim]:
    with folder(steady=True) as path:
        lakes = {}
        for count in (3, 1000):
            lake = tidelock.open(path / f"{count}", create=True, actor="bench")
            lake.create_table("t", "id BIGINT, region STRING")
            names = [f"region {number}" for number in range(count)]
            lake.run(lambda tx, n=names: tx.append("t", [{"id": 1, "region": one} for one in n]))
            to = str(path / f"{count}-files")
            lake.create_sink("files", table="t", kind="parquet", to=to, partition_by="region")
            lake.deliver("files")
            lakes[count] = lake

        def tick(lake: tidelock.Lake) -> float:
            some = [{"id": 1, "region": f"region {number}"} for number in range(3)]
            lake.run(lambda tx: tx.append("t", some))
            return seconds(lambda: lake.deliver("files"))

        pairs = [(tick(lakes[1000]), tick(lakes[3])) for _ in range(30)]
        many, few = (middle(list(one)) for one in zip(*pairs, strict=True))
        yield Claim(
            "a tick over 1,000 partitions with 3 changed against 3 partitions (medians)",
            many / few,
            2,
            detail=f"{many * 1e3:.1f} ms against {few * 1e3:.1f} ms",
        )
        for lake in lakes.values():
            lake.close()


def first_export() -> Iterator[Claim]:
    with folder() as path:
        lake = orders(path / "lake", MILLION)
        lake.optimize()
        dataset = lake.table("orders").dataset

        def ours(number: int) -> None:
            to = str(path / f"files-{number}")
            lake.create_sink(f"s{number}", table="orders", kind="parquet", to=to)
            assert lake.deliver(f"s{number}").rows == MILLION

        def bare(number: int) -> None:
            schema = pa.schema([*dataset.schema, ("_sequence", pa.int64())])
            file = path / f"bare-{number}.parquet"
            with pq.ParquetWriter(file, schema, compression="zstd", compression_level=1) as writer:
                scanner = dataset.scanner(with_row_id=True, batch_size=131_072, scan_in_order=True)
                for batch in scanner.to_batches():
                    ids = batch.column("_rowid").cast(pa.int64())
                    columns = [*batch.drop_columns(["_rowid"]).columns, ids]
                    writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))

        ours(100)
        bare(100)
        exports, bares = in_turns(ours, bare, 5)
        outside = measure_export(path / "bare-0.parquet", path / "outside")
        yield Claim(
            "first export of 1 million rows to Parquet against Lance and PyArrow bare (medians)",
            middle(exports) / middle(bares),
            1.5,
            detail=f"{middle(exports):.2f} s against {middle(bares):.2f} s. {outside}",
        )
        lake.close()


class _Receiver(BaseHTTPRequestHandler):
    """Does the least that a receiver of rows does: parses each of them."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        parsed = [json.loads(line) for line in body.splitlines()]
        assert parsed
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        return


RECEIVER = """
import sys
from http.server import ThreadingHTTPServer
from bench.sinks import _Receiver
server = ThreadingHTTPServer(("127.0.0.1", 0), _Receiver)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


def http_export() -> Iterator[Claim]:
    count = 300_000
    receiver = subprocess.Popen([sys.executable, "-c", RECEIVER], stdout=subprocess.PIPE, text=True)
    try:
        assert receiver.stdout is not None
        address = f"http://127.0.0.1:{int(receiver.stdout.readline())}/"
        with folder() as path:
            lake = orders(path / "lake", count)
            prepared = _prepared(path, lake)

            def ours(number: int) -> None:
                lake.create_sink(f"s{number}", table="orders", kind="http", to=address)
                assert lake.deliver(f"s{number}").rows == count

            ours(100)
            _post_all(address, prepared)
            exports, bares = in_turns(ours, lambda _: _post_all(address, prepared), 5)
            yield Claim(
                "HTTP export to a receiver that parses rows against a bare loop (rows per second)",
                middle(bares) / middle(exports),
                0.6,
                at_least=True,
                detail=f"{count / middle(exports):,.0f} against {count / middle(bares):,.0f}",
            )
            lake.close()
    finally:
        receiver.kill()
        receiver.wait()


def _prepared(path: Path, lake: tidelock.Lake) -> list[bytes]:
    """The bodies that a sink sends, as its files hold them."""
    to = path / "prepared"
    lake.create_sink("p", table="orders", kind="jsonl", to=str(to), rows_per_file=5000)
    lake.deliver("p")
    return [file.read_bytes() for file in sorted(to.glob("*.jsonl"))]


def _post_all(address: str, bodies: list[bytes]) -> None:
    host = address.split("/")[2]
    connection = HTTPConnection(host)
    for body in bodies:
        connection.request("POST", "/", body, {"Content-Type": "application/x-ndjson"})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200
    connection.close()


EXPORT = """
import sys, tidelock
from bench.sinks import orders
from pathlib import Path

def peak():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024

lake = tidelock.open(sys.argv[1])
lake.create_sink(sys.argv[2], table="orders", kind="parquet", to=sys.argv[1] + "-" + sys.argv[2])
lake.table("orders").to_arrow(limit=10)
idle = peak()
assert lake.deliver(sys.argv[2]).rows == lake.table("orders").count()
print(peak() - idle)
lake.close()
"""


def export_memory() -> Iterator[Claim]:
    with folder() as path:
        peaks: dict[int, list[int]] = {1: [], 20: []}
        for millions in peaks:
            lake = orders(path / str(millions), millions * MILLION)
            lake.optimize()
            lake.close()
        for number in range(3):
            for millions, found in peaks.items():
                command = [sys.executable, "-c", EXPORT, str(path / str(millions)), f"s{number}"]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                found.append(int(done.stdout))
        large, small = (middle([float(one) for one in peaks[millions]]) for millions in (20, 1))
        yield Claim(
            "peak memory of exporting 20 million rows above idle against 1 million (medians)",
            large / small,
            1.2,
            detail=f"{large / 2**20:.0f} MiB against {small / 2**20:.0f} MiB",
        )


CLAIMS = [ticks, partitions, first_export, http_export, export_memory]
