"""Repair: what an operator must look at, and what is done on an explicit word."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from tidelock.errors import Advice, FormatError, IntentUnreadable, InvalidOption, InvalidSchema
from tidelock.model.history.commit import Commit, TableChange, TableState
from tidelock.store.branches import MAIN
from tidelock.store.leases.intents import read_intent
from tidelock.store.leases.recovery import Recovery, heal
from tidelock.store.log.line import Line
from tidelock.store.log.operation_ids import new_operation_id
from tidelock.store.log.pending import Pending
from tidelock.store.objects import layout
from tidelock.store.parts import Parts
from tidelock.store.rows.checks import check_required, check_unique_keys
from tidelock.store.rules.rule_checks import check_replaced
from tidelock.store.tables.datasets import schema_of
from tidelock.store.tables.fragments import Dataset
from tidelock.store.upkeep.mirror import (
    accept_head,
    discard_foreign,
    foreign_commit,
)
from tidelock.store.upkeep.mirror_notes import Foreign
from tidelock.store.upkeep.repair.inventory import Finding, examine
from tidelock.store.upkeep.repair.remedies import discard_object as give_up
from tidelock.store.upkeep.repair.remedies import mend
from tidelock.store.upkeep.repair.verification import missing_objects


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What was found and what was done."""

    recovered: tuple[Recovery, ...] = ()
    foreign: tuple[Foreign, ...] = ()
    adopted: Commit | None = None
    discarded: str | None = None
    mended: tuple[Finding, ...] = ()
    """Damaged objects that were removed or made anew."""
    damaged: tuple[Finding, ...] = ()
    """Damaged objects that somebody has to decide about, and what is missing."""
    strangers: tuple[Finding, ...] = ()
    """Files among Tidelock's own that are not: they do no harm, and are left alone."""


def repair(
    store: Parts,
    table: str | None = None,
    adopt: bool = False,
    discard: bool = False,
    discard_intent: str | None = None,
    discard_object: str | None = None,
) -> RepairReport:
    if adopt and discard:
        raise InvalidOption("A foreign commit is either adopted or discarded, not both.")
    if (adopt or discard) and table is None:
        raise InvalidOption("Say of which table the foreign commit is adopted or discarded.")
    if discard_intent is not None:
        return RepairReport(discarded=_discard_intent(store, discard_intent))
    if discard_object is not None:
        return RepairReport(discarded=give_up(store, discard_object))
    if table is None:
        return _mend_all(store)
    recovered = tuple(heal(store))
    states = [store.branches.head(MAIN).tables[table]]
    found = [(state, foreign_commit(store, state)) for state in states]
    foreign = tuple(one for _, one in found if one is not None)
    if foreign and adopt:
        return RepairReport(recovered, foreign, adopted=_adopt(store, states[0], foreign[0]))
    if foreign and discard:
        discard_foreign(store, states[0])
        return RepairReport(recovered, foreign, discarded=states[0].name)
    return RepairReport(recovered, foreign)


def _mend_all(store: Parts) -> RepairReport:
    """Settle, mend and show whatever there is."""
    _, findings = examine(store.objects)
    damaged = [finding for finding in findings if finding.is_damage]
    mended = [finding for finding in damaged if mend(store, finding)]
    left = tuple(finding for finding in damaged if finding not in mended)
    known = {finding.key for finding in left}
    left += tuple(one for one in missing_objects(store) if one.key not in known)
    recovered: tuple[Recovery, ...] = ()
    foreign: list[Foreign] = []
    # What stands in the way is among what is left.
    with suppress(FormatError):
        recovered = tuple(heal(store))
    with suppress(FormatError):
        for state in store.branches.head(MAIN).tables.states():
            # A HEAD that cannot be opened is for `verify` to name; others may be foreign.
            with suppress(FormatError):
                foreign += filter(None, [foreign_commit(store, state)])
    strangers = tuple(finding for finding in findings if finding.what == "foreign")
    return RepairReport(recovered, tuple(foreign), None, None, tuple(mended), left, strangers)


def _discard_intent(store: Parts, name: str) -> str:
    key = f"{layout.INTENTS}/{name.removeprefix(layout.INTENTS + '/')}"
    info = store.objects.info(key)
    if info is None:
        raise InvalidOption(
            f"There is no intent {name!r}.",
            Advice("See lake.unreadable_intents().", "See `tidelock status`."),
            key=key,
        )
    try:
        intent = read_intent(store.objects, info)
    except IntentUnreadable:
        intent = None
    if intent is not None:
        raise InvalidOption(
            f"The intent {name!r} can be read, and is settled without help once its lease of "
            f"{intent.lease_seconds:g} seconds runs out. Discard unreadable ones only.",
            key=key,
        )
    store.objects.delete(key)
    return key


class _Adoption:
    """A foreign HEAD on its way into the log."""

    def __init__(self, store: Parts, state: TableState, foreign: Foreign, checksum: int) -> None:
        self._store = store
        self._state = state
        self._foreign = foreign
        self._checksum = checksum

    def rebase(self, line: Line) -> tuple[TableChange, ...]:
        before = line.tables[self._state.name]
        after = replace(
            before,
            pin=self._foreign.actual,
            rows=self._foreign.rows,
            changed=line.next_version,
            checksum=self._checksum,
        )
        change = TableChange(before, after, inserted=self._foreign.rows, deleted=before.rows)
        check_replaced(self._store.files, self._store.engine, line.tables, change)
        return (change,)

    def check(self) -> None:
        return


def _check_rules(store: Parts, state: TableState, foreign: Foreign) -> None:
    """What a foreign writer left must keep the table's columns, NOT NULL and its key. Its other
    rules have to do with what else there is, and are compared when it is published."""
    dataset = store.files.open(state.id, foreign.actual)
    ours = store.files.read(state)
    schema = schema_of(ours, state.key)
    if not dataset.schema.equals(ours.schema) or _columns(dataset) != _columns(ours):
        raise InvalidSchema(
            f"Lance version {foreign.actual} of {state.name!r} has other columns than the table, "
            "or the same with NULL allowed where the table forbids it. It cannot be adopted; "
            "discard it, and load its rows into a table that fits them.",
            table=state.name,
            expected=str(ours.schema),
            actual=str(dataset.schema),
        )
    for batch in dataset.scanner(columns=list(schema.names)).to_batches():
        check_required(batch, schema, state.name)
    if state.key:
        check_unique_keys(dataset.to_table(columns=list(state.key)), schema, state.name)


def _columns(dataset: Dataset) -> list[Any]:
    """The columns and what Lance numbers them, by which fragments are read: a column that was taken
    away and came again has another number."""

    def numbered(fields: Any) -> list[Any]:
        return [(field.name(), field.id(), numbered(field.children())) for field in fields]

    return numbered(dataset.lance_schema.fields())


def _adopt(store: Parts, state: TableState, foreign: Foreign) -> Commit:
    """Make the foreign HEAD the table's content on main, as one commit."""
    store.lease.ensure()
    _check_rules(store, state, foreign)
    dataset = store.files.open(state.id, foreign.actual)
    store.files.keep_sums(state.id, dataset)
    head = store.branches.head(MAIN)
    pending = Pending(
        _Adoption(store, state, foreign, store.files.checksum(state.id, dataset)),
        head,
        new_operation_id(head),
        store.actor,
        "data",
        f"adopt foreign Lance version {foreign.actual} of {state.name}",
    )
    commit = store.publisher.publish(pending)
    accept_head(store, state.id, foreign.actual, foreign.actual)
    return commit
