"""The parts of one open lake: what every operation on it is given.

Owns: how the parts are put together, whether the handle can still be used, and nothing else. What
is done with them is in the rooms and in `Store`, which is these parts and the doors to the rooms.
So transactions and upkeep know the parts, and the store knows transactions and upkeep.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, cast

from tidelock.errors import Advice, CommitNotFound, LakeClosed, ReadOnlyLake, StoreFull
from tidelock.model.arguments import check_text
from tidelock.model.history.commit import BranchRef, Commit, TableState
from tidelock.model.once import once
from tidelock.store.branches import Branches
from tidelock.store.engine import Engine
from tidelock.store.leases.handle_lease import HandleLease
from tidelock.store.leases.leases import Keeper
from tidelock.store.leases.uses import Use, Uses
from tidelock.store.log.checkpoint_writer import LogFolder
from tidelock.store.log.checkpoints import SPANS
from tidelock.store.log.clock import LakeClock, published_at
from tidelock.store.log.log import Head, Log
from tidelock.store.log.operation_ids import OperationIds
from tidelock.store.log.operation_index import Published
from tidelock.store.log.publication import Publisher
from tidelock.store.log.turns import Turns
from tidelock.store.objects.handle import HandleObjects, closed
from tidelock.store.objects.kinds.location import Location
from tidelock.store.objects.parallel import Together
from tidelock.store.objects.presence import Presence
from tidelock.store.objects.protocol import Objects
from tidelock.store.upkeep.chores import Chores

if TYPE_CHECKING:
    from tidelock.store.tables.datasets import TableFiles

logger = logging.getLogger("tidelock")

CHORES_AT_ONCE = 16


class Parts:
    """The parts of one open lake. A handle makes them once, and they live as long as it does."""

    def __init__(
        self,
        location: Location,
        handle: HandleObjects,
        engine: Engine,
        *,
        actor: str,
        read_only: bool,
        durability: str,
        lease_seconds: float,
    ) -> None:
        self.location = location
        self._handle = handle
        objects = self.objects = cast(Objects, handle)
        self.engine = engine
        self.actor = check_text(actor, "An actor")
        self.read_only = read_only
        self._durability = durability
        self.lease_seconds = lease_seconds
        self.clock = LakeClock(handle.inner)
        self._presence = Presence(location, objects)
        handle.check_before_writes(self._presence.check)
        self.turns = Turns(location)
        self.together = Together(far=location.kind == "s3")
        self.log = Log(objects, self.turns.newest, self.together)
        self.branches = Branches(objects, self.log, self.clock.now, self.together)
        self.publisher = Publisher(
            self.log, self.turns, self.clock.moment, self._presence, self._moved
        )
        self.chores = Chores(threads=CHORES_AT_ONCE if self.together.far else 1)
        self.published = Published(objects, self.log, self.together)
        self.operation_ids = OperationIds(objects, self.log, self.published, self.together)
        self.log_folder = LogFolder(
            objects, self.log, self.published, self.clock.now, self.together
        )
        self.closed_seen: dict[str, float] = {}
        """When each branch was first seen to be deleted, as boot_seconds counts."""
        self.keeper = Keeper(handle.inner, lease_seconds, self.clock.compare)
        self.uses = Uses()
        self.lease = HandleLease(
            objects,
            self.keeper,
            self.clock,
            self.log,
            self.uses,
            lease_seconds,
            self.refuse_unusable,
            far=location.kind == "s3",
        )
        self.healed_at: float | None = None
        """When what dead writers left was last settled, as time.monotonic counts."""
        self._process = os.getpid()
        self._closed = False

    def note_healed(self) -> None:
        self.healed_at = time.monotonic()

    @once
    def files(self) -> TableFiles:
        """The Lance datasets of the tables. What asks for the history alone needs none, and is done
        before Lance and Arrow would have been imported."""
        from tidelock.store.schema.declarations import Declarations
        from tidelock.store.tables.datasets import TableFiles

        return TableFiles(
            self.location,
            self.together,
            self._durability,
            Declarations(self.objects),
            self._is_newest,
            self.refuse_unusable,
        )

    # Whether the handle can be used

    def refuse_read_only(self) -> None:
        if self.read_only:
            raise ReadOnlyLake(
                f"The lake {self.location.uri!r} was opened with read_only=True. "
                "Open it without to write.",
                uri=self.location.uri,
            )

    def refuse_unusable(self) -> None:
        """A closed handle, or one that came along with a fork, holds no lease, and a lake that is
        gone has no place for one."""
        if self._closed:
            raise closed(self.location.uri)
        if self._process != os.getpid():
            raise LakeClosed(
                f"This handle on {self.location.uri!r} was opened in another process. "
                "Open the lake in this one.",
                uri=self.location.uri,
            )
        self._presence.check()

    def confirm_present(self) -> None:
        """LakeRemoved unless the lake is there, also where only the store can tell."""
        self._presence.confirm()

    def close(self) -> None:
        if self._closed or self._process != os.getpid():
            return
        self.chores.finish()
        self._closed = True
        self.keeper.stop()
        self.lease.forget()
        self._handle.close()

    # What is read stays readable

    def hold_versions(self, holder: object, uses: Iterable[Use]) -> None:
        """Keep versions readable for as long as a holder lives, and say so now: old versions are
        not protected by being recent."""
        self.refuse_unusable()
        self.uses.hold(holder, uses)
        self.protect()
        if not self.read_only:
            self.keeper.renew_all()

    def protect(self, head: Head | None = None) -> None:
        """Let others know that this handle reads, if it may write and there is room for it."""
        if self.read_only:
            return
        try:
            self.lease.ensure(head)
        except StoreFull as error:
            logger.warning("what is read is not protected from collection: %s", error.message)

    # The history

    def published_at(self, head: Head, version: int) -> datetime | None:
        """When a version was published, whatever a clock that was wrong said; None if unknown."""
        return published_at(self.objects, self.log, head, version, self.clock.now())

    def branch_of_commit(self, commit: str) -> tuple[BranchRef, int]:
        """The branch and the version that a commit id names."""
        branch_id, _, number = check_text(commit, "A commit id").rpartition("-")
        refs = [ref for ref in self.branches.all_refs(whole=False) if ref.id == branch_id]
        if refs and number.isdigit():
            version = int(number)
            if refs[0].fork_version < version <= self.log.newest_version(refs[0]):
                return refs[0], version
        raise CommitNotFound(
            f"There is no commit {commit!r}.",
            Advice(
                "lake.log() shows the ids of commits.", "`tidelock log` shows the ids of commits."
            ),
            commit=commit,
        )

    def settle_later(self, branch: BranchRef, commit: Commit, since: int) -> None:
        """Let be noted where a claimed operation was published. Nobody depends on it."""
        key = ("noting operation", commit.operation_id, "on", branch.id)
        self.chores.ask(key, lambda: self.operation_ids.settle(branch, commit, since))

    def _moved(self, before: Head, after: Head) -> None:
        """Let the log be folded, now and then, by the process that moves a branch."""
        if before.version // SPANS[0] != after.version // SPANS[0]:
            branch = after.branch
            self.chores.ask(("folding the log of", branch.id), lambda: self.log_folder.fold(branch))

    def _is_newest(self, state: TableState) -> bool:
        """Whether a live branch has this pin of the table at its head."""
        heads = (self.log.head(ref) for ref in self.branches.refs(whole=False))
        return any(
            shown.id == state.id and shown.pin == state.pin
            for head in heads
            for shown in head.tables.states()
        )
