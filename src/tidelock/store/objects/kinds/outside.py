"""Objects outside of a lake: what a destination of files needs beyond what a lake does.

Owns: moving an object, reading it in pieces, and replacing it only if it is still the one that was
read. A bucket does that in one step. A file system cannot: there it is looked at just before.
"""

from __future__ import annotations

import io
import os
from typing import IO, TYPE_CHECKING, Any

import obstore
from obstore.exceptions import BaseError, PreconditionError

from tidelock.errors import ObjectExists, ObjectMissing
from tidelock.store.objects.kinds.keys import check_key
from tidelock.store.objects.kinds.local import LocalObjects
from tidelock.store.objects.kinds.remote import ObstoreObjects

if TYPE_CHECKING:
    from obstore import ReadableFile, UpdateVersion

_FAILURES = (BaseError, OSError, ValueError)


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
