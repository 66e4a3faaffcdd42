"""A small S3 server on loopback that takes as long as it is told to, and tells what it was asked.

It keeps objects in memory, in a process of its own, and answers what obstore and Lance ask: put
(create-only too), get (ranges too), head, delete, delete of many, list, and uploads in parts. It
passes the contract suite of object stores, like every other store here. `moto`'s server is the
more faithful one; this one costs a fraction of a millisecond per request, so that with a delay the
time that something takes is that of the requests which came one after the other.

    with counted_server() as server:
        server.delay(0.03)
        with server.counted() as asked: ...
        asked.requests, asked.chain
"""

from __future__ import annotations

import asyncio
import base64
import bisect
import hashlib
import html
import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

import pytest
from tests.support.s3_server import S3Server, free_port

CONTROL = "/~"
LISTED_MAX = 1000


@dataclass(frozen=True, slots=True)
class Request:
    """One request, and when it was there, by the clock of the machine."""

    method: str
    key: str
    began: float
    ended: float

    def __str__(self) -> str:
        return f"{self.method} {self.key}"


@dataclass
class Asked:
    """What was asked of the server during a block."""

    requests: list[Request] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.requests)

    @property
    def chain(self) -> int:
        """How many requests came one after the other, at most."""
        return len(self.longest)

    @property
    def longest(self) -> list[Request]:
        """The longest chain of requests of which each began when the one before had ended."""
        chain: list[Request] = []
        for one in sorted(self.requests, key=lambda request: request.ended):
            if not chain or one.began >= chain[-1].ended:
                chain.append(one)
        return chain

    def about(self, place: str) -> Asked:
        """Those about a bucket and what is in it; the leases of other handles are not in it."""
        bucket = place.split("/")[1]
        kept = [one for one in self.requests if re.match(rf"/{bucket}[/?]", one.key)]
        return Asked(kept)

    def count(self, method: str = "", part: str = "") -> int:
        return sum(one.method.startswith(method) and part in one.key for one in self.requests)

    def told(self) -> str:
        """Every request, for whoever reads why a test failed."""
        first = min((one.began for one in self.requests), default=0.0)
        lines = [
            f"{(one.began - first) * 1e3:8.1f} {(one.ended - first) * 1e3:8.1f}  {one}"
            for one in sorted(self.requests, key=lambda request: request.began)
        ]
        return "\n".join(lines)


@dataclass(frozen=True)
class CountedServer(S3Server):
    """The server, as its tests see it."""

    def delay(self, seconds: float) -> None:
        """Let every answer take at least this long."""
        self._control("delay", seconds)

    def load(self, folder: Path, bucket: str, prefix: str) -> None:
        """Put a copy of the files below a folder into a bucket."""
        self._control("load", {"folder": str(folder), "bucket": bucket, "prefix": prefix})

    def taken(self) -> list[Request]:
        """What was asked since this was last asked."""
        return [Request(*one) for one in self._control("requests", None)]

    @contextmanager
    def counted(self) -> Iterator[Asked]:
        """Count what is asked during the block; what is still under way at its end is not."""
        asked = Asked()
        self.taken()
        yield asked
        asked.requests.extend(self.taken())

    def _control(self, what: str, value: object) -> list[list[object]]:
        request = urllib.request.Request(
            f"{self.endpoint}{CONTROL}{what}", json.dumps(value).encode(), method="POST"
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())  # type: ignore[no-any-return]


@contextmanager
def counted_server() -> Iterator[CountedServer]:
    """A server until the end of the block."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "tests.support.counted_s3", str(port)])
    try:
        server = CountedServer(f"http://127.0.0.1:{port}")
        _await_answer(server, process)
        yield server
    finally:
        process.terminate()
        process.wait(timeout=30)


@pytest.fixture(scope="session")
def counted_s3() -> Iterator[CountedServer]:
    with counted_server() as server:
        yield server


def _await_answer(server: CountedServer, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError):
            server.delay(0)
            return
        time.sleep(0.02)
    raise RuntimeError("The counted S3 server did not start.")


# --------------------------------------------------------------------------------------------------
# The server
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Kept:
    data: bytes
    modified: float
    etag: str


@dataclass
class _Bucket:
    objects: dict[str, _Kept] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    """The keys in order."""
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)

    def put(self, key: str, data: bytes) -> _Kept:
        if key not in self.objects:
            bisect.insort(self.names, key)
        digest = hashlib.md5(data, usedforsecurity=False).hexdigest()
        kept = self.objects[key] = _Kept(data, time.time(), f'"{digest}"')
        return kept

    def delete(self, key: str) -> None:
        if self.objects.pop(key, None) is not None:
            del self.names[bisect.bisect_left(self.names, key)]


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


def _error(status: int, code: str) -> _Answer:
    return _Answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())


class _Server:
    def __init__(self) -> None:
        self.buckets: dict[str, _Bucket] = {}
        self.delay_seconds = 0.0
        self.requests: list[tuple[str, str, float, float]] = []

    async def serve(self, port: int) -> None:
        server = await asyncio.start_server(self.connected, "127.0.0.1", port, limit=1 << 20)
        async with server:
            await server.serve_forever()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                began = time.monotonic()
                line, *lines = head.split("\r\n")
                method, target, _ = line.split(" ", 2)
                headers = {
                    name.lower(): value.strip()
                    for name, _, value in (one.partition(":") for one in lines if one)
                }
                size = int(headers.get("content-length", "0"))
                body = await reader.readexactly(size) if size else b""
                control = target.startswith(CONTROL)
                if self.delay_seconds and not control:
                    await asyncio.sleep(self.delay_seconds)
                if control:
                    answer = self.control(target.removeprefix(CONTROL), json.loads(body))
                else:
                    answer = self.answer(method, target, headers, body)
                writer.write(_encoded(answer, method))
                await writer.drain()
                if not control:
                    self.requests.append((method, unquote(target), began, time.monotonic()))
        writer.close()

    def control(self, what: str, value: object) -> _Answer:
        told: list[object] = []
        if what == "delay" and isinstance(value, int | float):
            self.delay_seconds = value
        elif what == "requests":
            told, self.requests = list(self.requests), []
        elif what == "load" and isinstance(value, dict):
            bucket = self.buckets.setdefault(value["bucket"], _Bucket())
            root = Path(value["folder"])
            for path in root.rglob("*"):
                if path.is_file():
                    bucket.put(f"{value['prefix']}/{path.relative_to(root)}", path.read_bytes())
        return _Answer(200, json.dumps(told).encode())

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> _Answer:
        parts = urlsplit(target)
        name, _, key = unquote(parts.path).removeprefix("/").partition("/")
        query = {k: v[0] for k, v in parse_qs(parts.query, keep_blank_values=True).items()}
        if not key and method == "PUT":
            self.buckets.setdefault(name, _Bucket())
            return _Answer()
        bucket = self.buckets.get(name)
        if bucket is None:
            return _error(404, "NoSuchBucket")
        if not key:
            return _delete_many(bucket, body) if method == "POST" else _list(bucket, name, query)
        if "uploads" in query or "uploadId" in query:
            return _upload(bucket, method, key, query, body)
        if method == "PUT":
            if headers.get("if-none-match") == "*" and key in bucket.objects:
                return _error(412, "PreconditionFailed")
            return _Answer(headers=(("ETag", bucket.put(key, body).etag),))
        if method == "DELETE":
            bucket.delete(key)
            return _Answer(204)
        kept = bucket.objects.get(key)
        return _error(404, "NoSuchKey") if kept is None else _get(kept, headers.get("range"))


def _encoded(answer: _Answer, method: str) -> bytes:
    told = dict(answer.headers)
    told.setdefault("Content-Length", str(len(answer.body)))
    lines = [f"HTTP/1.1 {answer.status} OK", *(f"{name}: {value}" for name, value in told.items())]
    head = "\r\n".join([*lines, "", ""]).encode("latin-1")
    return head if method == "HEAD" or answer.status == 204 else head + answer.body


def _get(kept: _Kept, span: str | None) -> _Answer:
    headers = [("ETag", kept.etag), ("Last-Modified", formatdate(kept.modified, usegmt=True))]
    if span is None:
        return _Answer(200, kept.data, tuple(headers))
    found = re.fullmatch(r"bytes=(\d*)-(\d*)", span)
    size = len(kept.data)
    if found is None:
        return _error(400, "InvalidArgument")
    first, last = found.groups()
    start = int(first) if first else max(0, size - int(last))
    stop = min(size, int(last) + 1) if first and last else size
    if start >= size:
        return _error(416, "InvalidRange")
    headers.append(("Content-Range", f"bytes {start}-{stop - 1}/{size}"))
    return _Answer(206, kept.data[start:stop], tuple(headers))


def _list(bucket: _Bucket, name: str, query: dict[str, str]) -> _Answer:
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    after = query.get("start-after", "")
    if "continuation-token" in query:
        after = base64.urlsafe_b64decode(query["continuation-token"]).decode()
    most = min(LISTED_MAX, int(query.get("max-keys", LISTED_MAX)))
    contents: list[str] = []
    prefixes: dict[str, None] = {}
    last = ""
    truncated = False
    place = max(bisect.bisect_left(bucket.names, prefix), bisect.bisect_right(bucket.names, after))
    while place < len(bucket.names) and bucket.names[place].startswith(prefix):
        if len(contents) + len(prefixes) == most:
            truncated = True
            break
        key = last = bucket.names[place]
        folder, found, _ = key.removeprefix(prefix).partition(delimiter) if delimiter else ("",) * 3
        if found:
            last = prefix + folder + delimiter
            prefixes[last] = None
            # To the first key that is not below it.
            last += "\U0010ffff"
            place = bisect.bisect_right(bucket.names, last)
            continue
        kept = bucket.objects[key]
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(kept.modified))
        contents.append(
            f"<Contents><Key>{escape(key)}</Key><LastModified>{stamp}</LastModified>"
            f"<ETag>{escape(kept.etag)}</ETag><Size>{len(kept.data)}</Size></Contents>"
        )
        place += 1
    common = "".join(
        f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in prefixes
    )
    token = base64.urlsafe_b64encode(last.encode()).decode()
    more = f"<NextContinuationToken>{token}</NextContinuationToken>" if truncated else ""
    text = (
        f"<ListBucketResult><Name>{name}</Name><KeyCount>{len(contents) + len(prefixes)}</KeyCount>"
        f"<IsTruncated>{str(truncated).lower()}</IsTruncated>{more}{''.join(contents)}{common}"
        "</ListBucketResult>"
    )
    return _Answer(200, text.encode())


def _delete_many(bucket: _Bucket, body: bytes) -> _Answer:
    keys = [html.unescape(one) for one in re.findall(r"<Key>(.*?)</Key>", body.decode(), re.DOTALL)]
    for key in keys:
        bucket.delete(key)
    told = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
    return _Answer(200, f"<DeleteResult>{told}</DeleteResult>".encode())


def _upload(bucket: _Bucket, method: str, key: str, query: dict[str, str], body: bytes) -> _Answer:
    if "uploads" in query:
        upload_id = f"u{len(bucket.uploads)}-{time.monotonic_ns()}"
        bucket.uploads[upload_id] = {}
        return _told("InitiateMultipartUploadResult", UploadId=upload_id)
    parts = bucket.uploads.get(query["uploadId"])
    if parts is None:
        return _error(404, "NoSuchUpload")
    if method == "PUT":
        parts[int(query["partNumber"])] = body
        digest = hashlib.md5(body, usedforsecurity=False).hexdigest()
        return _Answer(headers=(("ETag", f'"{digest}"'),))
    del bucket.uploads[query["uploadId"]]
    if method == "DELETE":
        return _Answer(204)
    kept = bucket.put(key, b"".join(parts[number] for number in sorted(parts)))
    return _told("CompleteMultipartUploadResult", Key=quote(key), ETag=escape(kept.etag))


def _told(what: str, **values: str) -> _Answer:
    inside = "".join(f"<{name}>{value}</{name}>" for name, value in values.items())
    return _Answer(200, f"<{what}>{inside}</{what}>".encode())


if __name__ == "__main__":
    asyncio.run(_Server().serve(int(sys.argv[1])))
