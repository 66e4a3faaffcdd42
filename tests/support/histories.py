"""Stream tables, walked version by version: what must hold at every one of them.

The walk reads states and rows that were published, and no engine: what it finds is what any reader
could have seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.streams import multiset

from tidelock import Lake
from tidelock.model.streams import StreamState

Rows = list[tuple[Any, ...]]
Compute = Callable[..., Rows]
"""The rows of a stream table from those of its inputs, in the order in which it reads them."""


def stream_states(lake: Lake, version: int, branch: str = "main") -> dict[str, StreamState]:
    """Where every stream table stands at a version."""
    states = lake.snapshot(branch, version=version).states()
    return {one.name: one.stream for one in states.values() if one.stream is not None}


def check_groups(lake: Lake) -> dict[str, int]:
    """At every version the members of a group are of one snapshot; the epoch of each group.

    The epoch moves by one with each commit that refreshes the group, and with nothing else.
    """
    refreshes = {
        commit.version: {told["table"] for told in commit.properties.get("refresh", ())}
        for commit in lake.log(limit=None)
    }
    found = {}
    for group in lake.groups():
        members = set(group.members)
        epoch, as_of = 0, 0
        for version in sorted(refreshes):
            states = stream_states(lake, version)
            if not members <= set(states):
                continue
            here = {(states[one].epoch, states[one].as_of) for one in members}
            where = f"version {version}, group {group.name!r}: {here}"
            assert len(here) == 1, where
            refreshed = refreshes[version] & members
            assert refreshed in (set(), members), where
            ((now, stands_at),) = here
            assert now == epoch + bool(refreshed), where
            assert as_of <= stands_at < version, where
            assert bool(refreshed) == (states[group.name].refreshed == version), where
            epoch, as_of = now, stands_at
        found[group.name] = epoch
    return found


@dataclass(frozen=True)
class Walk:
    """All versions of a lake: what every table held, and where every stream table stood."""

    rows: dict[tuple[str, int], Rows]
    """By table and the version that last changed it."""
    stood: dict[tuple[str, int], StreamState]
    """By stream table and the version that it stood for."""
    heads: dict[int, dict[str, tuple[int, StreamState | None]]]
    """By version and table: when it last changed, and where it stood."""


def walk(lake: Lake) -> Walk:
    found = Walk({}, {}, {})
    for version in range(1, lake.snapshot().version + 1):
        snapshot = lake.snapshot(version=version)
        here = found.heads[version] = {}
        for state in snapshot.tables():
            here[state.name] = (state.changed, state.stream)
            if state.stream is not None:
                found.stood[state.name, state.stream.as_of] = state.stream
            if (state.name, state.changed) not in found.rows:
                rows = snapshot.table(state.name).to_arrow().to_pylist()
                found.rows[state.name, state.changed] = [tuple(row.values()) for row in rows]
    return found


def check_every_version(lake: Lake, computations: Mapping[str, Compute]) -> None:
    """Every stream table equals what its query gives at its frontier, and mixes no versions."""
    found = walk(lake)
    checked = set()
    for version, here in found.heads.items():
        for name, (changed, state) in here.items():
            if state is None or not state.populated or (name, changed, state.as_of) in checked:
                continue
            checked.add((name, changed, state.as_of))
            where = f"{name!r} at version {version}, which stands for {state.as_of}"
            read = [found.rows[entry.table, entry.changed] for entry in state.frontier]
            expected = multiset([dict(enumerate(row)) for row in computations[name](*read)])
            shown = multiset([dict(enumerate(row)) for row in found.rows[name, changed]])
            assert shown == expected, (
                f"{where}\ntoo many: {dict(shown - expected)}\nmissing: {dict(expected - shown)}"
            )
            seen = base_versions(found, state)
            mixed = {table: all_ for table, all_ in seen.items() if len(all_) > 1}
            assert not mixed, f"{where} is computed from several versions of one table: {mixed}"
            for table, (one,) in seen.items():
                then = found.heads[state.as_of][table][0]
                assert one <= then, f"{where} knows {table!r} of {one}, which was then at {then}"


def base_versions(found: Walk, state: StreamState) -> dict[str, set[int]]:
    """The versions of each base table that a stream table was computed from, on any path."""
    seen: dict[str, set[int]] = {}
    for entry in state.frontier:
        above = found.stood.get((entry.table, entry.version))
        more = {entry.table: {entry.changed}}
        if above is not None:
            more = base_versions(found, above)
        for table, versions in more.items():
            seen.setdefault(table, set()).update(versions)
    return seen
