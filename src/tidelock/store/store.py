"""The store of one lake: what a handle needs to read and to write it.

Owns: the composition of the log, the branches, the table files and publication, the lease of this
process, and when healing is due.
Invariant: nothing is written before the lease of this handle exists and expired intents are
settled.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from tidelock.errors import (
    CommitNotFound,
    InvalidOption,
    LakeClosed,
    LakeExists,
    LakeNotFound,
    ObjectExists,
    ObjectMissing,
    ReadOnlyLake,
)
from tidelock.model.arguments import check_text
from tidelock.model.commit import BranchRef, Commit, Tables, TableState
from tidelock.store import layout
from tidelock.store.branches import Branches
from tidelock.store.clock import LakeClock
from tidelock.store.fences import fenced_since
from tidelock.store.intents import (
    LEASE_SECONDS,
    Footing,
    Held,
    HeldIntent,
    Intent,
    Keeper,
    Lease,
    boot_seconds,
    new_lease_id,
    owner_name,
)
from tidelock.store.location import Location
from tidelock.store.log import Head, Log
from tidelock.store.maintenance import Maintainer
from tidelock.store.objects import Objects
from tidelock.store.offers import Offers
from tidelock.store.operation_ids import OperationIds, new_operation_id
from tidelock.store.pending import Pending
from tidelock.store.presence import Presence
from tidelock.store.publish import Publisher
from tidelock.store.reading import Engine
from tidelock.store.records import decode, encode
from tidelock.store.recovery import heal as settle_expired
from tidelock.store.snapshot import Snapshot
from tidelock.store.tables import TableFiles
from tidelock.store.transaction import Transaction
from tidelock.store.turns import Turns

SNAPSHOTS_LEASED_MAX = 1000
FENCES_LOOKED_BACK = 1000
"""How many versions, where it is not known which fences there were."""


@dataclass(frozen=True, slots=True)
class LakeInfo:
    """What makes a folder a lake."""

    id: str
    created: datetime
    format: int = layout.FORMAT


def create_lake(objects: Objects) -> None:
    info = LakeInfo(secrets.token_hex(16), datetime.now(UTC))
    try:
        objects.put_new(layout.LAKE, encode(info))
    except ObjectExists:
        raise LakeExists("There is a lake here already. Open it without create.") from None


def lake_info(objects: Objects, uri: str) -> LakeInfo:
    try:
        return decode(objects.get(layout.LAKE), LakeInfo, layout.LAKE)
    except ObjectMissing:
        raise LakeNotFound(
            f"There is no lake at {uri!r}. Create one with tidelock.open({uri!r}, create=True) or "
            f"`tidelock init {uri}`.",
            uri=uri,
        ) from None


@dataclass
class _Begun:
    """When something came into use."""

    booted: float
    """As boot_seconds counts, which no step of a clock changes."""
    since: datetime
    """The earliest date that the store can have given to what was written since."""


class Store:
    def __init__(
        self,
        location: Location,
        objects: Objects,
        engine: Engine,
        *,
        actor: str,
        read_only: bool = False,
        durability: str = "process",
        lease_seconds: float = LEASE_SECONDS,
        heal: bool = True,
    ) -> None:
        self.location = location
        self.objects = objects
        self.engine = engine
        self.actor = check_text(actor, "An actor")
        self.read_only = read_only
        self.lease_seconds = lease_seconds
        self.clock = LakeClock(objects)
        self._presence = Presence(location, objects)
        self.info = lake_info(objects, location.uri)
        self.files = TableFiles(location, durability, self._is_newest)
        self.turns = Turns(location)
        self.log = Log(objects, self.turns.newest)
        self.branches = Branches(objects, self.log)
        offers = Offers(location.shared_folder(layout.OFFERS))
        self.publisher = Publisher(
            self.log, self.turns, offers, self.files, self.clock.moment, self._presence
        )
        self.operation_ids = OperationIds(objects, self.log)
        self.keeper = Keeper(objects, lease_seconds, self.clock.compare)
        self.maintainer = Maintainer(self)
        self.check_tables: Callable[[Tables], None] = lambda tables: None
        """Asked before a commit that creates or drops tables: an error if what it leaves cannot
        stand together. Set by whoever knows what tables mean to each other."""
        self._process = os.getpid()
        self._closed = False
        self._lease: Held | None = None
        self._lease_lock = threading.Lock()
        self._fences: dict[str, int] = {}
        """For each branch, the newest fence that was looked at."""
        self._began: weakref.WeakKeyDictionary[object, _Begun] = weakref.WeakKeyDictionary()
        self._began_lock = threading.Lock()
        """Held while it is listed: an entry that comes in between breaks the listing."""
        self._healed: float | None = None
        if heal and not read_only:
            self.heal()

    # Writing

    def begin(
        self,
        branch: str,
        *,
        message: str | None = "",
        actor: str | None = None,
        operation_id: str | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> Transaction:
        self.refuse_read_only()
        told = check_text("" if message is None else message, "A message")
        kept = _plain_properties(properties)
        if operation_id is not None and (not isinstance(operation_id, str) or not operation_id):
            raise InvalidOption(
                f"An operation id is text that is not empty, not {operation_id!r}. Leave it out if "
                "the operation needs none.",
                operation_id=str(operation_id),
            )
        fresh = self._lease is None
        self._prepare_to_write()
        head = self.branches.head(branch)
        if fresh:
            self._fences[head.branch.id] = head.fence
        earlier = None
        if operation_id is not None:
            earlier = self.operation_ids.claim(head, operation_id)
        transaction = Transaction(
            self,
            head,
            actor=check_text(actor or self.actor, "An actor"),
            message=told,
            operation_id=operation_id or new_operation_id(head),
            properties=kept,
            earlier=earlier,
            claimed=operation_id is not None,
        )
        transaction.footing = self.begin_work(transaction, head)
        return transaction

    def after_commits(self, branch: BranchRef, commits: list[Commit]) -> None:
        self.maintainer.after_commits(branch, commits)

    def hold_intent(self, transaction: Transaction) -> HeldIntent:
        intent = Intent(
            operation_id=transaction.operation_id,
            branch=transaction.branch.name,
            branch_id=transaction.branch.id,
            base_version=transaction.base_version,
            actor=transaction.actor,
            kind="data",
            message=transaction.message,
            owner=owner_name(),
            created=self.clock.now(),
            lease_seconds=self.lease_seconds,
            lease=transaction.footing.lease,
            properties=transaction.properties,
        )
        held = HeldIntent(self.keeper, self.objects, intent)
        # A transaction that is dropped without an end must not keep its intent alive.
        weakref.finalize(transaction, held.abandon)
        return held

    def close_branch(self, name: str) -> None:
        """Delete a branch by publishing the record that ends its log."""
        self.refuse_read_only()
        self._prepare_to_write()
        self.branches.delete(name, self._close_at)

    def _close_at(self, head: Head) -> Head:
        def pending(head: Head) -> Pending:
            operation_id = new_operation_id(head)
            return Pending(_Closing(), head, operation_id, self.actor, "closed", "delete branch")

        return self.publisher.publish_alone(head.branch, pending)

    # Reading

    def snapshot_of(self, head: Head) -> Snapshot:
        snapshot = Snapshot(
            self.files, self.engine, head.branch, head.version, head.tables, head.time
        )
        return self._leased(snapshot, head)

    def snapshot_at(self, branch: BranchRef, version: int) -> Snapshot:
        time = self.log.commit_at(branch, version).time if version else None
        tables = self.log.tables_at(branch, version)
        snapshot = self._leased(Snapshot(self.files, self.engine, branch, version, tables, time))
        if not self.read_only:
            # An old version is not protected by being recent: say now that it is in use.
            self.keeper.renew_all()
        return snapshot

    def _is_newest(self, state: TableState) -> bool:
        """Whether a live branch has this pin of the table at its head."""
        heads = (self.log.head(ref) for ref in self.branches.refs(whole=False))
        return any(
            found.id == state.id and found.pin == state.pin
            for head in heads
            for found in head.tables.states()
        )

    def branch_of_commit(self, commit: str) -> tuple[BranchRef, int]:
        """The branch and the version that a commit id names."""
        branch_id, _, number = check_text(commit, "A commit id").rpartition("-")
        refs = [ref for ref in self.branches.all_refs(whole=False) if ref.id == branch_id]
        if refs and number.isdigit():
            version = int(number)
            if refs[0].fork_version < version <= self.log.newest_version(refs[0]):
                return refs[0], version
        raise CommitNotFound(
            f"There is no commit {commit!r}. `tidelock log` shows the ids of commits.",
            commit=commit,
        )

    def _leased(self, snapshot: Snapshot, head: Head | None = None) -> Snapshot:
        self.refuse_unusable()
        self._note(snapshot)
        if not self.read_only:
            self.ensure_lease(head)
        return snapshot

    def snapshots_in_use(self) -> list[Snapshot]:
        return [one for one, _ in self._in_use() if isinstance(one, Snapshot)]

    # Leases and healing

    def refuse_read_only(self) -> None:
        if self.read_only:
            raise ReadOnlyLake(
                f"The lake {self.location.uri!r} was opened with read_only=True. "
                "Open it without to write.",
                uri=self.location.uri,
            )

    def _prepare_to_write(self) -> None:
        self.ensure_lease()
        if self._healed is None or time.monotonic() - self._healed > self.lease_seconds:
            self.heal()

    def heal(self) -> list[Any]:
        recovered = settle_expired(self)
        self._healed = time.monotonic()
        return recovered

    def refuse_unusable(self) -> None:
        """A closed handle, or one that came along with a fork, holds no lease, and a lake that is
        gone has no place for one."""
        if self._closed:
            raise LakeClosed(
                f"This handle on {self.location.uri!r} was closed. Open the lake again.",
                uri=self.location.uri,
            )
        if self._process != os.getpid():
            raise LakeClosed(
                f"This handle on {self.location.uri!r} was opened in another process. "
                "Open the lake in this one.",
                uri=self.location.uri,
            )
        self._presence.check()

    def ensure_lease(self, head: Head | None = None) -> Held:
        """The lease of this handle, made now if there is none. `head` was read before."""
        self.refuse_unusable()
        if self._lease is not None:
            self._lease.ensure(self.objects)
            return self._lease
        with self._lease_lock:
            if self._lease is None:
                lease_id = new_lease_id()
                held = Held(
                    f"{layout.LEASES}/{lease_id}.json",
                    self.lease_seconds,
                    lambda: self._lease_content(lease_id),
                    wrote=self.clock.wrote,
                )
                self.keeper.hold(held)
                self._lease = held
                self._compare_clocks()
                if head is not None:
                    # No fence up to there can name it.
                    self._fences[head.branch.id] = head.fence
            return self._lease

    def _compare_clocks(self) -> None:
        if self.location.kind != "s3":
            self.clock.compare()
            return
        # Not in the way of what follows: whoever needs to know it waits for it.
        threading.Thread(target=self.clock.compare, name="tidelock-clock", daemon=True).start()

    def begin_work(self, work: object, head: Head) -> Footing:
        """Note that something is being staged from now on, on top of a head."""
        lease = self.ensure_lease()
        self._note(work)
        known = self._fences.get(head.branch.id)
        if known != head.fence:
            self._fences[head.branch.id] = head.fence
            oldest = max(0, head.version - FENCES_LOOKED_BACK) if known is None else known
            if lease.key in fenced_since(self.log, head, oldest):
                # Others gave it up, and have removed it: new work must not rely on it.
                lease.give_up(self.objects)
        return lease.footing

    def end_work(self, work: object) -> None:
        with self._began_lock:
            self._began.pop(work, None)

    def _note(self, one: object) -> None:
        with self._began_lock:
            self._began[one] = _Begun(boot_seconds(), self.clock.stamp())

    def _in_use(self) -> list[tuple[object, _Begun]]:
        with self._began_lock:
            return list(self._began.items())

    def check_lease(self, footing: Footing) -> None:
        """LeaseLost when the lease ran out since work began; LakeClosed when it was given up."""
        self.refuse_unusable()
        if self._lease is not None:
            self._lease.check(footing.lapses)

    def lease_until(self, footing: Footing) -> float:
        """When the lease under which work began runs out, as boot_seconds counts; 0 if it has."""
        lease = self._lease
        return lease.until if lease is not None and lease.lapses == footing.lapses else 0.0

    def _lease_content(self, lease_id: str) -> Lease:
        now, stamp = boot_seconds(), self.clock.stamp()
        in_use = self._in_use()
        # A snapshot needs its pins and nothing else; whoever writes also needs what it staged.
        writing = [began for one, began in in_use if not isinstance(one, Snapshot)]
        for began in writing:
            # If the clock went back since it began, its files may be dated before it did.
            began.since = min(began.since, stamp - timedelta(seconds=now - began.booted))
        oldest = min((began.booted for began in writing), default=now)
        since = min((began.since for began in writing), default=None)
        versions = {(one.branch_id, one.version) for one, _ in in_use if isinstance(one, Snapshot)}
        shown = tuple(sorted(versions)[:SNAPSHOTS_LEASED_MAX])
        return Lease(lease_id, owner_name(), self.lease_seconds, now - oldest, since, shown)

    def close(self) -> None:
        if self._closed or self._process != os.getpid():
            return
        self._closed = True
        self.keeper.stop()
        self._lease = None


def _plain_properties(properties: Mapping[str, Any] | None) -> dict[str, Any]:
    """Properties as they come back from the log, or an error before anything is staged."""
    try:
        plain = msgspec.json.decode(msgspec.json.encode(dict(properties or {})))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidOption(
            f"The properties of a commit must be plain values that JSON can hold: {error}.",
            cause=str(error),
        ) from error
    return dict(plain)


class _Closing:
    def rebase(self, tables: Tables, version: int) -> tuple[()]:
        return ()

    def check(self) -> None:
        return
