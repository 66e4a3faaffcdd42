"""What commands need of a lake beyond its handle: single commits, and what an operator looks at.

Owns: every use of the store behind a `Lake` in the command line. Nothing here writes, but for
`discard_intent`, which works on a lake that refuses to be opened for writing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from tidelock import Lake
from tidelock.errors import (
    CommitNotFound,
    IntentUnreadable,
    InvalidOption,
    VersionNotFound,
)
from tidelock.model.commit import BranchRef, Commit, TableState
from tidelock.store import layout
from tidelock.store.changes import changes_of
from tidelock.store.intents import Intent, read_intent
from tidelock.store.location import locate
from tidelock.store.mirror import Foreign, foreign_commit
from tidelock.store.objects import Objects
from tidelock.store.store import lake_info


@dataclass(frozen=True, slots=True)
class UnreadableIntent:
    """An intent that nobody can settle before an operator has looked at it."""

    file: str
    cause: str


def point(text: str) -> int | str | datetime:
    """A place in the history as it is written: a version, a moment, a tag or a commit id."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    # A tag may look like a date; a moment has a time of day.
    return moment if len(text) > len("2026-03-01") else text


def find_commit(lake: Lake, text: str, branch: str) -> Commit:
    """The commit that a version, a tag or a commit id names."""
    ref, version = _locate(lake, text, branch)
    if version == 0:
        raise VersionNotFound(
            "Version 0 is the empty lake: no commit made it.", branch=branch, version=0
        )
    return lake._store.log.commit_at(ref, version)


def version_on(lake: Lake, text: str, branch: str) -> int:
    """The version of `branch` that a version, a tag or a commit id names."""
    ref, version = _locate(lake, text, branch)
    head = lake._store.branches.head(branch)
    if version > head.version or head.branch.home_of(version) != ref.home_of(version):
        raise InvalidOption(
            f"{text!r} is not in the history of branch {branch!r}. Name the branch with --branch.",
            branch=branch,
            version=version,
        )
    return version


def _locate(lake: Lake, text: str, branch: str) -> tuple[BranchRef, int]:
    try:
        return lake._point(point(text), branch)
    except CommitNotFound as error:
        raise CommitNotFound(
            f"There is no commit and no tag {text!r}. `tidelock log` and `tidelock tag list` show "
            "what there is.",
            commit=text,
        ) from error


def log_of_table(lake: Lake, branch: str, table: str, limit: int | None) -> list[Commit]:
    """The commits that changed a table, newest first. Reads only those."""
    head = lake._store.branches.head(branch)
    state = head.tables[table]
    found = changes_of(lake._store.log, head.branch, state.id, state.changed, since=0)
    return [lake._store.log.commit_at(head.branch, version) for version, _ in islice(found, limit)]


def format_of(lake: Lake) -> tuple[int, datetime]:
    """The format of the lake, and when it was created."""
    return lake._store.info.format, lake._store.info.created


def intents_of(lake: Lake) -> tuple[list[Intent], list[UnreadableIntent]]:
    """Every intent, those that cannot be read by their file names."""
    objects = lake._store.objects
    readable: list[Intent] = []
    unreadable: list[UnreadableIntent] = []
    for info in objects.list(layout.INTENTS):
        try:
            intent = read_intent(objects, info)
        except IntentUnreadable as error:
            unreadable.append(UnreadableIntent(_file(info.key), str(error.cause)))
            continue
        if intent is not None:
            readable.append(intent)
    return readable, unreadable


def foreign_commits(lake: Lake) -> list[Foreign]:
    """Commits that others made on the Lance HEAD of mirrored tables. Opens no other table."""
    store = lake._store
    mirrored = {
        _file(info.key).removesuffix(".json") for info in store.objects.list(layout.MIRRORS)
    }
    states = [state for state in lake.snapshot().tables() if state.id in mirrored]
    found = (foreign_commit(store, state) for state in states)
    return [foreign for foreign in found if foreign is not None]


def table_names(lake: Lake) -> dict[str, str]:
    """The names of tables by their ids, over all branches."""
    names: dict[str, str] = {}
    for branch in lake.branches():
        states: tuple[TableState, ...] = tuple(lake.snapshot(branch.name).tables())
        for state in states:
            names.setdefault(state.id, state.name)
    return names


def discard_intent(uri: str, storage_options: Mapping[str, str], name: str) -> str:
    """Remove an intent that cannot be read. One that can be read is left to healing."""
    objects = locate(uri, storage_options).objects()
    lake_info(objects, uri)
    key = name if "/" in name else f"{layout.INTENTS}/{name}"
    info = objects.info(key) if key.startswith(f"{layout.INTENTS}/") else None
    if info is None:
        raise InvalidOption(f"There is no intent {name!r}. See `tidelock status`.", key=key)
    if _can_be_read(objects, key):
        raise InvalidOption(
            f"The intent {name!r} can be read, so it is settled by itself once its writer is gone. "
            "It was left alone.",
            key=key,
        )
    objects.delete(key)
    return key


def _can_be_read(objects: Objects, key: str) -> bool:
    info = objects.info(key)
    try:
        return info is not None and read_intent(objects, info) is not None
    except IntentUnreadable:
        return False


def _file(key: str) -> str:
    return key.rsplit("/", 1)[1]
