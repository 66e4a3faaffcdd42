"""The Lake handle: everything that a user does with a lake begins here.

Owns: no state of its own beyond the store of the lake and the engine that queries run on. Handles
are safe to use from several threads; several handles, in several processes, may use one lake.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import count, groupby, islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tidelock.errors import (
    Action,
    ConflictError,
    SnapshotExpired,
    VersionNotFound,
)
from tidelock.model.arguments import check_count
from tidelock.model.history.commit import BranchRef, Commit
from tidelock.model.isolation import Isolation
from tidelock.model.listing import Listing
from tidelock.model.names import check_table_name
from tidelock.run.functions import refuse_deferred, refuse_unfinished
from tidelock.run.methods.diffs import DiffMethods
from tidelock.run.methods.files import FileMethods
from tidelock.run.methods.merges import MergeMethods
from tidelock.run.methods.schemas import SchemaMethods
from tidelock.run.methods.sinks import SinkMethods
from tidelock.run.methods.sources import SourceMethods
from tidelock.run.methods.statements import StatementMethods
from tidelock.run.methods.streams import StreamMethods
from tidelock.run.methods.upkeep import UpkeepMethods
from tidelock.store import points
from tidelock.store.branches import MAIN, Tag
from tidelock.store.lake_info import LakeInfo
from tidelock.store.log.table_changes import named_changes
from tidelock.store.points import At

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from tidelock.store.transaction import Transaction

T = TypeVar("T")

PAUSE_SECONDS_MAX = 0.5


class Lake(
    StatementMethods,
    FileMethods,
    SchemaMethods,
    StreamMethods,
    SinkMethods,
    SourceMethods,
    MergeMethods,
    DiffMethods,
    UpkeepMethods,
):
    """An open lake. Close it, or use it as a context manager."""

    @property
    def uri(self) -> str:
        return self._store.location.uri

    @property
    def info(self) -> LakeInfo:
        """The lake's id, its format, and when it was created."""
        return self._store.info

    @property
    def actor(self) -> str:
        return self._store.actor

    @property
    def spark(self) -> SparkSession:
        """The Spark session that queries of this lake run on; started now if it was not."""
        self._store.refuse_unusable()
        return self._engine.get()

    # Writing

    def transaction(
        self,
        message: str = "",
        *,
        branch: str = MAIN,
        actor: str | None = None,
        operation_id: str | None = None,
        properties: Mapping[str, Any] | None = None,
        isolation: Isolation = "snapshot",
    ) -> Transaction:
        """Begin a transaction. Leaving its block publishes one commit, or, on error, nothing.

        With `isolation="serializable"` it is published only if nothing that it read through this
        handle was changed meanwhile.
        """
        return self._store.begin(
            branch,
            message=message,
            actor=actor,
            operation_id=operation_id,
            properties=properties,
            isolation=isolation,
        )

    def run(
        self,
        function: Callable[[Transaction], T],
        *,
        retries: int = 5,
        message: str = "",
        branch: str = MAIN,
        operation_id: str | None = None,
        properties: Mapping[str, Any] | None = None,
        isolation: Isolation = "snapshot",
    ) -> T:
        """Run a function in a transaction, and again when another commit was first.

        Returns what the function returns. It is called up to 1 + `retries` times, each time on
        the newest snapshot.
        """
        refuse_deferred(function)
        check_count(retries, "retries")
        with ExitStack() as stack:
            for attempt in count():
                transaction = self.transaction(
                    message,
                    branch=branch,
                    operation_id=operation_id,
                    properties=properties,
                    isolation=isolation,
                )
                try:
                    with transaction:
                        return refuse_unfinished(function(transaction))
                except ConflictError as error:
                    if error.action is not Action.REFRESH_AND_RETRY or attempt >= retries:
                        raise
                if attempt == 0:
                    precedence = self._store.publisher.precedence
                    stack.enter_context(precedence.taken(transaction.branch.id))
                else:
                    # Rivals elsewhere that wait a random while, longer each time, meet less often.
                    time.sleep(random.uniform(0, min(PAUSE_SECONDS_MAX, 0.005 * 2**attempt)))
        raise AssertionError("unreachable")

    def create_table(
        self,
        name: str,
        schema: object,
        key: str | Sequence[str] | None = None,
        *,
        branch: str = MAIN,
        message: str = "",
    ) -> Commit:
        """Create a table. `schema` is Spark DDL, a pyarrow.Schema or a Spark StructType."""
        message = message or f"create table {check_table_name(name)}"
        with self.transaction(message, branch=branch) as transaction:
            transaction.create_table(name, schema, key=key)
        return _published(transaction)

    def drop_table(
        self, name: str, *, cascade: bool = False, branch: str = MAIN, message: str = ""
    ) -> Commit:
        """Drop a table, and with `cascade` the stream tables that are computed from it. Earlier
        snapshots still show it while they are retained."""
        with self.transaction(message or f"drop table {name}", branch=branch) as transaction:
            transaction.drop_table(name, cascade=cascade)
        return _published(transaction)

    # Reading

    def changes(
        self,
        table: str,
        since: At = 0,
        until: At | None = None,
        *,
        branch: str = MAIN,
    ) -> pa.RecordBatchReader:
        """What commits after `since`, up to and with `until`, did to the table of this name.

        Both are a version of the branch, or a commit id, a tag's name or a time on it. The reader
        gives the table's columns, `_weight` (+1 inserted, -1 deleted; an update is one of each) and
        `_version`, in commit order. When a table is dropped its rows are deleted; one that is
        created under its name is followed if it has the same columns, else TableReplaced says
        where to divide the range.
        """
        from tidelock.store.changes.change_reader import change_reader

        head = self._store.branches.head(branch)
        first = points.version_on(self._store, head, since)
        last = None if until is None else points.version_on(self._store, head, until)
        return change_reader(self._store, head, table, first, last)

    def log(
        self, branch: str = MAIN, limit: int | None = 20, *, table: str | None = None
    ) -> Listing[Commit]:
        """The commits of a branch, newest first; with a table, those that created, changed or
        dropped a table of that name."""
        head = self._store.branches.head(branch)
        if limit is not None:
            check_count(limit, "limit")
        log = self._store.log
        if table is None:
            oldest = 1 if limit is None else max(1, head.version - limit + 1)
            commits = log.walk(head.branch, head.version, oldest)
        else:
            found = named_changes(log, head.branch, table, head.version)
            # One commit may drop a table and create another of its name.
            distinct = (version for version, _ in groupby(found, key=lambda one: one[0]))
            versions = list(islice(distinct, limit))
            if not versions and limit != 0:
                raise head.tables.unknown(table)
            commits = (log.commit_at(head.branch, version) for version in versions)
        return Listing.of(
            f"Log of {branch}",
            commits,
            {
                "version": lambda c: c.version,
                "time": lambda c: c.time,
                "kind": lambda c: c.kind,
                "actor": lambda c: c.actor,
                "changes": lambda c: "; ".join(change.summary for change in c.shown),
                "message": lambda c: c.message,
                "id": lambda c: c.id,
            },
        )

    def find_commit(self, at: At, *, branch: str = MAIN) -> Commit:
        """The commit that a version, a commit id, a tag or a time names."""
        ref, version = points.point(self._store, at, branch)
        if version == 0:
            raise VersionNotFound(
                "Version 0 is the empty lake: no commit made it.", branch=branch, version=0
            )
        return self._store.log.commit_at(ref, version)

    def find_operation(self, operation_id: str, *, branch: str = MAIN) -> Commit | None:
        """The commit of an operation id, or None when it was not published."""
        return self._store.operation_ids.look_up(self._store.branches.head(branch), operation_id)

    # Branches and tags

    def branches(self) -> Listing[BranchRef]:
        refs = self._store.branches.refs(whole=False)
        heads = {ref.id: self._store.log.head(ref) for ref in refs}
        return Listing.of(
            "Branches",
            [head.branch for head in heads.values()],
            {
                "name": lambda b: b.name,
                "version": lambda b: heads[b.id].version,
                "forked at": lambda b: b.fork_version or None,
                # Nobody creates main: it comes with the lake.
                "created": lambda b: b.created if b.actor else None,
                "actor": lambda b: b.actor or None,
            },
        )

    def create_branch(self, name: str, at: At | None = None, *, branch: str = MAIN) -> BranchRef:
        """Create a branch from the newest commit of `branch`, or from `at`: a version of it, a
        commit id, a tag's name or a time."""
        self._store.refuse_read_only()
        place = points.point(self._store, at, branch)
        created = self._store.branches.create(name, *place, self.actor)
        try:
            points.check_kept(self._store, place)
        except SnapshotExpired:
            self._store.close_branch(name)
            raise
        return created

    def delete_branch(self, name: str) -> None:
        """Delete a branch. A writer that is still at it gets BranchDeleted."""
        self._store.close_branch(name)

    def tag(
        self,
        name: str,
        version: int | None = None,
        *,
        commit: str | None = None,
        branch: str = MAIN,
    ) -> Tag:
        """Name a commit, and keep its snapshot readable for as long as the tag exists."""
        self._store.refuse_read_only()
        place = points.locate(self._store, branch, version=version, commit=commit)
        ref, number = place
        if number == 0:
            raise VersionNotFound("There is no commit to tag yet.", version=0)
        tag = self._store.branches.create_tag(
            name, self._store.log.commit_at(ref, number), ref, self.actor
        )
        try:
            points.check_kept(self._store, place)
        except SnapshotExpired:
            self._store.branches.delete_tag(name)
            raise
        return tag

    def tags(self) -> Listing[Tag]:
        return Listing.of(
            "Tags",
            self._store.branches.tags(whole=False),
            {
                "name": lambda t: t.name,
                "version": lambda t: t.version,
                "commit": lambda t: t.commit,
                "created": lambda t: t.created,
                "actor": lambda t: t.actor,
            },
        )

    def delete_tag(self, name: str) -> None:
        self._store.refuse_read_only()
        self._store.branches.delete_tag(name)

    def close(self) -> None:
        """Give up the lease and stop the Spark session, if it was started here."""
        self._store.close()
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        mode = ", read_only=True" if self._store.read_only else ""
        return f"Lake({self.uri!r}, actor={self.actor!r}{mode})"


def _published(transaction: Transaction) -> Commit:
    assert transaction.commit is not None
    return transaction.commit
