"""Objects: named, immutable sequences of bytes, on files, on S3 and in memory.

Owns: keys, and the one way in which objects are read, created, replaced, removed and listed.
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

import contextlib
import errno
import itertools
import os
import re
import stat
import time
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, NoReturn, Protocol, TypeAlias

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import MemoryStore, S3Store

from tidelock.errors import (
    InvalidName,
    LakeRemoved,
    ObjectExists,
    ObjectMissing,
    StoreDenied,
    StoreError,
    StoreUnavailable,
)

KEY_BYTES_MAX = 1024
SEGMENT_BYTES_MAX = 255
PIECE_BYTES = 1 << 20


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

    def list_folders(self, folder: str) -> list[str]:
        """The names of the folders directly in this one that hold an object, sorted."""

    def list(self, folder: str) -> list[ObjectInfo]:
        """Every object below the folder, by key."""


# --------------------------------------------------------------------------------------------------
# Keys
# --------------------------------------------------------------------------------------------------

_PLAIN_SEGMENT = r"[A-Za-z0-9_=-][A-Za-z0-9_.=-]{0,199}"
_PLAIN = re.compile(rf"{_PLAIN_SEGMENT}(?:/{_PLAIN_SEGMENT}){{0,4}}")
_UNFINISHED = re.compile(r"#[0-9]+\Z")


def check_key(key: str) -> str:
    """The key itself, or InvalidName with the reason why no store takes it."""
    if not _PLAIN.fullmatch(key):
        reason = _reason_against(key)
        if reason:
            raise InvalidName(
                f"{key!r} cannot be the key of an object: {reason}. Choose another.",
                name=key,
                reason=reason,
            )
    return key


def _reason_against(key: str) -> str | None:
    if any(map(_is_unprintable, key)):
        return "it holds a control character or half a character"
    if len(key.encode()) > KEY_BYTES_MAX:
        return f"it is longer than {KEY_BYTES_MAX} bytes"
    for segment in key.split("/"):
        if not segment:
            return "it is empty, begins or ends with a slash, or has two in a row"
        if segment in (".", ".."):
            return f"it has {segment!r} in its path"
        if _UNFINISHED.search(segment):
            return "'#' and digits at the end of a name mark a file that is being written"
        if len(segment.encode()) > SEGMENT_BYTES_MAX:
            return f"a name in it is longer than {SEGMENT_BYTES_MAX} bytes"
    return None


def _is_unprintable(character: str) -> bool:
    # U+FFFE and U+FFFF have no place in XML, in which S3 answers a list.
    return unicodedata.category(character) in ("Cc", "Cs") or character in "\ufffe\uffff"


# --------------------------------------------------------------------------------------------------
# Errors
# --------------------------------------------------------------------------------------------------


def _failure(
    kind: type[StoreError], uri: str, operation: str, key: str, cause: str, *, sent: bool = True
) -> StoreError:
    sentence, advice = _WORDS[kind]
    told = sentence.format(uri=uri, operation=operation, key=key, cause=cause.rstrip("."))
    if cause.startswith(_NO_BUCKET):
        advice = "Create the bucket, or correct its name."
    elif kind is StoreUnavailable and operation in _WRITES and sent:
        told += " It may or may not have been applied."
    return kind(f"{told} {advice}", operation=operation, key=key, uri=uri, cause=cause)


_WRITES = ("put", "put_new", "delete")
_NO_BUCKET = "there is no such bucket"
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
}


# --------------------------------------------------------------------------------------------------
# Files
# --------------------------------------------------------------------------------------------------

_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
_unfinished_numbers = itertools.count()


class LocalObjects:
    """Objects as files below a directory, which comes into being with the first put.

    Written to a file named `#digits` beside the target, then linked (create-only) or renamed
    (replace) to its name. With `fsync`, the bytes are on the disk before they have a name, and the
    name, with every directory above it, is on the disk before the put returns.
    """

    def __init__(self, root: str, *, fsync: bool = False, anchor: str | None = None) -> None:
        """`anchor` is the key of the object without which there is nothing to add to: folders are
        made for it, and for others only where it is."""
        self.uri = root
        self._root = root + "/"
        self._fsync = fsync
        self._anchor = None if anchor is None else self._root + anchor
        self._durable_directories: set[str] = set()

    def __repr__(self) -> str:
        return f"LocalObjects({self.uri!r}, fsync={self._fsync})"

    def get(self, key: str) -> bytes:
        try:
            # Not to block on a pipe that somebody put there.
            descriptor = os.open(self._root + check_key(key), os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            self._raise(error, "get", key)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise _failure(ObjectMissing, self.uri, "get", key, "not found")
            return _read(descriptor, status.st_size)
        except OSError as error:
            self._raise(error, "get", key)
        finally:
            os.close(descriptor)

    def pieces(self, key: str) -> Iterator[bytes]:
        """The object's bytes, of which few are in memory at once."""
        try:
            descriptor = os.open(self._root + check_key(key), os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            self._raise(error, "get", key)
        try:
            while piece := os.read(descriptor, PIECE_BYTES):
                yield piece
        except OSError as error:
            self._raise(error, "get", key)
        finally:
            os.close(descriptor)

    def info(self, key: str) -> ObjectInfo | None:
        try:
            status = os.stat(self._root + check_key(key))
        except FileNotFoundError:
            return None
        except OSError as error:
            self._raise(error, "info", key)
        return _info(key, status) if stat.S_ISREG(status.st_mode) else None

    def put_new(self, key: str, data: bytes) -> None:
        path = self._root + check_key(key)
        try:
            unfinished = self._write(path, data)
            try:
                os.link(unfinished, path)
            except FileExistsError:
                # A network file system may repeat a link that it had already made: two names.
                if os.stat(unfinished).st_nlink < 2:
                    if os.path.isdir(path):
                        raise IsADirectoryError(errno.EISDIR, "Is a directory", path) from None
                    raise _failure(
                        ObjectExists, self.uri, "put_new", key, "already exists"
                    ) from None
            finally:
                _remove_quietly(unfinished)
            if self._fsync:
                self._make_durable(os.path.dirname(path))
        except OSError as error:
            self._raise(error, "put_new", key)

    def put(self, key: str, data: bytes) -> None:
        path = self._root + check_key(key)
        try:
            unfinished = self._write(path, data)
            try:
                os.rename(unfinished, path)
            except BaseException:
                _remove_quietly(unfinished)
                raise
            if self._fsync:
                self._make_durable(os.path.dirname(path))
        except OSError as error:
            self._raise(error, "put", key)

    def put_file(self, key: str, path: Path) -> None:
        """Like put, with a file of the same file system, which is moved."""
        target = self._root + check_key(key)
        try:
            if self._fsync:
                _flush_file(path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.rename(path, target)
            if self._fsync:
                self._make_durable(os.path.dirname(target))
        except OSError as error:
            self._raise(error, "put", key)

    def delete(self, key: str) -> None:
        try:
            os.unlink(self._root + check_key(key))
        except FileNotFoundError:
            return
        except OSError as error:
            if os.path.isdir(self._root + key):
                return  # a folder is no object: there is nothing of this key to remove
            self._raise(error, "delete", key)

    def list_folders(self, folder: str) -> list[str]:
        path = self._root + (check_key(folder) + "/" if folder else "")
        try:
            return sorted(
                entry.name
                for entry in _entries(path)
                if entry.is_dir() and next(_walk(entry.path + "/", ""), None)
            )
        except OSError as error:
            self._raise(error, "list_folders", folder)

    def list(self, folder: str) -> list[ObjectInfo]:
        prefix = check_key(folder) + "/" if folder else ""
        try:
            return sorted(_walk(self._root + prefix, prefix), key=lambda info: info.key)
        except OSError as error:
            self._raise(error, "list", folder)

    def _write(self, path: str, data: bytes) -> str:
        """The name of a new file beside the path, with the data in it."""
        descriptor, unfinished = self._create_beside(path)
        try:
            try:
                written = os.write(descriptor, data)
                while written < len(data):
                    written += os.write(descriptor, memoryview(data)[written:])
                if self._fsync:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except BaseException:
            _remove_quietly(unfinished)
            raise
        return unfinished

    def _create_beside(self, path: str) -> tuple[int, str]:
        directory = path[: path.rindex("/")]
        while True:
            # Another machine may have the same process id: O_EXCL decides, and we count on.
            unfinished = f"{directory}/#{os.getpid()}{next(_unfinished_numbers)}"
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
                return os.open(unfinished, flags, 0o666), unfinished
            except FileExistsError:
                continue
            except FileNotFoundError:
                self._refuse_adrift(path)
                self._durable_directories.clear()
                os.makedirs(directory, exist_ok=True)

    def _refuse_adrift(self, path: str) -> None:
        if self._anchor not in (None, path) and not os.path.exists(str(self._anchor)):
            raise LakeRemoved(
                f"The lake at {self.uri!r} is not there any more: it was removed, or its disk is "
                "not mounted. Nothing was written. Bring it back, and open it again.",
                uri=self.uri,
            )

    def _make_durable(self, directory: str) -> None:
        """Flushes the directory, and those above it once: whoever made them, an object that was
        acknowledged must not be lost with them."""
        _flush_directory(directory)
        new = []
        while directory not in self._durable_directories and directory != "/":
            new.append(directory)
            directory = os.path.dirname(directory)
            # What we may not open, we have not made.
            with contextlib.suppress(PermissionError):
                _flush_directory(directory)
        self._durable_directories.update(new)

    def _raise(self, error: OSError, operation: str, key: str) -> NoReturn:
        if isinstance(error, FileNotFoundError) and operation == "get":
            raise _failure(ObjectMissing, self.uri, operation, key, "not found") from error
        cause = error.strerror or str(error)
        if error.errno in _DENIED:
            raise _failure(StoreDenied, self.uri, operation, key, cause) from error
        raise _failure(StoreUnavailable, self.uri, operation, key, cause) from error


def _read(descriptor: int, size_bytes: int) -> bytes:
    data = os.read(descriptor, size_bytes + 1)
    if len(data) == size_bytes:
        return data
    parts = [data]  # one read gives at most 2 GB, and a network file system may give less
    while part := os.read(descriptor, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def _info(key: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(key, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))


def _walk(directory: str, prefix: str) -> Iterator[ObjectInfo]:
    for entry in _entries(directory):
        if entry.is_dir():
            yield from _walk(entry.path + "/", f"{prefix}{entry.name}/")
        else:
            # It may have been removed since the directory was read.
            with contextlib.suppress(FileNotFoundError):
                status = entry.stat()
                if stat.S_ISREG(status.st_mode):
                    yield _info(prefix + entry.name, status)


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return [entry for entry in entries if not _is_foreign(entry.name)]
    except FileNotFoundError:
        return []


def _is_foreign(name: str) -> bool:
    """Unfinished writes, ours and Lance's, and names that can be no key."""
    return not _PLAIN.fullmatch(name) and _reason_against(name) is not None


def _flush_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _flush_directory(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_quietly(path: str) -> None:
    # What stays behind is invisible, and must not hide the outcome of the put.
    with contextlib.suppress(OSError):
        os.unlink(path)


# --------------------------------------------------------------------------------------------------
# S3 and memory
# --------------------------------------------------------------------------------------------------

Store: TypeAlias = S3Store | MemoryStore
_Failure: TypeAlias = BaseError | OSError | ValueError
_FAILURES = (BaseError, OSError, ValueError)
_CONFLICT_RETRIES = 5
_NOWHERE = "_tidelock/nowhere"


class ObstoreObjects:
    """Objects in an obstore store.

    `creating` is the same store with its retries switched off: a create-only put that was applied,
    answered by a server error and repeated in secret would be told that its own object exists.
    """

    def __init__(self, uri: str, store: Store, creating: Store) -> None:
        self.uri = uri
        self._store = store
        self._creating = creating
        self._bucket_seen = isinstance(store, MemoryStore)

    def __repr__(self) -> str:
        return f"ObstoreObjects({self.uri!r})"

    def get(self, key: str) -> bytes:
        try:
            return bytes(self._store.get(check_key(key)).bytes())
        except _FAILURES as error:
            self._raise(error, "get", key)

    def pieces(self, key: str) -> Iterator[bytes]:
        """The object's bytes, of which few are in memory at once."""
        try:
            for piece in self._store.get(check_key(key)).stream(min_chunk_size=PIECE_BYTES):
                yield bytes(piece)
        except _FAILURES as error:
            self._raise(error, "get", key)

    def info(self, key: str) -> ObjectInfo | None:
        try:
            meta = self._store.head(check_key(key))
        except FileNotFoundError:
            self._see_bucket(key)
            return None
        except _FAILURES as error:
            self._raise(error, "info", key)
        return ObjectInfo(key, meta["size"], meta["last_modified"])

    def put_new(self, key: str, data: bytes) -> None:
        check_key(key)
        for attempt in itertools.count():
            try:
                self._creating.put(key, data, mode="create", use_multipart=False)
                return
            except (AlreadyExistsError, PreconditionError) as error:
                # S3 answers 409 when a delete or another put was in its way and nothing was
                # written. obstore calls that "already exists" as well; only 412 means it.
                if _understand(str(error))[0] != "409":
                    raise _failure(
                        ObjectExists, self.uri, "put_new", key, "already exists"
                    ) from error
                if attempt == _CONFLICT_RETRIES:
                    self._raise(error, "put_new", key)
                time.sleep(0.01 * 2**attempt)
            except _FAILURES as error:
                self._raise(error, "put_new", key)

    def put(self, key: str, data: bytes) -> None:
        try:
            # In one request whatever its size: parts of an abandoned upload would stay, and cost.
            self._store.put(check_key(key), data, use_multipart=False)
        except _FAILURES as error:
            self._raise(error, "put", key)

    def put_file(self, key: str, file: IO[bytes]) -> None:
        """Like put, with the content of a file, which may be too large for one request."""
        try:
            self._store.put(check_key(key), file)
        except _FAILURES as error:
            self._raise(error, "put", key)

    def delete(self, key: str) -> None:
        try:
            self._store.delete(check_key(key))
        except _FAILURES as error:
            if not isinstance(error, FileNotFoundError) or "NoSuchBucket" in str(error):
                self._raise(error, "delete", key)

    def list_folders(self, folder: str) -> list[str]:
        try:
            found = self._store.list_with_delimiter(check_key(folder) if folder else None)
        except _FAILURES as error:
            self._raise(error, "list_folders", folder)
        return sorted(prefix.rstrip("/").rsplit("/", 1)[-1] for prefix in found["common_prefixes"])

    def list(self, folder: str) -> list[ObjectInfo]:
        try:
            metas = self._store.list(check_key(folder) if folder else None).collect()
        except _FAILURES as error:
            self._raise(error, "list", folder)
        infos = [ObjectInfo(meta["path"], meta["size"], meta["last_modified"]) for meta in metas]
        return sorted(infos, key=lambda info: info.key)

    def _see_bucket(self, key: str) -> None:
        """Tells a missing object from a missing bucket, which `head` answers with the same 404."""
        if not self._bucket_seen:
            try:
                self._store.list(_NOWHERE).collect()
            except _FAILURES as error:
                self._raise(error, "info", key)
            self._bucket_seen = True

    def _raise(self, error: _Failure, operation: str, key: str) -> NoReturn:
        status, cause = _understand(str(error))
        denied = isinstance(error, PermissionDeniedError | UnauthenticatedError)
        if "NoSuchBucket" in cause:
            cause = f"{_NO_BUCKET} ({cause})"
        elif isinstance(error, FileNotFoundError) and operation == "get":
            raise _failure(ObjectMissing, self.uri, operation, key, "not found") from error
        elif denied or status in ("401", "403"):  # a list that is refused is a general error
            raise _failure(StoreDenied, self.uri, operation, key, cause) from error
        # Of several attempts, an earlier one may have come through.
        sent = not (_CONNECT.search(str(error)) and "retries: 0," in str(error))
        raise _failure(StoreUnavailable, self.uri, operation, key, cause, sent=sent) from error


_STATUS = re.compile(r"status code: (\d{3})")
_CONNECT = re.compile(r'kind: Connect,.*?(?:message|error): "([^"]*)"', re.DOTALL)
_PLACE = re.compile(r"https?://[^/ ]*")
_ANSWER = re.compile(r"<Code>(.*?)</Code>\s*(?:<Message>(.*?)</Message>)?", re.DOTALL)


def _understand(text: str) -> tuple[str, str]:
    """The HTTP status in the text of an error, or "", and what a person should read of it."""
    status = _STATUS.search(text)
    if status and (answer := _ANSWER.search(text)):
        return status[1], ": ".join(filter(None, (status[1], *answer.groups())))
    if (why := _CONNECT.search(text)) and (place := _PLACE.search(text)):
        return "", f"nothing answers at {place[0]} ({why[1]})"
    # obstore appends a debugging aid of many lines.
    return status[1] if status else "", " ".join(text.split("\n\nDebug source")[0].split())[:500]
