"""HTTP as a destination: each chunk is posted as lines of JSON, under a key of its own.

    POST <to>
    Content-Type: application/x-ndjson
    Idempotency-Key: <id>            the same for the same rows, however often they are sent
    Tidelock-Sink, -Table, -Feed, -Partition, -Range, -Rows, -Generation

A chunk is at most 5,000 rows and 4 MiB. One with a larger body goes in pieces `<id>.1`, `<id>.2`,
…: as many whole lines as fit; a line that is larger goes alone. Names and ids are ASCII, with
percent-encoding as in URLs.

| answer | what is done |
|---|---|
| 2xx | it is taken |
| 429, 503 | waited as asked, 10 s in all for a chunk; beyond that, the partition waits |
| 401 | credentials are read again, once, and it is sent again |
| 307, 308 | followed, five times; credentials do not go to another host |
| 408, 425, 5xx, other 3xx, none | the partition waits and tries again |
| other 4xx | refused: put aside, and the next is sent |

Law: the destination keeps what it has by key: one that was taken, and sent again because the answer
was lost, must not be taken twice. Pieces follow from the rows alone, so that key and body agree.
Invariant: no secret is in an error, an answer that is kept, or a log.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.client import HTTPException, responses
from itertools import chain
from typing import Literal
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

import numpy as np
import pyarrow as pa
import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NewConnectionError,
    ReadTimeoutError,
    SSLError,
)

from tidelock.deliver.destinations.http.retry_after import inline_seconds, seconds_asked
from tidelock.deliver.destinations.http.settings import Credentials, HttpSettings, keeps_credentials
from tidelock.deliver.destinations.protocol import Piece, SentChunk, Sink, Terms
from tidelock.errors import ChunkRefused, DestinationFailed, InvalidOption
from tidelock.model.sinks import DeliveryPlan, SinkDefinition, SinkState
from tidelock.store.objects.failpoints import hit
from tidelock.store.rows.json_values import encode_lines, lay_out

BODY_BYTES_MAX = 4 * 1024 * 1024
SEND_BYTES = 256 * 1024
"""How much is handed to the socket at once: each has the time of a connection to get through."""
CONNECT_SECONDS = 10.0
REDIRECTS_MAX = 5
READ_BYTES_MAX = 64 * 1024
ANSWER_LENGTH_MAX = 2000
LOOK_SECONDS = 0.05
"""How often a wait looks whether it is to end."""
# Printable ASCII but the space. Paths are percent-encoded already, and are not encoded twice.
_SAFE = "".join(chr(code) for code in range(0x21, 0x7F))

Verdict = Literal["taken", "busy", "unauthorized", "failed", "refused"]


def verdict_on(status: int) -> Verdict:
    """What an answer means for the chunk."""
    if 200 <= status < 300:
        return "taken"
    if status in (429, 503):
        return "busy"
    if status == 401:
        return "unauthorized"
    if 400 <= status < 500 and status not in (408, 425):
        return "refused"
    return "failed"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the destination answered, without secrets."""

    status: int
    text: str
    retry_after_seconds: float | None
    location: str | None = None

    def __str__(self) -> str:
        said = f": {self.text}" if self.text else ""
        return f"{self.status} {responses.get(self.status, '')}".rstrip() + said


@dataclass
class HttpSink(Sink):
    """An address that each chunk is posted to.

    Owns: the requests, what their answers mean, and the credentials that go with them.
    """

    definition: SinkDefinition
    settings: HttpSettings
    _terms: Terms = field(default_factory=Terms)
    _credentials: Credentials | None = None
    _pool: urllib3.PoolManager = field(init=False)
    _waited: tuple[str, float] = ("", 0.0)
    """For how long was waited inline, and for which chunk."""

    def __post_init__(self) -> None:
        self.rows_per_chunk = self.settings.rows_per_chunk
        self._constant = self._about()
        self._pool = urllib3.PoolManager(
            cert_reqs="CERT_REQUIRED", ca_certs=self.settings.ca_file, retries=False
        )

    @classmethod
    def open(cls, definition: SinkDefinition) -> HttpSink:
        return cls(definition, HttpSettings.of(definition.to, definition.options))

    def accept(self, terms: Terms) -> None:
        self._terms = terms

    def in_pieces(self) -> HttpSink:
        return self

    def plan(self, plan: DeliveryPlan, schema: pa.Schema) -> None:
        return

    def write(self, chunk: SentChunk, rows: Iterator[pa.RecordBatch]) -> int:
        return sum(self.send(chunk, piece) for piece in self.divide(chunk, rows))

    def confirm(self, plan: DeliveryPlan, state: SinkState) -> None:
        return

    def close(self) -> None:
        self._pool.clear()

    def divide(self, chunk: SentChunk, rows: Iterator[pa.RecordBatch]) -> Iterator[Piece]:
        bodies = divide_lines(rows, BODY_BYTES_MAX)
        first, second = next(bodies, None), next(bodies, None)
        if first is None:
            return
        if second is None:
            yield Piece(chunk.id, *first)
            return
        for number, (count, body) in enumerate(chain([first, second], bodies), 1):
            yield Piece(f"{chunk.id}.{number}", count, body)

    def send(self, chunk: SentChunk, piece: Piece) -> int:
        headers = self._headers(chunk, piece)
        tries, renewed = 0, False
        while True:
            answer = self._post(headers, piece.body)
            tries += 1
            verdict = verdict_on(answer.status)
            if verdict == "taken":
                return len(piece.body)
            if verdict == "busy":
                self._wait(chunk, answer, tries)
            elif verdict == "unauthorized" and not renewed and self.settings.has_credentials:
                # What is referred to may have been changed since it was read.
                self._credentials, renewed = self._read_credentials(), True
            elif verdict == "refused":
                raise self._refused(piece, answer)
            else:
                raise self._failed(f"answered {answer}", answer)

    def _about(self) -> dict[str, str]:
        """The headers that every request has."""
        named = {name.lower() for name in self.settings.headers}
        return {
            **({} if "user-agent" in named else {"User-Agent": "tidelock"}),
            **self.settings.headers,
            "Content-Type": "application/x-ndjson",
            "Tidelock-Sink": _ascii(self.definition.name),
            "Tidelock-Table": _ascii(self.definition.table),
            "Tidelock-Feed": self.definition.feed,
        }

    def _headers(self, chunk: SentChunk, piece: Piece) -> dict[str, str]:
        return {
            **self._constant,
            "Idempotency-Key": _ascii(piece.id),
            "Tidelock-Partition": _ascii(chunk.path),
            "Tidelock-Range": chunk.range,
            "Tidelock-Rows": str(piece.rows),
            "Tidelock-Generation": str(chunk.generation),
            "Content-Length": str(len(piece.body)),
        }

    # Asking

    def _post(self, headers: dict[str, str], body: bytes) -> Answer:
        """Post to the address, and to where it leads."""
        url, credentials = self.settings.to, self._known_credentials().headers
        for _ in range(REDIRECTS_MAX + 1):
            answer = self._exchange(url, {**headers, **credentials}, body)
            if not 300 <= answer.status < 400:
                return answer
            target = self._target(url, answer)
            if not keeps_credentials(url, target):
                credentials = {}
            url = target
        raise self._failed(f"leads from one address to the next, more than {REDIRECTS_MAX} times")

    def _target(self, url: str, answer: Answer) -> str:
        try:
            target = urljoin(url, answer.location or "")
            shown = _shown(target)
        except ValueError:
            target = shown = ""
        if answer.status not in (307, 308):
            where = f" and leads to {shown}" if answer.location else ""
            raise self._failed(
                f"answered {answer}{where}. Only 307 and 308 let a POST be sent there; give the "
                "address that takes it as `to`",
                answer,
            )
        if not answer.location or not target.startswith(("http://", "https://")):
            raise self._failed(f"answered {answer.status} without an address to go to", answer)
        return target

    def _exchange(self, url: str, headers: dict[str, str], body: bytes) -> Answer:
        hit("http.before_request")
        self._terms.guard()
        view = memoryview(body)
        blocks = [view[at : at + SEND_BYTES] for at in range(0, len(body), SEND_BYTES)]
        try:
            response = self._pool.urlopen(
                "POST",
                url,
                body=blocks,
                headers=headers,
                redirect=False,
                preload_content=False,
                timeout=urllib3.Timeout(
                    connect=CONNECT_SECONDS, read=self.settings.timeout_seconds
                ),
            )
            try:
                return self._read(response)
            finally:
                response.close()
        except (HTTPError, HTTPException, OSError, ValueError) as error:
            # Not chained: what the client says of a request may hold its headers.
            raise self._failed(self._reason(error)) from None

    def _read(self, response: urllib3.BaseHTTPResponse) -> Answer:
        raw = response.read(READ_BYTES_MAX, decode_content=False)
        if len(raw) < READ_BYTES_MAX:
            response.release_conn()
        headers = response.headers
        return Answer(
            response.status,
            self._shorten(raw),
            seconds_asked(headers.get("Retry-After"), datetime.now(UTC), headers.get("Date")),
            headers.get("Location"),
        )

    def _shorten(self, raw: bytes) -> str:
        credentials = self._known_credentials()
        text = credentials.scrub(raw.decode("utf-8", "replace"))
        if len(raw) == READ_BYTES_MAX:
            # The end may be the beginning of a secret.
            text = text[: len(text) - credentials.longest]
        text = "".join(sign if sign.isprintable() else " " for sign in text).strip()
        return text if len(text) <= ANSWER_LENGTH_MAX else f"{text[:ANSWER_LENGTH_MAX]}…"

    # Waiting and failing

    def _wait(self, chunk: SentChunk, answer: Answer, tries: int) -> None:
        """Wait as the destination asks; DestinationFailed when that is too long."""
        waited = self._waited[1] if self._waited[0] == chunk.id else 0.0
        asked = answer.retry_after_seconds
        seconds = inline_seconds(asked, tries, waited)
        if seconds is None:
            raise self._failed(f"answered {answer}", answer)
        self._waited = (chunk.id, waited + seconds)
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._terms.stopped():
                raise self._failed(f"answered {answer}, and the wait was ended", answer)
            time.sleep(min(left, LOOK_SECONDS))

    def _known_credentials(self) -> Credentials:
        if self._credentials is None:
            self._credentials = self._read_credentials()
        return self._credentials

    def _read_credentials(self) -> Credentials:
        try:
            found = self.settings.credentials()
        except InvalidOption as error:
            raise DestinationFailed(
                f"Sink {self.definition.name!r} has no credentials: {error.message} It is tried "
                "again.",
                sink=self.definition.name,
            ) from None
        return found.after(self._credentials or found)

    def _reason(self, error: Exception) -> str:
        if isinstance(error, NewConnectionError):
            return f"could not be reached: {error.__cause__ or 'no connection'}"
        if isinstance(error, ConnectTimeoutError):
            return f"could not be reached within {CONNECT_SECONDS:g} s"
        if isinstance(error, ReadTimeoutError | TimeoutError):
            return f"did not answer within {self.settings.timeout_seconds:g} s"
        if isinstance(error, SSLError):
            return (
                f"could not be trusted: {error}. If its certificate is signed by an authority of "
                "your own, name that with ca_file"
            )
        return f"closed the connection or broke off: {error}"

    def _failed(self, what: str, answer: Answer | None = None) -> DestinationFailed:
        said = self._credentials.scrub(what) if self._credentials else what
        evidence = {} if answer is None else {"status": answer.status, "answer": answer.text}
        if answer is not None and answer.retry_after_seconds:
            evidence["retry_after_seconds"] = answer.retry_after_seconds
        return DestinationFailed(
            f"{self.definition.to} {said}. It is tried again.",
            sink=self.definition.name,
            **evidence,
        )

    def _refused(self, piece: Piece, answer: Answer) -> ChunkRefused:
        return ChunkRefused(
            f"{self.definition.to} refused chunk {piece.id} with {answer}.",
            sink=self.definition.name,
            status=answer.status,
            answer=answer.text,
            id=piece.id,
            rows=piece.rows,
            body=piece.body,
        )


def divide_lines(
    rows: Iterator[pa.RecordBatch], size_bytes_max: int
) -> Iterator[tuple[int, bytes]]:
    """Rows as bodies, each with its number of rows.

    Law: a body is as many lines as fit, at least one; batches do not matter.
    """
    held: list[memoryview] = []
    held_rows = held_bytes = 0
    for batch in rows:
        for some in _bounded(batch, size_bytes_max):
            lines, bounds = lay_out(encode_lines(some))
            begin = 0
            while begin < some.num_rows:
                room = int(bounds[begin]) + size_bytes_max - held_bytes
                end = int(np.searchsorted(bounds, room, side="right")) - 1
                if end <= begin and held_rows:
                    yield held_rows, b"".join(held)
                    held, held_rows, held_bytes = [], 0, 0
                    continue
                end = max(end, begin + 1)
                held.append(lines[int(bounds[begin]) : int(bounds[end])])
                held_rows += end - begin
                held_bytes += int(bounds[end] - bounds[begin])
                begin = end
    if held_rows:
        yield held_rows, b"".join(held)


def _bounded(batch: pa.RecordBatch, size_bytes: int) -> Iterator[pa.RecordBatch]:
    """A batch in slices that take about so much memory."""
    count = max(1, batch.num_rows * size_bytes // max(1, batch.nbytes))
    for begin in range(0, batch.num_rows, count):
        yield batch.slice(begin, count)


def _ascii(text: str) -> str:
    return quote(text, safe=_SAFE)


def _shown(url: str) -> str:
    """An address without what may be secret in it."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))
