"""Points in the history: what a version, a commit id, a tag or a time names.

Owns: the reading of the ways in which a user names a commit. A point is a line of commits and a
version on it; the line of a tag, or of a commit id, may be that of a branch which is gone.
"""

from __future__ import annotations

import time
from datetime import datetime

from tidelock.errors import BranchNotFound, CommitNotFound, InvalidOption, VersionNotFound
from tidelock.model.arguments import check_text
from tidelock.model.history.commit import BranchRef
from tidelock.model.names import suggest
from tidelock.model.time.durations import parse_moment, show_moment
from tidelock.store.branches import MAIN
from tidelock.store.log.clock import version_at
from tidelock.store.log.log import Head
from tidelock.store.parts import Parts
from tidelock.store.upkeep.garbage.announcements import check_readable, collection_runs

At = int | str | datetime
Point = tuple[BranchRef, int]


def locate(
    store: Parts,
    branch: str,
    *,
    version: int | None = None,
    commit: str | None = None,
    at: datetime | str | None = None,
    tag: str | None = None,
) -> Point:
    """The point that one of these names; the newest of the branch when none is given."""
    if tag is not None:
        found = store.branches.tag(tag)
        return found.as_branch(), found.version
    if commit is not None:
        return store.branch_of_commit(commit)
    head = store.branches.head(branch)
    if at is not None:
        return head.branch, _version_at(store, head, parse_moment(at))
    if version is None:
        return head.branch, head.version
    if isinstance(version, bool) or not isinstance(version, int):
        raise InvalidOption(f"A version is a whole number, not {version!r}.")
    if not 0 <= version <= head.version:
        raise VersionNotFound(
            f"Branch {branch!r} has versions 0 to {head.version}, not {version}.",
            branch=branch,
            version=version,
            newest=head.version,
        )
    return head.branch, version


def _version_at(store: Parts, head: Head, moment: datetime) -> int:
    version = version_at(store.objects, store.log, head, moment, store.clock.now())
    if version:
        return version
    name = head.branch.name
    if not head.version:
        raise VersionNotFound(f"Branch {name!r} has no commit yet.", branch=name, newest=0)
    first = store.log.commit_at(head.branch, 1).time
    raise VersionNotFound(
        f"At {show_moment(moment)} there was nothing yet: the first commit of branch {name!r} is "
        f"of {show_moment(first)}. Name that time or a later one; version 0 is the empty lake.",
        branch=name,
        at=moment,
        first=first,
    )


def point(store: Parts, at: At | None, branch: str) -> Point:
    """The point that a version of `branch`, a commit id, a tag's name or a time names."""
    if at is None or isinstance(at, int):
        return locate(store, branch, version=at)
    if isinstance(at, datetime):
        return locate(store, branch, at=at)
    if store.branches.find_tag(check_text(at, "A point in the history")) is not None:
        return locate(store, branch, tag=at)
    try:
        return locate(store, branch, commit=at)
    except CommitNotFound:
        try:
            moment = parse_moment(at)
        except InvalidOption:
            pass
        else:
            return locate(store, branch, at=moment)
        raise


def state_point(store: Parts, at: At | None, branch: str) -> tuple[str, Point]:
    """What a state is called, and its point: what `point` reads, or a branch's name, which stands
    for its newest commit."""
    if at is None or isinstance(at, int):
        found = point(store, at, branch)
        version = branch if at is None else f"version {found[1]}"
        return (version if branch == MAIN or at is None else f"{version} of {branch}"), found
    if isinstance(at, datetime):
        return show_moment(at), point(store, at, branch)
    try:
        head = store.branches.head(at)
    except BranchNotFound:
        return at, _unless_unknown(store, at, branch)
    if store.branches.find_tag(at) is not None:
        raise InvalidOption(
            f"{at!r} is a branch and a tag. Name a commit of one of them by its id.", name=at
        )
    return head.branch.name, (head.branch, head.version)


def _unless_unknown(store: Parts, at: str, branch: str) -> Point:
    try:
        return point(store, at, branch)
    except CommitNotFound:
        names = [*store.branches.names(), *(tag.name for tag in store.branches.tags(whole=False))]
        raise CommitNotFound(
            f"There is no branch, tag or commit {at!r}. {suggest(at, names)}", commit=at
        ) from None


def version_on(store: Parts, head: Head, at: At) -> int:
    """The version that a point has on a branch. A number is taken as it is, for the caller to
    check against its range."""
    if isinstance(at, int):
        return at
    return check_on_branch(head, point(store, at, head.branch.name), repr(at))


def check_on_branch(head: Head, point: Point, named: str) -> int:
    """The version of a point that is in the history of a branch; InvalidOption if it is not."""
    ref, version = point
    known = version <= head.version and head.branch.home_of(version) == ref.home_of(version)
    if version and not known:
        raise InvalidOption(
            f"{named} is version {version} of branch {ref.name!r}, which is not in the history of "
            f"branch {head.branch.name!r}. Name the branch that it is on, or none.",
            branch=head.branch.name,
            version=version,
        )
    return version


def check_kept(store: Parts, point: Point) -> None:
    """A garbage collection that runs right now may not have seen what was just named, and the lake
    may be gone."""
    store.confirm_present()
    ref, version = point
    if store.log.newest_version(ref) == version and not collection_runs(store):
        return
    while collection_runs(store):
        time.sleep(0.05)
    check_readable(store, ref, version)
