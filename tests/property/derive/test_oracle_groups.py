"""Oracle: the groups that are found are those that the rule defines.

The oracle follows the rule to the letter on small random graphs: it lists all paths between two
tables, takes every pair that shares nothing but its ends, puts together what is inside, and merges
as long as a way leaves a set and returns to it. It shares no code with the implementation.

The seed is in every failure; TIDELOCK_SEED replays it.
"""

from __future__ import annotations

import itertools
import random
import time

import pytest
from tests.support.lakes import fresh_seed

from tidelock.derive.graph.graph import Graph
from tidelock.derive.graph.groups import find_groups, units
from tidelock.model.streams import Definition

SEED = fresh_seed()
GRAPH_COUNT = 4000

Nodes = dict[str, tuple[str, ...]]


def tables_that_only_order_joins() -> Nodes:
    """Three diamonds in a row share a side each, and `between` leads from the first to the last:
    no two paths meet through it, and yet it has to be refreshed with them."""
    return {
        "first": ("b1",),
        "second": ("b1", "b2"),
        "third": ("b2", "b3"),
        "between": ("first",),
        "last": ("b3", "between"),
        "d1": ("first", "second"),
        "d2": ("second", "third"),
        "d3": ("third", "last"),
    }


def random_nodes(chance: random.Random, base_count: int, stream_count: int) -> Nodes:
    """A few base tables, and stream tables that read one to three tables before them."""
    known = [f"b{number}" for number in range(base_count)]
    nodes: Nodes = {}
    for number in range(stream_count):
        count = min(len(known), chance.choice([1, 1, 1, 2, 2, 3]))
        nodes[f"s{number}"] = tuple(chance.sample(known, count))
        known.append(f"s{number}")
    if chance.random() < 0.1:
        nodes[chance.choice(list(nodes))] = ()
    return nodes


def paths(nodes: Nodes, start: str, end: str) -> list[tuple[str, ...]]:
    if start == end:
        return [(end,)]
    return [(*path, end) for read in nodes.get(end, ()) for path in paths(nodes, start, read)]


def leads_to(nodes: Nodes, start: set[str]) -> set[str]:
    """The tables that are computed from one of these, directly or not."""
    found: set[str] = set()
    while True:
        more = {t for t, inputs in nodes.items() if (start | found) & set(inputs)} - found
        if not more:
            return found
        found |= more


def merged(sets: list[set[str]]) -> list[set[str]]:
    for one, other in itertools.combinations(sets, 2):
        if one & other:
            return merged([s for s in sets if s is not one and s is not other] + [one | other])
    return sets


def by_the_rule(nodes: Nodes) -> tuple[set[frozenset[str]], set[str]]:
    """The groups, and all convergence points."""
    tables = set(nodes).union(*nodes.values())
    together: list[set[str]] = []
    converging: set[str] = set()
    for start, end in itertools.permutations(tables, 2):
        for one, other in itertools.combinations(paths(nodes, start, end), 2):
            if not set(one[1:-1]) & set(other[1:-1]):
                together.append({*one[1:], *other[1:]})
                converging.add(end)
    groups = merged(together)
    while True:
        circle = find_circle(nodes, groups)
        if circle is None:
            return {frozenset(group) for group in groups}, converging
        groups = merged([*groups, circle])


def find_circle(nodes: Nodes, groups: list[set[str]]) -> set[str] | None:
    """The tables of two units that lead to each other, ways through other groups included."""
    single = [{name} for name in nodes if not any(name in group for group in groups)]
    every = groups + single
    reach = []
    for unit in every:
        reached, before = leads_to(nodes, unit), None
        while reached != before:
            before = set(reached)
            for other in groups:
                if other is not unit and other & reached:
                    reached |= other | leads_to(nodes, other)
        reach.append(reached)
    for one, other in itertools.combinations(range(len(every)), 2):
        if every[other] & reach[one] and every[one] & reach[other]:
            return every[one] | every[other]
    return None


def test_the_groups_are_those_of_the_rule() -> None:
    for number in range(GRAPH_COUNT):
        seed = SEED + number
        chance = random.Random(seed)
        nodes = random_nodes(chance, chance.randint(1, 5), chance.randint(1, 11))
        expected, converging = by_the_rule(nodes)
        graph = Graph.of(nodes)
        groups = find_groups(graph, dict.fromkeys(nodes, Definition("")))
        found = {frozenset(group.members) for group in groups}
        assert found == expected, f"TIDELOCK_SEED={seed}: {nodes}"
        points = {point for group in groups for point in group.convergence_points}
        assert points == converging, f"TIDELOCK_SEED={seed}: {nodes}"


def test_a_table_between_two_members_is_a_member_though_no_paths_meet_through_it() -> None:
    nodes = tables_that_only_order_joins()
    (group,) = find_groups(Graph.of(nodes), dict.fromkeys(nodes, Definition("")))
    assert set(group.members) == set(nodes)
    assert by_the_rule(nodes)[0] == {frozenset(nodes)}
    assert group.convergence_points == ("d1", "d2", "d3")


def test_every_table_is_refreshed_once_and_after_all_that_it_reads() -> None:
    for number in range(300):
        seed = SEED + number
        chance = random.Random(seed)
        nodes = random_nodes(chance, chance.randint(1, 12), chance.randint(1, 60))
        definitions = {
            name: Definition("", consistency=chance.choice(["atomic", "atomic", "none"]))
            for name in nodes
        }
        graph = Graph.of(nodes)
        order = units(graph, find_groups(graph, definitions))
        level = {name: unit.level for unit in order for name in unit.members}
        unit_of = {name: unit.name for unit in order for name in unit.members}
        assert sorted(level) == sorted(nodes), f"TIDELOCK_SEED={seed}"
        assert sum(len(unit.members) for unit in order) == len(nodes), f"TIDELOCK_SEED={seed}"
        for name, inputs in nodes.items():
            for read in inputs:
                if read in nodes and unit_of[read] != unit_of[name]:
                    assert level[read] < level[name], f"TIDELOCK_SEED={seed}"


@pytest.mark.parametrize("base_count", [1, 20, 200])
def test_the_groups_of_a_thousand_tables_are_found_in_milliseconds(base_count: int) -> None:
    nodes = random_nodes(random.Random(7), base_count, 1000)
    definitions = dict.fromkeys(nodes, Definition(""))
    graph = Graph.of(nodes)
    find_groups(graph, definitions)
    seconds = []
    for _ in range(5):
        started = time.perf_counter()
        find_groups(Graph.of(nodes), definitions)
        seconds.append(time.perf_counter() - started)
    # Far above what it takes, far below what a search over paths would.
    assert min(seconds) < 0.1, seconds
