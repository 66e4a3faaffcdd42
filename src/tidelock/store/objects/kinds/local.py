"""Objects as files, by plain system calls.

They cost less than half of obstore's, survive a fork, and tell by their error number what happened.
After a crash: a killed writer may leave a file whose name is `#` and digits. No key ends like that,
so it is never read and never listed.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from tidelock.errors import (
    LakeRemoved,
    ObjectExists,
    ObjectMissing,
    StoreDenied,
    StoreFull,
    StoreUnavailable,
)
from tidelock.store.objects.disk_space import FULL, touch_same
from tidelock.store.objects.kinds.keys import check_key, reason_against
from tidelock.store.objects.protocol import PIECE_BYTES, ObjectInfo, failure

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
                raise failure(ObjectMissing, self.uri, "get", key, "not found")
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
                    raise failure(
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
            if not (error.errno in FULL and touch_same(path, data)):
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

    def delete_many(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.delete(key)

    def keys(self, folder: str, after: str = "") -> list[str]:
        prefix = check_key(folder) + "/"
        try:
            found = [prefix + one.name for one in _entries(self._root + prefix) if not one.is_dir()]
        except OSError as error:
            self._raise(error, "keys", folder)
        return sorted(key for key in found if key > after)

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
        """Flushes the directory, and those above it once: although another made them, an object
        that was acknowledged must not be lost with them."""
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
            raise failure(ObjectMissing, self.uri, operation, key, "not found") from error
        cause = error.strerror or str(error)
        if error.errno in _DENIED:
            raise failure(StoreDenied, self.uri, operation, key, cause) from error
        if error.errno in FULL:
            raise failure(StoreFull, self.uri, operation, key, cause) from error
        raise failure(StoreUnavailable, self.uri, operation, key, cause) from error


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
    return reason_against(name) is not None


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
    except OSError as error:
        # Whatever it is, the name may be on the disk: this is no write that was not applied.
        raise OSError(errno.EIO, error.strerror) from error
    finally:
        os.close(descriptor)


def _remove_quietly(path: str) -> None:
    # What stays behind is invisible, and must not hide the outcome of the put.
    with contextlib.suppress(OSError):
        os.unlink(path)
