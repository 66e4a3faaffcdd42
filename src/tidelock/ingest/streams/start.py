"""Starting a Spark stream into a table: what is checked before Spark is asked.

Owns: which sessions can, and what a query is called. Spark on this machine calls back into this
process, with the lake that is open here; a Spark Connect server runs the function beside itself,
where the lake is opened by its URI.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidelock.errors import Advice, InvalidOption
from tidelock.ingest.streams.batches import BatchWriter, Lake, StreamTarget
from tidelock.store.rows.inputs import is_spark_frame
from tidelock.store.rows.refusals import without_key
from tidelock.store.spark.sessions import could_not, engine_errors, is_client, speaker_of
from tidelock.store.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

MODES = ("append", "upsert")
REPEATED = ("check", "skip")
AVAILABLE_NOW = "available_now"


def check_stream(frame: Any, mode: str, checkpoint: object, repeated: str) -> None:
    """InvalidOption for what cannot be started as it is asked."""
    if not is_spark_frame(frame) or not frame.isStreaming:
        raise InvalidOption(
            "write_stream takes a streaming DataFrame, as spark.readStream gives one.",
            Advice("For rows that are there, use tx.append or tx.upsert.", ""),
        )
    if mode not in MODES:
        raise InvalidOption(f"mode={mode!r} is not known. Use one of: {', '.join(MODES)}.")
    if repeated not in REPEATED:
        raise InvalidOption(f"repeated={repeated!r} is not known. Use one of: check, skip.")
    if not checkpoint:
        raise InvalidOption(
            "A stream needs a checkpoint: a folder of its own, where Spark keeps how far it has "
            "read. It must outlive the process, and no other query may use it."
        )
    if speaker_of(frame.sparkSession).name == "Sail":
        raise InvalidOption(
            "Sail runs no micro-batches that are handed to a function (foreachBatch), so it cannot "
            "write a stream into a lake.",
            Advice(
                "Use a session of Apache Spark: open the lake with engine='spark', or with "
                "spark=… or remote=….",
                "Use --engine spark.",
            ),
            engine="sail",
        )


def check_lake(store: Store, frame: DataFrame, target: StreamTarget) -> None:
    """What a query could not write a row to is refused before it is started."""
    if store.location.kind == "memory" and is_client(frame.sparkSession):
        raise InvalidOption(
            f"{store.location.uri} is in the memory of this process, and a Spark Connect server "
            "writes a stream from its own. Use a lake on files that both see, or on S3.",
            uri=store.location.uri,
        )
    head = store.branches.head(target.branch)
    state = head.tables.find(target.table)
    if state is None:
        raise head.tables.unknown(target.table)
    if target.mode == "upsert" and not state.key:
        raise without_key(state.name)


def start_stream(
    frame: DataFrame,
    target: StreamTarget,
    lake: Lake,
    open_lake: Callable[[Any], Lake],
    *,
    checkpoint: str,
    trigger: str | Mapping[str, Any] | None,
    output_mode: str | None,
) -> StreamingQuery:
    """Start a query; `open_lake` opens the lake where a server runs it, and pickles."""
    session = frame.sparkSession
    if not target.name:
        target = replace(target, name=f"tidelock-{target.table}-{secrets.token_hex(4)}")
    if is_client(session):
        writer = BatchWriter(target, open_lake)
    else:
        writer = BatchWriter(target, lambda _: lake, session)
    with engine_errors(session, could_not("did not start the stream", table=target.table)):
        stream = (
            frame.writeStream.foreachBatch(writer)
            .queryName(target.name)
            .option("checkpointLocation", checkpoint)
        )
        if output_mode is not None:
            stream = stream.outputMode(output_mode)
        if trigger is not None:
            stream = stream.trigger(**_trigger(trigger))
        return stream.start()


def _trigger(trigger: str | Mapping[str, Any]) -> dict[str, Any]:
    """As Spark's `trigger` takes it: a duration, `available_now`, or its own words."""
    if not isinstance(trigger, str):
        return dict(trigger)
    if trigger == AVAILABLE_NOW:
        return {"availableNow": True}
    from tidelock.model.time.durations import parse_duration

    milliseconds = int(parse_duration(trigger, "a trigger").total_seconds() * 1000)
    return {"processingTime": f"{milliseconds} milliseconds"}
