"""A receiver of http sinks: a real server on this machine, that misbehaves on command.

It keeps what it takes by Idempotency-Key, as a good receiver does, and remembers every request.
What it does with the next request is told by `then`, or for each request by a rule.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import ssl
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

from tidelock import Lake
from tidelock.model.sinks import SinkDefinition


@dataclass(frozen=True)
class Do:
    """What to do with one request. `keeps` None: keep what is answered with 2xx."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    keeps: bool | None = None
    drop: Literal["", "unread", "read"] = ""
    """Close the connection before or after the body was read, and answer nothing."""
    seconds: float = 0.0
    """How long to take before answering."""


KEEP = Do()


def busy(after: str | None = "0", status: int = 429) -> Do:
    return Do(status, () if after is None else (("Retry-After", after),))


@dataclass(frozen=True)
class Request:
    path: str
    headers: dict[str, str]
    """By names in lower case."""
    body: bytes
    time: float

    @property
    def key(self) -> str:
        return self.headers["idempotency-key"]

    @property
    def partition(self) -> str:
        return self.headers["tidelock-partition"]


@dataclass
class Receiver:
    url: str
    rule: Callable[[Request], Do | None] = lambda request: None
    requests: list[Request] = field(default_factory=list)
    kept: dict[str, bytes] = field(default_factory=dict)
    unequal: list[str] = field(default_factory=list)
    """Keys that came with two bodies."""
    commands: deque[Do] = field(default_factory=deque)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def then(self, *commands: Do) -> None:
        self.commands.extend(commands)

    def decide(self, request: Request) -> Do:
        with self.lock:
            command = self.commands.popleft() if self.commands else self.rule(request)
            return command or KEEP

    def take(self, request: Request, command: Do) -> None:
        keeps = 200 <= command.status < 300 if command.keeps is None else command.keeps
        with self.lock:
            self.requests.append(request)
            if self.kept.get(request.key, request.body) != request.body:
                self.unequal.append(request.key)
            if keeps:
                self.kept.setdefault(request.key, request.body)

    def rows(self) -> list[dict[str, Any]]:
        """Every row that was kept, in the order in which it came."""
        with self.lock:
            bodies = list(self.kept.values())
        return [json.loads(line) for body in bodies for line in body.splitlines()]

    def bodies_by_key(self) -> dict[str, set[bytes]]:
        found: dict[str, set[bytes]] = {}
        for request in self.requests:
            found.setdefault(request.key, set()).add(request.body)
        return found

    def sequences(self) -> Counter[int]:
        return Counter(row["_sequence"] for row in self.rows())


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    receiver: Receiver

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that is gone is what the tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        receiver = self.server.receiver
        headers = {name.lower(): value for name, value in self.headers.items()}
        early = Request(self.path, headers, b"", time.monotonic())
        command = receiver.decide(early)
        if command.drop == "unread":
            self.close_connection = True
            return
        body = self.rfile.read(int(headers["content-length"]))
        receiver.take(Request(self.path, headers, body, early.time), command)
        time.sleep(command.seconds)
        if command.drop == "read":
            self.close_connection = True
            return
        self.send_response(command.status)
        for name, value in command.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(command.body)))
        self.end_headers()
        self.wfile.write(command.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the requests are remembered."""


@contextmanager
def receiving(certificate: tuple[Path, Path] | None = None) -> Iterator[Receiver]:
    """A receiver on a port of its own; with a certificate and its key, over https."""
    server = _Server(("127.0.0.1", 0), _Handler)
    scheme = "http"
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "https"
    server.receiver = Receiver(f"{scheme}://127.0.0.1:{server.server_address[1]}/rows")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server.receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that nobody signed but itself, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    certificate_path, key_path = folder / "certificate.pem", folder / "key.pem"
    certificate_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate_path, key_path


# Lakes whose table `t` is sent to a receiver


def add(lake: Lake, first: int, count: int, places: int = 4) -> None:
    rows = [{"id": one, "place": f"p{one % places}"} for one in range(first, first + count)]
    lake.run(lambda tx: tx.append("t", rows))


def check_equal(lake: Lake, receiver: Receiver) -> None:
    """What the receiver kept is what the lake has: by row, by count, and each key with one body."""
    page = lake.read_since("t", limit=1_000_000)
    expected = Counter(page.rows.column("_sequence").to_pylist())
    assert receiver.sequences() == expected
    wanted = Counter((row["id"], row["place"]) for row in page.rows.to_pylist())
    assert Counter((row["id"], row["place"]) for row in receiver.rows()) == wanted
    assert receiver.unequal == []
    assert all(len(bodies) == 1 for bodies in receiver.bodies_by_key().values())


def define(name: str, kind: str, to: str) -> SinkDefinition:
    """A sink of inserted rows that no lake knows."""
    return SinkDefinition(
        name=name,
        id=f"{name}-1",
        table="t",
        table_id="t-1",
        branch="main",
        branch_id="main-1",
        kind=kind,
        to=to,
        feed="inserts",
        partition_by=(),
        schedule=None,
        start=-1,
        snapshot=None,
        hold_seconds=0.0,
        options={},
        actor="a",
        created=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    )
