"""The truth table of merges: every action on one side against every action on the other.

A table has the rows 1 and 3 with a = 1 and b = 1. Each side does one thing, and then one is merged
into the other. The tables below say which pairs are a conflict, and of which kind; for all others
the merged rows are what both sides did, put together. With a key a row is known by it; without one
it is known by its row id, so that a row that is deleted and inserted again is another row, and rows
that both sides insert are two rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest
from tests.support.merged import conflicts
from tests.support.ruled import new_lake as empty_lake

from tidelock import Lake

Row = dict[str, Any]

ACTIONS = (
    "none",
    "insert",
    "insert otherwise",
    "update",
    "update otherwise",
    "update another column",
    "delete",
    "delete and insert again",
    "rename",
    "compact",
    "add a column",
)
"""`otherwise`: with values that are not those of the other side."""

KEYED = """
none                     . . . . . . . . . . .
insert                   . . I . . . . . . . .
insert otherwise         . I I . . . . . . . .
update                   . . . . U . D U . . .
update otherwise         . . . U U . D U . . .
update another column    . . . . . . D . . . .
delete                   . . . D D D . D . . .
delete and insert again  . . . U U . D . . . .
rename                   . . . . . . . . . . .
compact                  . . . . . . . . . . .
add a column             . . . . . . . . . . .
"""
KEYLESS = """
none                     . . . . . . . . . . .
insert                   . . . . . . . . . . .
insert otherwise         . . . . . . . . . . .
update                   . . . . U . D D . . .
update otherwise         . . . U U . D D . . .
update another column    . . . . . . D D . . .
delete                   . . . D D D . . . . .
delete and insert again  . . . D D D . . . . .
rename                   . . . . . . . . . . .
compact                  . . . . . . . . . . .
add a column             . . . . . . . . . . .
"""
KINDS = {"I": "divergent insert", "U": "divergent update", "D": "delete against update"}


def cells(table: str) -> dict[tuple[str, str], str | None]:
    """The kind of conflict of each pair: what the source did, and the target; None if it merges."""
    found = {}
    for line in table.strip().splitlines():
        name = next(one for one in sorted(ACTIONS, key=len, reverse=True) if line.startswith(one))
        for other, mark in zip(ACTIONS, line[len(name) :].split(), strict=True):
            found[name, other] = KINDS.get(mark)
    assert len(found) == len(ACTIONS) ** 2
    return found


@dataclass(frozen=True)
class Done:
    """What one side did, in the words of the model."""

    inserted: tuple[tuple[int, int, int], ...] = ()
    a: int | None = None
    b: int | None = None
    deleted: bool = False
    renamed: bool = False
    added: bool = False


def done(action: str, side: str, *, keyed: bool) -> Done:
    own = {"source": 10, "target": 20}[side]
    again = Done(a=8) if keyed else Done(deleted=True, inserted=((1, 8, 1),))
    return {
        "insert": Done(inserted=((2, 4, 4),)),
        "insert otherwise": Done(inserted=((2, own, 4),)),
        "update": Done(a=5),
        "update otherwise": Done(a=own),
        "update another column": Done(b=7),
        "delete": Done(deleted=True),
        "delete and insert again": again,
        "rename": Done(renamed=True),
        "add a column": Done(added=True),
    }.get(action, Done())


def together(one: Done, other: Done, *, keyed: bool) -> list[Row]:
    """The rows that follow from what both sides did, where that is no conflict."""
    label = "renamed" if one.renamed or other.renamed else "a"
    found = [(3, 1, 1)]
    if not (one.deleted or other.deleted):
        a = next((side.a for side in (one, other) if side.a is not None), 1)
        b = next((side.b for side in (one, other) if side.b is not None), 1)
        found.append((1, a, b))
    inserted = [*one.inserted, *other.inserted]
    found += dict.fromkeys(inserted) if keyed else inserted
    rows = [{"id": number, label: a, "b": b} for number, a, b in found]
    if one.added or other.added:
        rows = [{**row, "c": None} for row in rows]
    return rows


def act(lake: Lake, branch: str, action: str, side: str, *, keyed: bool) -> None:
    own = {"source": 10, "target": 20}[side]
    works: dict[str, Callable[[Any], object]] = {
        "insert": lambda tx: tx.append("t", [{"id": 2, "a": 4, "b": 4}]),
        "insert otherwise": lambda tx: tx.append("t", [{"id": 2, "a": own, "b": 4}]),
        "update": lambda tx: tx.update("t", {"a": "5"}, "id = 1"),
        "update otherwise": lambda tx: tx.update("t", {"a": str(own)}, "id = 1"),
        "update another column": lambda tx: tx.update("t", {"b": "7"}, "id = 1"),
        "delete": lambda tx: tx.delete("t", "id = 1"),
        "rename": lambda tx: tx.alter_table("t", "RENAME COLUMN a TO renamed"),
        "add a column": lambda tx: tx.alter_table("t", "ADD COLUMN c INT"),
    }
    if action == "compact":
        lake.optimize("t", branch=branch)
    elif action == "delete and insert again":
        for work in (
            works["delete"],
            lambda tx: tx.append("t", [{"id": 1, "a": 8, "b": 1}]),
        ):
            with lake.transaction(branch=branch) as tx:
                work(tx)
    elif action != "none":
        with lake.transaction(branch=branch) as tx:
            works[action](tx)


def new_lake(*, keyed: bool) -> Lake:
    lake = empty_lake()
    lake.create_table("t", "id INT NOT NULL, a INT, b INT", key="id" if keyed else None)
    # Two fragments, so that there is something to compact.
    for number in (1, 3):
        with lake.transaction() as tx:
            tx.append("t", [{"id": number, "a": 1, "b": 1}])
    return lake


def counted(rows: list[Row]) -> Counter[tuple[tuple[str, Any], ...]]:
    return Counter(tuple(sorted(row.items())) for row in rows)


def shown(lake: Lake, branch: str) -> list[Row]:
    found: list[Row] = lake.table("t", branch=branch).to_arrow().to_pylist()
    return found


def changed(lake: Lake, branch: str, version: int) -> pa.Table:
    return lake.changes("t", since=version - 1, until=version, branch=branch).read_all()


def check_changes(lake: Lake, branch: str, version: int, before: list[Row]) -> None:
    """rows(after) = rows(before) + changes; and no row goes and comes again as it was."""
    told = changed(lake, branch, version)
    names = [name for name in told.column_names if not name.startswith("_")]
    weights = told.column("_weight").to_pylist()
    rows = told.select(names).to_pylist()
    came = counted([row for row, weight in zip(rows, weights, strict=True) if weight > 0])
    gone = counted([row for row, weight in zip(rows, weights, strict=True) if weight < 0])
    assert not came & gone
    then = counted([as_now(row, names) for row in before])
    assert then + came - gone == counted(shown(lake, branch))


def as_now(row: Row, names: list[str]) -> Row:
    """A row under the columns that the table has now."""
    return {name: row.get(name, row.get("a") if name == "renamed" else None) for name in names}


@pytest.fixture(params=[True, False], ids=["keyed", "keyless"])
def keyed(request: pytest.FixtureRequest) -> Iterator[bool]:
    return request.param


@pytest.mark.parametrize("target", ACTIONS)
@pytest.mark.parametrize("source", ACTIONS)
def test_every_action_against_every_other(source: str, target: str, keyed: bool) -> None:
    kind = cells(KEYED if keyed else KEYLESS)[source, target]
    with new_lake(keyed=keyed) as lake:
        lake.create_branch("dev")
        act(lake, "dev", source, "source", keyed=keyed)
        act(lake, "main", target, "target", keyed=keyed)
        before = shown(lake, "main")
        if kind is not None:
            (found,) = conflicts(lake)
            assert (found.table, found.kind) == ("t", kind)
            assert found.key is not None
            assert shown(lake, "main") == before
            lake.merge("dev", on_conflict="source")
            return
        preview = lake.merge("dev", dry_run=True)
        merge = lake.merge("dev")
        assert replace(preview, commit=merge.commit, dry_run=False) == merge
        wanted = together(
            done(source, "source", keyed=keyed), done(target, "target", keyed=keyed), keyed=keyed
        )
        assert counted(shown(lake, "main")) == counted(wanted)
        if merge.version is not None:
            check_changes(lake, "main", merge.version, before)
        assert lake.merge("dev").outcome == "up to date"
        there = shown(lake, "dev")
        back = lake.merge("main", into="dev")
        assert counted(shown(lake, "dev")) == counted(wanted)
        if back.version is not None:
            check_changes(lake, "dev", back.version, there)
        assert lake.verify().ok
