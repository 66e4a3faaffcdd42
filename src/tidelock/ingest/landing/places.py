"""What is in a landing place: listings by columns, and files fetched as one state.

A mark tells one state of a file from any other: its size, and its ETag in a bucket, or the time of
its last change, to the nanosecond, in a folder.
Invariants: what is fetched is just the state that was listed, or is said to be gone; a listing is
never in doubt about a file that was there, whole, before it began and all the while.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import PurePosixPath
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tidelock.errors import SourceDenied, SourceUnavailable, StoreDenied, StoreError
from tidelock.ingest.landing.pattern import HIDDEN, Pattern
from tidelock.store.objects.kinds.location import Location, locate
from tidelock.store.objects.kinds.outside import BucketPlace
from tidelock.store.objects.kinds.remote import ObstoreObjects
from tidelock.store.objects.parallel import side_by_side

LISTED = pa.schema(
    [
        pa.field("name", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("modified", pa.int64()),
        pa.field("mark", pa.string()),
    ]
)
"""`modified` is in nanoseconds since 1970, by the clock of the store."""
PAGE_FILES = 250_000
ANSWER_SECONDS = 5.0


@dataclass(frozen=True)
class ListedFile:
    """One state of a file."""

    name: str
    size: int
    modified: int
    mark: str


@dataclass(frozen=True)
class Before:
    """What is known of a place before it is listed."""

    names: Sequence[str] = ()
    """Some names of files, between which it may be listed at the same time."""
    pages: Sequence[pa.Table] = ()
    """Those of the last listing."""

    def same(self, number: int, page: pa.Table) -> pa.Table:
        """A page, or the same page of the last listing if it is equal."""
        if number < len(self.pages) and self.pages[number].equals(page):
            return self.pages[number]
        return page


NOTHING_BEFORE = Before()


class Moved(Exception):
    """A file is not, or no longer, in the state that was listed."""


class Place(Protocol):
    """Where files land."""

    def pages(self, after: str = "", before: Before = NOTHING_BEFORE) -> list[pa.Table]:
        """All files that the pattern means, by columns; those alone whose names come after one, in
        the order of their names. A page that is as it was before is the same object."""

    def now(self) -> int:
        """The time by the clock of the store."""

    def fetched(self, file: ListedFile) -> Any:
        """A path at which the state of a file can be read, until the end of the block; Moved at the
        beginning or at the end of it, if it was not that state all the while."""


def open_place(pattern: Pattern, storage_options: Mapping[str, str]) -> Place:
    if pattern.is_local:
        return Folder(pattern)
    return Bucket(pattern, locate(pattern.base, storage_options or None))


def _meant(pattern: Pattern, page: pa.Table) -> pa.Table:
    """The files of a page that the pattern means."""
    names = page.column("name")
    hidden = pc.match_substring_regex(names, HIDDEN)
    wanted = pc.match_substring_regex(names, pattern.regex)
    return page.filter(pc.and_not(wanted, hidden))


def _page(names: list[str], sizes: list[int], modified: pa.Array, tags: list[str]) -> pa.Table:
    size = pa.array(sizes, pa.int64())
    tag = pa.array(tags, pa.string()) if tags else modified.cast(pa.string())
    mark = pc.binary_join_element_wise(
        size.cast(pa.string()), pc.utf8_trim(tag, characters='"'), ":"
    )
    return pa.table([pa.array(names, pa.string()), size, modified, mark], schema=LISTED)


class Folder:
    """Files below a folder. Symbolic links to files are followed, those to folders are not."""

    def __init__(self, pattern: Pattern) -> None:
        self._pattern = pattern

    def pages(self, after: str = "", before: Before = NOTHING_BEFORE) -> list[pa.Table]:
        try:
            if not os.path.isdir(self._pattern.base):
                raise FileNotFoundError(2, "there is no such folder", self._pattern.base)
            names, sizes, times = _walk(self._pattern.base, self._pattern.depth, after)
        except PermissionError as error:
            raise SourceDenied(f"{error.filename} cannot be listed: {error.strerror}.") from error
        except OSError as error:
            raise SourceUnavailable(
                f"{error.filename or self._pattern.base} cannot be listed: {error.strerror}."
            ) from error
        page = _meant(self._pattern, _page(names, sizes, pa.array(times, pa.int64()), []))
        if after:
            page = page.sort_by("name")
        starts = range(0, page.num_rows, PAGE_FILES)
        return [
            before.same(number, page.slice(start, PAGE_FILES))
            for number, start in enumerate(starts)
        ]

    def now(self) -> int:
        # The clock of the machine is that of its file systems.
        return int(datetime.now(UTC).timestamp() * 1e9)

    @contextmanager
    def fetched(self, file: ListedFile) -> Iterator[str]:
        path = os.path.join(self._pattern.base, file.name)
        self._refuse_moved(path, file)
        yield path
        self._refuse_moved(path, file)

    def _refuse_moved(self, path: str, file: ListedFile) -> None:
        try:
            status = os.stat(path)
        except OSError as error:
            raise Moved(file.name) from error
        if (status.st_size, status.st_mtime_ns) != (file.size, file.modified):
            raise Moved(file.name)


def _walk(base: str, depth: int | None, after: str) -> tuple[list[str], list[int], list[int]]:
    """The names, sizes and times of all files that are not hidden. There may be very many: what is
    done for each is little."""
    names: list[str] = []
    sizes: list[int] = []
    times: list[int] = []
    folders = [""]
    while folders:
        folder = folders.pop()
        deeper = depth is None or folder.count("/") < depth
        try:
            with os.scandir(f"{base}/{folder}") as entries:
                for entry in entries:
                    name = entry.name
                    if name[0] in "._":
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        if deeper:
                            folders.append(f"{folder}{name}/")
                        continue
                    name = folder + name
                    if name <= after or not (name.isascii() or _is_text(name)):
                        continue
                    try:
                        status = entry.stat()
                    except FileNotFoundError:
                        continue
                    if stat.S_ISREG(status.st_mode):
                        names.append(name)
                        sizes.append(status.st_size)
                        times.append(status.st_mtime_ns)
        except FileNotFoundError:
            if not folder:
                raise
    return names, sizes, times


def _is_text(name: str) -> bool:
    """Whether a name can be told: it may be any bytes."""
    return not any("\ud800" <= one <= "\udfff" for one in name)


class Bucket:
    """Objects in a bucket. One is fetched whole, by its ETag, into a temporary file: so a disk
    needs room for the largest, and memory for none.

    A bucket tells of a thousand objects at a time, and then of those that follow. Between names
    that were there before it is listed at the same time."""

    def __init__(self, pattern: Pattern, location: Location) -> None:
        self._pattern = pattern
        self._location = location
        objects = location.objects()
        assert isinstance(objects, ObstoreObjects)
        self._objects = BucketPlace.of(objects)

    def pages(self, after: str = "", before: Before = NOTHING_BEFORE) -> list[pa.Table]:
        bounds = [after, *sorted(name for name in before.names if name > after), ""]

        def listed(number: int) -> pa.Table:
            return before.same(number, self._listed(*bounds[number : number + 2]))

        return side_by_side(listed, range(len(bounds) - 1))

    def _listed(self, after: str, until: str) -> pa.Table:
        """The files whose names come after one, and not after another."""
        pages = [LISTED.empty_table()]
        try:
            for listed in self._objects.pages(after, until):
                names, sizes, modified, tags = map(list, zip(*listed, strict=True))
                moments = pa.array(modified, pa.timestamp("us", tz="UTC")).cast(pa.int64())
                pages.append(
                    _meant(self._pattern, _page(names, sizes, pc.multiply(moments, 1000), tags))
                )
        except StoreError as error:
            raise _told(error) from error
        return pa.concat_tables(pages).combine_chunks()

    def now(self) -> int:
        return asked_time(self._location.storage_options)

    @contextmanager
    def fetched(self, file: ListedFile) -> Iterator[str]:
        suffix = "".join(PurePosixPath(file.name).suffixes[-2:])
        tag = f'"{file.mark.partition(":")[2]}"'
        with tempfile.NamedTemporaryFile(prefix="tidelock-", suffix=suffix) as kept:
            try:
                if not self._objects.fetch(file.name, tag, kept):
                    raise Moved(file.name)
            except StoreError as error:
                raise _told(error) from error
            kept.flush()
            yield kept.name


def _told(error: StoreError) -> Exception:
    kind = SourceDenied if isinstance(error, StoreDenied) else SourceUnavailable
    return kind(error.message, error.advice)


def asked_time(options: Mapping[str, str]) -> int:
    """The time by the clock of an S3 service, which dates whatever it answers; that of this machine
    if nothing answers, which S3 holds to a quarter of an hour of its own."""
    import urllib3

    region = options.get("aws_region", os.environ.get("AWS_REGION", "us-east-1"))
    endpoint = next(
        filter(
            None,
            (
                options.get("aws_endpoint_url_s3"),
                *map(os.environ.get, ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")),
                f"https://s3.{region}.amazonaws.com",
            ),
        )
    )
    try:
        answer = urllib3.request("HEAD", str(endpoint), timeout=ANSWER_SECONDS, retries=False)
        moment = parsedate_to_datetime(answer.headers["Date"])
    except (urllib3.exceptions.HTTPError, KeyError, TypeError, ValueError):
        moment = datetime.now(UTC)
    return int(moment.timestamp() * 1e9)
