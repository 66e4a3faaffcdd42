"""Writers that announced their work: those that are at it, and those that died.

Owns: how long the lease of an intent lasts, as people are told. A writer that lives renews its
lease long before it ends; one that ended is settled by the next write, or by `tidelock repair`. The
end is told by this machine's clock, for people; healing itself goes by the store's.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from tidelock.cli.show.cells import duration, moment, seconds
from tidelock.errors import IntentUnreadable

if TYPE_CHECKING:
    from tidelock.cli.call import Call
    from tidelock.store.leases.intents import Intent

SETTLED = "A lease that has ended is settled by the next write, or now by: tidelock repair"


@dataclass(frozen=True)
class Writer:
    intent: Intent
    lease_ends: datetime
    lease_ended: bool


def find_writers(call: Call) -> list[Writer]:
    """A writer that has an intent which can be read."""
    from tidelock.store.leases.intents import read_intent
    from tidelock.store.objects import layout
    from tidelock.store.objects.entries import entries
    from tidelock.store.objects.kinds.location import locate

    objects = locate(call.uri, call.storage_options).objects()
    found = []
    for info in entries(objects, layout.INTENTS):
        try:
            intent = read_intent(objects, info)
        except IntentUnreadable:
            continue
        if intent is not None:
            ends = info.modified + timedelta(seconds=intent.lease_seconds)
            found.append(Writer(intent, ends, ends < datetime.now(UTC)))
    return found


def lease(ends: datetime, now: datetime) -> str:
    """`ends in 42 s`, `ended 3 min ago`."""
    left = (ends - now).total_seconds()
    return f"ends in {duration(left)}" if left >= 0 else f"ended {duration(-left)} ago"


def show_writers(call: Call, writers: list[Writer]) -> None:
    if not writers:
        return
    now = datetime.now(UTC)
    call.output.line()
    call.output.listing(
        ["writer", "branch", "owner", "since", "lease", "message"],
        [
            [
                writer.intent.actor,
                writer.intent.branch,
                writer.intent.owner,
                seconds(moment(writer.intent.created)),
                lease(writer.lease_ends, now),
                writer.intent.message,
            ]
            for writer in writers
        ],
        "",
    )
    if any(writer.lease_ended for writer in writers):
        call.output.line(SETTLED)
