"""What a delivery begins from: the head, the table that is followed, and where the sink stands.

Owns: whether there is anything to deliver, and whether what the sink has read is still part of its
lake. Reads, and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelock.deliver.delivery.ledger import Ledger
from tidelock.errors import (
    Advice,
    BranchDeleted,
    BranchNotFound,
    SinkLapsed,
    SinkStopped,
    SnapshotExpired,
)
from tidelock.model.history.commit import TableState
from tidelock.model.sinks import SinkDefinition, SinkState, told
from tidelock.store.log.log import Head
from tidelock.store.store import Store


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a delivery begins from."""

    head: Head
    table: TableState
    """The table that is followed, at the head."""
    state: SinkState | None
    """The state as its object has it; None when that is gone or unreadable."""

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to deliver, nothing behind and nothing left by a crash."""
        return (
            self.state is not None
            and self.state.seen == self.table.changed
            and not self.state.lagging
        )


def look(store: Store, ledger: Ledger, definition: SinkDefinition) -> Beginning:
    """Where the table and the sink stand; SinkStopped when the table is no longer there."""
    (head, table), state = store.together.both(
        lambda: _find_table(store, definition), lambda: ledger.state(definition.id)
    )
    return Beginning(head, table, state)


def _find_table(store: Store, definition: SinkDefinition) -> tuple[Head, TableState]:
    try:
        head = store.branches.head(definition.branch)
    except (BranchNotFound, BranchDeleted) as error:
        raise _gone(definition, f"its branch {definition.branch!r} was deleted") from error
    if head.branch.id != definition.branch_id:
        raise _gone(definition, f"its branch {definition.branch!r} was deleted and made anew")
    table = head.tables.find(definition.table)
    if table is None or table.id != definition.table_id:
        # It may have another name now.
        table = next((t for t in head.tables.states() if t.id == definition.table_id), None)
        if table is None:
            # Unless it is another lake that has no such table.
            store.refuse_unusable()
            raise _gone(definition, f"table {definition.table!r} was dropped or replaced")
    return head, table


def pin_at(store: Store, beginning: Beginning, version: int) -> int:
    """What tells the table's content at a version from any other, also that of a copy."""
    if version == beginning.head.version:
        return beginning.table.pin
    then = store.log.tables_at(beginning.head.branch, version).same(beginning.table)
    return 0 if then is None else then.pin


def check_history(
    store: Store, definition: SinkDefinition, beginning: Beginning, version: int, pin: int
) -> None:
    """What a sink has read must be in the history of its lake, or positions mean other rows."""
    if not pin:
        return
    if version <= beginning.head.version and pin_at(store, beginning, version) == pin:
        return
    raise SinkStopped(
        f"Sink {definition.name!r} has read version {version} of {definition.table!r}, which is "
        "not in this lake: the lake was put back, or copied while it was written to, and the "
        "sink's state is later than its tables. Nothing was sent. Put the lake back as a whole; or "
        "drop the sink, and create one with an address where nothing is.",
        sink=definition.name,
        version=version,
    )


def expired(definition: SinkDefinition, state: SinkState, error: SnapshotExpired) -> SinkLapsed:
    name, since = definition.name, told(definition.feed, state.watermark)
    return SinkLapsed(
        f"Sink {name!r} has lapsed: what {definition.table!r} was after version {since} is no "
        f"longer kept ({error.message})",
        Advice(
            f"lake.resync_sink({name!r}) sends the table as it is now, and follows it from there.",
            f"`tidelock sink resync {name}` sends the table as it is now, and follows it from "
            "there.",
        ),
        sink=name,
        since=since,
    )


def _gone(definition: SinkDefinition, why: str) -> SinkStopped:
    return SinkStopped(
        f"Sink {definition.name!r} has nothing to follow: {why}. What was delivered stays. Drop "
        "the sink, and create one for the table that is there now.",
        sink=definition.name,
        reason=why,
    )
