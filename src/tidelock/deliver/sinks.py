"""The sinks of a lake: creating them, delivering to them, and telling where they stand.

Owns: what is checked before each of these, and the order in which all are delivered to.
delivery/ does what a delivery does.
Invariant: one sink that fails stops nobody but itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from tidelock.deliver.address import find_address, refuse_occupied, refuse_shared
from tidelock.deliver.delivery.calls import destination
from tidelock.deliver.delivery.delivery import deliver, report_without
from tidelock.deliver.delivery.duty import Duty, on_duty, post_of
from tidelock.deliver.delivery.holds import hold_changes, hold_name, let_go
from tidelock.deliver.delivery.ledger import Ledger, Suspension
from tidelock.deliver.delivery.look import Beginning, look
from tidelock.deliver.delivery.quarantine import (
    Quarantine,
    QuarantinedChunk,
    ResendReport,
    discard,
    resend,
)
from tidelock.deliver.destinations.kinds import check_kind, kind_of, open_sink
from tidelock.deliver.destinations.partitions import check_partition_by
from tidelock.deliver.destinations.protocol import Sink, Terms, never
from tidelock.deliver.lanes import Lanes
from tidelock.deliver.replay import Replay
from tidelock.deliver.reports import DeliveryReport, ManifestReport, SinkStatus
from tidelock.deliver.start import find_start
from tidelock.deliver.status import status_of
from tidelock.errors import (
    Advice,
    InvalidOption,
    SinkBusy,
    TidelockError,
)
from tidelock.model.arguments import check_text
from tidelock.model.names import check_name, is_hidden
from tidelock.model.positions import NOTHING, end_of, version_of
from tidelock.model.sinks import Feed, SinkDefinition, SinkState, check_feed
from tidelock.model.time.durations import parse_duration
from tidelock.model.time.schedules import parse_schedule
from tidelock.store.leases.holds import hold_names, release_hold
from tidelock.store.log.log import Head
from tidelock.store.objects import layout
from tidelock.store.objects.protocol import ObjectInfo
from tidelock.store.secrets import check_secrets
from tidelock.store.store import Store

DROP_SECONDS = 3.0
"""How long a sink that is to be dropped may still be delivered to."""
LOOK_SECONDS = 0.2
"""How often it is looked whether there is room for more deliveries."""


class Sinks:
    """All sinks of one lake.

    Owns: their definitions as this process knows them; everything else is in the ledger.
    """

    def __init__(self, store: Store, ledger: Ledger) -> None:
        self._store = store
        self.ledger = ledger
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
        check_secrets(options, check_text(to, "The address to deliver to"))
        parse_schedule(schedule)
        head = self._store.branches.head(branch)
        state = head.tables[table]
        if is_hidden(state.name):
            raise head.tables.unknown(table)
        schema = self._store.files.schema(state, self._store.files.read(state)).shown
        divided = check_partition_by(partition_by, schema)
        position, snapshot = find_start(self._store, head, state, feed, start)
        definition = SinkDefinition(
            name=name,
            id=layout.new_id(name),
            table=state.name,
            table_id=state.id,
            branch=head.branch.name,
            branch_id=head.branch.id,
            kind=kind,
            to=find_address(self._store.location, kind, to),
            feed=feed,
            partition_by=divided,
            schedule=schedule,
            start=position,
            snapshot=snapshot,
            hold_seconds=parse_duration(hold).total_seconds(),
            options=dict(options),
            actor=self._store.actor,
            created=self._store.clock.now(),
            partition_ids=tuple(schema.column(name).id for name in divided),
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
        # A process that is delivering would write down afterwards how far it has come.
        with on_duty(self._store, definition, patience_seconds=DROP_SECONDS):
            self.ledger.drop(definition)
            for held in hold_names(self._store.objects):
                if held.startswith(hold_name(definition, "")):
                    release_hold(self._store.objects, held)

    def suspend(self, name: str, reason: str) -> None:
        self._store.refuse_read_only()
        definition = self.ledger.definition(name)
        suspension = Suspension(reason, self._store.actor, self._store.clock.now())
        self.ledger.suspend(definition.id, suspension)

    def resume(self, name: str) -> None:
        self._store.refuse_read_only()
        self.ledger.resume(self.ledger.definition(name).id)

    # Delivering

    def deliver(self, name: str, *, stopped: Callable[[], bool] = never) -> DeliveryReport:
        """Deliver because somebody asks for it: what would wait for its time is tried at once."""
        known = self._known_sinks.get(name)
        if known is None:
            definition = self._known_sinks[name] = self.ledger.definition(name)
            suspension = self.ledger.suspension(definition.id)
            return self._deliver(definition, True, stopped, suspension)
        # What was read before will do to see that there is nothing to do.
        beginning = look(self._store, self.ledger, known)
        if beginning.is_idle:
            return report_without(known, beginning, "idle")
        asks: list[Callable[[], Any]] = [
            lambda: self.ledger.definition(name),
            lambda: self.ledger.suspension(known.id),
            lambda: post_of(self._store, known).look(),
        ]
        definition, suspension, post = self._store.together.map(lambda ask: ask(), asks)
        if known != definition:
            # It was replaced: what was asked for is about another.
            self._known_sinks.pop(name, None)
            return self.deliver(name, stopped=stopped)
        return self._deliver(known, True, stopped, suspension, beginning, post)

    def deliver_due(
        self, definition: SinkDefinition, stopped: Callable[[], bool]
    ) -> DeliveryReport:
        """Deliver by schedule: what is to be waited for is waited for."""
        suspension = self.ledger.suspension(definition.id)
        return self._deliver(definition, False, stopped, suspension)

    def _deliver(
        self,
        definition: SinkDefinition,
        forced: bool,
        stopped: Callable[[], bool],
        suspension: Suspension | None,
        beginning: Beginning | None = None,
        post: list[ObjectInfo] | None = None,
    ) -> DeliveryReport:
        return deliver(
            self._store,
            self.ledger,
            definition,
            partial(open_sink, definition),
            forced=forced,
            stopped=stopped,
            beginning=beginning,
            suspension=suspension,
            post=post,
        )

    def deliver_all(self, stopped: Callable[[], bool] = never) -> list[DeliveryReport]:
        """One tick of every sink, side by side; one that cannot go on, or hangs, stops no other."""
        left = False
        reports: dict[str, DeliveryReport | Exception] = {}

        def deliver_one(definition: SinkDefinition) -> None:
            try:
                reports[definition.name] = self.deliver(
                    definition.name, stopped=lambda: left or stopped()
                )
            except SinkBusy:
                return
            except TidelockError as error:
                reports[definition.name] = failed(definition, error)
            except Exception as error:  # noqa: BLE001 - it is raised to the thread that waits
                reports[definition.name] = error

        lanes, waiting = Lanes(), self.ledger.readable_definitions()
        try:
            while waiting or not lanes.is_idle():
                for definition in list(waiting):
                    waits = mostly_waits(definition)
                    if lanes.has_room(waits=waits):
                        lanes.start(definition.name, partial(deliver_one, definition), waits=waits)
                        waiting.remove(definition)
                lanes.wait(LOOK_SECONDS)
        finally:
            left = True
        return [_report(reports[name]) for name in sorted(reports)]

    def release_leftovers(self) -> None:
        """Release what a plan held whose deliverer died when all of it was delivered.

        Nothing is new then, so that no delivery would look; a garbage collection does, and the
        first look of deliveries by schedule.
        """
        names = hold_names(self._store.objects)
        for definition in self.ledger.readable_definitions() if names else ():
            kept = hold_name(definition, "changes")
            own = [name for name in names if name.startswith(hold_name(definition, ""))]
            if all(name == kept for name in own):
                continue
            # A sink that is busy, or cannot tell where it stands, is left as it is.
            with suppress(TidelockError), on_duty(self._store, definition):
                standing = self.ledger.standing(definition)
                if standing.open is None:
                    let_go(self._store, definition, standing.state)

    def now(self) -> datetime:
        """The time, by the lake's clock."""
        return self._store.clock.now()

    def last_delivery(self, definition: SinkDefinition) -> datetime:
        """When a delivery was last planned; when the sink was made, if none was."""
        return self.ledger.last_planned(definition) or definition.created

    def replay(
        self, name: str, partition: str | None, since: int, *, lose_rows: bool = False
    ) -> SinkState:
        """Send again what comes after a position: of one partition, or of all."""
        self._store.refuse_read_only()
        definition = self.ledger.definition(name)
        with self._at_work(definition) as (duty, sink):
            replay = Replay(
                self._store, self.ledger, definition, sink, duty, partition, since, lose_rows
            )
            return replay.run()

    def repair(self, name: str) -> ManifestReport:
        """Write the manifest of a destination anew; nothing else is changed there."""
        self._store.refuse_read_only()
        definition = self.ledger.definition(name)
        with self._at_work(definition) as (_, sink):
            report = sink.repair(self.ledger.standing(definition))
        if report is None:
            raise InvalidOption(
                f"A sink of kind {definition.kind!r} has no manifest that could be repaired.",
                kind=definition.kind,
            )
        return report

    @contextmanager
    def _at_work(self, definition: SinkDefinition) -> Iterator[tuple[Duty, Sink]]:
        """Hold the post of a sink, with its destination opened."""
        with on_duty(self._store, definition) as duty, closing(open_sink(definition)) as sink:
            sink.accept(Terms(duty.check))
            yield duty, sink

    def resync(self, name: str) -> SinkState:
        """Accept what a lapsed sink has lost, and let it go on with what is there now."""
        self._store.refuse_read_only()
        definition = self.ledger.definition(name)
        status = self.status(definition)
        if definition.feed == "changes" and status.state in ("current", "behind", "quarantined"):
            raise InvalidOption(
                f"Sink {name!r} has lost nothing: it is {status.state}. To resync it would send "
                "all rows a second time. Deliver; or replay what is to be sent again.",
                sink=name,
            )
        head = self._head(definition)
        with on_duty(self._store, definition) as duty:
            state = self.ledger.standing(definition).given_up()
            state = replace(state, accepted=head.version, seen=0, fragment=-1)
            if definition.feed == "changes":
                self.ledger.replace(replace(definition, snapshot=head.version))
                again = state.generation + 1
                begin = end_of(head.version - 1)
                state = replace(state, watermark=begin, lagging={}, generation=again)
                hold_changes(self._store, definition, head.branch, head.version)
            duty.check(surely=True)
            return self.ledger.restart(definition, state)

    def _head(self, definition: SinkDefinition) -> Head:
        return self._store.branches.head(definition.branch)

    def status(self, definition: SinkDefinition, *, verify: bool = False) -> SinkStatus:
        damage = self._find_damage(definition) if verify else []
        return status_of(self._store, self.ledger, definition, damage)

    def _find_damage(self, definition: SinkDefinition) -> list[str]:
        """What is not as it was delivered, a sentence for each; InvalidOption if nobody can tell.

        Files are compared by their names and sizes, tables by their mark and by the data files
        that their own metadata names; what a receiver of requests has kept, nobody can ask it.
        """
        with closing(open_sink(definition)) as sink:
            standing = self.ledger.standing(definition)
            with destination(definition):
                damage = sink.find_damage(standing)
        if damage is None:
            raise InvalidOption(
                f"A sink of kind {definition.kind!r} cannot be asked what it has.",
                Advice(f"Compare it with what lake.read_since({definition.table!r}) gives.", ""),
                kind=definition.kind,
            )
        return damage

    # Quarantine

    def quarantine(self, name: str) -> Quarantine:
        return Quarantine(self._store.objects, self.ledger.definition(name))

    def resend(self, name: str, number: str | None) -> ResendReport:
        self._store.refuse_read_only()
        return resend(self._store, self.ledger.definition(name), number)

    def discard(self, name: str, number: str | None) -> tuple[QuarantinedChunk, ...]:
        self._store.refuse_read_only()
        return discard(self._store, self.ledger.definition(name), number)


def mostly_waits(definition: SinkDefinition) -> bool:
    """Whether delivering to a sink is mostly to wait for its answers."""
    return kind_of(definition.kind).mostly_waits


def _report(report: DeliveryReport | Exception) -> DeliveryReport:
    if isinstance(report, Exception):
        raise report
    return report


def failed(definition: SinkDefinition, error: TidelockError) -> DeliveryReport:
    return DeliveryReport(
        definition.name, "failed", NOTHING, NOTHING, 0, reason=error.told("shell")
    )
