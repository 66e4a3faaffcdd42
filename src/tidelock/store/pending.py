"""A transaction on its way into the log, as publication sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from tidelock.model.commit import Commit, Kind, TableChange, Tables, commit_id
from tidelock.store.log import Head
from tidelock.store.turns import taken_lock


@dataclass(frozen=True, slots=True)
class Appended:
    """Fragments that wait to become part of a table."""

    table: str
    table_id: str
    fragments: tuple[str, ...]
    """As JSON, which is how Lance writes them down."""


@dataclass(frozen=True, slots=True)
class Request:
    """A transaction that only adds rows, so that others can publish it."""

    operation_id: str
    actor: str
    message: str
    properties: dict[str, Any]
    lease_until: float
    """When others may have given its files up, by the clock of this machine."""
    names: tuple[str, ...]
    """What it relies on, as in Pending."""
    fence: int
    """The newest fence when it began."""
    tables: tuple[Appended, ...]


class Staged(Protocol):
    """Something that can be published: a transaction, maintenance, a sealed intent."""

    def rebase(self, tables: Tables, version: int) -> tuple[TableChange, ...]:
        """The changes that publishing on top of these tables makes, or a typed conflict."""

    def check(self) -> None:
        """LeaseLost when others may have given this work up."""


@dataclass(eq=False)
class Pending:
    """A transaction on its way into the log."""

    staged: Staged
    base: Head
    operation_id: str
    actor: str
    kind: Kind
    message: str
    properties: dict[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    """What it relies on: the keys of its lease and its intent, by which it may be fenced off."""
    own_id: bool = False
    """Whether its operation id was made for it, so that no other attempt has it."""
    sealed: bool = False
    """Whether healing may publish this once its writer has lost its lease."""
    handed: bool = False
    """Whether another process may have published it, or be about to."""
    request: Callable[[], Request | None] = lambda: None
    """What another process would have to know to publish it, if that is little enough."""
    commit: Commit | None = None
    record: int = 0
    """The number of the record that its commit is in, if it was published from here."""
    hosted: list[Commit] = field(default_factory=list)
    """What it published for other processes when it led."""
    error: BaseException | None = None
    called: Any = field(default_factory=taken_lock)
    """A lock that is released to wake its waiting caller: it is settled, or is to lead."""

    @property
    def settled(self) -> bool:
        return self.commit is not None or self.error is not None

    @property
    def is_new(self) -> bool:
        """Whether nobody else can have published it."""
        return self.own_id and not self.sealed and not self.handed

    @property
    def published(self) -> list[Commit]:
        """The commits that were published from here because of it; those of its group that have
        threads of their own here are theirs."""
        own = [self.commit] if self.commit is not None and self.record else []
        return [*own, *self.hosted]

    def call(self) -> None:
        if self.called.locked():
            self.called.release()

    def result(self) -> Commit:
        if self.error is not None:
            raise self.error
        assert self.commit is not None
        return self.commit

    def committed(
        self, version: int, head: Head, changes: tuple[TableChange, ...], moment: datetime
    ) -> Commit:
        branch = head.branch
        parent = version - 1
        home = branch.home_of(parent) if parent <= head.version else branch.id
        return Commit(
            version=version,
            id=commit_id(branch.id, version),
            parents=(commit_id(home, parent),) if parent else (),
            branch=branch.name,
            actor=self.actor,
            operation_id=self.operation_id,
            kind=self.kind,
            message=self.message,
            time=moment,
            tables=changes,
            properties=self.properties,
        )
