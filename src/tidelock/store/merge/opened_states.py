"""States of one table that a merge looks at: at the source, at the target and at the bases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidelock.errors import SnapshotExpired
from tidelock.model.history.commit import TableState
from tidelock.model.schema.schema import TableSchema
from tidelock.store.kinship.bases import Tip, collected
from tidelock.store.kinship.identity import Path
from tidelock.store.parts import Parts
from tidelock.store.tables.datasets import FIRST_PIN
from tidelock.store.tables.fragments import Dataset


@dataclass(frozen=True)
class OpenedState:
    """One state of a table: where it is from, its pin and its columns."""

    tip: Tip
    state: TableState
    dataset: Dataset
    schema: TableSchema

    @property
    def id(self) -> str:
        return self.state.id


@dataclass(frozen=True)
class BaseOf:
    """A base of a table, and the ways from there to both sides."""

    opened: OpenedState
    to_source: Path
    to_target: Path


def open_state(store: Parts, tip: Tip, state: TableState) -> OpenedState:
    dataset = store.files.read(state)
    return OpenedState(tip, state, dataset, store.files.schema(state, dataset))


def open_bases(
    store: Parts,
    bases: Sequence[tuple[Tip, Path, Path]],
    states: Sequence[TableState | None],
    target: OpenedState,
) -> list[BaseOf]:
    """The bases at which there is a table, those at which it is the same as one."""
    found: list[BaseOf] = []
    for (tip, here, there), state in zip(bases, states, strict=True):
        if state is None or any(_same(one.opened, tip, state) for one in found):
            continue
        try:
            found.append(BaseOf(open_state(store, tip, state), here, there))
        except SnapshotExpired as error:
            raise collected(f"table {state.name} at {tip.told}") from error
    return found or [_nothing(store, target)]


def _same(one: OpenedState, tip: Tip, state: TableState) -> bool:
    return one.state.pin == state.pin or one.tip.origin(one.state) == tip.origin(state)


def _nothing(store: Parts, target: OpenedState) -> BaseOf:
    """The base of a table that no base has: all rows are new to both sides."""
    empty = replace(target.state, pin=FIRST_PIN, checksum=0, rows=0)
    dataset = store.files.open(empty.id, FIRST_PIN)
    nowhere = Path(store)
    return BaseOf(OpenedState(target.tip, empty, dataset, target.schema), nowhere, nowhere)
