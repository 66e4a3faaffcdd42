"""The sinks of a lake: creating them, delivering to them, and telling where they stand.

Owns: the order in which sinks are looked at, and what is due. Delivering is done by deliver/.
Invariant: one sink that fails stops nobody but itself.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tidelock.deliver.delivering import Tick
from tidelock.deliver.duty import on_duty
from tidelock.deliver.files import FileSink
from tidelock.deliver.holding import hold_changes, hold_name, let_go
from tidelock.deliver.kinds import check_kind, open_sink
from tidelock.deliver.ledger import Ledger, Paused
from tidelock.deliver.partitions import check_partition_by, folder_of
from tidelock.deliver.quarantine import Quarantine, Quarantined
from tidelock.deliver.recovering import ask, state_of
from tidelock.deliver.replaying import rows_lost, same_files
from tidelock.deliver.reports import DeliveryReport, SinkStatus
from tidelock.deliver.resending import Resent, discard, resend
from tidelock.deliver.secrets import check_secrets
from tidelock.deliver.sink import Recovered, Sink, follows
from tidelock.deliver.tables import TableSink, first_position
from tidelock.derive.schedules import parse_schedule
from tidelock.errors import (
    InvalidOption,
    SinkBusy,
    SinkStopped,
    TidelockError,
)
from tidelock.model.durations import parse_duration
from tidelock.model.names import check_name, is_hidden, suggest
from tidelock.model.sinks import (
    NOTHING,
    Feed,
    Lag,
    SinkDefinition,
    SinkState,
    check_feed,
    end_of,
    told,
    version_of,
)
from tidelock.run.sink_places import find_place, refuse_occupied, refuse_shared
from tidelock.run.sink_starts import find_start, refuse_expired
from tidelock.run.sink_statuses import status_of
from tidelock.store import layout
from tidelock.store.holds import hold_names, release_hold, take_hold
from tidelock.store.log import Head
from tidelock.store.store import Store

NEVER = threading.Event()


class Sinks:
    def __init__(self, store: Store) -> None:
        self._store = store
        self.ledger = Ledger(store.objects)
        self._known_sinks: dict[str, SinkDefinition] = {}

    # Defining

    def create(
        self,
        name: str,
        table: str,
        kind: str,
        to: str,
        feed: Feed,
        partition_by: Sequence[str] | str | None,
        schedule: str | None,
        start: str,
        hold: str,
        branch: str,
        options: Mapping[str, Any],
    ) -> SinkDefinition:
        self._store.refuse_read_only()
        check_name(name, "sink")
        check_feed(feed)
        check_kind(kind, options)
        check_secrets(options, to)
        parse_schedule(schedule)
        head = self._store.branches.head(branch)
        state = head.tables[table]
        if is_hidden(state.name):
            raise head.tables.unknown(table)
        schema = self._store.files.schema(state.id, self._store.files.read(state), state.key)
        position, snapshot = find_start(self._store, head, state, feed, start)
        definition = SinkDefinition(
            name=name,
            id=layout.new_id(name),
            table=state.name,
            table_id=state.id,
            branch=head.branch.name,
            branch_id=head.branch.id,
            kind=kind,
            to=find_place(self._store.location, kind, to),
            feed=feed,
            partition_by=check_partition_by(partition_by, schema.shown),
            schedule=schedule,
            start=position,
            snapshot=snapshot,
            hold_seconds=parse_duration(hold).total_seconds(),
            options=dict(options),
            actor=self._store.actor,
            created=datetime.now(UTC),
        )
        refuse_shared(definition, [one for one in self.ledger.definitions() if one.name != name])
        with closing(open_sink(definition)) as sink:
            refuse_occupied(sink)
        self.ledger.create(definition, SinkState(0, position))
        if feed == "changes":
            hold_changes(self._store, definition, head.branch, version_of(position))
        return definition

    def drop(self, name: str) -> None:
        self._store.refuse_read_only()
        definition = self.ledger.definition(name)
        self.ledger.drop(definition)
        for held in hold_names(self._store.objects):
            if held.startswith(hold_name(definition, "")):
                release_hold(self._store.objects, held)

    def pause(self, name: str, reason: str) -> None:
        self._store.refuse_read_only()
        definition = self.ledger.definition(name)
        paused = Paused(reason, self._store.actor, datetime.now(UTC))
        self.ledger.pause(definition.id, paused)

    def resume(self, name: str) -> None:
        self._store.refuse_read_only()
        self.ledger.resume(self.ledger.definition(name).id)

    # Delivering

    def deliver(
        self, name: str, *, forced: bool = True, stop: threading.Event | None = None
    ) -> DeliveryReport:
        known = self._known_sinks.get(name)
        if known is not None:
            # What was read before will do to see that there is nothing to do.
            idle = self._tick(known, forced, stop).idle()
            if idle is not None:
                return idle
        definition = self.ledger.definition(name)
        self._known_sinks[name] = definition
        return self._tick(definition, forced, stop).run()

    def _tick(self, definition: SinkDefinition, forced: bool, stop: threading.Event | None) -> Tick:
        return Tick(
            self._store,
            self.ledger,
            definition,
            lambda: open_sink(definition),
            forced,
            stop or NEVER,
        )

    def deliver_all(self, stop: threading.Event | None = None) -> list[DeliveryReport]:
        """One tick of every sink, one after the other; one that cannot go on does not stop it."""
        reports = []
        for definition in self.ledger.definitions():
            try:
                reports.append(self.deliver(definition.name, stop=stop))
            except SinkBusy:
                continue
            except TidelockError as error:
                reports.append(failed(definition, error))
        return reports

    def release_leftovers(self) -> None:
        """Release what a plan held whose deliverer died when all of it was delivered.

        Nothing is new then, so that no delivery would look; whoever collects garbage does, and
        whoever begins to deliver by schedule.
        """
        names = hold_names(self._store.objects)
        for definition in self.ledger.definitions() if names else ():
            kept = hold_name(definition, "changes")
            mine = [one for one in names if one.startswith(hold_name(definition, ""))]
            if all(one == kept for one in mine):
                continue
            # A sink that is busy, or cannot tell where it stands, is left as it is.
            with suppress(TidelockError), on_duty(self._store, definition):
                standing = self.ledger.standing(definition)
                if standing.open is None:
                    let_go(self._store, definition, standing.state)

    def last_delivery(self, definition: SinkDefinition) -> datetime:
        """When a delivery was last planned; when the sink was made, if none was."""
        return self.ledger.last_planned(definition) or definition.created

    def replay(
        self, name: str, partition: str | None, since: int, *, lose_rows: bool = False
    ) -> SinkState:
        """Send again what comes after a position: of one partition, or of all."""
        self._store.refuse_read_only()
        definition = self.ledger.definition(name)
        with on_duty(self._store, definition), closing(open_sink(definition)) as sink:
            return self._replay(definition, sink, partition, since, lose_rows)

    def _replay(
        self,
        definition: SinkDefinition,
        sink: Sink,
        partition: str | None,
        since: int,
        lose_rows: bool,
    ) -> SinkState:
        if definition.feed == "changes":
            since = max(definition.start, end_of(since))
        state = self._known(definition, sink, since)
        if since < NOTHING:
            raise InvalidOption(
                f"since={since} is no position: the first is 0, and -1 comes before it.",
                since=since,
            )
        if since > state.watermark:
            raise InvalidOption(
                f"since={told(definition.feed, since)} is not before the watermark of "
                f"{definition.name!r}, which is {told(definition.feed, state.watermark)}.",
                since=since,
            )
        if partition is not None and not follows(definition, sink).partition_by:
            raise InvalidOption(
                f"Sink {definition.name!r} has no partitions that go on by themselves. Replay all "
                "of it.",
                partition=partition,
            )
        there = sink.check_replay() if isinstance(sink, TableSink) else 0
        again = max(state.generation, there) + 1
        state = replace(state, generation=again, seen=0, fragment=-1)
        if isinstance(sink, FileSink):
            partition = _delivered_partition(definition, sink, partition, since)
        self._refuse_losses(definition, sink, partition, since, lose_rows)
        self._discard_covered(definition, partition, since)
        if isinstance(sink, FileSink):
            return self._replay_files(definition, sink, state, partition, since)
        if partition is not None:
            lagging = {**state.lagging, partition: Lag(since, again=state.watermark)}
            return self.ledger.restart(definition, replace(state, lagging=lagging))
        behind = {path: lag for path, lag in state.lagging.items() if lag.watermark < since}
        return self.ledger.restart(definition, replace(state, watermark=since, lagging=behind))

    def _refuse_losses(
        self,
        definition: SinkDefinition,
        sink: Sink,
        partition: str | None,
        since: int,
        lose_rows: bool,
    ) -> None:
        """What is sent again must be there to be sent."""
        head = self._head(definition)
        table = next((t for t in head.tables.states() if t.id == definition.table_id), None)
        if table is None:
            return
        if definition.feed == "changes":
            refuse_expired(self._store, head, table, definition, version_of(since))
        lost = rows_lost(self._store, definition, sink, table, partition, since)
        if lost and not lose_rows:
            raise InvalidOption(
                f"{lost} {'row' if lost == 1 else 'rows'} that sink {definition.name!r} delivered "
                f"after {since} {'is' if lost == 1 else 'are'} no longer in table "
                f"{definition.table!r}: a replay sends what is there now, and {definition.to} "
                "would lose them. Let them go with lose_rows=True, --lose-rows; or replay since a "
                "later position, if there is one.",
                sink=definition.name,
                rows=lost,
            )

    def _discard_covered(
        self, definition: SinkDefinition, partition: str | None, since: int
    ) -> None:
        """Chunks in quarantine whose rows are sent again anyway: both would be twice."""
        quarantine = Quarantine(self._store.objects, definition)
        for refused in quarantine.list():
            if refused.until > since and partition in (None, refused.path):
                quarantine.discard(refused)

    def _replay_files(
        self,
        definition: SinkDefinition,
        sink: FileSink,
        state: SinkState,
        partition: str | None,
        since: int,
    ) -> SinkState:
        manifest = sink.manifest()
        if (manifest.left_by if manifest else None) not in (state.left_by or ("", None)):
            return self._replace_files(definition, sink, state, partition, since)
        if manifest is not None:
            # Of a plan that is given up here, its files tell whether it had ended.
            self.ledger.forget_progress(definition)
            sink.remove_unlisted()
            if manifest.plan > state.plan:
                floor = manifest.watermark
                behind = {path: Lag(at, again=floor) for path, at in manifest.lagging.items()}
                state = replace(state, watermark=manifest.watermark, lagging=behind)
        head = self._head(definition)
        again = same_files(sink, partition, since, head.version)
        self._refuse_behind(definition, state, again)
        name = hold_name(definition, head.version)
        take_hold(self._store.objects, name, head.branch, head.version, self._store.actor)
        return self.ledger.restart(definition, replace(state, lagging={**state.lagging, **again}))

    def _replace_files(
        self,
        definition: SinkDefinition,
        sink: FileSink,
        state: SinkState,
        partition: str | None,
        since: int,
    ) -> SinkState:
        """Take away what this lake did not deliver, or cannot tell, and deliver it anew."""
        if partition is not None:
            raise InvalidOption(
                f"{definition.to} is not as this lake left it, and not in this partition alone. "
                "Replay all of it.",
                partition=partition,
            )
        manifest = sink.manifest()
        if manifest is None and since > first_position(definition):
            raise InvalidOption(
                f"The manifest at {definition.to} is gone, so that nobody knows what is there up "
                f"to {told(definition.feed, since)}. Replay from the beginning.",
                since=since,
            )
        since = sink.take_back(since)
        left_by = (manifest.left_by,) if manifest is not None else ()
        behind = {path: lag for path, lag in state.lagging.items() if lag.watermark < since}
        begun = replace(state, watermark=since, lagging=behind, left_by=left_by)
        return self.ledger.restart(definition, begun)

    def _refuse_behind(
        self, definition: SinkDefinition, state: SinkState, again: Mapping[str, Lag]
    ) -> None:
        """What is planned for a partition that is behind would be forgotten by a replay."""
        for path in sorted(again.keys() & state.lagging.keys()):
            if state.lagging[path].chunks or state.lagging[path].skipped:
                raise InvalidOption(
                    f"Partition {path!r} of sink {definition.name!r} is behind. Deliver first, or "
                    "replay another partition.",
                    partition=path,
                )

    def resync(self, name: str) -> SinkState:
        """Accept what a lapsed sink has lost, and let it go on with what is there now."""
        self._store.refuse_read_only()
        definition = self.ledger.definition(name)
        found = self.status(definition)
        if definition.feed == "changes" and found.state in ("current", "behind"):
            raise InvalidOption(
                f"Sink {name!r} has lost nothing: it is {found.state}. To resync it would send all "
                "rows a second time. Deliver; or replay what is to be sent again.",
                sink=name,
            )
        head = self._head(definition)
        state = self.ledger.standing(definition).given_up()
        state = replace(state, accepted=head.version, seen=0, fragment=-1)
        if definition.feed == "changes":
            self.ledger.replace(replace(definition, snapshot=head.version))
            again = state.generation + 1
            begin = end_of(head.version - 1)
            state = replace(state, watermark=begin, lagging={}, generation=again)
            hold_changes(self._store, definition, head.branch, head.version)
        return self.ledger.restart(definition, state)

    def _known(self, definition: SinkDefinition, sink: Sink, since: int) -> SinkState:
        try:
            standing = self.ledger.standing(definition)
        except SinkStopped:
            # Whoever replays says where to go on; the destination may know what came before.
            return state_of(ask(definition, sink) or Recovered(since))
        if standing.open is not None and since > standing.open.after:
            raise InvalidOption(
                f"Sink {definition.name!r} has begun to deliver what comes after "
                f"{standing.open.after}. Deliver first, or replay since {standing.open.after}.",
                since=since,
            )
        return standing.given_up()

    def _head(self, definition: SinkDefinition) -> Head:
        return self._store.branches.head(definition.branch)

    def status(self, definition: SinkDefinition) -> SinkStatus:
        return status_of(self._store, self.ledger, definition)

    # Quarantine

    def quarantine(self, name: str) -> Quarantine:
        return Quarantine(self._store.objects, self.ledger.definition(name))

    def resend(self, name: str, number: str | None) -> Resent:
        self._store.refuse_read_only()
        return resend(self._store, self.ledger.definition(name), number)

    def discard(self, name: str, number: str | None) -> tuple[Quarantined, ...]:
        self._store.refuse_read_only()
        return discard(self._store, self.ledger.definition(name), number)


def _delivered_partition(
    definition: SinkDefinition, sink: FileSink, partition: str | None, since: int
) -> str | None:
    """A partition by its path, which may be given as its folder is named."""
    if partition is None:
        return None
    known = sorted({one.partition for one in sink.listed() if one.until > since})
    found = {folder_of(path): path for path in known}.get(partition, partition)
    if found not in known:
        raise InvalidOption(
            f"Sink {definition.name!r} has delivered nothing of partition {partition!r} after "
            f"{told(definition.feed, since)}. {suggest(partition, known)}",
            partition=partition,
        )
    return found


def failed(definition: SinkDefinition, error: TidelockError) -> DeliveryReport:
    return DeliveryReport(definition.name, "failed", NOTHING, NOTHING, 0, reason=error.message)
