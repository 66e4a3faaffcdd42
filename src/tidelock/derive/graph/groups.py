"""Groups: the stream tables that are refreshed together, so that no reader sees a mix of versions.

Owns: which tables belong together, and the order in which what belongs together is refreshed.

The rule. Let A and D be tables with two paths from A to D that share no table but A and D; one of
them may be the single step A -> D. D is then a convergence point: read while only one path has been
refreshed, it would mix two versions of A. The stream tables inside the two paths, and D, belong
together; A does not, since both paths read the same A. What belongs together with a common table
belongs together. Last, tables that no order could refresh apart belong together: if X must be
refreshed after one member of a group and before another, X is a member, and so are the members of
X's group. Groups so found are disjoint, and the graph of units (groups, and single tables) has no
circle.

How it is found, without looking at paths. Call A a root of M if A is at or above M and has no
inputs. Let M be a stream table and N read M. The step M -> N lies inside such a pair of paths
exactly if some table at or below N can be reached from above M on a way around M: where that way
leaves the path through M for the last time before M is A, where it first returns to it is D. And

    every way from above M to Y leads through M     (M is a gate of Y)

holds exactly if, for each input S of Y, M is S, or M is a gate of S, or M and S have no root in
common. So gates come in one pass from the inputs down, ways around in one pass back up, and what
belongs together are the connected parts of the steps found. That is a handful of set operations
for each step of the graph. `tests/property/derive/test_oracle_groups.py` holds it against the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidelock.derive.graph.graph import Graph
from tidelock.derive.graph.levels import levels_of
from tidelock.errors import InvalidOption
from tidelock.model.names import fold
from tidelock.model.streams import Consistency, Definition, SchedulePolicy


@dataclass(frozen=True, slots=True)
class Group:
    """Stream tables that are refreshed in one commit, or would be if none said otherwise."""

    name: str
    """The name of its last convergence point."""
    members: tuple[str, ...]
    """In topological order, as all that follows."""
    convergence_points: tuple[str, ...]
    inputs: tuple[str, ...]
    """The tables outside the group that members read."""
    policy: SchedulePolicy
    """`slowest` if one convergence point says so."""
    consistency: Consistency
    """`none` if one convergence point says so: the members are then published on their own."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What one refresh publishes: an atomic group, or one stream table."""

    name: str
    members: tuple[str, ...]
    group: Group | None
    """None for a table on its own."""
    level: int
    """1 + the highest level of the units that it reads; units of one level may run in parallel."""


def find_groups(graph: Graph, definitions: Mapping[str, Definition]) -> tuple[Group, ...]:
    """All groups, each before those that read it; InvalidOption for a definition that
    contradicts itself. `definitions` has one for each stream table."""
    by_name = {fold(name): definition for name, definition in definitions.items()}
    for name in graph.stream_tables:
        check_policy(name, by_name[fold(name)])
    converging = _convergence_points(graph)
    classes = _without_circles(graph, _connected(graph, _steps_inside(graph)))
    levels = _class_levels(graph, classes)
    found = [
        (levels[number], _group(graph, indexes, converging, by_name))
        for number, indexes in enumerate(classes)
        if len(indexes) > 1
    ]
    return tuple(
        group for _, group in sorted(found, key=lambda pair: (pair[0], fold(pair[1].name)))
    )


def units(graph: Graph, groups: Iterable[Group]) -> tuple[Unit, ...]:
    """Every stream table in exactly one unit; each unit after all that it reads.

    `groups` are those of `find_groups`, so their units form no circle. Taking apart a group whose
    consistency is `none` makes none either: a circle through its tables would have been a circle
    through the group.
    """
    atomic = [group for group in groups if group.consistency == "atomic"]
    classes = [[graph.index(name) for name in group.members] for group in atomic]
    grouped = {index for indexes in classes for index in indexes}
    alone = [p for p in range(graph.base_count, len(graph.tables)) if p not in grouped]
    levels = _class_levels(graph, [*classes, *([index] for index in alone)])
    found = [
        Unit(group.name, group.members, group, levels[number])
        for number, group in enumerate(atomic)
    ]
    for number, index in enumerate(alone, len(atomic)):
        name = graph.tables[index]
        found.append(Unit(name, (name,), None, levels[number]))
    return tuple(sorted(found, key=lambda unit: (unit.level, fold(unit.name))))


def unit_levels(ordered: Iterable[Unit]) -> tuple[tuple[Unit, ...], ...]:
    """The units level by level: those of one level do not read each other."""
    found: dict[int, list[Unit]] = {}
    for unit in ordered:
        found.setdefault(unit.level, []).append(unit)
    return tuple(tuple(found[level]) for level in sorted(found))


def check_policy(name: str, definition: Definition) -> None:
    """InvalidOption for a table that waits for a group which it refuses to be part of."""
    if definition.schedule_policy == "slowest" and definition.consistency == "none":
        raise InvalidOption(
            f"{name!r} has the schedule policy 'slowest' and the consistency 'none', which exclude "
            "each other: without consistency its group is not refreshed as one, so that there is "
            "nothing to wait for. Use the consistency 'atomic', or the schedule policy 'fastest'.",
            table=name,
            schedule_policy=definition.schedule_policy,
            consistency=definition.consistency,
        )


def policy_warnings(
    graph: Graph, groups: Iterable[Group], definitions: Mapping[str, Definition]
) -> tuple[str, ...]:
    """A sentence for each `slowest` that has no effect."""
    by_name = {fold(name): definition for name, definition in definitions.items()}
    converging = {name: group for group in groups for name in group.convergence_points}
    found = []
    for name in graph.stream_tables:
        if by_name[fold(name)].schedule_policy != "slowest":
            continue
        group = converging.get(name)
        if group is None:
            found.append(
                f"The schedule policy 'slowest' of {name!r} has no effect: no two paths from one "
                "table meet in it. Leave it out, or set it on a table where paths meet."
            )
        elif group.consistency == "none":
            dissenters = [
                repr(point)
                for point in group.convergence_points
                if by_name[fold(point)].consistency == "none"
            ]
            found.append(
                f"The schedule policy 'slowest' of {name!r} has no effect: "
                f"{', '.join(dissenters)} in the same group has the consistency 'none', so that "
                "the group is not refreshed as one."
            )
    return tuple(found)


def _group(
    graph: Graph,
    indexes: Sequence[int],
    converging: Iterable[int],
    by_name: Mapping[str, Definition],
) -> Group:
    inside = set(indexes)
    outside = {parent for index in indexes for parent in graph.parents[index]} - inside
    points = tuple(graph.tables[index] for index in sorted(inside.intersection(converging)))
    chosen = [by_name[fold(name)] for name in points]
    return Group(
        name=points[-1],
        members=tuple(graph.tables[index] for index in sorted(inside)),
        convergence_points=points,
        inputs=tuple(graph.tables[index] for index in sorted(outside)),
        policy="slowest" if any(d.schedule_policy == "slowest" for d in chosen) else "fastest",
        consistency="none" if any(d.consistency == "none" for d in chosen) else "atomic",
    )


def _convergence_points(graph: Graph) -> set[int]:
    """The tables of which two inputs have a root in common: the last table that is common to a
    path through one and a path through the other is the A of a pair."""
    roots: list[int] = []
    found: set[int] = set()
    for index, parents in enumerate(graph.parents):
        mask = 0
        for parent in parents:
            if mask & roots[parent]:
                found.add(index)
            mask |= roots[parent]
        roots.append(mask if parents else 1 << index)
    return found


def _steps_inside(graph: Graph) -> list[tuple[int, int]]:
    """The steps M -> N that lie inside a pair of paths; see the top of this file."""
    related: list[int] = []
    gates: list[int] = []
    around: list[int] = []
    for index, parents in enumerate(graph.parents):
        kin = 0 if parents else graph.descendants[index] | 1 << index
        closed = graph.ancestors[index]
        for parent in parents:
            kin |= related[parent]
            closed &= gates[parent] | ~related[parent]
        related.append(kin)
        gates.append(closed | 1 << index)
        around.append(graph.ancestors[index] & ~closed)
    found = []
    for index in reversed(range(len(graph.tables))):
        for child in graph.children[index]:
            if around[child] >> index & 1:
                found.append((index, child))
        for child in graph.children[index]:
            around[index] |= around[child]
    return found


def _connected(graph: Graph, steps: Iterable[tuple[int, int]]) -> list[list[int]]:
    """The stream tables, those that steps connect together."""
    leader = list(range(len(graph.tables)))

    def leader_of(index: int) -> int:
        while leader[index] != index:
            leader[index] = index = leader[leader[index]]
        return index

    for one, other in steps:
        leader[leader_of(one)] = leader_of(other)
    return _gathered(range(graph.base_count, len(graph.tables)), leader_of)


def _without_circles(graph: Graph, classes: list[list[int]]) -> list[list[int]]:
    """The classes, those that lead to each other made one."""
    merged = strong_components(_class_successors(graph, classes))
    return [[index for number in numbers for index in classes[number]] for numbers in merged]


def _class_levels(graph: Graph, classes: Sequence[Sequence[int]]) -> list[int]:
    """The level of each class: 1 + the highest level of those that lead to it."""
    awaited: dict[int, set[int]] = {number: set() for number in range(len(classes))}
    for number, successors in enumerate(_class_successors(graph, classes)):
        for successor in successors:
            awaited[successor].add(number)
    level_of = {
        number: level for level, numbers in enumerate(levels_of(awaited), 1) for number in numbers
    }
    return [level_of[number] for number in range(len(classes))]


def _class_successors(graph: Graph, classes: Sequence[Sequence[int]]) -> list[set[int]]:
    owner = {index: number for number, indexes in enumerate(classes) for index in indexes}
    return [
        {owner[child] for index in indexes for child in graph.children[index]} - {number}
        for number, indexes in enumerate(classes)
    ]


def _gathered(indexes: Iterable[int], key: Callable[[int], int]) -> list[list[int]]:
    found: dict[int, list[int]] = {}
    for index in indexes:
        found.setdefault(key(index), []).append(index)
    return list(found.values())


def strong_components(successors: Sequence[Iterable[int]]) -> list[list[int]]:
    """Vertices that lead to each other, together; each component after those that it leads to.

    Tarjan's algorithm with its own stack: a chain of tables may be longer than Python recurses.
    """
    number: dict[int, int] = {}
    lowest: dict[int, int] = {}
    undecided: list[int] = []
    found: list[list[int]] = []
    for start in range(len(successors)):
        if start in number:
            continue
        number[start] = lowest[start] = len(number)
        undecided.append(start)
        calls = [(start, iter(successors[start]))]
        while calls:
            vertex, rest = calls[-1]
            for successor in rest:
                if successor not in number:
                    number[successor] = lowest[successor] = len(number)
                    undecided.append(successor)
                    calls.append((successor, iter(successors[successor])))
                    break
                lowest[vertex] = min(lowest[vertex], lowest[successor])
            else:
                calls.pop()
                if calls:
                    above = calls[-1][0]
                    lowest[above] = min(lowest[above], lowest[vertex])
                if lowest[vertex] == number[vertex]:
                    component: list[int] = []
                    while not component or component[-1] != vertex:
                        component.append(undecided.pop())
                        lowest[component[-1]] = len(successors)
                    found.append(component)
    return found
