"""A real S3 server on loopback for tests: moto's, in a process of its own.

Import the fixtures into a conftest.py: `s3_server` is started once per session and ended by its own
process id; `s3_bucket` is a fresh, empty bucket for one test.

moto checks `If-None-Match` and stores the object in two steps that two threads may both take, which
S3 does not allow: as the server, this file puts a lock around them.

`LossyS3` stands between a client and the server and loses what it is told to.
"""

from __future__ import annotations

import functools
import http.client
import http.server
import itertools
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

REGION = "us-east-1"


@dataclass(frozen=True)
class S3Server:
    endpoint: str

    @property
    def storage_options(self) -> dict[str, str]:
        return {
            "aws_access_key_id": "test",
            "aws_secret_access_key": "test",
            "aws_region": REGION,
            "aws_endpoint": self.endpoint,
            "allow_http": "true",
        }

    def create_bucket(self, name: str) -> None:
        urllib.request.urlopen(
            urllib.request.Request(f"{self.endpoint}/{name}", method="PUT"), timeout=10
        ).close()

    def require_permission(self, required: bool) -> None:
        """Whether requests with credentials that the server does not know are refused."""
        count = b"0" if required else b"inf"
        request = urllib.request.Request(
            f"{self.endpoint}/moto-api/reset-auth", count, {"Content-Type": "text/plain"}
        )
        urllib.request.urlopen(request, timeout=10).close()


@contextmanager
def running_server() -> Iterator[S3Server]:
    """A server until the end of the block."""
    port = free_port()
    environment = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    process = subprocess.Popen(
        [sys.executable, __file__, str(port)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        server = S3Server(f"http://127.0.0.1:{port}")
        _await_answer(server.endpoint, process)
        yield server
    finally:
        process.terminate()
        process.wait(timeout=30)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    with running_server() as server:
        yield server


_bucket_numbers = itertools.count(1)


@pytest.fixture
def s3_bucket(s3_server: S3Server) -> str:
    name = f"bucket-{os.getpid()}-{next(_bucket_numbers)}"
    s3_server.create_bucket(name)
    return name


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await_answer(endpoint: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"The S3 server ended with {process.returncode} before it answered.")
        try:
            urllib.request.urlopen(f"{endpoint}/moto-api/", timeout=5).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError("The S3 server did not answer within a minute.")


class LossyS3:
    """A proxy that meets the next PUTs with the faults in `faults`, then passes all on.

    `lost` forwards the request and answers 500 in place of the server; `conflict` answers 409
    without forwarding, as S3 does when a delete of the same key is under way.
    """

    def __init__(self, server: S3Server) -> None:
        self.faults: list[str] = []
        self._target = server.endpoint.removeprefix("http://")
        self._httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._httpd.serve_forever)

    def __enter__(self) -> S3Server:
        self._thread.start()
        return S3Server(f"http://127.0.0.1:{self._httpd.server_address[1]}")

    def __exit__(self, *_: object) -> None:
        self._httpd.shutdown()
        self._httpd.server_close()
        self._thread.join()

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        lossy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                fault = lossy.faults.pop(0) if self.command == "PUT" and lossy.faults else None
                if fault == "conflict":
                    self.reply(409, b"<Error><Code>ConditionalRequestConflict</Code></Error>")
                    return
                connection = http.client.HTTPConnection(lossy._target, timeout=30)
                connection.request(self.command, self.path, body, dict(self.headers.items()))
                answer = connection.getresponse()
                data = answer.read()
                connection.close()
                if fault == "lost":
                    self.reply(500, b"<Error><Code>InternalError</Code></Error>")
                else:
                    self.reply(answer.status, data, answer.headers.items())

            def reply(self, status, body, headers=()) -> None:  # type: ignore[no-untyped-def]
                self.send_response(status)
                told = {name.lower(): value for name, value in headers}
                size = told.get("content-length") if self.command == "HEAD" else None
                length = "Content-Length", size or str(len(body))
                passed = ("etag", "last-modified", "content-range")
                kept = [h for h in headers if h[0].lower() in passed]
                for name, value in (*kept, length, ("Connection", "close")):
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer

            def log_message(self, *_: object) -> None: ...

        return Handler


def _serve(port: str) -> None:
    from moto.s3.responses import S3Response
    from moto.server import main

    lock = threading.Lock()
    put_object = S3Response.put_object

    @functools.wraps(put_object)
    def put_one_at_a_time(self: S3Response) -> object:
        with lock:
            return put_object(self)

    S3Response.put_object = put_one_at_a_time
    main(["-H", "127.0.0.1", "-p", port])


if __name__ == "__main__":
    _serve(sys.argv[1])
