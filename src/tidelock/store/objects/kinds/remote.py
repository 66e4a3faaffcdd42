"""Objects on S3 and in memory, by obstore. A handle does not survive a fork."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import IO, NoReturn, TypeAlias

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import MemoryStore, S3Store

from tidelock.errors import (
    InvalidOption,
    ObjectExists,
    ObjectMissing,
    StoreDenied,
    StoreUnavailable,
)
from tidelock.store.objects.kinds.keys import check_key
from tidelock.store.objects.protocol import NO_BUCKET, PIECE_BYTES, ObjectInfo, failure

Store: TypeAlias = S3Store | MemoryStore


_Failure: TypeAlias = BaseError | OSError | ValueError


_FAILURES = (BaseError, OSError, ValueError)


_CONFLICT_RETRIES = 5


_NOWHERE = "_tidelock/nowhere"


_memory_lock = threading.Lock()
_memory_stores: dict[str, MemoryStore] = {}


def open_s3(uri: str, config: Mapping[str, str], retrying: Mapping[str, str]) -> ObstoreObjects:
    """The objects of a lake on S3. `retrying` has the options that obstore takes apart from the
    others, under the names that Lance has for them."""
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    try:
        patient, once = (
            S3Store(
                bucket,
                prefix=prefix or None,
                config=config,  # type: ignore[arg-type]
                retry_config={
                    "max_retries": retries,
                    "retry_timeout": timedelta(
                        seconds=int(retrying.get("client_retry_timeout", "30"))
                    ),
                },
            )
            for retries in (int(retrying.get("client_max_retries", "3")), 0)
        )
    except (BaseError, ValueError) as error:
        cause = str(error).split("\n", 1)[0]
        raise InvalidOption(
            f"The storage options for {uri} do not work: {cause}. Correct them.",
            option="storage_options",
            cause=cause,
        ) from error
    return ObstoreObjects(uri, patient, once)


def open_memory(uri: str) -> ObstoreObjects:
    """The objects of a memory lake, which all handles of this process share."""
    with _memory_lock:
        store = _memory_stores.setdefault(uri, MemoryStore())
    return ObstoreObjects(uri, store, store)


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
                    raise failure(
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

    def delete_many(self, keys: Sequence[str]) -> None:
        try:
            if keys:
                self._store.delete([check_key(key) for key in keys])
        except _FAILURES as error:
            if not isinstance(error, FileNotFoundError) or "NoSuchBucket" in str(error):
                self._raise(error, "delete", keys[0])

    def keys(self, folder: str, after: str = "") -> list[str]:
        try:
            metas = self._store.list(check_key(folder), offset=after or None).collect()
        except _FAILURES as error:
            self._raise(error, "keys", folder)
        return sorted(meta["path"] for meta in metas if "/" not in meta["path"][len(folder) + 1 :])

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
            cause = f"{NO_BUCKET} ({cause})"
        elif isinstance(error, FileNotFoundError) and operation == "get":
            raise failure(ObjectMissing, self.uri, operation, key, "not found") from error
        elif denied or status in ("401", "403"):  # a list that is refused is a general error
            raise failure(StoreDenied, self.uri, operation, key, cause) from error
        # Of several attempts, an earlier one may have come through.
        sent = not (_CONNECT.search(str(error)) and "retries: 0," in str(error))
        raise failure(StoreUnavailable, self.uri, operation, key, cause, sent=sent) from error


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
