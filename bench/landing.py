"""Landing places: what a round costs over files that were taken before, and how fast files are
taken.

The ledger is filled with what a listing tells, as if each file had been taken. A bucket is a server
on loopback that answers listings of a thousand objects a page from memory, each after as long as S3
takes at its best: an S3 of moto sorts all keys for each page, which would be all that is measured.
"""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa

import tidelock
from bench.measure import Claim, folder, middle, seconds
from tidelock import Lake
from tidelock.ingest.landing import discovery
from tidelock.ingest.landing.pattern import parse_path
from tidelock.ingest.landing.places import Before, Bucket, Folder, Place, open_place
from tidelock.ingest.ledger import ENTRIES

MANY, FEW = 100_000, 1_000
TIMES = 7
PAGE = 1_000
ANSWER_SECONDS = 0.03
TAKEN = 2_000
ROWS_PER_FILE = 10


def follow(lake: Lake, name: str, path: str, options: dict[str, object]) -> None:
    """A source of files all of which were taken before."""
    lake.create_source(name, kind="files", path=path, table="t", schema="id BIGINT", **options)
    place = open_place(parse_path(path), _storage(options))
    listing = pa.concat_tables(place.pages())
    definition = lake._sources.registry.definition(name)
    entries = pa.table(
        [listing.column("name"), listing.column("mark"), pa.array(["{}"] * listing.num_rows)],
        schema=ENTRIES,
    )
    with lake._store.begin("main", message=f"{name} as taken") as transaction:
        transaction.note_entries(definition.ledger, entries)
        transaction.move_position(definition.ledger, "", "1")


def _storage(options: dict[str, object]) -> dict[str, str]:
    given = options.get("storage_options", {})
    assert isinstance(given, dict)
    return {key: "x" if "access_key" in key else value for key, value in given.items()}


@dataclass
class Round:
    """What one round took, and what of it was the listing."""

    total: float
    listing: float

    @property
    def rest(self) -> float:
        return self.total - self.listing


def measured(lake: Lake, name: str, *, anew: bool) -> Round:
    """A round in which there is nothing to take; `anew` as in a process that saw none before."""
    if anew:
        discovery._memories.clear()
    listing = 0.0

    def timed(pages: Callable[[Place, str, Before], list[pa.Table]]) -> Any:
        def listed(place: Place, after: str, before: Before) -> list[pa.Table]:
            nonlocal listing
            began = time.perf_counter()
            found = pages(place, after, before)
            listing += time.perf_counter() - began
            return found

        return listed

    kept = {kind: kind.pages for kind in (Folder, Bucket)}
    for kind, pages in kept.items():
        kind.pages = timed(pages)
    try:
        began = time.perf_counter()
        assert lake.ingest(name).action == "idle"
        return Round(time.perf_counter() - began, listing)
    finally:
        for kind, pages in kept.items():
            kind.pages = pages


def rounds(lake: Lake, what: str, *, with_listing: bool) -> Iterator[Claim]:
    for anew in (True, False):
        pairs = [
            [measured(lake, name, anew=anew) for name in ("many", "few")]
            for _ in range(TIMES * (1 if anew else 3) + 1)
        ][1:]
        many, few = ([pair[n] for pair in pairs] for n in range(2))
        total = [middle([one.total for one in ones]) for ones in (many, few)]
        # The quickest: it is a few milliseconds, and what else the machine does is not meant.
        rest = [min(one.rest for one in ones) for ones in (many, few)]
        listing = [middle([one.listing for one in ones]) for ones in (many, few)]
        detail = (
            f"{total[0] * 1000:.0f} ms against {total[1] * 1000:.0f} ms, of which listing "
            f"{listing[0] * 1000:.0f} and {listing[1] * 1000:.0f} ms; quickest without it "
            f"{rest[0] * 1000:.1f} and {rest[1] * 1000:.1f} ms"
        )
        if not anew and not with_listing:
            yield Claim(
                f"a round over {MANY:,} known files in {what} in which nothing changed, against "
                "the listing alone",
                total[0] / listing[0],
                1.2,
                detail=detail,
            )
            continue
        if not anew:
            yield Claim(
                f"the same when nothing has changed since the last round, in {what}, apart from "
                "the listing",
                rest[0] / rest[1],
                1.2,
                detail=detail,
            )
            continue
        apart = "in all" if with_listing else "apart from the listing"
        chosen = total if with_listing else rest
        yield Claim(
            f"a round over {MANY:,} known files in {what} against {FEW:,}, {apart}",
            chosen[0] / chosen[1],
            20.0,
            detail=detail,
        )


def known_files() -> Iterator[Claim]:
    with folder(steady=True) as path, tidelock.open(path / "lake", create=True) as lake:
        for name, count in (("many", MANY), ("few", FEW)):
            for number in range(count):
                part = path / name / f"part={number // 10_000}"
                if number % 10_000 == 0:
                    part.mkdir(parents=True)
                (part / f"{number:06}.json").touch()
        time.sleep(2.1)
        for name in ("many", "few"):
            follow(lake, name, f"{path}/{name}/**/*.json", {})
        # A file system is asked for each file: how long that takes is up to it.
        yield from rounds(lake, "a folder", with_listing=False)


def known_objects() -> Iterator[Claim]:
    with (
        folder(steady=True) as path,
        listing_server() as endpoint,
        tidelock.open(path / "lake", create=True) as lake,
    ):
        secret = Path(path, "secret")
        secret.write_text("x")
        options = {
            "storage_options": {
                "aws_access_key_id": f"file:{secret}",
                "aws_secret_access_key": f"file:{secret}",
                "aws_endpoint": endpoint,
                "aws_region": "us-east-1",
                "allow_http": "true",
            }
        }
        for name, count in (("many", MANY), ("few", FEW)):
            follow(lake, name, f"s3://landing-{count}/in/**/*.json", options)
        yield from rounds(lake, "a bucket", with_listing=True)


def taken_files() -> Iterator[Claim]:
    """How many times as long many files take as one file of the same rows."""
    with folder(steady=True) as path, tidelock.open(path / "lake", create=True) as lake:
        for name, files in (("small", TAKEN), ("one", 1)):
            (path / name).mkdir()
            rows = TAKEN * ROWS_PER_FILE // files
            for number in range(files):
                text = "".join(f'{{"id": {number * rows + row}}}\n' for row in range(rows))
                (path / name / f"{number:05}.json").write_text(text)
            lake.create_source(
                name, kind="files", path=f"{path}/{name}/*.json", table=name, settle="0s",
                schema="id BIGINT",
            )  # fmt: skip
        small = seconds(lambda: lake.ingest("small"))
        one = seconds(lambda: lake.ingest("one"))
        assert lake.table("small").count() == lake.table("one").count()
        yield Claim(
            f"milliseconds that each of {TAKEN:,} small files takes to be taken",
            (small - one) / TAKEN * 1000,
            5.0,
            detail=f"{small:.2f} s, and {one:.2f} s for one file of the same rows",
        )


@contextmanager
def listing_server() -> Iterator[str]:
    """Answers listings of buckets that are called for how many objects are in them."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Listings)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Listings(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        count = int(parts.path.strip("/").rpartition("-")[2])
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        start = int(query.get("continuation-token", 0))
        if after := query.get("start-after"):
            start = max(start, int(after.rpartition("/")[2].removesuffix(".json")) + 1)
        body = _pages.get((count, start)) or _pages.setdefault((count, start), _page(count, start))
        time.sleep(ANSWER_SECONDS)
        self.send_response(200)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


_pages: dict[tuple[int, int], bytes] = {}


def _page(count: int, start: int) -> bytes:
    moment = datetime(2026, 1, 1, tzinfo=UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    end = min(start + PAGE, count)
    contents = "".join(
        f"<Contents><Key>in/part={number // 10_000}/{number:06}.json</Key>"
        f"<LastModified>{moment}</LastModified><ETag>&quot;{number:032x}&quot;</ETag>"
        f"<Size>10</Size><StorageClass>STANDARD</StorageClass></Contents>"
        for number in range(start, end)
    )
    more = f"<NextContinuationToken>{end}</NextContinuationToken>" if end < count else ""
    told = "true" if end < count else "false"
    return (
        f'<?xml version="1.0"?><ListBucketResult><IsTruncated>{told}</IsTruncated>'
        f"<KeyCount>{end - start}</KeyCount>{more}{contents}</ListBucketResult>"
    ).encode()


CLAIMS = [known_files, known_objects, taken_files]
