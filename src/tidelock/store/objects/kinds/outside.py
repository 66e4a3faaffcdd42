"""Objects outside of a lake: what destinations and sources of files need beyond what a lake does.

Owns: moving an object, reading it in pieces, and replacing it only if it is still the one that was
read. A bucket does that in one step. A file system cannot: there it is looked at just before.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import obstore
from obstore.exceptions import BaseError, PreconditionError

from tidelock.errors import ObjectExists, ObjectMissing
from tidelock.store.objects.kinds.keys import check_key
from tidelock.store.objects.kinds.local import LocalObjects
from tidelock.store.objects.kinds.remote import ObstoreObjects
from tidelock.store.objects.protocol import PIECE_BYTES

if TYPE_CHECKING:
    from obstore import ReadableFile, UpdateVersion

_FAILURES = (BaseError, OSError, ValueError)
PAGE_OBJECTS = 1_000
ListedObject: TypeAlias = tuple[str, int, datetime, str]
"""The key, the size in bytes, when it was put by the store's clock, and its tag."""


class LocalPlace(LocalObjects):
    """Files in a folder."""

    def get_tagged(self, key: str) -> tuple[bytes, str]:
        """The object's bytes, and what tells them from any that are put there later."""
        return self.get(key), ""

    def put_over(self, key: str, data: bytes, before: tuple[bytes, str]) -> None:
        """Like put, if what is there is still what `get_tagged` gave; else ObjectExists."""
        try:
            same = self.get(key) == before[0]
        except ObjectMissing:
            same = False
        if not same:
            raise _replaced(self.uri, key)
        self.put(key, data)

    def move(self, key: str, target: str) -> None:
        """Give an object another key; ObjectMissing when there is none."""
        path = self._root + check_key(target)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.rename(self._root + check_key(key), path)
        except FileNotFoundError as error:
            raise ObjectMissing(f"There is no {key!r} in {self.uri}.", key=key) from error
        except OSError as error:
            self._raise(error, "put", target)

    def open(self, key: str) -> IO[bytes]:
        """An object to be read piece by piece; ObjectMissing when there is none."""
        try:
            return open(self._root + check_key(key), "rb")
        except OSError as error:
            self._raise(error, "get", key)


class BucketPlace(ObstoreObjects):
    """Objects in a bucket."""

    @classmethod
    def of(cls, objects: ObstoreObjects) -> BucketPlace:
        return cls(objects.uri, objects._store, objects._creating)

    def get_tagged(self, key: str) -> tuple[bytes, str]:
        """The object's bytes, and what tells them from any that are put there later."""
        try:
            found = self._store.get(check_key(key))
            return bytes(found.bytes()), found.meta["e_tag"] or ""
        except _FAILURES as error:
            self._raise(error, "get", key)

    def put_over(self, key: str, data: bytes, before: tuple[bytes, str]) -> None:
        """Like put, if what is there is still what `get_tagged` gave; else ObjectExists."""
        try:
            # Not repeated in secret: a put that was applied would be refused the second time.
            mode: UpdateVersion = {"e_tag": before[1]}
            self._creating.put(check_key(key), data, mode=mode, use_multipart=False)
        except (PreconditionError, FileNotFoundError) as error:
            raise _replaced(self.uri, key) from error
        except _FAILURES as error:
            self._raise(error, "put", key)

    def move(self, key: str, target: str) -> None:
        """Give an object another key; ObjectMissing when there is none."""
        try:
            self._store.copy(check_key(key), check_key(target))
        except FileNotFoundError as error:
            raise ObjectMissing(f"There is no {key!r} in {self.uri}.", key=key) from error
        except _FAILURES as error:
            self._raise(error, "put", target)
        self.delete(key)

    def open(self, key: str) -> IO[bytes]:
        """An object to be read piece by piece; ObjectMissing when there is none."""
        try:
            return io.BufferedReader(_Reader(obstore.open_reader(self._store, check_key(key))))
        except _FAILURES as error:
            self._raise(error, "get", key)

    def pages(self, after: str = "", until: str = "") -> Iterator[list[ListedObject]]:
        """All objects, by key, some at a time; those alone whose keys come after one, and not after
        another."""
        try:
            for page in self._store.list(offset=after or None, chunk_size=PAGE_OBJECTS):
                whole = not until or page[-1]["path"] <= until
                listed = [
                    (one["path"], one["size"], one["last_modified"], one["e_tag"] or "")
                    for one in page
                    if whole or one["path"] <= until
                ]
                if listed:
                    yield listed
                if not whole:
                    return
        except _FAILURES as error:
            self._raise(error, "list", "")

    def fetch(self, key: str, tag: str, file: IO[bytes]) -> bool:
        """Write an object into a file, if it is still the one that a listing told of."""
        try:
            found = self._store.get(key, options={"if_match": tag} if tag else None)
            if tag and found.meta["e_tag"] != tag:
                return False
            for piece in found.stream(min_chunk_size=PIECE_BYTES):
                file.write(piece)
            return True
        except (PreconditionError, FileNotFoundError):
            return False
        except _FAILURES as error:
            self._raise(error, "get", key)


class _Reader(io.RawIOBase):
    """What obstore reads in ranges, as a file of Python's, which it is not quite."""

    def __init__(self, inner: ReadableFile) -> None:
        self._inner = inner

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._inner.seek(offset, whence)

    def tell(self) -> int:
        return self._inner.tell()

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = bytes(self._inner.read(len(view)))
        view[: len(data)] = data
        return len(data)


def _replaced(uri: str, key: str) -> ObjectExists:
    return ObjectExists(
        f"{key!r} in {uri} is not what was read a moment ago: somebody else has replaced it. "
        "Nothing was written. Read it again.",
        key=key,
        uri=uri,
    )
