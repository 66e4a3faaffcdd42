"""The graph of stream tables: who is computed from whom.

Owns: names, inputs and order. It knows neither queries nor schedules.

Invariants:
    the graph has no circle: an input stands before every table that reads it;
    tables[0 : base_count] are the base tables, by name; the others are the stream tables, by
    level and then by name, so that the order is the same however the graph was put together;
    level(stream table) = 1 + the highest level of its inputs; level(base table) = 0.

Sets of tables are integers here: bit i stands for tables[i]. A set of a thousand tables is then
combined with another in one step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError

from tidelock.derive.graph.levels import levels_of
from tidelock.errors import CircularDefinition, InvalidName, TableNotFound
from tidelock.model.names import fold, suggest


@dataclass(frozen=True)
class Graph:
    """Owns the order of tables: all of them, inputs before readers, and for each the indexes of its
    inputs in that order."""

    tables: tuple[str, ...]
    base_count: int
    parents: tuple[tuple[int, ...], ...]
    table_levels: tuple[int, ...]

    @classmethod
    def of(cls, nodes: Mapping[str, tuple[str, ...]]) -> Graph:
        """The graph of stream tables and their direct inputs; a name that is no key is a base
        table. CircularDefinition if a table would be computed from itself."""
        spelled, inputs = _folded(nodes)
        levels = _levels(inputs, spelled)
        bases = sorted(spelled.keys() - inputs.keys())
        streams = sorted(inputs, key=lambda name: (levels[name], name))
        order = [*bases, *streams]
        index_of = {name: index for index, name in enumerate(order)}
        return cls(
            tuple(spelled[name] for name in order),
            len(bases),
            tuple(tuple(sorted(index_of[s] for s in inputs.get(name, ()))) for name in order),
            tuple(levels.get(name, 0) for name in order),
        )

    @property
    def base_tables(self) -> tuple[str, ...]:
        return self.tables[: self.base_count]

    @property
    def stream_tables(self) -> tuple[str, ...]:
        """In an order in which each can be refreshed after all its inputs."""
        return self.tables[self.base_count :]

    @cached_property
    def levels(self) -> tuple[tuple[str, ...], ...]:
        """The stream tables by level: those of one level do not read each other."""
        levels: list[list[str]] = [[] for _ in range(max(self.table_levels, default=0))]
        for index in range(self.base_count, len(self.tables)):
            levels[self.table_levels[index] - 1].append(self.tables[index])
        return tuple(map(tuple, levels))

    def __contains__(self, name: str) -> bool:
        return fold(name) in self._indexes

    def is_stream(self, name: str) -> bool:
        return self.index(name) >= self.base_count

    def inputs(self, name: str) -> tuple[str, ...]:
        """The tables that it reads itself."""
        return self._named(self.parents[self.index(name)])

    def dependents(self, name: str) -> tuple[str, ...]:
        """The stream tables that read it themselves."""
        return self._named(self.children[self.index(name)])

    def upstream(self, name: str) -> tuple[str, ...]:
        """Every table that it is computed from, directly or not, in topological order."""
        return self._named(indexes_in(self.ancestors[self.index(name)]))

    def downstream(self, name: str) -> tuple[str, ...]:
        """Every stream table that is computed from it, directly or not, in topological order."""
        return self._named(indexes_in(self.descendants[self.index(name)]))

    def index(self, name: str) -> int:
        """Its index in `tables`."""
        index = self._indexes.get(fold(name))
        if index is None:
            raise TableNotFound(
                f"There is no table {name!r} in the graph. {suggest(name, self.tables)}",
                table=name,
            )
        return index

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        readers: list[list[int]] = [[] for _ in self.tables]
        for child, parents in enumerate(self.parents):
            for parent in parents:
                readers[parent].append(child)
        return tuple(map(tuple, readers))

    @cached_property
    def ancestors(self) -> tuple[int, ...]:
        """For each table the set of all that it is computed from, without itself."""
        above: list[int] = []
        for parents in self.parents:
            mask = 0
            for parent in parents:
                mask |= above[parent] | 1 << parent
            above.append(mask)
        return tuple(above)

    @cached_property
    def descendants(self) -> tuple[int, ...]:
        """For each table the set of all that are computed from it, without itself."""
        below = [0] * len(self.tables)
        for child in reversed(range(len(self.tables))):
            mask = below[child] | 1 << child
            for parent in self.parents[child]:
                below[parent] |= mask
        return tuple(below)

    @cached_property
    def _indexes(self) -> dict[str, int]:
        return {fold(name): index for index, name in enumerate(self.tables)}

    def _named(self, indexes: Sequence[int]) -> tuple[str, ...]:
        return tuple(self.tables[index] for index in indexes)


def indexes_in(mask: int) -> list[int]:
    """The indexes in a set, in order."""
    indexes: list[int] = []
    while mask:
        low = mask & -mask
        indexes.append(low.bit_length() - 1)
        mask ^= low
    return indexes


def _folded(
    nodes: Mapping[str, tuple[str, ...]],
) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Every table's spelling, and every stream table's inputs, both by folded name."""
    spelled: dict[str, str] = {}
    for name in nodes:
        if fold(name) in spelled:
            raise InvalidName(
                f"{spelled[fold(name)]!r} and {name!r} are one name, since case does not matter. "
                "Rename one of them.",
                name=name,
            )
        spelled[fold(name)] = name
    inputs = {fold(name): tuple(map(fold, direct)) for name, direct in nodes.items()}
    for direct in nodes.values():
        for read in direct:
            spelled.setdefault(fold(read), read)
    return spelled, {name: tuple(dict.fromkeys(direct)) for name, direct in inputs.items()}


def _levels(inputs: Mapping[str, tuple[str, ...]], spelled: Mapping[str, str]) -> dict[str, int]:
    """The level of each stream table; CircularDefinition if one is computed from itself."""
    # By name, so that of several circles always the same one is told.
    awaited = {name: sorted(set(inputs[name]) & inputs.keys()) for name in sorted(inputs)}
    try:
        levels = levels_of(awaited)
    except CycleError as error:
        raise _refusal_of_circle(error.args[1][:-1], spelled) from None
    return {name: level for level, names in enumerate(levels, 1) for name in names}


def _refusal_of_circle(circle: list[str], spelled: Mapping[str, str]) -> CircularDefinition:
    """`circle` has each table before one that reads it, and the last is read by the first."""
    first = circle.index(min(circle))
    path = [spelled[name] for name in [*circle[first:], *circle[: first + 1]]]
    return CircularDefinition(
        f"Stream tables cannot be computed from themselves: {' -> '.join(path)}. Change the query "
        "of one of them so that it does not read the table before it.",
        path=tuple(path),
    )
