"""Where sources stand: from the lake and the notes of who reads them, without reading any.

| state | |
|---|---|
| `new` | it was never read |
| `idle` | nobody reads it now, and nothing is wrong |
| `reading`, `loading`, `streaming` | it is being read: a round; the first load; all the time |
| `unreachable`, `failing`, `stopped` | it could not be read, and why (troubles.py) |
| `suspended` | somebody wants it to rest |

A note of a process that died is told apart by the post, which nobody holds then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidelock.errors import SourceNotFound
from tidelock.ingest.post import post_of
from tidelock.ingest.registry import Registry
from tidelock.ingest.reports import SourceStatus
from tidelock.ingest.troubles import TROUBLES
from tidelock.model.sources import Reading, SourceDefinition
from tidelock.store.leases.single_holder import Holder
from tidelock.store.parts import Parts


def statuses_of(
    store: Parts, registry: Registry, definitions: Sequence[SourceDefinition]
) -> list[SourceStatus]:
    return [status_of(store, registry, one) for one in definitions]


def status_of(store: Parts, registry: Registry, definition: SourceDefinition) -> SourceStatus:
    head = store.branches.head(definition.branch)
    ledger = head.tables.find(definition.ledger)
    if ledger is None:
        raise without_ledger(definition, head.branch.name)
    suspension = registry.suspension(definition)
    holder = post_of(store, definition).holder()
    told = as_held(registry.reading(definition), holder)
    if suspension is not None:
        told = replace(told, state="suspended", reason=suspension.reason)
    commit = None
    if ledger.position:
        commit = store.log.commit_at(head.branch, ledger.changed)
    return SourceStatus(
        name=definition.name,
        id=definition.id,
        kind=definition.kind,
        branch=definition.branch,
        schedule=definition.schedule,
        state=told.state,
        reason=told.reason,
        position=ledger.position,
        newest=told.position,
        lag_bytes=told.lag_bytes,
        lag_seconds=told.lag_seconds,
        rows_per_second=told.rows_per_second,
        transactions_per_second=told.transactions_per_second,
        commit=None if commit is None else commit.version,
        committed=None if commit is None else commit.time,
        open=told.open,
        tables=told.tables,
        notes=told.notes,
        reader="" if holder is None else holder.owner,
        retry_at=told.retry_at,
        options=dict(definition.options),
    )


def as_held(told: Reading | None, holder: Holder | None) -> Reading:
    """What a note says, in the light of who holds the post by now."""
    if told is None:
        return Reading("new" if holder is None else "reading")
    if holder is None:
        state = told.state if told.state in TROUBLES else "idle"
        return replace(told, state=state, open=(), rows_per_second=0.0, transactions_per_second=0.0)
    if told.owner != holder.owner or told.state == "idle" or told.state in TROUBLES:
        return replace(told, state="reading", reason="", retry_at=None)
    return told


def without_ledger(definition: SourceDefinition, branch: str) -> SourceNotFound:
    return SourceNotFound(
        f"The source {definition.name!r} has no ledger on branch {branch!r}.",
        source=definition.name,
    )
