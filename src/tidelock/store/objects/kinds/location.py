"""Locations: what a lake's URI and its storage options mean.

Owns: the kinds of URI that a lake may have, the names of the storage options, and the temporary
directories in which the tables of memory lakes live.
Invariant: one set of options means the same to obstore and to Lance. An option that was given
wins over the environment (AWS_*), which both read for whatever was not given.
After a crash: the directory of a memory lake may stay behind. Its process held a lock on it, so
the next process that makes a memory lake sees that nobody does any more, and removes it.

| URI | kind | objects | tables |
|---|---|---|---|
| shop.lake, ~/shop.lake, file:///data/shop.lake | file | files | files |
| s3://bucket/prefix | s3 | S3 | S3 |
| memory://name | memory | memory of this process | files of this process |
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import re
import secrets
import shutil
import stat
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote, unquote

from tidelock.errors import InvalidName, InvalidOption
from tidelock.model.arguments import check_text
from tidelock.model.names import suggest
from tidelock.store.objects.kinds.keys import check_key
from tidelock.store.objects.kinds.local import LocalObjects

if TYPE_CHECKING:
    from tidelock.store.objects.kinds.remote import ObstoreObjects

Kind = Literal["file", "s3", "memory"]
DURABILITIES = ("process", "fsync")


@dataclass(frozen=True)
class Location:
    """Where a lake is; made by `locate`. `uri` is canonical: a lake has one.

    Pickles, so that Spark's workers find the tables where the driver does.
    """

    uri: str
    kind: Kind
    storage_options: Mapping[str, str] = field(repr=False, hash=False)
    lance_root: str = field(repr=False)

    def objects(
        self, durability: str = "process", anchor: str | None = None
    ) -> LocalObjects | ObstoreObjects:
        """The lake's objects. `fsync` matters to files; S3 is as durable as S3 is. So does
        `anchor`, the key without which nothing else is written."""
        if durability not in DURABILITIES:
            raise InvalidOption(
                f"There is no durability {durability!r}. Use one of: {', '.join(DURABILITIES)}.",
                option="durability",
                value=durability,
            )
        if self.kind == "file":
            _refuse_file(self.uri)
            return LocalObjects(self.uri, fsync=durability == "fsync", anchor=anchor)
        # Most lakes of a command line are files, which need no client of S3.
        from tidelock.store.objects.kinds.remote import open_memory, open_s3

        if self.kind == "s3":
            given = self.storage_options
            retrying = {name: given[name] for name in _RETRY_OPTIONS if name in given}
            config = {name: given[name] for name in given if name not in retrying}
            return open_s3(self.uri, config, retrying)
        return open_memory(self.uri)

    def shared_folder(self, key: str) -> str | None:
        """A folder in which processes of one machine can lock files; None where there is none."""
        return f"{self.uri}/{key}" if self.kind == "file" else None

    def table_objects(self, durability: str = "process") -> LocalObjects | ObstoreObjects:
        """The files that Lance writes, as objects: those of `objects` but for a memory lake."""
        return LocalObjects(self.lance_root) if self.kind == "memory" else self.objects(durability)

    def lance_uri(self, relative: str) -> str:
        """Where Lance finds the dataset whose key in the lake is `relative`."""
        check_key(relative)
        return f"{self.lance_root}/{_url(relative) if self.kind == 's3' else relative}"

    @property
    def lance_options(self) -> dict[str, str] | None:
        return dict(self.storage_options) or None


def _refuse_file(path: str) -> None:
    """A lake is a folder: neither its path nor what leads to it may be a file."""
    found = next((one for one in (path, *map(str, Path(path).parents)) if os.path.exists(one)), "/")
    if os.path.isfile(found):
        raise InvalidOption(
            f"{found!r} is a file, and a lake is a folder. Choose another path.",
            uri=path,
            file=found,
        )


def locate(
    uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None
) -> Location:
    """The location that a user's path or URI names. Nothing of the lake is opened or created."""
    text = check_text(os.fsdecode(os.fspath(uri)), "The path of a lake")
    scheme, rest = _split_scheme(text)
    if scheme and not isinstance(uri, str):
        raise InvalidName(
            f"{text!r} is a URI that was made a path. Pass it as a string.", name=text
        )
    options = _check_options(storage_options or {}, scheme or "file")
    if scheme is None:
        path = _file_path(text, os.path.expanduser(text))
        return Location(path, "file", options, path)
    if scheme == "file":
        path = _file_path(text, _path_of_file_uri(text, rest))
        return Location(path, "file", options, path)
    name = rest.removeprefix("//").rstrip("/")
    if scheme == "memory":
        if not name:
            raise InvalidName(f"{text!r} has no name. Write memory://<name>.", name=text)
        check_key(name)
        tables = f"{_memory_directory()}/{quote(name, safe='')}"
        return Location(f"memory://{name}", "memory", options, tables)
    bucket, _, prefix = name.partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise InvalidName(
            f"{text!r} has no valid bucket name. Write s3://<bucket>/<prefix>.", name=text
        )
    check_key(prefix or bucket)
    return Location(f"s3://{name}", "s3", options, f"s3://{_url(name)}")


# --------------------------------------------------------------------------------------------------
# URIs
# --------------------------------------------------------------------------------------------------

_KINDS = ("file", "s3", "memory")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?=(//)?)")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}")


def _split_scheme(text: str) -> tuple[str | None, str]:
    match = _SCHEME.match(text)
    if match is None or (match[2] is None and match[1].lower() not in (*_KINDS, "s3a")):
        return None, text
    scheme = match[1].lower()
    if scheme not in _KINDS:
        hint = "s3" if scheme in ("s3a", "s3n") else None
        raise InvalidName(
            f"{text!r}: lakes cannot be at {scheme}://. "
            + (f"Write {hint}:// instead." if hint else "Use a path, file://, s3:// or memory://."),
            name=text,
            scheme=scheme,
        )
    rest = text[match.end() :]
    if match[2] is None and not (scheme == "file" and rest.startswith("/")):
        raise InvalidName(f"{text!r} lacks two slashes. Write {scheme}://…", name=text)
    return scheme, rest


def _url(path: str) -> str:
    # Lance reads s3://… as a URL, in which `#`, `?` and `%` do not stand for themselves.
    return quote(path, safe="/!$&'()*+,;=:@~")


def _path_of_file_uri(text: str, rest: str) -> str:
    host, slash, path = rest.removeprefix("//").partition("/")
    if not rest.startswith("//"):
        host, slash, path = "", "/", rest[1:]
    if host not in ("", "localhost") or not slash:
        raise InvalidName(
            f"{text!r} is not absolute. Write file:///<path>, with three slashes.", name=text
        )
    return "/" + unquote(path)


def _file_path(text: str, path: str) -> str:
    if not path or any(ord(character) < 32 or ord(character) == 127 for character in path):
        raise InvalidName(f"{text!r} cannot be the path of a lake.", name=text)
    absolute = os.path.abspath(path)
    if absolute.strip("/") == "":
        raise InvalidName("A lake cannot be the root of the file system.", name=text)
    # POSIX lets a path begin with two slashes, and means the same by it.
    return "/" + absolute.lstrip("/")


# --------------------------------------------------------------------------------------------------
# Storage options
# --------------------------------------------------------------------------------------------------

# What both libraries know, by the name that both understand. All may be given without `aws_`.
_AWS_OPTIONS = (
    "aws_access_key_id",
    "aws_secret_access_key",
    "aws_session_token",
    "aws_region",
    "aws_endpoint_url_s3",
    "aws_virtual_hosted_style_request",
    "aws_skip_signature",
    "aws_unsigned_payload",
    "aws_checksum_algorithm",
    "aws_request_payer",
    "aws_disable_tagging",
    "aws_role_arn",
    "aws_role_session_name",
    "aws_web_identity_token_file",
    "aws_endpoint_url_sts",
    "aws_server_side_encryption",
    "aws_sse_kms_key_id",
    "aws_sse_bucket_key_enabled",
)
_CLIENT_OPTIONS = (
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "timeout",
    "user_agent",
    "proxy_url",
    "proxy_ca_certificate",
    "proxy_excludes",
)
# What Lance knows and obstore takes in another form (remote.py).
_RETRY_OPTIONS = ("client_max_retries", "client_retry_timeout", "download_retry_count")
_ALIASES = {
    # The name that wins in both libraries, over any that the environment has.
    **dict.fromkeys(
        ("endpoint", "aws_endpoint", "endpoint_url", "aws_endpoint_url"), "aws_endpoint_url_s3"
    ),
    **dict.fromkeys(("default_region", "aws_default_region"), "aws_region"),
    **dict.fromkeys(("token", "aws_token"), "aws_session_token"),
    "aws_allow_http": "allow_http",
    "request_timeout": "timeout",
    **{name.removeprefix("aws_"): name for name in _AWS_OPTIONS},
    **{name: name for name in (*_AWS_OPTIONS, *_CLIENT_OPTIONS, *_RETRY_OPTIONS)},
}
_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_TRUE = ("true", "1", "yes", "on", "y", "t")


def _check_options(given: Mapping[str, str], kind: str) -> dict[str, str]:
    """The options under their one name, with values as both libraries read them."""
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise InvalidOption(f"storage_options maps names to values, unlike {given!r}.")
    if given and kind != "s3":
        raise InvalidOption(
            f"A lake at a {kind} location takes no storage options. Leave them out: "
            + ", ".join(sorted(given)),
            option=sorted(given)[0],
        )
    options: dict[str, str] = {}
    for key, value in given.items():
        name = _ALIASES.get(key.lower())
        if name is None:
            raise InvalidOption(
                f"There is no storage option {key!r}. {suggest(key, _ALIASES)}",
                option=key,
            )
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if options.setdefault(name, text) != text:
            raise InvalidOption(
                f"The storage option {name!r} is given twice, with two values. Keep one.",
                option=key,
            )
    if kind == "s3":
        _check_plain_http(options)
    return options


def _check_plain_http(options: Mapping[str, str]) -> None:
    endpoints = (options.get("aws_endpoint_url_s3"), *map(os.environ.get, _ENDPOINT_VARIABLES))
    endpoint = next(filter(None, endpoints), "")
    allowed = options.get("allow_http", os.environ.get("AWS_ALLOW_HTTP", ""))
    if endpoint.startswith("http://") and allowed.lower() not in _TRUE:
        raise InvalidOption(
            f"The endpoint {endpoint} is not encrypted. If that is meant, set the storage option "
            "allow_http to 'true', or AWS_ALLOW_HTTP=true.",
            option="allow_http",
        )


# --------------------------------------------------------------------------------------------------
# Memory lakes
# --------------------------------------------------------------------------------------------------

_memory_lock = threading.Lock()
_directory: str | None = None


def _memory_directory() -> str:
    """This process's directory for the tables of its memory lakes, made at the first call."""
    global _directory
    with _memory_lock:
        if _directory is None:
            parent = tempfile.gettempdir()
            _remove_abandoned(parent)
            _directory = _make_directory(parent)
        return _directory


def _prefix() -> str:
    return f"tidelock-memory-{os.getuid()}-"


def _make_directory(parent: str) -> str:
    path = os.path.join(parent, f"{_prefix()}{os.getpid()}-{secrets.token_hex(4)}")
    # The lock is there before the directory and goes after it, so that a directory without a
    # locked lock is one that nobody uses. It is the kernel's: it ends with the process.
    lock = os.open(path + ".lock", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.mkdir(path, 0o700)
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:
            _remove_directory(path)

    atexit.register(remove)
    return path


def _remove_abandoned(parent: str) -> None:
    with os.scandir(parent) as entries:
        paths = [e.path for e in entries if e.name.startswith(_prefix()) and "." not in e.name]
    for path in paths:
        # Somebody else may be removing it at the same time.
        with contextlib.suppress(OSError):
            status = os.lstat(path)
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid():
                _remove_unless_locked(path)


def _remove_unless_locked(path: str) -> None:
    try:
        lock = os.open(path + ".lock", os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        _remove_directory(path)
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove_directory(path)
    except BlockingIOError:
        pass
    finally:
        os.close(lock)


def _remove_directory(path: str) -> None:
    shutil.rmtree(path, ignore_errors=True)
    if not os.path.lexists(path):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path + ".lock")
