"""Places in the history as they are written on the command line."""

from __future__ import annotations

from datetime import datetime

from tidelock import Lake
from tidelock.errors import CommitNotFound, InvalidOption
from tidelock.model.commit import Commit


def point(text: str) -> int | str | datetime:
    """A place in the history: a version, a moment, a tag or a commit id."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    # A tag may look like a date; a moment has a time of day.
    return moment if len(text) > len("2026-03-01") else text


def find_commit(lake: Lake, text: str, branch: str) -> Commit:
    """The commit that a version, a tag, a moment or a commit id names."""
    try:
        return lake.find_commit(point(text), branch=branch)
    except CommitNotFound as error:
        raise CommitNotFound(
            f"There is no commit and no tag {text!r}. `tidelock log` and `tidelock tag list` show "
            "what there is.",
            commit=text,
        ) from error


def version_on(lake: Lake, text: str, branch: str) -> int:
    """The version of `branch` that a version, a tag or a commit id names."""
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
    """The names of tables by their ids, over all branches."""
    names: dict[str, str] = {}
    for branch in lake.branches():
        for state in lake.snapshot(branch.name).tables():
            names.setdefault(state.id, state.name)
    return names
