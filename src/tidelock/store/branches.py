"""Branches and tags: names for places in the commit graph.

Owns: one object per incarnation of a branch name, one object per tag.
Invariants: a branch exists when its highest incarnation's log is not closed; closing is one record
at the end of the log, so a late writer loses to it and can never land on a later incarnation.
After a crash: creating and deleting are one put each; there is nothing between before and after.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from tidelock.errors import (
    BranchDeleted,
    BranchExists,
    BranchNotFound,
    FormatError,
    InvalidName,
    InvalidOption,
    ObjectExists,
    ObjectMissing,
    TagExists,
    TagNotFound,
)
from tidelock.model.arguments import check_text
from tidelock.model.history.commit import BranchRef, Commit, commit_id
from tidelock.model.names import check_name, fold, suggest
from tidelock.store.log.log import Head, Log
from tidelock.store.objects import layout
from tidelock.store.objects.entries import entries, number_of
from tidelock.store.objects.failpoints import hit
from tidelock.store.objects.parallel import Together
from tidelock.store.objects.protocol import ObjectInfo, Objects
from tidelock.store.objects.records import decode, encode

logger = logging.getLogger("tidelock")

MAIN = layout.MAIN


@dataclass(frozen=True, slots=True)
class Tag:
    """A name for one commit."""

    name: str
    branch: str
    branch_id: str
    version: int
    lineage: tuple[tuple[str, int], ...]
    created: datetime
    actor: str
    format: int = 1

    @property
    def commit(self) -> str:
        return commit_id(self.branch_id, self.version)

    def as_branch(self) -> BranchRef:
        """The line of commits that ends in the tagged one, also when its branch is gone."""
        return BranchRef(self.branch, self.branch_id, 0, self.lineage, self.created, self.actor)


class Branches:
    """Owns the names of branches and tags, and what each of them names."""

    def __init__(
        self,
        objects: Objects,
        log: Log,
        now: Callable[[], datetime],
        together: Together | None = None,
    ) -> None:
        """`now` is the lake's clock."""
        self._objects = objects
        self._now = now
        self._log = log
        self._together = together or Together()
        self._known: dict[str, BranchRef] = {}
        self._by_id: dict[str, BranchRef] = {}

    def main(self) -> BranchRef:
        return self._known.setdefault(
            MAIN, BranchRef(MAIN, MAIN, 1, (), datetime.fromtimestamp(0, UTC), "")
        )

    def head(self, name: str) -> Head:
        """The head of the live branch of that name."""
        folded = fold(check_text(name, "A branch"))
        known = self.main() if folded == MAIN else self._known.get(folded)
        if known is not None:
            try:
                return self._log.head(known)
            except BranchDeleted:
                self._known.pop(folded, None)
        ref = self._newest_incarnation(name)
        if ref is None or self._log.is_closed(ref):
            raise BranchNotFound(
                f"There is no branch {name!r}. {suggest(name, self.names())}", branch=name
            )
        self._known[folded] = ref
        return self._log.head(ref)

    def resolve(self, name: str) -> BranchRef:
        """The live branch of that name."""
        return self.head(name).branch

    def names(self) -> list[str]:
        return [ref.name for ref in self.refs(whole=False)]

    def refs(self, whole: bool = True) -> list[BranchRef]:
        """All live branches, main first.

        CorruptObject if one is damaged, because then nobody knows what it needs; unless `whole` is
        False, for those who can do without it.
        """
        newest: dict[str, BranchRef | None] = {}
        for info, ref in self._read_all(whole):
            newest[info.key.rsplit("/", 1)[0]] = ref
        found = [ref for ref in newest.values() if ref is not None]
        return [self.main(), *(ref for ref in found if self._is_open(ref, whole))]

    def _is_open(self, ref: BranchRef, whole: bool) -> bool:
        try:
            return not self._log.is_closed(ref)
        except FormatError as error:
            if whole:
                raise
            logger.warning("%s", error.message)
            return False

    def all_refs(self, whole: bool = True) -> list[BranchRef]:
        """Every incarnation of every branch, the deleted ones too."""
        found = [ref for _, ref in self._read_all(whole) if ref is not None]
        return [self.main(), *found]

    def by_id(self, branch_id: str) -> BranchRef | None:
        """An incarnation by its id, also a deleted one; None when it is gone."""
        if branch_id == MAIN:
            return self.main()
        found = self._by_id.get(branch_id)
        if found is None:
            # An incarnation never changes, so that those which were read are known for good.
            self._by_id.update((ref.id, ref) for ref in self.all_refs(whole=False))
            found = self._by_id.get(branch_id)
        return found

    def _read_all(self, whole: bool) -> list[tuple[ObjectInfo, BranchRef | None]]:
        """Every incarnation, by name and number; None for one that is damaged, or was swept since
        it was listed."""

        def read(info: ObjectInfo) -> tuple[ObjectInfo, BranchRef | None]:
            try:
                return info, self._read(info.key)
            except FormatError as error:
                if whole:
                    raise
                logger.warning("%s", error.message)
                return info, None

        infos = entries(self._objects, layout.BRANCHES, depth=2)
        return self._together.map(read, [one for one in infos if number_of(one.key) is not None])

    def create(self, name: str, origin: BranchRef, version: int, actor: str) -> BranchRef:
        name = check_name(name, "branch")
        if fold(name) == MAIN:
            raise BranchExists("The branch 'main' always exists.", branch=name)
        incarnation = 1
        newest = self._newest_incarnation(name)
        if newest is not None:
            if not self._log.is_closed(newest):
                raise _exists(newest.name)
            incarnation = newest.incarnation + 1
        home = origin.home_of(version)
        lineage = tuple(
            entry for entry in origin.lineage if entry[1] < version and entry[0] != home
        )
        ref = BranchRef(
            name=name,
            id=layout.new_id(name),
            incarnation=incarnation,
            lineage=(*lineage, (home, version)) if version else (),
            created=self._now(),
            actor=actor,
        )
        try:
            hit("branch.before_put")
            self._objects.put_new(layout.branch(name, incarnation), encode(ref))
            hit("branch.after_put")
        except ObjectExists:
            raise _exists(name) from None
        self._known[fold(name)] = ref
        return ref

    def delete(self, name: str, close: Callable[[Head], Head]) -> None:
        """Close the branch's log. `close` publishes the closing record on top of a head."""
        if fold(check_text(name, "A branch")) == MAIN:
            raise InvalidOption("The branch 'main' cannot be deleted.", branch=name)
        try:
            close(self.head(name))
        except BranchDeleted:
            raise BranchNotFound(
                f"The branch {name!r} was deleted meanwhile.", branch=name
            ) from None
        finally:
            self._known.pop(fold(name), None)

    def _newest_incarnation(self, name: str) -> BranchRef | None:
        folder = layout.branch_folder(name)
        # Most names were used once, so that the list is not waited for.
        listed, first = self._together.both(
            lambda: self._objects.keys(folder),
            lambda: self._read(layout.branch(name, 1)) if self._together.far else None,
        )
        keys = [key for key in listed if number_of(key) is not None]
        if not keys:
            return None
        if first is not None and keys == [layout.branch(name, 1)]:
            return first
        return self._read(keys[-1])

    def _read(self, key: str) -> BranchRef | None:
        try:
            return decode(self._objects.get(key), BranchRef, key)
        except ObjectMissing:
            return None

    def create_tag(self, name: str, commit: Commit, ref: BranchRef, actor: str) -> Tag:
        name = check_name(name, "tag")
        if name.isdecimal():
            raise InvalidName(
                f"{name!r} cannot be a tag: it would be read as a version. Choose another name.",
                name=name,
            )
        home = ref.home_of(commit.version)
        lineage = tuple(entry for entry in ref.lineage if entry[0] != home)
        lineage = tuple(entry for entry in lineage if entry[1] < commit.version)
        tag = Tag(name, commit.branch, home, commit.version, lineage, self._now(), actor)
        try:
            hit("tag.before_put")
            self._objects.put_new(layout.tag(name), encode(tag))
            hit("tag.after_put")
        except ObjectExists:
            found = self.tag(name)
            if found.commit != tag.commit:
                raise TagExists(
                    f"The tag {found.name!r} exists and names version {found.version}. "
                    "Delete it first to move it.",
                    tag=name,
                    expected=commit.version,
                    actual=found.version,
                ) from None
            return found
        return tag

    def tag(self, name: str) -> Tag:
        found = self.find_tag(check_text(name, "A tag"))
        if found is None:
            names = [tag.name for tag in self.tags(whole=False)]
            raise TagNotFound(f"There is no tag {name!r}. {suggest(name, names)}", tag=name)
        return found

    def find_tag(self, name: str) -> Tag | None:
        key = layout.tag(name)
        try:
            return decode(self._objects.get(key), Tag, key)
        except ObjectMissing:
            return None

    def tags(self, whole: bool = True) -> list[Tag]:
        """All tags; `whole` as in refs."""

        def read(info: ObjectInfo) -> Tag | None:
            try:
                return decode(self._objects.get(info.key), Tag, info.key)
            except ObjectMissing:
                return None
            except FormatError as error:
                if whole:
                    raise
                logger.warning("%s", error.message)
                return None

        found = self._together.map(read, entries(self._objects, layout.TAGS))
        return [tag for tag in found if tag is not None]

    def delete_tag(self, name: str) -> None:
        self.tag(name)
        self._objects.delete(layout.tag(name))


def _exists(name: str) -> BranchExists:
    return BranchExists(
        f"The branch {name!r} exists. Delete it first, or choose another name.", branch=name
    )
