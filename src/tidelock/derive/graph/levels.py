"""Levels: what has to wait for what, as steps that can be taken side by side.

Law: level(x) = 1 + the highest level of what x waits for; 1 if it waits for nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from graphlib import TopologicalSorter
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)


def levels_of(awaited: Mapping[Node, Iterable[Node]]) -> list[tuple[Node, ...]]:
    """The nodes level by level, in the order of `awaited` within each.

    `awaited` has for each node those that it waits for, all of them nodes too. graphlib.CycleError
    if some wait for each other.
    """
    sorter: TopologicalSorter[Node] = TopologicalSorter(awaited)
    sorter.prepare()
    order = {node: number for number, node in enumerate(awaited)}
    levels = []
    while sorter.is_active():
        ready = sorter.get_ready()
        levels.append(tuple(sorted(ready, key=order.__getitem__)))
        sorter.done(*ready)
    return levels
