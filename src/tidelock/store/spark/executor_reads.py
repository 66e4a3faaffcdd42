"""Reading on an executor: opening a pin, and saying what is wrong with one that cannot be read.

What fails in a task reaches the driver as text in an error of Spark's. So a file that is damaged is
named here, where it is read, in an error of Tidelock's whose words are found again there
(`engine_failures.told_by_worker`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import lance

from tidelock.errors import TidelockError
from tidelock.store.tables.damage import (
    Damage,
    TableFile,
    check_files,
    corrupt,
    fragment_files,
    is_failure,
    is_of_the_store,
    is_panic,
    manifest_checksum,
    panicked,
    unavailable,
)
from tidelock.store.tables.file_sums import objects_at
from tidelock.store.tables.wholeness import SMALL_FILE_BYTES_MAX


def opened(uri: str, version: int, storage_options: Mapping[str, str] | None, checksum: int) -> Any:
    """The dataset at a pin, if it is what the driver has."""
    options = dict(storage_options) if storage_options else None
    try:
        dataset = lance.dataset(uri, version=version, storage_options=options)
    except (ValueError, OSError) as error:
        raise unavailable(f"Lance could not open {uri!r} at a pin", error) from error
    if checksum not in (0, manifest_checksum(dataset)):
        why = "it is not what was committed"
        raise corrupt(_name(uri), Damage(f"version {version}", "damaged", why))
    return dataset


@contextmanager
def reading(
    dataset: Any, fragment: int, storage_options: Mapping[str, str] | None
) -> Iterator[None]:
    """Whatever fails while a fragment is read is looked into; its small files are at first."""
    files = fragment_files([dataset.get_fragment(fragment).metadata])
    if not dataset.uri.startswith("s3://"):
        small = [file for file in files if (file.size_bytes or 0) <= SMALL_FILE_BYTES_MAX]
        _refuse(dataset.uri, storage_options, small)
    try:
        yield
    except TidelockError:
        raise
    except BaseException as error:
        if not is_failure(error) or isinstance(error, MemoryError):
            raise
        _refuse(dataset.uri, storage_options, files)
        what = f"reading {dataset.uri}"
        if is_panic(error):
            raise panicked(what, error) from error
        if is_of_the_store(error):
            raise unavailable(f"Lance failed at {what}", error) from error
        raise


def _refuse(uri: str, storage_options: Mapping[str, str] | None, files: list[TableFile]) -> None:
    for damage in check_files(objects_at(uri, storage_options), "", files) if files else ():
        if damage.what != "unchecked":
            raise corrupt(_name(uri), damage)


def _name(uri: str) -> str:
    return uri.rstrip("/").rsplit("/", 1)[-1]
