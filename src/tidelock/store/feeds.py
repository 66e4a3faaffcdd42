"""Change feeds: the changes of a table over a range of versions, as one stream of batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from tidelock.errors import InvalidOption
from tidelock.store.changes import VERSION, WEIGHT, changes_of, diff_batches
from tidelock.store.log import Head

if TYPE_CHECKING:
    from tidelock.store.store import Store


def change_reader(
    store: Store, head: Head, table: str, since: int, until: int | None
) -> pa.RecordBatchReader:
    """The changes after `since`, up to and with `until`, in commit order."""
    last = head.version if until is None else until
    for name, value in (("since", since), ("until", last)):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= head.version:
            raise InvalidOption(
                f"{name}={value!r} is not a version of branch {head.branch.name!r}, "
                f"which has 0 to {head.version}.",
                **{name: value},
            )
    if since > last:
        raise InvalidOption(f"since={since} is after until={last}.", since=since, until=last)
    # The snapshot object keeps the newest pins readable while the stream is read.
    snapshot = store.snapshot_at(head.branch, last)
    state = snapshot.states()[table]
    schema = pa.schema([*store.files.open(state.id, state.pin).schema, WEIGHT, VERSION])

    def batches() -> Iterator[pa.RecordBatch]:
        found = list(changes_of(store.log, head.branch, state.id, state.changed, since))
        for version, change in reversed(found):
            before = change.before and store.files.open(change.before.id, change.before.pin)
            after = change.after and store.files.open(change.after.id, change.after.pin)
            yield from diff_batches(before, after, version)
        assert snapshot is not None

    return pa.RecordBatchReader.from_batches(schema, batches())
