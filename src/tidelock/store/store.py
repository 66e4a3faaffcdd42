"""The store of one lake: what a handle needs to read and to write it.

Owns: the composition of the log, the branches, the table files and publication, the lease of this
process, and when healing is due.
Invariant: nothing is written before the lease of this handle exists and expired intents are
settled.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tidelock.errors import CommitConflict, InvalidOption, StoreFull
from tidelock.model.arguments import check_text
from tidelock.model.history.commit import BranchRef
from tidelock.model.isolation import Isolation, check_isolation
from tidelock.model.once import once
from tidelock.store.branches import MAIN
from tidelock.store.engine import Engine
from tidelock.store.lake_info import LakeInfo, lake_info
from tidelock.store.leases.leases import LEASE_SECONDS
from tidelock.store.leases.recovery import Recovery
from tidelock.store.leases.recovery import heal as settle_expired
from tidelock.store.log.line import Line
from tidelock.store.log.log import FENCE, MERGE, Head
from tidelock.store.log.operation_ids import new_operation_id
from tidelock.store.log.pending import Pending
from tidelock.store.objects.handle import HandleObjects
from tidelock.store.objects.kinds.location import Location
from tidelock.store.parts import Parts
from tidelock.store.snapshot import Snapshot

if TYPE_CHECKING:
    from tidelock.store.rooms_above import CheckTables
    from tidelock.store.transaction import CarryAlong, Transaction
    from tidelock.store.upkeep.maintenance import Maintainer

logger = logging.getLogger("tidelock")


class Store(Parts):
    """Everything that a handle does with its lake: the parts, and the doors to the rooms.

    Owns: when what dead writers left is settled, and which snapshots are handed out.
    """

    def __init__(
        self,
        location: Location,
        handle: HandleObjects,
        engine: Engine,
        *,
        actor: str,
        read_only: bool = False,
        durability: str = "process",
        lease_seconds: float = LEASE_SECONDS,
        heal: bool = True,
        check_tables: CheckTables,
        carry_along: CarryAlong,
    ) -> None:
        """`check_tables` is asked before a commit that creates, alters or drops tables: it raises
        if what the commit leaves cannot stand together. `carry_along` stages what follows for
        others from what a transaction drops or alters."""
        super().__init__(
            location,
            handle,
            engine,
            actor=actor,
            read_only=read_only,
            durability=durability,
            lease_seconds=lease_seconds,
        )
        self._check_tables = check_tables
        self._carry_along = carry_along
        self.info, _ = self.together.both(
            self._read_info,
            lambda: self._heal_when_opened() if heal and not read_only else None,
        )

    @once
    def maintainer(self) -> Maintainer:
        """Keeps tables quick to read. Imported with what writes."""
        from tidelock.store.upkeep.maintenance import Maintainer

        return Maintainer(self)

    # Writing

    def begin(
        self,
        branch: str,
        *,
        message: str | None = "",
        actor: str | None = None,
        operation_id: str | None = None,
        properties: Mapping[str, Any] | None = None,
        isolation: Isolation = "snapshot",
    ) -> Transaction:
        self.refuse_read_only()
        check_isolation(isolation)
        told = check_text("" if message is None else message, "A message")
        kept = _plain_properties(properties)
        if operation_id is not None and (not isinstance(operation_id, str) or not operation_id):
            raise InvalidOption(
                f"An operation id is text that is not empty, not {operation_id!r}. Leave it out if "
                "the operation needs none.",
                operation_id=str(operation_id),
            )
        from tidelock.store.transaction import Transaction

        head = self._prepare_to_write_on(branch)
        transaction = Transaction(
            self,
            head,
            actor=check_text(actor or self.actor, "An actor"),
            message=told,
            operation_id=operation_id or new_operation_id(head),
            properties=kept,
            claimed=operation_id is not None,
            isolation=isolation,
            check_tables=self._check_tables,
            carry_along=self._carry_along,
            after_commits=self.maintainer.after_commits,
        )
        transaction.footing = self.lease.begin_work(transaction, head)
        if operation_id is not None:
            # Begun before it is claimed: a claim that is older than every writer is nobody's.
            transaction.earlier = self.operation_ids.claim(head, operation_id)
        return transaction

    def close_branch(self, name: str, merged: int | None = None) -> None:
        """Delete a branch by publishing the record that ends its log. With `merged`, only if
        nothing but maintenance came after that version of it; else CommitConflict."""
        self.refuse_read_only()
        self._prepare_to_write_on(MAIN)
        self.branches.delete(name, lambda head: self._close_at(head, merged))

    def _close_at(self, head: Head, merged: int | None) -> Head:
        def pending(head: Head) -> Pending:
            if merged is not None:
                self._refuse_newer(head, merged)
            operation_id = new_operation_id(head)
            return Pending(_Closing(), head, operation_id, self.actor, "closed", "delete branch")

        return self.publisher.publish_alone(head.branch, pending)

    def _refuse_newer(self, head: Head, merged: int) -> None:
        for commit in self.log.walk(head.branch, head.version, merged + 1):
            if commit.kind != "maintenance":
                raise CommitConflict(
                    f"Branch {head.branch.name!r} was merged as of version {merged}, and version "
                    f"{commit.version} came since. It was not deleted: merge it again.",
                    branch=head.branch.name,
                    expected=merged,
                    actual=commit.version,
                )

    # Reading

    def newest_snapshot(self, branch: str) -> Snapshot:
        """The newest state of a branch."""
        try:
            head = self._head_and_lease(branch)
        except StoreFull:
            head = self.branches.head(branch)
        snapshot = Snapshot(self, head.branch, head.version, head.tables, head.time)
        return self._leased(snapshot, head)

    def snapshot_at(self, branch: BranchRef, version: int) -> Snapshot:
        time = self.log.commit_at(branch, version).time if version else None
        tables = self.log.tables_at(branch, version)
        snapshot = self._leased(Snapshot(self, branch, version, tables, time))
        if not self.read_only:
            # An old version is not protected by being recent: say now that it is in use.
            self.keeper.renew_all()
        return snapshot

    def _leased(self, snapshot: Snapshot, head: Head | None = None) -> Snapshot:
        self.refuse_unusable()
        self.lease.note_snapshot(snapshot)
        self.protect(head)
        return snapshot

    # Leases and healing

    def _prepare_to_write_on(self, branch: str) -> Head:
        """The head of a branch, with a lease in place and expired intents settled."""
        if self.healed_at is not None and time.monotonic() - self.healed_at <= self.lease_seconds:
            return self._head_and_lease(branch)
        recovered, head = self.together.both(self.heal, lambda: self._head_and_lease(branch))
        # What was published for dead writers is to be seen.
        return self.branches.head(branch) if recovered and self.together.far else head

    def _head_and_lease(self, branch: str) -> Head:
        """The head of a branch, with a lease in place."""
        if self.lease.exists or self.read_only:
            if not self.read_only:
                self.lease.ensure()
            return self.branches.head(branch)
        self.refuse_unusable()
        _, head = self.together.both(self.lease.ensure, lambda: self.branches.head(branch))
        self.lease.is_newer_than_fences(head)
        return head

    def heal(self) -> list[Recovery]:
        """Settle what dead writers left."""
        return settle_expired(self)

    def _read_info(self) -> LakeInfo:
        info = lake_info(self.objects, self.location.uri, mend=not self.read_only)
        # It may have been written anew.
        self._presence.begin()
        return info

    def _heal_when_opened(self) -> None:
        try:
            self.heal()
        except StoreFull as error:
            # It is done before the next write; who reads needs no room.
            logger.warning("what writers left could not be settled: %s", error.message)


def _plain_properties(properties: Mapping[str, Any] | None) -> dict[str, Any]:
    """Properties as they come back from the log, or an error before anything is staged."""
    try:
        plain = msgspec.json.decode(msgspec.json.encode(dict(properties or {})))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidOption(
            f"The properties of a commit must be plain values that JSON can hold: {error}.",
            cause=str(error),
        ) from error
    reserved = {FENCE, MERGE} & set(plain)
    if reserved:
        raise InvalidOption(
            f"A commit cannot have a property {min(reserved)!r} of a user's: it is Tidelock's own. "
            "Choose another name.",
            property=min(reserved),
        )
    return dict(plain)


class _Closing:
    def rebase(self, line: Line) -> tuple[()]:
        return ()

    def check(self) -> None:
        return
