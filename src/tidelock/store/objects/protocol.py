"""Objects: named, immutable sequences of bytes, on files, on S3 and in memory.

Owns: the one way in which objects are read, created, replaced, removed and listed.
Invariants, the same for every store (tests/contract/test_objects.py):
  * of N create-only puts of one key, exactly one returns; the others raise ObjectExists;
  * when a put returns, every reader gets and lists the whole object; before, nothing of it;
  * ObjectMissing means that there is no such object; a store that failed is another error;
  * what went in as a key comes out of `list` as that key, character by character.
After a crash: an object exists completely or not at all. A killed writer may leave a file whose
name is `#` and digits: no key ends like that, so it is never read and never listed.

A put that raises StoreUnavailable may or may not have been applied. ObjectExists from `put_new`
is always about somebody else's object, because a create-only put is never repeated in secret.

Files are handled by plain system calls: they cost less than half of obstore's, survive a fork, and
tell by their error number what happened. S3 and memory are obstore's; it does not survive a fork.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from tidelock.errors import (
    Advice,
    ObjectExists,
    ObjectMissing,
    StoreDenied,
    StoreError,
    StoreFull,
    StoreUnavailable,
)

PIECE_BYTES = 1 << 20
MAKE_ROOM = Advice(
    "Make room, for instance with lake.collect_garbage(), then try again.",
    "Make room, for instance with `tidelock gc`, then try again.",
)


@dataclass(frozen=True)
class ObjectInfo:
    key: str
    size_bytes: int
    modified: datetime  # aware, UTC, by the store's clock


class Objects(Protocol):
    """Keys are `/`-separated and relative to the lake's root; folders are, too, and may be ""."""

    def get(self, key: str) -> bytes:
        """The object's bytes; ObjectMissing when there is none."""

    def info(self, key: str) -> ObjectInfo | None:
        """What is known of the object without reading it; None when there is none."""

    def put_new(self, key: str, data: bytes) -> None:
        """Creates the object; ObjectExists when there is one already."""

    def put(self, key: str, data: bytes) -> None:
        """Creates or replaces the object, atomically."""

    def delete(self, key: str) -> None:
        """Removes the object; nothing happens when there is none."""

    def delete_many(self, keys: Sequence[str]) -> None:
        """Removes objects, in no order; of those that are left when it fails, some may be gone."""

    def keys(self, folder: str, after: str = "") -> list[str]:
        """The keys directly in the folder that come after one, in order: less work than `list`."""

    def list_folders(self, folder: str) -> list[str]:
        """The names of the folders directly in this one that hold an object, sorted."""

    def list(self, folder: str) -> list[ObjectInfo]:
        """Every object below the folder, by key."""


def failure(
    kind: type[StoreError], uri: str, operation: str, key: str, cause: str, *, sent: bool = True
) -> StoreError:
    sentence, advice = _WORDS[kind]
    told = sentence.format(uri=uri, operation=operation, key=key, cause=cause.rstrip("."))
    if cause.startswith(NO_BUCKET):
        advice = "Create the bucket, or correct its name."
    elif kind is StoreUnavailable and operation in _WRITES and sent:
        told += " It may or may not have been applied."
    room = MAKE_ROOM if kind is StoreFull else None
    return kind(
        f"{told} {advice}".rstrip(), room, operation=operation, key=key, uri=uri, cause=cause
    )


_WRITES = ("put", "put_new", "delete")
NO_BUCKET = "there is no such bucket"
_WORDS: dict[type[StoreError], tuple[str, str]] = {
    ObjectMissing: (
        "There is no object {key!r} in the store at {uri}.",
        "It was never written, or was removed.",
    ),
    ObjectExists: (
        "There already is an object {key!r} in the store at {uri}.",
        "Read it, or use another key.",
    ),
    StoreDenied: (
        "The store at {uri} refused {operation} of {key!r}: {cause}.",
        "Check the credentials and what they permit.",
    ),
    StoreUnavailable: (
        "The store at {uri} failed at {operation} of {key!r}: {cause}.",
        "Check that the store is there and reachable, then try again.",
    ),
    StoreFull: (
        "There is no room at {uri} for {key!r}: {cause}. Nothing of it was written.",
        "",
    ),
}
