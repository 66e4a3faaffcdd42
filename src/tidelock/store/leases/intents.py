"""Intents: durable notes that a writer is staging work, with a lease.

Owns: one object per intent (a transaction whose staging may take long). It is renewed like a lease
(leases.py), and names the lease that its writer relies on.
Invariants: an intent exists before the first file of its transaction, and belongs to one attempt at
it. Once sealed, it holds all that is needed to publish the transaction.
After a crash: what is left expires, and healing settles it (recovery.py).
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from tidelock.errors import Advice, CorruptObject, IntentUnreadable, NewerFormat, ObjectMissing
from tidelock.model.history.commit import Kind, TableChange
from tidelock.store.leases.leases import Held, Keeper
from tidelock.store.objects import layout
from tidelock.store.objects.entries import entries
from tidelock.store.objects.failpoints import hit
from tidelock.store.objects.protocol import ObjectInfo, Objects
from tidelock.store.objects.records import decode


@dataclass(frozen=True, slots=True)
class Intent:
    """What a writer is about to do, and, once `sealed`, everything needed to publish it."""

    operation_id: str
    branch: str
    branch_id: str
    base_version: int
    actor: str
    kind: Kind
    message: str
    owner: str
    created: datetime
    lease_seconds: float
    lease: str = ""
    """The key of the lease that its writer relies on."""
    properties: dict[str, Any] = field(default_factory=dict)
    sealed: tuple[TableChange, ...] | None = None
    format: int = 1


@dataclass(frozen=True, slots=True)
class UnreadableIntent:
    """An intent that nobody can settle before an operator has looked at it."""

    file: str
    cause: str


def list_intents(objects: Objects) -> tuple[list[Intent], list[UnreadableIntent]]:
    """Every intent, those that cannot be read by their file names."""
    readable: list[Intent] = []
    unreadable: list[UnreadableIntent] = []
    for info in entries(objects, layout.INTENTS):
        try:
            intent = read_intent(objects, info)
        except IntentUnreadable as error:
            unreadable.append(UnreadableIntent(info.key.rsplit("/", 1)[1], str(error.cause)))
            continue
        if intent is not None:
            readable.append(intent)
    return readable, unreadable


def read_intent(objects: Objects, info: ObjectInfo) -> Intent | None:
    """The intent in an object; None when it is gone; IntentUnreadable names the file."""
    try:
        return decode(objects.get(info.key), Intent, info.key)
    except ObjectMissing:
        return None
    except (CorruptObject, NewerFormat) as error:
        name = info.key.rsplit("/", 1)[1]
        raise IntentUnreadable(
            f"The intent {info.key!r} cannot be settled: {error.message} Writing is refused until "
            "it is.",
            Advice(
                "Reading with read_only=True works. After looking into it, remove it with "
                f"tidelock.open(..., heal=False).repair(discard_intent={name!r}).",
                "Reading works. After looking into it, remove it with "
                f"`tidelock repair --discard-intent {name}`.",
            ),
            key=info.key,
            cause=error.condition,
        ) from error


class HeldIntent:
    """An intent that its writer holds."""

    def __init__(self, keeper: Keeper, objects: Objects, intent: Intent) -> None:
        self._keeper = keeper
        self._objects = objects
        self._intent = intent
        key = layout.intent(intent.operation_id, secrets.token_hex(4))
        self._held = Held(key, keeper.lease_seconds, lambda: self._intent, final=True)
        hit("intent.before_put")
        keeper.hold(self._held)
        hit("intent.after_put")

    @property
    def sealed(self) -> bool:
        """Whether healing may publish it; also when sealing failed, as it may have been applied."""
        return self._intent.sealed is not None

    @property
    def key(self) -> str:
        return self._held.key

    def check(self) -> None:
        self._held.check(lapses=0)

    def seal(self, changes: tuple[TableChange, ...]) -> None:
        """Say that everything is staged, so that the commit can be published for its actor."""
        self.check()
        self._intent = replace(self._intent, sealed=changes)
        hit("intent.before_seal")
        self._held.write(self._objects)
        hit("intent.after_seal")

    def abandon(self) -> None:
        """Stop renewing: the lease runs out, and healing settles what is there."""
        self._keeper.drop(self._held)

    def remove(self) -> None:
        hit("intent.before_remove")
        self._keeper.release(self._held)
        hit("intent.after_remove")
