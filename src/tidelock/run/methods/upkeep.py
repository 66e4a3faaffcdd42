"""The part of the Lake handle that looks after the lake itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from tidelock.errors import SnapshotExpired
from tidelock.model.arguments import check_count
from tidelock.model.history.commit import Commit, TableState
from tidelock.model.listing import Listing
from tidelock.model.names import names_of
from tidelock.model.time.durations import parse_duration
from tidelock.run.rooms import Rooms
from tidelock.store import points
from tidelock.store.branches import MAIN
from tidelock.store.leases.holds import Hold, release_hold, take_hold
from tidelock.store.leases.intents import Intent, UnreadableIntent, list_intents
from tidelock.store.leases.recovery import Recovery, recoveries
from tidelock.store.upkeep.mirror_notes import Mirror, list_foreign, mirrored

if TYPE_CHECKING:
    from tidelock.store.upkeep.garbage.garbage import GarbageReport
    from tidelock.store.upkeep.mirror_notes import Foreign
    from tidelock.store.upkeep.repair.inventory import Finding
    from tidelock.store.upkeep.repair.repair import RepairReport
    from tidelock.store.upkeep.repair.verification import VerifyReport

logger = logging.getLogger("tidelock")

RETENTION = timedelta(days=7)


class UpkeepMethods(Rooms):
    """Keeping a lake quick, small and whole."""

    def optimize(
        self,
        tables: str | Sequence[str] | None = None,
        *,
        branch: str = MAIN,
        on_spark: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Listing[Commit]:
        """Compact tables and bring their key indexes up to date. Changes no row.

        Writers are neither blocked nor do they get in its way. `on_spark=True` rewrites fragments
        on Spark's executors.
        """
        self._store.refuse_read_only()
        self._store.lease.ensure()
        head = self._store.branches.head(branch)
        asked = list(head.tables) if tables is None else names_of(tables, "tables")
        names = [head.tables[name].name for name in asked]
        commits: list[Commit] = []
        for number, name in enumerate(names, start=1):
            maintainer = self._store.maintainer
            done = [maintainer.compact(head.branch, name, on_spark)]
            done.append(maintainer.index(head.branch, name))
            commits.extend(commit for commit in done if commit is not None)
            if progress is not None:
                progress(number, len(names))
        self._sample()
        return Listing.of(
            "Maintenance",
            commits,
            {"version": lambda c: c.version, "done": lambda c: c.message},
        )

    def collect_garbage(
        self,
        older_than: timedelta | float | str = RETENTION,
        *,
        versions: int = 1,
        dry_run: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> GarbageReport:
        """Remove what nobody needs.

        Kept are the last `versions` commits of each branch, everything that was current within
        `older_than`, tags, holds, and whatever a reader or writer is using.
        """
        from tidelock.store.upkeep.garbage.garbage import collect

        if not dry_run:
            self._store.refuse_read_only()
        check_count(versions, "versions")
        age = parse_duration(older_than, "an age")
        if not dry_run:
            self._sinks.release_leftovers()
        report = collect(self._store, age, versions, dry_run, progress)
        return report if dry_run else replace(report, damaged=self._sample())

    def _sample(self) -> tuple[Finding, ...]:
        """Look at some files by chance, and say what is damaged."""
        from tidelock.store.upkeep.repair.verification import sample_damage

        found = sample_damage(self._store)
        for one in found:
            logger.error("%s of table %r is damaged: %s", one.key, one.table, one.why)
        return found

    def hold(self, name: str, version: int | None = None, *, branch: str = MAIN) -> Hold:
        """Keep a version readable until the hold is moved or released."""
        self._store.refuse_read_only()
        place = points.locate(self._store, branch, version=version)
        hold = take_hold(self._store.objects, name, *place, self._store.actor)
        try:
            points.check_kept(self._store, place)
        except SnapshotExpired:
            release_hold(self._store.objects, name)
            raise
        return hold

    def release(self, name: str) -> None:
        """Release a hold."""
        self._store.refuse_read_only()
        release_hold(self._store.objects, name)

    def mirror(self, table: str) -> Mirror:
        """Make the Lance HEAD of a table equal to main, for plain Lance readers."""
        from tidelock.store.upkeep.mirror import mirror

        self._store.refuse_read_only()
        return mirror(self._store, self._store.branches.head(MAIN).tables[table])

    def recoveries(self) -> Listing[Recovery]:
        """What became of operations whose writers died."""
        return recoveries(self._store)

    def intents(self) -> Listing[Intent]:
        """Who is staging work right now, and what dead writers left to be settled."""
        readable, _ = list_intents(self._store.objects)
        return Listing.of(
            "Intents",
            readable,
            {
                "operation": lambda i: i.operation_id,
                "branch": lambda i: i.branch,
                "actor": lambda i: i.actor,
                "owner": lambda i: i.owner,
                "message": lambda i: i.message,
                "sealed": lambda i: "yes" if i.sealed is not None else "no",
                "created": lambda i: i.created,
            },
        )

    def unreadable_intents(self) -> Listing[UnreadableIntent]:
        """Intents that an operator must look at: writing is refused while there are any."""
        _, unreadable = list_intents(self._store.objects)
        return Listing.of(
            "Unreadable intents",
            unreadable,
            {"file": lambda i: i.file, "cause": lambda i: i.cause},
        )

    def foreign_commits(self) -> Listing[Foreign]:
        """Commits that others made on the Lance HEAD of mirrored tables."""
        states = self._store.branches.head(MAIN).tables.states()
        return list_foreign(self._foreign(mirrored(self._store.objects, states)))

    def _foreign(self, states: list[TableState]) -> list[Foreign]:
        if not states:
            return []
        from tidelock.store.upkeep.mirror import foreign_commits

        return foreign_commits(self._store, states)

    def repair(
        self,
        table: str | None = None,
        *,
        adopt: bool = False,
        discard: bool = False,
        discard_intent: str | None = None,
        discard_object: str | None = None,
    ) -> RepairReport:
        """Show what an operator must decide, and do it on an explicit word.

        Without arguments it settles expired intents, mends damaged objects where that harms nobody,
        and lists foreign commits and what else is damaged. `adopt=True` or `discard=True` decides
        on the foreign commit of `table`; `discard_intent` removes an unreadable intent by its file
        name, and `discard_object` gives up another damaged object, by its path in the lake.
        """
        from tidelock.store.upkeep.repair.repair import repair

        self._store.refuse_read_only()
        return repair(self._store, table, adopt, discard, discard_intent, discard_object)

    def verify(
        self,
        tables: str | Sequence[str] | None = None,
        *,
        sample: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> VerifyReport:
        """Compare everything with the checksums that were kept when it was written.

        Reads every object of the lake and every file that the heads of branches, tags and holds
        need; of some tables alone, or with `sample` so many files by chance. Changes nothing.
        """
        from tidelock.store.upkeep.repair.verification import verify

        if sample is not None:
            check_count(sample, "sample")
        return verify(self._store, tables, sample, progress)
