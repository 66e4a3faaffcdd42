"""Survivors: what is left of a table whose newest pin was lost.

A table is overwritten although its content is gone: its columns are the same at every pin, and are
told by any other manifest that can still be opened, and by the data files themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import lance
import pyarrow as pa
from lance.file import LanceFileReader

from tidelock.model.history.commit import TableState
from tidelock.model.schema.schema import Column, TableSchema
from tidelock.store.objects import layout
from tidelock.store.tables.damage import is_failure
from tidelock.store.tables.datasets import TableFiles

MANIFESTS_TRIED_MAX = 100
_DETACHED = re.compile(r"d([0-9]+)\.manifest")
_ATTACHED = re.compile(r"([0-9]+)\.manifest")


def surviving_schema(files: TableFiles, state: TableState) -> TableSchema | None:
    """The columns of a table whose pin cannot be opened; None if nothing tells them any more."""
    known = files.known_schema(state)
    if known is not None:
        return known
    for schema in _told(files, state):
        names = {field.name for field in schema}
        if names.issuperset(state.key):
            columns = tuple(Column(field.name, field.type, field.nullable) for field in schema)
            return TableSchema(columns, state.key)
    return None


def _told(files: TableFiles, state: TableState) -> Iterator[pa.Schema]:
    """What manifests and data files tell of the columns, newest first."""
    infos = sorted(files.objects.list(layout.table(state.id)), key=lambda info: info.modified)
    paths = [info.key.split("/", 2)[2] for info in reversed(infos)]
    manifests = [_version(path) for path in paths if path.startswith("_versions/")]
    for version in [one for one in manifests if one is not None][:MANIFESTS_TRIED_MAX]:
        try:
            options = files.location.lance_options
            yield lance.dataset(files.uri(state.id), version, storage_options=options).schema
        except BaseException as error:
            if not is_failure(error):
                raise
    for path in [path for path in paths if path.startswith("data/")][:MANIFESTS_TRIED_MAX]:
        try:
            place = f"{files.uri(state.id)}/{path}"
            reader = LanceFileReader(place, storage_options=files.location.lance_options)
            yield reader.metadata().schema
        except BaseException as error:
            if not is_failure(error):
                raise


def _version(path: str) -> int | None:
    name = path.removeprefix("_versions/")
    detached, attached = _DETACHED.fullmatch(name), _ATTACHED.fullmatch(name)
    if detached is not None:
        return int(detached[1])
    return None if attached is None else 2**64 - 1 - int(attached[1])
