"""Recovering: where a sink stands, from the lake or else from its destination.

Owns: which of them is believed. The lake is, for as long as what it has written agrees; then the
destination, if it can tell; and when it cannot, the sink stops. Nothing is skipped and nothing is
sent again on a guess.
After a crash: nothing was sent; the next tick asks again and is told the same.
"""

from __future__ import annotations

import logging

from tidelock.deliver.ledger import Ledger, Standing
from tidelock.deliver.sink import RecoverableSink, Recovered, Sink
from tidelock.errors import DestinationFailed, SinkStopped, TidelockError
from tidelock.model.sinks import Lag, SinkDefinition, SinkState

logger = logging.getLogger("tidelock")


def find_standing(ledger: Ledger, definition: SinkDefinition, sink: Sink) -> Standing:
    """Where a sink stands, mended if need be; SinkStopped when nobody can tell."""
    try:
        standing = ledger.standing(definition)
    except SinkStopped as stopped:
        recovered = ask(definition, sink)
        if recovered is None:
            raise
        logger.warning(
            "sink %r: %s; it goes on after %d, which its destination has",
            definition.name,
            stopped.evidence["reason"],
            recovered.watermark,
        )
        return Standing(ledger.restart(definition, state_of(recovered)))
    if standing.mended is not None:
        logger.warning("sink %r: %s; it was mended", definition.name, standing.mended)
        ledger.correct(definition, standing.state)
    return standing


def ask(definition: SinkDefinition, sink: Sink) -> Recovered | None:
    """What a destination says that it has; None when it cannot tell."""
    if not isinstance(sink, RecoverableSink):
        return None
    try:
        return sink.recover()
    except TidelockError:
        raise
    except Exception as error:
        raise DestinationFailed(
            f"Sink {definition.name!r} has lost its state, and {definition.to} does not say what "
            f"it has: {error}. It is asked again.",
            sink=definition.name,
            cause=str(error),
        ) from error


def state_of(recovered: Recovered) -> SinkState:
    floor = recovered.watermark
    lagging = {path: Lag(at, again=floor) for path, at in recovered.lagging.items()}
    return SinkState(
        recovered.plan,
        recovered.watermark,
        lagging,
        generation=recovered.generation,
        left_by=(recovered.left_by,) if recovered.left_by else (),
    )
