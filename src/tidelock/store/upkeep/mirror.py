"""The mirror: Lance's own HEAD of a table, kept equal to main's pin on request.

Owns: the moving of HEAD; mirror_notes.py keeps which HEAD was made from which pin. Any Lance reader
can then open the table plainly. Tidelock itself never reads HEAD.
Invariant: a HEAD that we did not make is a foreign commit. It is shown, and adopted or discarded
on an explicit word, never silently.
After a crash: where HEAD was being moved to was noted before, so a HEAD that has exactly those
files is known as ours.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable

import lance

from tidelock.errors import Advice, ForeignCommit, FormatError
from tidelock.model.history.commit import TableState
from tidelock.store.objects import layout
from tidelock.store.objects.failpoints import hit
from tidelock.store.parts import Parts
from tidelock.store.tables.damage import Damage, corrupt, is_failure, manifest_damage
from tidelock.store.tables.datasets import lance_failures
from tidelock.store.tables.fragments import Dataset, fragment_files
from tidelock.store.upkeep.mirror_notes import Foreign, Mirror, known_mirror, mirrored, note_mirror

logger = logging.getLogger("tidelock")

_ATTACHED = re.compile(r"/[0-9]{20}\.manifest$")


def _head(store: Parts, table_id: str) -> Dataset:
    uri, options = store.files.uri(table_id), store.location.lance_options
    try:
        return lance.dataset(uri, storage_options=options)
    except BaseException as error:
        if not is_failure(error):
            raise
        objects, folder = store.files.objects, f"{layout.table(table_id)}/_versions"
        # Lance counts down, so that the newest comes first.
        found = sorted(info.key for info in objects.list(folder) if _ATTACHED.search(info.key))
        damage = manifest_damage(objects, found[0], error) if found else None
        raise damage or corrupt(table_id, Damage(folder, "missing", "Lance has no HEAD")) from error


def foreign_commit(store: Parts, state: TableState) -> Foreign | None:
    """The foreign commit on a table's HEAD, if there is one."""
    known = known_mirror(store.objects, state.id)
    head = _head(store, state.id)
    if head.version == known.head:
        return None
    if known.moving is not None and known.moving[1] == _digest(head):
        # Moving HEAD was cut short after it had moved: what is missing is the note.
        return None
    return Foreign(
        state.name, store.files.uri(state.id), known.head, head.version, head.count_rows()
    )


def foreign_commits(store: Parts, states: Iterable[TableState]) -> list[Foreign]:
    """The foreign commits on mirrored tables. Opens no other table."""
    found = []
    for state in mirrored(store.objects, states):
        try:
            found.append(foreign_commit(store, state))
        except FormatError as error:
            # It hides none of another table, and is for `verify` to name.
            logger.warning("%s", error.message)
    return [foreign for foreign in found if foreign is not None]


def mirror(store: Parts, state: TableState) -> Mirror:
    """Make HEAD equal to the table's pin; ForeignCommit when somebody else moved it."""
    foreign = foreign_commit(store, state)
    if foreign is not None:
        raise ForeignCommit(
            f"The Lance HEAD of {state.name!r} is at version {foreign.actual}, which Tidelock did "
            f"not make (expected {foreign.expected}).",
            Advice(
                "See lake.repair(), then adopt or discard it.",
                "See `tidelock repair`, then adopt or discard it.",
            ),
            table=state.name,
            expected=foreign.expected,
            actual=foreign.actual,
        )
    return _move_head(store, state)


def _move_head(store: Parts, state: TableState) -> Mirror:
    known = known_mirror(store.objects, state.id)
    head = _head(store, state.id)
    if known.pin == state.pin and head.version == known.head:
        return known
    digest = _digest(store.files.read(state))
    moving = Mirror(state.id, known.head, known.pin, (state.pin, digest))
    note_mirror(store.objects, moving)
    hit("mirror.before_move")
    with lance_failures(head.uri):
        moved = lance.LanceDataset.commit(head, lance.LanceOperation.Restore(state.pin))
    hit("mirror.after_move")
    made = accept_head(store, state.id, moved.version, state.pin)
    if moved.version != head.version + 1:
        raise ForeignCommit(
            f"Somebody else committed to the Lance HEAD of {state.name!r} while it was being "
            f"mirrored. HEAD shows main now; what they wrote is Lance version {moved.version - 1}.",
            table=state.name,
            expected=head.version + 1,
            actual=moved.version,
        )
    return made


def _digest(dataset: Dataset) -> str:
    files = [one for f in dataset.get_fragments() for one in fragment_files(f.metadata)]
    return hashlib.sha256("\n".join(sorted(files)).encode()).hexdigest()


def discard_foreign(store: Parts, state: TableState) -> Mirror:
    """Move HEAD back to the table's pin. The foreign version stays in Lance's own history."""
    return _move_head(store, state)


def accept_head(store: Parts, table_id: str, head: int, pin: int) -> Mirror:
    """Note that HEAD is ours from now on."""
    made = Mirror(table_id, head, pin)
    note_mirror(store.objects, made)
    return made
