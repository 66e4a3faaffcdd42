"""Groups: what is refreshed together, in which order, and by whose rules."""

from __future__ import annotations

from typing import Any

import pytest

from tidelock.derive.graph.graph import Graph
from tidelock.derive.graph.groups import (
    Group,
    check_policy,
    find_groups,
    policy_warnings,
    unit_levels,
    units,
)
from tidelock.errors import InvalidOption
from tidelock.model.streams import Definition

Nodes = dict[str, tuple[str, ...]]

DIAMOND: Nodes = {"left": ("base",), "right": ("base",), "top": ("left", "right")}
TWO_DIAMONDS: Nodes = {
    **DIAMOND,
    "left2": ("base",),
    "right2": ("base",),
    "top2": ("left2", "right2"),
}


def groups_of(nodes: Nodes, **options: dict[str, Any]) -> tuple[Group, ...]:
    definitions = {name: Definition("", **options.get(name, {})) for name in nodes}
    return find_groups(Graph.of(nodes), definitions)


def members_of(nodes: Nodes) -> list[tuple[str, ...]]:
    return [group.members for group in groups_of(nodes)]


def test_a_diamond_over_a_base_table_is_a_group() -> None:
    assert groups_of(DIAMOND) == (
        Group("top", ("left", "right", "top"), ("top",), ("base",), "fastest", "atomic"),
    )


def test_a_shortcut_counts_as_a_path() -> None:
    assert members_of({"middle": ("base",), "end": ("base", "middle")}) == [("middle", "end")]


def test_the_shared_ancestor_is_no_member_even_if_it_is_a_stream_table() -> None:
    nodes = {"base": ("raw",), **DIAMOND}
    assert members_of(nodes) == [("left", "right", "top")]
    assert groups_of(nodes)[0].inputs == ("base",)


def test_a_chain_and_tables_of_different_roots_form_no_group() -> None:
    assert members_of({"a": ("base",), "b": ("a",), "c": ("b",)}) == []
    assert members_of({"a": ("one",), "b": ("two",), "both": ("a", "b")}) == []


def test_what_hangs_off_a_diamond_is_no_member() -> None:
    nodes = {**DIAMOND, "before": ("base",), "side": ("left",), "after": ("top",)}
    assert members_of(nodes) == [("left", "right", "top")]


def test_diamonds_that_share_only_a_base_table_stay_apart() -> None:
    assert members_of(TWO_DIAMONDS) == [("left", "right", "top"), ("left2", "right2", "top2")]


def test_diamonds_in_a_row_stay_apart() -> None:
    nodes = {**DIAMOND, "l2": ("top",), "r2": ("top",), "end": ("l2", "r2")}
    assert members_of(nodes) == [("left", "right", "top"), ("l2", "r2", "end")]


def test_diamonds_that_share_a_side_merge_and_keep_both_convergence_points() -> None:
    nodes = {**DIAMOND, "other": ("base",), "top2": ("right", "other")}
    (group,) = groups_of(nodes)
    assert group.members == ("left", "other", "right", "top", "top2")
    assert group.convergence_points == ("top", "top2")
    assert group.name == "top2"


def test_diamonds_over_one_base_table_that_meet_above_are_one_group() -> None:
    (group,) = groups_of({**TWO_DIAMONDS, "above": ("top", "top2")})
    assert len(group.members) == 7
    assert group.convergence_points == ("top", "top2", "above")


def test_the_strictest_policy_of_the_convergence_points_wins() -> None:
    nodes = {**DIAMOND, "top2": ("left", "right")}
    assert groups_of(nodes, top={"schedule_policy": "slowest"})[0].policy == "slowest"
    assert groups_of(nodes, left={"schedule_policy": "slowest"})[0].policy == "fastest"


def test_one_convergence_point_that_says_none_makes_the_group_none() -> None:
    nodes = {**DIAMOND, "top2": ("left", "right")}
    assert groups_of(nodes, top={"consistency": "none"})[0].consistency == "none"
    assert groups_of(nodes, left={"consistency": "none"})[0].consistency == "atomic"


def test_definitions_are_found_in_any_case() -> None:
    definitions = {name.upper(): Definition("", consistency="none") for name in DIAMOND}
    (group,) = find_groups(Graph.of(DIAMOND), definitions)
    assert group.consistency == "none"


def test_units_come_after_what_they_read_and_tell_what_may_run_in_parallel() -> None:
    nodes = {**TWO_DIAMONDS, "after": ("top",), "alone": ("else",), "last": ("after", "alone")}
    graph = Graph.of(nodes)
    order = units(graph, groups_of(nodes))
    assert [[unit.name for unit in level] for level in unit_levels(order)] == [
        ["alone", "top", "top2"],
        ["after"],
        ["last"],
    ]


def test_a_single_table_after_a_group_is_a_unit_of_its_own() -> None:
    nodes = {**DIAMOND, "after": ("top",), "alone": ("else",)}
    order = units(Graph.of(nodes), groups_of(nodes))
    assert [(unit.name, unit.level, len(unit.members)) for unit in order] == [
        ("alone", 1, 1),
        ("top", 1, 3),
        ("after", 2, 1),
    ]
    assert [unit.group is None for unit in order] == [True, False, True]


def test_the_members_of_a_group_without_consistency_are_units_of_their_own() -> None:
    order = units(Graph.of(DIAMOND), groups_of(DIAMOND, top={"consistency": "none"}))
    assert [(unit.name, unit.level) for unit in order] == [("left", 1), ("right", 1), ("top", 2)]


def test_waiting_for_the_slowest_without_consistency_is_refused() -> None:
    definition = Definition("", schedule_policy="slowest", consistency="none")
    with pytest.raises(InvalidOption, match="'top' has the schedule policy 'slowest'"):
        check_policy("top", definition)
    with pytest.raises(InvalidOption):
        find_groups(Graph.of({"top": ("base",)}), {"top": definition})


def test_slowest_on_a_table_that_converges_nothing_is_warned_of() -> None:
    definitions = {name: Definition("") for name in DIAMOND}
    definitions["left"] = definitions["top"] = Definition("", schedule_policy="slowest")
    graph = Graph.of(DIAMOND)
    (warning,) = policy_warnings(graph, find_groups(graph, definitions), definitions)
    assert warning.startswith("The schedule policy 'slowest' of 'left' has no effect")


def test_slowest_in_a_group_that_another_table_takes_apart_is_warned_of() -> None:
    nodes = {**DIAMOND, "top2": ("left", "right")}
    definitions = {name: Definition("") for name in nodes}
    definitions["top"] = Definition("", schedule_policy="slowest")
    definitions["top2"] = Definition("", consistency="none")
    graph = Graph.of(nodes)
    (warning,) = policy_warnings(graph, find_groups(graph, definitions), definitions)
    assert "'top2' in the same group has the consistency 'none'" in warning
