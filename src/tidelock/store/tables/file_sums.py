"""Sums: a checksum for every file of a table, known before a commit names it.

Owns: where the checksum of each file that Lance wrote is kept, and how it gets there. On files, the
name bears it, because to rename a file costs next to nothing. Where a name cannot be changed it
lies beside, under the same path. An index, a folder of files, has one object for all of them
everywhere, which also tells the fragments that it covers.

    data/<Lance's name>-<checksum>.lance          eight hexadecimal digits
    _deletions/<fragment>-<version>-<id>.<kind>   the upper half of the id; the lower has a mark
    _sums/data/<name>.json   _sums/_deletions/<name>.json   _sums/_indices/<uuid>.json

Manifests have theirs in the commit (`TableState.checksum`), which is checked when they are opened.
The others are checked by `verify`, and before fragments are rewritten.

Law: a pin is handed out only when the checksums of all files that it added are kept. They are taken
from the files as they were stored. On S3 that is done while Lance writes the manifest, so that a
commit waits for it no longer than for Lance.
After a crash: sums of files that no commit names are garbage, as the files are.
"""

from __future__ import annotations

import os
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote

from tidelock.errors import ObjectMissing
from tidelock.store.objects import layout
from tidelock.store.objects.checksums import checksum
from tidelock.store.objects.kinds.local import LocalObjects
from tidelock.store.objects.kinds.location import locate
from tidelock.store.objects.parallel import in_parallel, submit
from tidelock.store.objects.records import decode, encode

if TYPE_CHECKING:
    from lance.fragment import FragmentMetadata

    from tidelock.store.objects.kinds.remote import ObstoreObjects

FOLDER = "_sums"
THREADS = 64
"""So many tables are staged side by side, of which each waits for its own."""
REMEMBERED_MAX = 4096

TableObjects: TypeAlias = "LocalObjects | ObstoreObjects"

_NAMED_DATA = re.compile(r"data/.+-([0-9a-f]{8})\.lance")
_NAMED_DELETIONS = re.compile(r"_deletions/[0-9]+-[0-9]+-([0-9]+)\.[a-z]+")
_MARK, _MARK_BITS = 0x71DE10, 0xFFFFFF
"""What tells the ids that we give to deletion files from those that Lance makes up."""


@dataclass(frozen=True, slots=True)
class FileSum:
    size_bytes: int
    checksum: int


@dataclass(frozen=True, slots=True)
class Sum:
    """What is known of a file, or of the files of an index."""

    files: Mapping[str, FileSum]
    """By their paths in the dataset."""
    fragments: tuple[int, ...] = ()
    """Those that an index covers."""
    format: int = 1


def sum_path(path: str) -> str:
    """Where the sum of a file is, or of the folder of an index; both relative to the dataset."""
    return f"{FOLDER}/{path}.json"


def summed_path(path: str) -> str | None:
    """What a sum is of, by its own path; None for what is no sum."""
    inside = path.removeprefix(f"{FOLDER}/")
    return inside.removesuffix(".json") if inside != path and inside.endswith(".json") else None


def sum_file(objects: TableObjects, key: str) -> FileSum:
    """The sum of a file as it is stored, read in pieces."""
    size_bytes = found = 0
    for piece in objects.pieces(key):
        size_bytes += len(piece)
        found = checksum(piece, found)
    return FileSum(size_bytes, found)


def read_sum(objects: TableObjects, root: str, path: str) -> Sum | None:
    """The sum that lies beside a file or an index; CorruptObject if it is damaged."""
    key = root + sum_path(path)
    try:
        return decode(objects.get(key), Sum, key)
    except ObjectMissing:
        return None


def named_checksum(path: str) -> int | None:
    """The checksum that the name of a file bears."""
    data = _NAMED_DATA.fullmatch(path)
    if data is not None:
        return int(data[1], 16)
    deletions = _NAMED_DELETIONS.fullmatch(path)
    number = 0 if deletions is None else int(deletions[1])
    return number >> 32 if number & _MARK_BITS == _MARK else None


def name_fragments(root: str, fragments: Iterable[FragmentMetadata]) -> None:
    """Give the data files of fragments, just written below a folder, names with checksums."""
    objects = LocalObjects(root)
    for fragment in fragments:
        for file in fragment.files:
            old = f"data/{file._path}"
            found = sum_file(objects, old)
            file._path = f"{file._path.removesuffix('.lance')}-{found.checksum:08x}.lance"
            os.rename(f"{root}/{old}", f"{root}/data/{file._path}")


def name_deletions(root: str, fragment: FragmentMetadata) -> None:
    """The same for the deletion file of a fragment, just written."""
    objects = LocalObjects(root)
    told: Any = fragment.deletion_file
    old = told.path(fragment.id)
    number = sum_file(objects, old).checksum << 32 | told.id & 0xFF000000 | _MARK
    named = (told.read_version, number, told.file_type, told.num_deleted_rows, told.base_id)
    fragment.deletion_file = type(told)(*named)
    os.rename(f"{root}/{old}", f"{root}/{fragment.deletion_file.path(fragment.id)}")


def sum_on_executor(
    uri: str, storage_options: Mapping[str, str] | None, fragments: Sequence[FragmentMetadata]
) -> None:
    """On an executor: keep the checksums of fragments of the dataset at a URI of Lance's."""
    if not uri.startswith("s3://"):
        name_fragments(uri, fragments)
        return
    objects = objects_at(uri, storage_options)
    for path in data_files(fragments):
        _lay_beside(objects, "", path)


def objects_at(uri: str, storage_options: Mapping[str, str] | None) -> TableObjects:
    """The files of the dataset at a URI of Lance's, for an executor."""
    place = unquote(uri) if uri.startswith("s3://") else uri
    return locate(place, storage_options).table_objects()


def data_files(fragments: Iterable[FragmentMetadata]) -> list[str]:
    """The data files of fragments, relative to their dataset."""
    return [f"data/{file._path}" for fragment in fragments for file in fragment.files]


def _lay_beside(objects: TableObjects, root: str, path: str) -> None:
    found = Sum({path: sum_file(objects, root + path)})
    objects.put(root + sum_path(path), encode(found))


class Sums:
    """The sums that one handle keeps."""

    def __init__(self, objects: TableObjects) -> None:
        self._objects = objects
        self._names = isinstance(objects, LocalObjects)
        self._lock = threading.Lock()
        self._begun: OrderedDict[tuple[str, str], Future[None]] = OrderedDict()
        """What lies beside, or will."""

    def written(self, table_id: str, fragments: Sequence[FragmentMetadata]) -> None:
        """Keep the checksums of fragments that were just written."""
        if not self._names:
            self.begin(table_id, data_files(fragments))
        elif len(fragments) == 1:
            name_fragments(self._root(table_id), fragments)
        else:
            root = self._root(table_id)
            # No more at once than there are cores: each thread keeps a piece that it has read.
            in_parallel(lambda one: name_fragments(root, [one]), fragments)

    def deleted(self, table_id: str, fragments: Sequence[FragmentMetadata]) -> None:
        """Keep the checksums of the deletion files of fragments, just written."""
        if not self._names:
            self.begin(table_id, [one.deletion_file.path(one.id) for one in fragments])
            return
        for fragment in fragments:
            name_deletions(self._root(table_id), fragment)

    def begin(self, table_id: str, paths: Iterable[str]) -> None:
        """Lay the sums of files beside them, meanwhile."""
        for path in paths:
            self._submit(table_id, path, ())

    def begin_index(self, table_id: str, uuid: str, fragments: Iterable[int]) -> None:
        self._submit(table_id, f"_indices/{uuid}", tuple(sorted(fragments)))

    def note(self, table_id: str, paths: Iterable[str]) -> None:
        """Others have kept these."""
        done: Future[None] = Future()
        done.set_result(None)
        with self._lock:
            for path in paths:
                self._remember((table_id, path), done)

    def finish(self, table_id: str, paths: Iterable[str], named: bool = True) -> None:
        """Wait for what lies beside, beginning what was not begun; where Tidelock `named` the
        files, some names bear it."""
        for path in paths:
            if named and self._names and named_checksum(path) is not None:
                continue
            self._submit(table_id, path, ())
            with self._lock:
                begun = self._begun[table_id, path]
            try:
                begun.result()
            except BaseException:
                # It is begun anew the next time.
                with self._lock:
                    self._begun.pop((table_id, path), None)
                raise

    def _root(self, table_id: str) -> str:
        return f"{self._objects.uri}/{layout.table(table_id)}"

    def _submit(self, table_id: str, path: str, fragments: tuple[int, ...]) -> None:
        with self._lock:
            if (table_id, path) not in self._begun:
                begun = submit(self._pool, self._write, table_id, path, fragments)
                self._remember((table_id, path), begun)

    def _remember(self, key: tuple[str, str], begun: Future[None]) -> None:
        self._begun[key] = begun
        if len(self._begun) > REMEMBERED_MAX:
            self._begun.popitem(last=False)

    def _write(self, table_id: str, path: str, fragments: tuple[int, ...]) -> None:
        root = layout.table(table_id) + "/"
        if not path.startswith("_indices/"):
            _lay_beside(self._objects, root, path)
            return
        infos = self._objects.list(root + path)
        files = {info.key.removeprefix(root): sum_file(self._objects, info.key) for info in infos}
        self._objects.put(root + sum_path(path), encode(Sum(files, fragments)))

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(THREADS, thread_name_prefix="tidelock-sums")
