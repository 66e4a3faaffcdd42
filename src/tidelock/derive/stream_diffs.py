"""Stream tables at two points: in what their definitions differ, and where their contents stand."""

from __future__ import annotations

from tidelock.derive.catalog import Arrangement, Catalog
from tidelock.derive.graph.due import suspension
from tidelock.derive.stream import LostDefinition, Stream
from tidelock.model.history.commit import Tables, TableState
from tidelock.model.history.diffs import DefinitionDiff, StreamDiff

OPTIONS = ("query", "schedule", "refresh_mode", "consistency", "schedule_policy")
CURRENT = "current"


class StreamDiffs:
    """The stream tables of two states."""

    def __init__(self, catalog: Catalog, before: Tables, after: Tables) -> None:
        self._before = before, catalog.arrange(before)
        self._after = after, catalog.arrange(after)

    def of(self, before: TableState | None, after: TableState | None) -> StreamDiff | None:
        """How a table differs as a stream table; None if it is none at either point."""
        old = _stream(self._before[1], before)
        new = _stream(self._after[1], after)
        if old is None and new is None:
            return None
        pairs = [(name, _option(old, name), _option(new, name)) for name in OPTIONS]
        both = old is not None and new is not None
        return StreamDiff(
            tuple(DefinitionDiff(*pair) for pair in pairs if both and pair[1] != pair[2]),
            _standing(old, *self._before),
            _standing(new, *self._after),
        )


def _stream(arrangement: Arrangement, state: TableState | None) -> Stream | None:
    return None if state is None else arrangement.streams.get(state.name)


def _option(stream: Stream | None, name: str) -> str | None:
    value = None if stream is None else getattr(stream.definition, name)
    return None if value is None else str(value)


def _standing(stream: Stream | None, tables: Tables, arrangement: Arrangement) -> str | None:
    """Whether the content follows from what it is computed from, as it is now."""
    if stream is None:
        return None
    if isinstance(stream.definition, LostDefinition):
        return "its definition cannot be read"
    if stream.state.suspended is not None:
        return suspension(stream.state.suspended)
    if not stream.state.populated:
        return "never refreshed"
    changed = arrangement.changed_since(stream, tables)
    if not changed:
        return CURRENT
    return f"not current: {', '.join(sorted(changed))} changed since"
