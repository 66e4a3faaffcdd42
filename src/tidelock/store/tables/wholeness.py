"""Wholeness: whether the files of tables are what was committed, before and after reading them.

Lance takes damage for content more often than not, and gives up at some, with all of the process.
So small files on this machine are compared with their checksums when they are first read, which
nobody notices; and when reading fails, the files of the pin are, so that what is damaged is named.
For large files, and those on S3, there is `verify`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from tidelock.errors import CorruptObject, StoreError, TidelockError
from tidelock.model.history.commit import TableState
from tidelock.store.objects import layout
from tidelock.store.tables.damage import (
    Damage,
    check_file,
    check_files,
    check_index,
    corrupt,
    fragment_files,
    is_of_the_store,
    is_panic,
    panicked,
    unavailable,
)
from tidelock.store.tables.file_sums import TableObjects
from tidelock.store.tables.fragments import Dataset
from tidelock.store.tables.indexes import index_segments

SMALL_FILE_BYTES_MAX = 4 * 1024 * 1024
LOOKED_INTO_BYTES_MAX = 1024 * 1024 * 1024
"""How much of a table is read again to find out why reading it failed."""
REMEMBERED_MAX = 100_000


class Pins(Protocol):
    """The pins of tables, as they are read anew to look into them."""

    @property
    def objects(self) -> TableObjects: ...

    def read(self, state: TableState) -> Dataset: ...

    def forget(self, table_id: str) -> None: ...

    def missing(self, state: TableState) -> CorruptObject:
        """The error for files of a pin that are gone while the pin is not."""


class Wholeness:
    """Owns which pins were found whole, so that they are looked at once."""

    def __init__(self, files: Pins, is_near: bool) -> None:
        self._files = files
        self._is_near = is_near
        self._whole: set[str | tuple[str, int]] = set()
        """Files and pins that were found to be whole."""

    def follow(self, table_id: str, base: int, pin: int) -> None:
        """Note a pin that was made from another: what it added was read just now."""
        if (table_id, base) in self._whole:
            self._whole.add((table_id, pin))

    def look_at(self, state: TableState) -> None:
        """CorruptObject when a small file of a pin is damaged; each is looked at once."""
        if not self._is_near or (state.id, state.pin) in self._whole:
            return
        dataset = self._files.read(state)
        root = layout.table(state.id) + "/"
        for file in fragment_files(one.metadata for one in dataset.get_fragments()):
            if file.path in self._whole or (file.size_bytes or 0) > SMALL_FILE_BYTES_MAX:
                continue
            damage = check_file(self._files.objects, root, file)
            if damage is not None and damage.what != "unchecked":
                raise self._error(state, damage)
            self._whole.add(file.path)
        if len(self._whole) > REMEMBERED_MAX:
            self._whole.clear()
        self._whole.add((state.id, state.pin))

    def explain(self, states: Sequence[TableState], error: BaseException) -> BaseException:
        """What is to be said when reading pins of a table failed; the error itself if nothing is
        wrong."""
        name = states[0].name
        what = f"Lance could not read table {name!r}"
        try:
            for state in states:
                damage = next(self.damaged(state, LOOKED_INTO_BYTES_MAX), None)
                if damage is not None:
                    return self._error(state, damage)
        except StoreError:
            return unavailable(what, error)
        except TidelockError as found:
            return found
        if is_panic(error):
            return panicked(f"reading table {name!r}", error)
        return unavailable(what, error) if is_of_the_store(error) else error

    def damaged(self, state: TableState, bytes_max: int | None = None) -> Iterator[Damage]:
        """The files of a pin that are gone or are not what they were."""
        self._files.forget(state.id)
        dataset = self._files.read(state)
        objects, root = self._files.objects, layout.table(state.id) + "/"
        fragments = [fragment.metadata for fragment in dataset.get_fragments()]
        found = [check_files(objects, root, fragment_files(fragments), bytes_max)]
        for one in index_segments(dataset):
            found.append(check_index(objects, root, one.uuid, one.fragments))
        for damages in found:
            yield from (damage for damage in damages if damage.what != "unchecked")

    def _error(self, state: TableState, damage: Damage) -> TidelockError:
        if damage.what != "missing":
            return corrupt(state.name, damage)
        # Garbage collection removes manifests first: if this one is gone, that is what happened.
        self._files.forget(state.id)
        self._files.read(state)
        return self._files.missing(state)
