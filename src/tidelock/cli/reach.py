"""Places in the history as they are written on the command line.

Owns: what a POINT means. Digits are a version of the branch; other text is a tag, else a commit id,
else a time, which stands for the newest commit of the branch by then.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tidelock import Lake, Snapshot
from tidelock.errors import CommitNotFound, InvalidOption, VersionNotFound
from tidelock.model.history.commit import Commit
from tidelock.store.branches import MAIN


def point(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdigit() else text


@contextmanager
def named(text: str) -> Iterator[None]:
    """Says of a place that there is not what it may have been meant to be."""
    try:
        yield
    except CommitNotFound as error:
        raise CommitNotFound(
            f"There is no commit and no tag called {text!r}. `tidelock log` and `tidelock tag "
            "list` show what there is.",
            commit=text,
        ) from error


def find_commit(lake: Lake, text: str, branch: str) -> Commit:
    """The commit that a point names."""
    place = point(text)
    try:
        with named(text):
            return lake.find_commit(place, branch=branch)
    except VersionNotFound as error:
        if isinstance(place, int):
            raise
        raise VersionNotFound(
            f"Nothing had been committed to branch {branch!r} at {text!r}. `tidelock log` shows "
            "when the commits were made.",
            branch=branch,
            at=text,
        ) from error


def find_snapshot(lake: Lake, text: str | None, branch: str | None) -> Snapshot:
    """The snapshot at a point, else the newest. A tag or commit id needs no branch."""
    if text is None:
        return lake.snapshot(branch or MAIN)
    if branch is None and isinstance(point(text), str):
        return lake.snapshot(commit=find_commit(lake, text, MAIN).id)
    return lake.snapshot(branch or MAIN, version=version_on(lake, text, branch or MAIN))


def version_on(lake: Lake, text: str, branch: str) -> int:
    """The version of `branch` that a point names."""
    place = point(text)
    if isinstance(place, int):
        return lake.snapshot(branch, version=place).version
    found = find_commit(lake, text, branch)
    newest = lake.snapshot(branch).version
    known = found.version <= newest
    if not known or lake.snapshot(branch, version=found.version).commit != found.id:
        raise InvalidOption(
            f"{text!r} is not in the history of branch {branch!r}. Name the branch with --branch.",
            branch=branch,
            version=found.version,
        )
    return found.version


def table_names(lake: Lake) -> dict[str, str]:
    """The names of tables by their ids, over all branches. What is kept for a stream table has the
    name of that one."""
    from tidelock.derive.plan.view import kept_for

    names: dict[str, str] = {}
    for branch in lake.branches():
        states = lake.snapshot(branch.name).states().values()
        shown = {state.id: state.name for state in states}
        for state in states:
            owner = kept_for(state.name)
            names.setdefault(state.id, state.name if owner is None else shown.get(owner, owner))
    return names
