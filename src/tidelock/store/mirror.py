"""The mirror: Lance's own HEAD of a table, kept equal to main's pin on request.

Owns: for each mirrored table, which HEAD was made from which pin. Any Lance reader can then open
the table plainly. Tidelock itself never reads HEAD.
Invariant: a HEAD that we did not make is a foreign commit. It is shown, and adopted or discarded
on an explicit word, never silently.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import lance

from tidelock.errors import ForeignCommit, ObjectMissing
from tidelock.model.commit import TableState
from tidelock.store import layout
from tidelock.store.records import decode, encode
from tidelock.store.tables import Dataset

if TYPE_CHECKING:
    from tidelock.store.store import Store

FIRST_VERSION = 1
"""The HEAD that creating a table leaves: it is empty, and ours."""


@dataclass(frozen=True, slots=True)
class Mirror:
    table_id: str
    head: int
    pin: int
    format: int = 1


@dataclass(frozen=True, slots=True)
class Foreign:
    """A commit that somebody else made on a table's Lance HEAD."""

    table: str
    path: str
    expected: int
    actual: int
    rows: int


def _key(table_id: str) -> str:
    return f"{layout.MIRRORS}/{table_id}.json"


def _known(store: Store, table_id: str) -> Mirror:
    try:
        return decode(store.objects.get(_key(table_id)), Mirror, _key(table_id))
    except ObjectMissing:
        return Mirror(table_id, FIRST_VERSION, FIRST_VERSION)


def _head(store: Store, table_id: str) -> Dataset:
    return lance.dataset(store.files.uri(table_id), storage_options=store.location.lance_options)


def foreign_commit(store: Store, state: TableState) -> Foreign | None:
    """The foreign commit on a table's HEAD, if there is one."""
    known = _known(store, state.id)
    head = _head(store, state.id)
    if head.version == known.head:
        return None
    return Foreign(
        state.name, store.files.uri(state.id), known.head, head.version, head.count_rows()
    )


def mirror(store: Store, state: TableState) -> Mirror:
    """Make HEAD equal to the table's pin; ForeignCommit when somebody else moved it."""
    foreign = foreign_commit(store, state)
    if foreign is not None:
        raise ForeignCommit(
            f"The Lance HEAD of {state.name!r} is at version {foreign.actual}, which Tidelock did "
            f"not make (expected {foreign.expected}). See `tidelock repair`, then adopt or "
            "discard it.",
            table=state.name,
            expected=foreign.expected,
            actual=foreign.actual,
        )
    return _move_head(store, state)


def _move_head(store: Store, state: TableState) -> Mirror:
    known = _known(store, state.id)
    if known.pin == state.pin and _head(store, state.id).version == known.head:
        return known
    moved = lance.LanceDataset.commit(
        _head(store, state.id), lance.LanceOperation.Restore(state.pin)
    )
    made = Mirror(state.id, moved.version, state.pin)
    store.objects.put(_key(state.id), encode(made))
    return made


def discard_foreign(store: Store, state: TableState) -> Mirror:
    """Move HEAD back to the table's pin. The foreign version stays in Lance's own history."""
    return _move_head(store, state)


def accept_head(store: Store, table_id: str, head: int, pin: int) -> None:
    """Note that HEAD is ours from now on: its content was adopted."""
    store.objects.put(_key(table_id), encode(Mirror(table_id, head, pin)))
