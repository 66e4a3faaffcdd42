"""Branches that part and are merged: what tests of merges share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidelock import Lake, Transaction
from tidelock.errors import MergeConflict
from tidelock.model.history.conflicts import Conflict

Rows = list[dict[str, Any]]
Work = Callable[[Transaction], object]


def on(lake: Lake, branch: str, *works: Work) -> None:
    """Do something on a branch, each piece of work in a commit of its own."""
    for work in works:
        with lake.transaction(branch=branch) as tx:
            work(tx)


def part(lake: Lake, source: Work | None = None, target: Work | None = None) -> None:
    """Part into `dev` and `main`, and do something on each."""
    lake.create_branch("dev")
    on(lake, "dev", *([source] if source else []))
    on(lake, "main", *([target] if target else []))


def rows(lake: Lake, table: str, branch: str = "main") -> Rows:
    found = lake.table(table, branch=branch).to_arrow().to_pylist()
    return sorted(found, key=lambda row: [str(value) for value in row.values()])


def conflicts(
    lake: Lake, source: str = "dev", into: str = "main", **options: Any
) -> list[Conflict]:
    """The conflicts for which a merge is refused; the target stays as it was."""
    before = lake.snapshot(into).version
    with pytest.raises(MergeConflict) as refused:
        lake.merge(source, into=into, **options)
    preview = lake.merge(source, into=into, dry_run=True, **options)
    assert [one.to_dict() for one in preview.conflicts] == [
        one.to_dict() for one in refused.value.conflicts
    ]
    assert preview.counts is not None
    assert sum(preview.counts.values()) == refused.value.count
    assert lake.snapshot(into).version == before
    found: list[Conflict] = list(refused.value.conflicts)
    return found
