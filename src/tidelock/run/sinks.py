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
from tidelock.deliver.holding import hold_changes, hold_name, let_go
from tidelock.deliver.kinds import check_kind, open_sink
from tidelock.deliver.ledger import Ledger, Paused
from tidelock.deliver.partitions import check_partition_by
from tidelock.deliver.quarantine import Quarantine, Quarantined
from tidelock.deliver.reports import DeliveryReport, SinkStatus
from tidelock.deliver.resending import Resent, discard, resend
from tidelock.deliver.secrets import check_secrets
from tidelock.derive.schedules import parse_schedule
from tidelock.errors import (
    InvalidOption,
    SinkBusy,
    TidelockError,
)
from tidelock.model.arguments import check_text
from tidelock.model.durations import parse_duration
from tidelock.model.names import check_name, is_hidden
from tidelock.model.sinks import (
    NOTHING,
    Feed,
    SinkDefinition,
    SinkState,
    check_feed,
    end_of,
    version_of,
)
from tidelock.run.sink_places import find_place, refuse_occupied, refuse_shared
from tidelock.run.sink_replays import Replay
from tidelock.run.sink_starts import find_start
from tidelock.run.sink_statuses import status_of
from tidelock.store import layout
from tidelock.store.holds import hold_names, release_hold
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
        check_kind(check_text(kind, "A kind of sink"), options)
        check_secrets(options, check_text(to, "The place to deliver to"))
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
            replay = Replay(self._store, self.ledger, definition, sink, partition, since)
            return replay.run(lose_rows=lose_rows)

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


def failed(definition: SinkDefinition, error: TidelockError) -> DeliveryReport:
    return DeliveryReport(definition.name, "failed", NOTHING, NOTHING, 0, reason=error.message)
