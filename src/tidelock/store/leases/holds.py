"""Holds: promises that keep an old snapshot readable, or all since.

Owns: one object per hold. A sink, a shape or a stream table takes a hold on the version that it
still has to read, moves it forward, and releases it.
After a crash: a hold stays until its owner moves or releases it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from tidelock.model.history.commit import BranchRef
from tidelock.model.names import check_name
from tidelock.store.objects import layout
from tidelock.store.objects.entries import entries
from tidelock.store.objects.parallel import Together
from tidelock.store.objects.protocol import Objects
from tidelock.store.objects.records import decode, encode


@dataclass(frozen=True, slots=True)
class Hold:
    name: str
    branch: str
    branch_id: str
    lineage: tuple[tuple[str, int], ...]
    version: int
    owner: str
    taken: datetime
    onward: bool = False
    """Whether every version after it is kept as well, for a reader that goes change by change."""
    allowed_seconds: float | None = None
    """How long what comes after it is kept for that; None is for ever."""
    format: int = 1

    def as_branch(self) -> BranchRef:
        return BranchRef(self.branch, self.branch_id, 0, self.lineage, self.taken, self.owner)


def take_hold(
    objects: Objects,
    name: str,
    branch: BranchRef,
    version: int,
    owner: str,
    *,
    onward: bool = False,
    allowed_seconds: float | None = None,
) -> Hold:
    """Take a hold, or move the one of that name."""
    name = check_name(name, "hold")
    place = (name, branch.name, branch.id, branch.lineage, version, owner, datetime.now(UTC))
    hold = Hold(*place, onward, allowed_seconds)
    objects.put(_key(name), encode(hold))
    return hold


def release_hold(objects: Objects, name: str) -> None:
    objects.delete(_key(name))


def hold_names(objects: Objects) -> list[str]:
    """The names of all holds, of which nothing is read unless its name is long."""
    names = []
    for info in entries(objects, layout.HOLDS):
        segment = info.key.removeprefix(f"{layout.HOLDS}/").removesuffix(".json")
        name = layout.decode(segment)
        names.append(decode(objects.get(info.key), Hold, info.key).name if name is None else name)
    return names


def holds(objects: Objects, together: Together | None = None) -> list[Hold]:
    """All holds; CorruptObject if one is damaged, for nobody knows what it holds."""
    infos = entries(objects, layout.HOLDS)
    asked = together or Together()
    return asked.map(lambda info: decode(objects.get(info.key), Hold, info.key), infos)


def _key(name: str) -> str:
    return f"{layout.HOLDS}/{layout.encode(name)}.json"
