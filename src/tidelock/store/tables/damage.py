"""Damage: which files of a table are not what they were when they were committed.

Owns: comparing files with their checksums, and the errors that say what was found. Lance notices
some damage itself, as errors of many kinds and as panics; it reads over the rest. So whatever fails
while rows are read is looked into here, and what is wrong is said by the name of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tidelock.errors import (
    Advice,
    BrokenInvariant,
    CorruptObject,
    FormatError,
    ObjectMissing,
    StoreFull,
    StoreUnavailable,
    TidelockError,
)
from tidelock.store.objects.checksums import checksum
from tidelock.store.objects.disk_space import is_full
from tidelock.store.objects.parallel import side_by_side
from tidelock.store.objects.protocol import MAKE_ROOM
from tidelock.store.tables.file_sums import (
    TableObjects,
    named_checksum,
    read_sum,
    sum_file,
    sum_path,
)

if TYPE_CHECKING:
    from lance.fragment import FragmentMetadata

THREADS = 8

What = Literal["missing", "damaged", "unchecked"]


@dataclass(frozen=True, slots=True)
class Damage:
    """A file that is not as it was, or of which nobody can tell."""

    key: str
    what: What
    why: str


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file that a pin needs."""

    path: str
    size_bytes: int | None = None
    """As its manifest says."""


def manifest_checksum(dataset: Any) -> int:
    """The checksum of a manifest as Lance has read it: whatever of it has a meaning."""
    return checksum(dataset._ds.serialized_manifest())


def check_file(objects: TableObjects, root: str, file: TableFile) -> Damage | None:
    """Compare a file of the dataset at `root` with its checksum, reading all of it."""
    try:
        expected = named_checksum(file.path)
        laid = read_sum(objects, root, file.path) if expected is None else None
    except FormatError as error:
        return Damage(root + sum_path(file.path), "damaged", error.message)
    known = None if laid is None else laid.files.get(file.path)
    if known is not None:
        expected = known.checksum
    key = root + file.path
    try:
        found = sum_file(objects, key)
    except ObjectMissing:
        return Damage(key, "missing", "it is not there")
    for size in (file.size_bytes, known and known.size_bytes):
        if size is not None and size != found.size_bytes:
            why = f"it has {found.size_bytes:,} bytes in the place of {size:,}"
            return Damage(key, "damaged", why)
    if expected is None:
        return Damage(key, "unchecked", "no checksum of it is kept")
    if expected != found.checksum:
        return Damage(key, "damaged", "its checksum does not fit its content")
    return None


def check_index(
    objects: TableObjects, root: str, uuid: str, fragments: frozenset[int]
) -> Iterator[Damage]:
    """Compare the files of an index with their checksums, and what it covers with what it did."""
    path = f"_indices/{uuid}"
    try:
        laid = read_sum(objects, root, path)
    except FormatError as error:
        yield Damage(root + sum_path(path), "damaged", error.message)
        return
    if laid is None:
        yield Damage(root + path, "unchecked", "no checksum of it is kept")
        return
    if not fragments <= set(laid.fragments):
        yield Damage(root + path, "damaged", "it is said to cover fragments that it does not")
    for one, expected in laid.files.items():
        try:
            if sum_file(objects, root + one) != expected:
                yield Damage(root + one, "damaged", "its checksum does not fit its content")
        except ObjectMissing:
            yield Damage(root + one, "missing", "it is not there")


def check_files(
    objects: TableObjects, root: str, files: list[TableFile], bytes_max: int | None = None
) -> Iterator[Damage]:
    """Compare files with their checksums, several at a time; at most so many bytes, if told."""
    left = float("inf") if bytes_max is None else bytes_max
    chosen = []
    for file in files:
        left -= file.size_bytes or 0
        if left < 0:
            break
        chosen.append(file)
    checked = side_by_side(lambda file: check_file(objects, root, file), chosen, THREADS)
    yield from (damage for damage in checked if damage is not None)


def fragment_files(fragments: Iterable[FragmentMetadata]) -> list[TableFile]:
    """The files of fragments."""
    found = []
    for fragment in fragments:
        for file in fragment.files:
            found.append(TableFile(f"data/{file._path}", file.file_size_bytes))
        if fragment.deletion_file is not None:
            found.append(TableFile(fragment.deletion_file.path(fragment.id)))
    return found


def refuse_damaged(
    objects: TableObjects, root: str, table: str, fragments: Iterable[FragmentMetadata]
) -> None:
    """CorruptObject when a file of fragments is not what it was: what is made from them would be
    as wrong, and nobody could tell any more."""
    for damage in check_files(objects, root, fragment_files(fragments)):
        if damage.what != "unchecked":
            raise corrupt(table, damage)


# Errors

# Lance names the lines of its own source that an error went through.
_SOURCE_LINES = re.compile(r",? \S+\.rs:\d+:\d+.*", re.DOTALL)


def is_panic(error: BaseException) -> bool:
    """Whether Rust gave up: that is no Exception, and would end whatever thread it is in."""
    return type(error).__name__ == "PanicException"


def is_failure(error: BaseException) -> bool:
    """Whether something failed; not an interruption, nor the end of a generator."""
    return isinstance(error, Exception) or is_panic(error)


def unavailable(what: str, error: BaseException, then: str = "") -> StoreUnavailable:
    cause = _SOURCE_LINES.sub("", str(error)).rstrip(". ")
    if is_full(error):
        return StoreFull(f"{what}: {cause}. {then}".rstrip(), MAKE_ROOM, cause=str(error))
    told = f"{what}: {cause}. {then}Try again when the store answers."
    return StoreUnavailable(told, cause=str(error))


def panicked(what: str, error: BaseException) -> BrokenInvariant:
    return BrokenInvariant(f"Lance panicked while {what}: {error}")


def corrupt(table: str, damage: Damage) -> CorruptObject:
    return CorruptObject(
        f"The file {damage.key!r} of table {table!r} is damaged: {damage.why.rstrip('.')}. "
        "Restore it from a copy of the lake, read an earlier version that is still whole, or "
        "overwrite or drop the table.",
        Advice(
            "lake.verify() shows what else is damaged.",
            "`tidelock verify` shows what else is damaged.",
        ),
        table=table,
        key=damage.key,
        cause=damage.why,
    )


def is_of_the_store(error: BaseException) -> bool:
    """Whether Lance says that its store failed it."""
    return isinstance(error, OSError) or "LanceError(IO)" in str(error)


def manifest_damage(objects: TableObjects, key: str, error: BaseException) -> TidelockError | None:
    """What is to be said about a manifest that Lance could not open; None if it is not there."""
    try:
        found = objects.info(key)
    except TidelockError:
        return unavailable(f"Lance could not open {key!r}", error)
    if found is None:
        return None
    told = _SOURCE_LINES.sub("", str(error)).rstrip(". ")
    why = "it is empty" if not found.size_bytes else f"Lance cannot read it ({told})"
    return corrupt(key.split("/")[1], Damage(key, "damaged", why))
