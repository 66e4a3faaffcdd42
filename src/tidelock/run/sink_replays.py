"""A replay: a sink goes back to an earlier position, to send again what the lake has now.

Owns: what is refused before anything changes, and the state from which the next delivery goes on.
deliver/replaying.py counts what would be lost.
After a crash: the state is as it was, or as the replay leaves it; files without a plan are removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from tidelock.deliver.files import FileSink, Manifest
from tidelock.deliver.holding import hold_name
from tidelock.deliver.ledger import Ledger
from tidelock.deliver.partitions import folder_of
from tidelock.deliver.quarantine import Quarantine
from tidelock.deliver.recovering import ask, state_of
from tidelock.deliver.replaying import rows_lost, same_files
from tidelock.deliver.sink import Recovered, Sink, follows
from tidelock.deliver.tables import TableSink, first_position
from tidelock.errors import InvalidOption, SinkStopped
from tidelock.model.names import suggest
from tidelock.model.sinks import (
    NOTHING,
    Lag,
    SinkDefinition,
    SinkState,
    end_of,
    told,
    version_of,
)
from tidelock.run.sink_starts import refuse_expired
from tidelock.store.holds import take_hold
from tidelock.store.log import Head
from tidelock.store.store import Store


@dataclass
class Replay:
    """Of one partition, or of all, what comes after a position."""

    store: Store
    ledger: Ledger
    definition: SinkDefinition
    sink: Sink
    partition: str | None
    since: int

    @cached_property
    def head(self) -> Head:
        return self.store.branches.head(self.definition.branch)

    def run(self, *, lose_rows: bool) -> SinkState:
        if self.definition.feed == "changes":
            self.since = max(self.definition.start, end_of(self.since))
        state = self._known_state()
        self._refuse_nonsense(state)
        there = self.sink.check_replay() if isinstance(self.sink, TableSink) else 0
        again = max(state.generation, there) + 1
        state = replace(state, generation=again, seen=0, fragment=-1)
        if isinstance(self.sink, FileSink):
            self.partition = self._delivered_partition(self.sink)
        self._refuse_losses(lose_rows)
        self._discard_covered()
        if isinstance(self.sink, FileSink):
            return self._replay_files(self.sink, state)
        if self.partition is not None:
            lagging = {**state.lagging, self.partition: Lag(self.since, again=state.watermark)}
            return self.ledger.restart(self.definition, replace(state, lagging=lagging))
        return self._go_back(state)

    def _known_state(self) -> SinkState:
        try:
            standing = self.ledger.standing(self.definition)
        except SinkStopped:
            # Whoever replays says where to go on; the destination may know what came before.
            return state_of(ask(self.definition, self.sink) or Recovered(self.since))
        if standing.open is not None and self.since > standing.open.after:
            raise InvalidOption(
                f"Sink {self.definition.name!r} has begun to deliver what comes after "
                f"{standing.open.after}. Deliver first, or replay since {standing.open.after}.",
                since=self.since,
            )
        return standing.given_up()

    def _refuse_nonsense(self, state: SinkState) -> None:
        name, feed = self.definition.name, self.definition.feed
        if self.since < NOTHING:
            raise InvalidOption(
                f"since={self.since} is no position: the first is 0, and -1 comes before it.",
                since=self.since,
            )
        if self.since > state.watermark:
            raise InvalidOption(
                f"since={told(feed, self.since)} is not before the watermark of {name!r}, which is "
                f"{told(feed, state.watermark)}.",
                since=self.since,
            )
        if self.partition is not None and not follows(self.definition, self.sink).partition_by:
            raise InvalidOption(
                f"Sink {name!r} has no partitions that go on by themselves. Replay all of it.",
                partition=self.partition,
            )

    def _delivered_partition(self, sink: FileSink) -> str | None:
        """A partition by its path, which may be given as its folder is named."""
        if self.partition is None:
            return None
        known = sorted({one.partition for one in sink.listed() if one.until > self.since})
        found = {folder_of(path): path for path in known}.get(self.partition, self.partition)
        if found not in known:
            raise InvalidOption(
                f"Sink {self.definition.name!r} has delivered nothing of partition "
                f"{self.partition!r} after {told(self.definition.feed, self.since)}. "
                f"{suggest(self.partition, known)}",
                partition=self.partition,
            )
        return found

    def _refuse_losses(self, lose_rows: bool) -> None:
        """What is sent again must be there to be sent."""
        definition = self.definition
        tables = self.head.tables.states()
        table = next((one for one in tables if one.id == definition.table_id), None)
        if table is None:
            return
        if definition.feed == "changes":
            refuse_expired(self.store, self.head, table, definition, version_of(self.since))
        lost = rows_lost(self.store, definition, self.sink, table, self.partition, self.since)
        if lost and not lose_rows:
            raise InvalidOption(
                f"{lost} {'row' if lost == 1 else 'rows'} that sink {definition.name!r} delivered "
                f"after {self.since} {'is' if lost == 1 else 'are'} no longer in table "
                f"{definition.table!r}: a replay sends what is there now, and {definition.to} "
                "would lose them. Let them go with lose_rows=True, --lose-rows; or replay since a "
                "later position, if there is one.",
                sink=definition.name,
                rows=lost,
            )

    def _discard_covered(self) -> None:
        """Chunks in quarantine whose rows are sent again anyway: both would be twice."""
        quarantine = Quarantine(self.store.objects, self.definition)
        for refused in quarantine.list():
            if refused.until > self.since and self.partition in (None, refused.path):
                quarantine.discard(refused)

    def _replay_files(self, sink: FileSink, state: SinkState) -> SinkState:
        manifest = sink.manifest()
        if (manifest.left_by if manifest else None) not in (state.left_by or ("", None)):
            return self._replace_files(sink, manifest, state)
        if manifest is not None:
            # Of a plan that is given up here, its files tell whether it had ended.
            self.ledger.forget_progress(self.definition)
            sink.remove_unlisted()
            if manifest.plan > state.plan:
                floor = manifest.watermark
                behind = {path: Lag(at, again=floor) for path, at in manifest.lagging.items()}
                state = replace(state, watermark=manifest.watermark, lagging=behind)
        again = same_files(sink, self.partition, self.since, self.head.version)
        self._refuse_behind(state, again)
        name = hold_name(self.definition, self.head.version)
        branch, version = self.head.branch, self.head.version
        take_hold(self.store.objects, name, branch, version, self.store.actor)
        lagging = {**state.lagging, **again}
        return self.ledger.restart(self.definition, replace(state, lagging=lagging))

    def _replace_files(
        self, sink: FileSink, manifest: Manifest | None, state: SinkState
    ) -> SinkState:
        """Take away what this lake did not deliver, or cannot tell, and deliver it anew."""
        to = self.definition.to
        if self.partition is not None:
            raise InvalidOption(
                f"{to} is not as this lake left it, and not in this partition alone. Replay all "
                "of it.",
                partition=self.partition,
            )
        if manifest is None and self.since > first_position(self.definition):
            raise InvalidOption(
                f"The manifest at {to} is gone, so that nobody knows what is there up to "
                f"{told(self.definition.feed, self.since)}. Replay from the beginning.",
                since=self.since,
            )
        self.since = sink.take_back(self.since)
        left_by = (manifest.left_by,) if manifest is not None else ()
        return self._go_back(replace(state, left_by=left_by))

    def _go_back(self, state: SinkState) -> SinkState:
        """Deliver everything after the position again."""
        since = self.since
        behind = {path: lag for path, lag in state.lagging.items() if lag.watermark < since}
        return self.ledger.restart(self.definition, replace(state, watermark=since, lagging=behind))

    def _refuse_behind(self, state: SinkState, again: Mapping[str, Lag]) -> None:
        """What is planned for a partition that is behind would be forgotten by a replay."""
        for path in sorted(again.keys() & state.lagging.keys()):
            if state.lagging[path].chunks or state.lagging[path].skipped:
                raise InvalidOption(
                    f"Partition {path!r} of sink {self.definition.name!r} is behind. Deliver "
                    "first, or replay another partition.",
                    partition=path,
                )
