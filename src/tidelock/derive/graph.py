"""The graph of stream tables: who is computed from whom.

Owns: names, sources and order. It knows neither queries nor schedules.

Invariants:
    the graph has no circle: a source stands before every table that reads it;
    tables[0 : base_count] are the base tables, by name; the others are the stream tables, by
    level and then by name, so that the order is the same however the graph was put together;
    level(stream table) = 1 + the highest level of its sources; level(base table) = 0.

Sets of tables are integers here: bit i stands for tables[i]. A set of a thousand tables is then
combined with another in one step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter

from tidelock.errors import CircularDefinition, InvalidName, TableNotFound
from tidelock.model.names import fold, suggest


@dataclass(frozen=True)
class Graph:
    """The tables in topological order, and the places of each one's sources in that order."""

    tables: tuple[str, ...]
    base_count: int
    parents: tuple[tuple[int, ...], ...]
    table_levels: tuple[int, ...]

    @classmethod
    def of(cls, nodes: Mapping[str, tuple[str, ...]]) -> Graph:
        """The graph of stream tables and their direct sources; a name that is no key is a base
        table. CircularDefinition if a table would be computed from itself."""
        spelled, sources = _folded(nodes)
        levels = _levels(sources)
        if len(levels) < len(sources):
            raise _refusal_of_circle(sources, levels, spelled)
        bases = sorted(spelled.keys() - sources.keys())
        streams = sorted(sources, key=lambda name: (levels[name], name))
        order = [*bases, *streams]
        place = {name: index for index, name in enumerate(order)}
        return cls(
            tuple(spelled[name] for name in order),
            len(bases),
            tuple(tuple(sorted(place[s] for s in sources.get(name, ()))) for name in order),
            tuple(levels.get(name, 0) for name in order),
        )

    @property
    def base_tables(self) -> tuple[str, ...]:
        return self.tables[: self.base_count]

    @property
    def stream_tables(self) -> tuple[str, ...]:
        """In an order in which each can be refreshed after all its sources."""
        return self.tables[self.base_count :]

    @cached_property
    def levels(self) -> tuple[tuple[str, ...], ...]:
        """The stream tables by level: those of one level do not read each other."""
        found: list[list[str]] = [[] for _ in range(max(self.table_levels, default=0))]
        for index in range(self.base_count, len(self.tables)):
            found[self.table_levels[index] - 1].append(self.tables[index])
        return tuple(map(tuple, found))

    def __contains__(self, name: str) -> bool:
        return fold(name) in self._places

    def is_stream(self, name: str) -> bool:
        return self.place(name) >= self.base_count

    def sources(self, name: str) -> tuple[str, ...]:
        """The tables that it reads itself."""
        return self._named(self.parents[self.place(name)])

    def dependents(self, name: str) -> tuple[str, ...]:
        """The stream tables that read it themselves."""
        return self._named(self.children[self.place(name)])

    def upstream(self, name: str) -> tuple[str, ...]:
        """Every table that it is computed from, directly or not, in topological order."""
        return self._named(places_in(self.ancestors[self.place(name)]))

    def downstream(self, name: str) -> tuple[str, ...]:
        """Every stream table that is computed from it, directly or not, in topological order."""
        return self._named(places_in(self.descendants[self.place(name)]))

    def place(self, name: str) -> int:
        """Its index in `tables`."""
        found = self._places.get(fold(name))
        if found is None:
            raise TableNotFound(
                f"There is no table {name!r} in the graph. {suggest(name, self.tables)}",
                table=name,
            )
        return found

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        found: list[list[int]] = [[] for _ in self.tables]
        for child, parents in enumerate(self.parents):
            for parent in parents:
                found[parent].append(child)
        return tuple(map(tuple, found))

    @cached_property
    def ancestors(self) -> tuple[int, ...]:
        """For each table the set of all that it is computed from, without itself."""
        found: list[int] = []
        for parents in self.parents:
            mask = 0
            for parent in parents:
                mask |= found[parent] | 1 << parent
            found.append(mask)
        return tuple(found)

    @cached_property
    def descendants(self) -> tuple[int, ...]:
        """For each table the set of all that are computed from it, without itself."""
        found = [0] * len(self.tables)
        for child in reversed(range(len(self.tables))):
            mask = found[child] | 1 << child
            for parent in self.parents[child]:
                found[parent] |= mask
        return tuple(found)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {fold(name): index for index, name in enumerate(self.tables)}

    def _named(self, places: Sequence[int]) -> tuple[str, ...]:
        return tuple(self.tables[index] for index in places)


def places_in(mask: int) -> list[int]:
    """The places in a set, in order."""
    found: list[int] = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def _folded(
    nodes: Mapping[str, tuple[str, ...]],
) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Every table's spelling, and every stream table's sources, both by folded name."""
    spelled: dict[str, str] = {}
    for name in nodes:
        if fold(name) in spelled:
            raise InvalidName(
                f"{spelled[fold(name)]!r} and {name!r} are one name, since case does not matter. "
                "Rename one of them.",
                name=name,
            )
        spelled[fold(name)] = name
    sources = {fold(name): tuple(map(fold, direct)) for name, direct in nodes.items()}
    for direct in nodes.values():
        for source in direct:
            spelled.setdefault(fold(source), source)
    return spelled, {name: tuple(dict.fromkeys(direct)) for name, direct in sources.items()}


def _levels(sources: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
    """The level of each stream table that is neither on a circle nor behind one."""
    waiting = {name: [s for s in direct if s in sources] for name, direct in sources.items()}
    readers: dict[str, list[str]] = {name: [] for name in sources}
    for name, direct in waiting.items():
        for source in direct:
            readers[source].append(name)
    missing = {name: len(direct) for name, direct in waiting.items()}
    ready = [name for name, count in missing.items() if not count]
    found: dict[str, int] = {}
    level = 1
    while ready:
        found.update(dict.fromkeys(ready, level))
        following: list[str] = []
        for name in ready:
            for reader in readers[name]:
                missing[reader] -= 1
                if not missing[reader]:
                    following.append(reader)
        ready = following
        level += 1
    return found


def _refusal_of_circle(
    sources: Mapping[str, tuple[str, ...]], levels: Mapping[str, int], spelled: Mapping[str, str]
) -> CircularDefinition:
    """Walks from source to source among the tables without a level: each has such a source."""
    walked: dict[str, int] = {}
    name = min(sources.keys() - levels.keys())
    while name not in walked:
        walked[name] = len(walked)
        name = min(s for s in sources[name] if s in sources and s not in levels)
    circle = [at for at, step in walked.items() if step >= walked[name]][::-1]
    first = min(enumerate(circle), key=itemgetter(1))[0]
    path = [spelled[at] for at in [*circle[first:], *circle[:first], circle[first]]]
    return CircularDefinition(
        f"Stream tables cannot be computed from themselves: {' -> '.join(path)}. Change the query "
        "of one of them so that it does not read the table before it.",
        path=tuple(path),
    )
