"""A transaction on its way into the log, as publication sees it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from tidelock.errors import Advice, OutcomeUnknown
from tidelock.model.history.commit import Commit, Kind, TableChange, commit_id
from tidelock.store.log.line import Line
from tidelock.store.log.log import Head
from tidelock.store.objects.followers import Waiter


class Staged(Protocol):
    """Something that can be published: a transaction, maintenance, a sealed intent."""

    def rebase(self, line: Line) -> tuple[TableChange, ...]:
        """The changes that publishing on top of this line makes, or a typed conflict."""

    def check(self) -> None:
        """LeaseLost when others may have given this work up."""


def look_up(operation_id: str) -> Advice:
    """What to do when nobody knows whether an operation was published."""
    return Advice(
        f"Look the outcome up with lake.find_operation({operation_id!r}), or run the transaction "
        "again with the same operation_id: it is never published twice.",
        "Run the command again with the same --operation-id: it is never published twice.",
    )


def undecided(branch: str, operation_id: str, error: BaseException) -> OutcomeUnknown:
    """A commit that failed, and whose intent is still there to be published by healing."""
    return OutcomeUnknown(
        f"The commit on branch {branch!r} failed ({error}), and its intent could not be withdrawn, "
        "so that it may still be published.",
        look_up(operation_id),
        operation_id=operation_id,
        branch=branch,
        cause=str(error),
    )


@dataclass(eq=False)
class Pending(Waiter):
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
    commit: Commit | None = None
    published_here: bool = False
    """Whether its commit was published by this process, now."""
    error: BaseException | None = None

    @property
    def settled(self) -> bool:
        return self.commit is not None or self.error is not None

    @property
    def is_new(self) -> bool:
        """Whether nobody else can have published it."""
        return self.own_id and not self.sealed

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
