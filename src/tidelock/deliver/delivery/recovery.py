"""Recovery: where a sink stands, from the lake or else from its destination.

Owns: which of them is believed. The lake is, for as long as what it has written agrees; then the
destination, if it can tell; and when it cannot, the sink stops. Nothing is skipped and nothing is
sent again on a guess.
After a crash: nothing was sent; the next tick asks again and is told the same.
"""

from __future__ import annotations

import logging

from tidelock.deliver.delivery.ledger import Ledger
from tidelock.deliver.destinations.protocol import DestinationPosition, Sink
from tidelock.errors import DestinationFailed, SinkStopped, TidelockError
from tidelock.model.sinks import Lag, SinkDefinition, SinkState, Standing

logger = logging.getLogger("tidelock")


def find_standing(ledger: Ledger, definition: SinkDefinition, sink: Sink) -> Standing:
    """Where a sink stands, mended if need be; SinkStopped when nobody can tell."""
    try:
        standing = ledger.standing(definition)
    except SinkStopped as stopped:
        there = ask(definition, sink)
        if there is None:
            raise
        logger.warning(
            "sink %r: %s; it goes on after %d, which its destination has",
            definition.name,
            stopped.evidence["reason"],
            there.watermark,
        )
        return Standing(ledger.restart(definition, state_of(there)))
    if standing.mended is not None:
        logger.warning("sink %r: %s; it was mended", definition.name, standing.mended)
        ledger.correct(definition, standing.state)
    return standing


def ask(definition: SinkDefinition, sink: Sink) -> DestinationPosition | None:
    """What a destination says that it has; None when it cannot tell."""
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


def state_of(there: DestinationPosition) -> SinkState:
    floor = there.watermark
    lagging = {path: Lag(at, again=floor) for path, at in there.lagging.items()}
    return SinkState(
        there.plan,
        there.watermark,
        lagging,
        generation=there.generation,
        left_by=(there.left_by,) if there.left_by else (),
    )
