"""The folder of a destination of files: rows alone, and a folder of ours beside it.

    <parent>/<name>/…                             the files: nothing else is ever in there
    <parent>/_tidelock/<name>/manifest.json       what is there, and up to where
    <parent>/_tidelock/<name>/manifest-….json     earlier entries of the manifest
    <parent>/_tidelock/<name>/aside/<time>/…      files of plans that were given up
    <parent>/_tidelock/<name>/unfinished-…        on its way into the folder

Readers take a folder as a whole, and some of them (Polars) every file below it, whatever its name:
so nothing but rows is below. `_tidelock` is passed over by those that read the parent.

Owns: every act at the destination. Before each of them a guard is asked whether this process may
still act; it raises if another has taken over. The manifest is replaced only if it is the one that
was read, by one step in a bucket; on a file system it is looked at just before.
Invariants: a file is there completely or not at all. Nothing is removed but by `remove`, which is
called only when somebody said that rows may go.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from tidelock.deliver.destinations.files.formats import Where
from tidelock.deliver.destinations.files.manifests import Manifest, decode_manifest, encode_manifest
from tidelock.deliver.destinations.files.names import FileNames, NamedFile
from tidelock.deliver.destinations.protocol import Guard, unguarded
from tidelock.errors import CorruptObject, InvalidOption, ObjectExists, ObjectMissing
from tidelock.store.objects.failpoints import hit
from tidelock.store.objects.kinds.keys import check_key
from tidelock.store.objects.kinds.location import locate
from tidelock.store.objects.kinds.outside import BucketPlace, LocalPlace
from tidelock.store.objects.kinds.remote import ObstoreObjects

OWN = "_tidelock"
MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class ManifestCopy:
    """The manifest as it was read."""

    manifest: Manifest | None = None
    damage: str = ""
    """Why it cannot be read, if it is there and cannot."""
    tagged: tuple[bytes, str] | None = None
    """Its bytes and their tag; None when it is not there."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of the sink's that is there."""

    named: NamedFile
    size_bytes: int


def divide(to: str) -> tuple[str, str]:
    """The parent of a folder and its name; InvalidOption when there is no room beside it."""
    location = locate(to)
    if location.kind == "memory":
        parent, name = "memory://", location.uri.removeprefix("memory://")
        return parent, name
    uri = os.path.realpath(location.uri) if location.kind == "file" else location.uri
    parent, _, name = uri.rpartition("/")
    if not name or parent == "s3:/":
        what = "a whole bucket" if location.kind == "s3" else "no folder"
        raise InvalidOption(
            f"{to} is {what}: the manifest of what is delivered is kept beside the folder of the "
            f"files. Name a folder in it, such as {to.rstrip('/')}/rows.",
            to=to,
        )
    if OWN in uri.split("/"):
        raise InvalidOption(
            f"{to} lies in a folder {OWN!r}, where Tidelock keeps what is its own. Choose another "
            "address.",
            to=to,
        )
    return parent, check_key(name)


class FileFolder:
    """The folder of one destination. Keys are relative to that of the rows.

    Owns: every object that the destination has, and the order in which they are replaced.
    """

    def __init__(self, to: str, names: FileNames, storage_options: Mapping[str, str]) -> None:
        parent, self._name = divide(to)
        self.to = to
        self.names = names
        self._guard: Guard = unguarded
        self._objects: LocalPlace | BucketPlace
        location = locate(to, storage_options=storage_options or None)
        if location.kind == "file":
            self._objects = LocalPlace(parent)
        else:
            whole = location if location.kind == "memory" else locate(parent, storage_options)
            objects = whole.objects()
            assert isinstance(objects, ObstoreObjects)
            self._objects = BucketPlace.of(objects)
        self._own = f"{OWN}/{self._name}"

    def accept(self, guard: Guard) -> None:
        """Ask before each act from now on."""
        self._guard = guard

    @property
    def manifest_uri(self) -> str:
        return f"{self._objects.uri.rstrip('/')}/{self._own}/{MANIFEST}"

    # Files

    def files(self) -> list[StoredFile]:
        """The sink's files that are there, by key; what others put there is not among them."""
        files = []
        for info in self._objects.list(self._name):
            named = self.names.read(info.key.removeprefix(f"{self._name}/"))
            if named is not None:
                files.append(StoredFile(named, info.size_bytes))
        return files

    def size_of(self, key: str) -> int | None:
        """The size of a file in bytes; None when it is not there."""
        info = self._objects.info(self._key(key))
        return None if info is None else info.size_bytes

    def open(self, key: str) -> IO[bytes]:
        return self._objects.open(self._key(key))

    def is_gone(self) -> bool:
        """Whether the folder is missing, where there are folders."""
        if not isinstance(self._objects, LocalPlace):
            return False
        return not Path(self._objects.uri, self._name).is_dir()

    def make(self) -> None:
        """Make the folder, where there are folders."""
        if isinstance(self._objects, LocalPlace):
            Path(self._objects.uri, self._name).mkdir(parents=True, exist_ok=True)

    def put(self, key: str, write: Callable[[Where], None]) -> int:
        """Make one file of what is written, completely or not at all; its size in bytes."""
        if not isinstance(self._objects, LocalPlace):
            # Without a name, so that a process that is killed leaves nothing of it.
            with tempfile.TemporaryFile() as file:
                write(file)
                size_bytes = file.tell()
                file.seek(0)
                hit("files.before_put")
                self._guard()
                self._objects.put_file(self._key(key), file)
                return size_bytes
        folder = Path(self._objects.uri, self._own)
        folder.mkdir(parents=True, exist_ok=True)
        # Where it can be moved from without being copied.
        path = folder / f"unfinished-{secrets.token_hex(8)}"
        try:
            write(path)
            size_bytes = path.stat().st_size
            hit("files.before_put")
            self._guard()
            self._objects.put_file(self._key(key), path)
            return size_bytes
        finally:
            path.unlink(missing_ok=True)

    def sweep_unfinished(self) -> None:
        """Remove what a process that was killed had begun to write, and nobody ever saw."""
        if isinstance(self._objects, LocalPlace):
            for path in Path(self._objects.uri, self._own).glob("unfinished-*"):
                self._guard(surely=True)
                path.unlink(missing_ok=True)

    def set_aside(self, keys: Iterable[str]) -> None:
        """Move files out of the folder, to where they can be looked at."""
        where = f"{self._own}/aside/{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
        for key in keys:
            hit("files.before_removal")
            self._guard(surely=True)
            with suppress(ObjectMissing):
                self._objects.move(self._key(key), f"{where}/{key}")

    def remove(self, keys: Iterable[str]) -> None:
        for key in keys:
            hit("files.before_removal")
            self._guard(surely=True)
            self._objects.delete(self._key(key))

    # The manifest

    def read_manifest(self) -> ManifestCopy:
        """The manifest; NewerFormat when this version cannot read it."""
        try:
            tagged = self._objects.get_tagged(f"{self._own}/{MANIFEST}")
        except ObjectMissing:
            return ManifestCopy()
        try:
            return ManifestCopy(
                decode_manifest(tagged[0], f"The manifest {self.manifest_uri}"), tagged=tagged
            )
        except CorruptObject as error:
            return ManifestCopy(damage=error.message, tagged=tagged)

    def read_earlier(self, name: str) -> Manifest:
        """Earlier entries of a manifest; CorruptObject also when they are gone."""
        where = f"{self.manifest_uri.removesuffix(MANIFEST)}{name}"
        try:
            return decode_manifest(self._objects.get(f"{self._own}/{name}"), where)
        except ObjectMissing as error:
            raise CorruptObject(f"{where} is gone, which the manifest names.") from error

    def keep_earlier(self, name: str, manifest: Manifest) -> None:
        self._guard()
        self._objects.put(f"{self._own}/{name}", encode_manifest(manifest))

    def take(self, manifest: Manifest) -> None:
        """Write the first manifest, unless there is one."""
        self._guard()
        with suppress(ObjectExists):
            self._objects.put_new(f"{self._own}/{MANIFEST}", encode_manifest(manifest))

    def replace_manifest(self, copy: ManifestCopy, manifest: Manifest) -> None:
        """Put a manifest in the place of the one that was read; ObjectExists if that is gone."""
        key, data = f"{self._own}/{MANIFEST}", encode_manifest(manifest)
        hit("files.before_manifest")
        self._guard()
        if copy.tagged is None:
            self._objects.put_new(key, data)
        else:
            self._objects.put_over(key, data, copy.tagged)

    def _key(self, key: str) -> str:
        return f"{self._name}/{key}"
