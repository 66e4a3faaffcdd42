"""Levels: what waits for nothing comes first, and everything as early as it can."""

from __future__ import annotations

from graphlib import CycleError

import pytest

from tidelock.derive.graph.levels import levels_of


def test_every_node_stands_one_level_behind_the_last_that_it_waits_for() -> None:
    awaited = {"d": {"b", "c"}, "b": {"a"}, "c": set(), "a": set(), "e": {"d", "a"}}
    assert levels_of(awaited) == [("c", "a"), ("b",), ("d",), ("e",)]


def test_within_a_level_nodes_keep_the_order_in_which_they_were_given() -> None:
    assert levels_of({3: [], 1: [], 2: []}) == [(3, 1, 2)]


def test_nodes_that_wait_for_each_other_are_refused() -> None:
    with pytest.raises(CycleError):
        levels_of({"a": ["b"], "b": ["a"], "c": []})
