"""Micro-batches of a Spark stream: each becomes one commit, once.

Owns: what Spark calls for each batch. The commit's operation id is `stream/<query id>/<batch id>`,
and its property `stream` says query, batch, name, rows and digest.

    1. Spark notes in its checkpoint what the batch is made of
    2. it calls us: the rows are staged, and one commit publishes them
    3. Spark notes in its checkpoint that the batch is done

Invariants: a batch that is published is not published again; one that has other rows than the batch
that was published under its id is refused, never passed over.
After a crash: before 2 is done nothing happened, after it the batch is given again and found by its
operation id. A checkpoint that was put back to an earlier state gives batches again under ids that
were used; where Spark makes other batches of what has come since, the digests differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from tidelock.errors import Advice, SourceDiverged, SourceUnavailable
from tidelock.store.objects.failpoints import hit
from tidelock.store.spark.row_hashes import digest_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidelock.model.history.commit import Commit
    from tidelock.store.transaction import Transaction

STREAM = "stream"
"""The property of a commit that says which batch it holds."""


class Lake(Protocol):
    """What a stream needs of a lake."""

    def run(
        self,
        function: Callable[[Transaction], None],
        *,
        message: str,
        branch: str,
        operation_id: str,
        properties: dict[str, Any],
    ) -> None: ...


@dataclass(frozen=True)
class StreamTarget:
    """What a stream is written to, and how, as plain values."""

    table: str
    mode: str
    branch: str
    name: str
    """What the query is called while it runs."""
    evolve: bool = False
    check_repeated: bool = True


@dataclass
class BatchWriter:
    """Called by Spark for each batch. Pickles, where `lake_of` does."""

    target: StreamTarget
    lake_of: Callable[[SparkSession], Lake]
    session: SparkSession | None = None
    """The session that the query was started in, where a batch comes with another."""
    _lake: Lake | None = field(default=None, repr=False)
    _query: str = ""

    def __call__(self, frame: DataFrame, batch: int) -> None:
        if self._lake is None:
            self._lake = self.lake_of(frame.sparkSession)
            self._query = query_id(self.session or frame.sparkSession, self.target.name)
        told = {"query": self._query, "batch": batch, "name": self.target.name}

        def write(tx: Transaction) -> None:
            if tx.earlier is not None:
                if self.target.check_repeated:
                    self._refuse_other(tx.earlier, frame, batch)
                return
            target = self.target
            digest = tx.write_batch(
                target.table, frame, upsert=target.mode == "upsert", evolve=target.evolve
            )
            if digest is None or not digest.rows:
                tx.rollback()
                return
            tx.properties[STREAM] = {**told, "rows": digest.rows, "digest": digest.text}

        hit("stream.before_publish")
        self._lake.run(
            write,
            message=f"{self.target.name}: batch {batch}",
            branch=self.target.branch,
            operation_id=operation_id(self._query, batch),
            properties={STREAM: told},
        )
        hit("stream.after_publish")

    def _refuse_other(self, earlier: Commit, frame: DataFrame, batch: int) -> None:
        """SourceDiverged when a batch is not the one that was published under its id."""
        before = earlier.properties.get(STREAM, {}).get("digest", "")
        given = digest_of(frame).text
        if given == before:
            return
        raise SourceDiverged(
            f"Batch {batch} of query {self.target.name!r} was published as version "
            f"{earlier.version}, with other rows ({_rows(before)} then, {_rows(given)} now). "
            "Nothing of it was written.",
            Advice(
                "If its checkpoint was put back to an earlier state, start the query with a new "
                "one, from where the lake stands, or with mode='upsert'. If its rows are made "
                "anew each time, by rand() or uuid(), say repeated='skip'.",
                "Start the query with another checkpoint.",
            ),
            query=self._query,
            batch=batch,
            version=earlier.version,
            expected=before,
            actual=given,
        )


def operation_id(query: str, batch: int) -> str:
    return f"stream/{query}/{batch}"


def query_id(session: SparkSession, name: str) -> str:
    """The id that a query keeps in its checkpoint, which outlives its runs."""
    for query in session.streams.active:
        if query.name == name:
            return str(query.id)
    raise SourceUnavailable(f"Query {name!r} was stopped before its first batch.", source=name)


def _rows(digest: str) -> str:
    return digest.partition(":")[0] or "unknown"
