"""Handing over: a transaction that waits for its turn may be published by whoever has it.

Passing a turn on takes about as long as an append does. So a process that waits offers what it is
about to publish, where that is fragments and nothing to be decided, and the one whose turn it is
puts it into its own record (see publish.py: group commit, here among processes).

Whoever offers keeps everything it needs to publish by itself, and does so when nobody did. It was
published at most once, because both look for its operation id in what others published before
they put it, unless it is certain that nobody else can have (offers.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidelock.errors import CommitConflict, LeaseLost, TidelockError
from tidelock.model.commit import Commit, TableChange, Tables, TableState, with_frontiers
from tidelock.store.faults import hit
from tidelock.store.intents import boot_seconds
from tidelock.store.log import Head
from tidelock.store.offers import Found, Offer, Offers
from tidelock.store.operations import Append
from tidelock.store.pending import Appended, Pending, Request
from tidelock.store.processes import place
from tidelock.store.records import decode, encode
from tidelock.store.staging import StagedTable
from tidelock.store.tables import TableFiles, fragment_from


@dataclass(frozen=True, slots=True)
class _Letter:
    """What one process offers."""

    place: str
    """The machine and the space of its processes: elsewhere, neither clocks nor locks count."""
    branch_id: str
    requests: tuple[Request, ...]
    format: int = 1


class Handover:
    """One wait for a turn, in which what waits is offered to whoever has it."""

    def __init__(
        self, offers: Offers, branch_id: str, waiting: Callable[[], Sequence[Pending]]
    ) -> None:
        self._offers = offers
        self._branch_id = branch_id
        self._waiting = waiting
        self._offer: Offer | None = None
        self._offered: list[Pending] = []

    def offer(self) -> None:
        here = place()
        new = [pending for pending in self._waiting() if pending.is_new] if here else []
        asked = [(pending, pending.request()) for pending in new]
        requests = {pending: request for pending, request in asked if request is not None}
        if not requests or here is None:
            return
        letter = _Letter(here, self._branch_id, tuple(requests.values()))
        self._offered = list(requests)
        self._offer = self._offers.make(encode(letter))

    def is_done(self) -> bool:
        offer = self._offer
        return offer is not None and offer.is_published()

    def end(self, in_turn: bool) -> int:
        """No longer offer it; the record in which it was published, 0 if it is to be done here."""
        if self._offer is None:
            return 0
        offer, self._offer = self._offer, None
        outcome = self._offers.end(offer, in_turn)
        for pending in self._offered:
            pending.handed = not outcome.untouched
        return outcome.record

    def accept(self, commits: Sequence[Commit]) -> None:
        """Settle what was offered and is among these; the rest is not offered again."""
        by_operation = {commit.operation_id: commit for commit in commits}
        for pending in self._offered:
            pending.commit = by_operation.get(pending.operation_id)


@dataclass(frozen=True, slots=True)
class Visit:
    """An offer of another process that was taken, and the transactions in it."""

    found: Found
    guests: list[Pending]

    def answer(self) -> None:
        record = max(guest.record for guest in self.guests)
        if record:
            hit("handover.before_answer")
            self.found.answer(record)


def take_offers(offers: Offers, files: TableFiles, head: Head, room: int) -> list[Visit]:
    """Take what others offer for a branch, as much as there is room for.

    The head was read before the offers, so that none of them is in it or before it.
    """
    visits = []
    hit("handover.before_take")
    for found in offers.others():
        letter = _opened(found, head)
        if letter is None or not 0 < len(letter.requests) <= room or not found.take():
            continue
        visits.append(Visit(found, [_guest(files, head, one) for one in letter.requests]))
        room -= len(letter.requests)
        hit("handover.after_take")
    return visits


def _opened(found: Found, head: Head) -> _Letter | None:
    try:
        letter = decode(found.data, _Letter, "offer")
    except TidelockError:
        # Of another version of Tidelock: it is published by whoever wrote it.
        return None
    mine = letter.place == place() and letter.branch_id == head.branch.id
    # Whoever began before the newest fence looks for itself whether it is named there.
    whole = all(request.fence == head.fence for request in letter.requests)
    return letter if mine and whole else None


def _guest(files: TableFiles, head: Head, request: Request) -> Pending:
    return Pending(
        _Guest(files, request),
        head,
        request.operation_id,
        request.actor,
        "data",
        request.message,
        request.properties,
        names=request.names,
    )


@dataclass(frozen=True, slots=True)
class _Guest:
    """A transaction of another process. What is wrong with it, its own process will say."""

    files: TableFiles
    request: Request

    def check(self) -> None:
        if boot_seconds() > self.request.lease_until:
            raise LeaseLost(f"The lease of {self.request.actor!r} has run out.")

    def rebase(self, tables: Tables, version: int) -> tuple[TableChange, ...]:
        changes = (self._change(tables, version, appended) for appended in self.request.tables)
        return with_frontiers(tuple(changes))

    def _change(self, tables: Tables, version: int, appended: Appended) -> TableChange:
        found = tables.same(TableState(appended.table, appended.table_id, 0, 0, 0))
        if found is None or found.key or found.stream is not None:
            raise CommitConflict(f"Table {appended.table!r} is not what it was.")
        staged = StagedTable(self.files, found)
        staged.add(Append(fragments=[fragment_from(text) for text in appended.fragments]))
        return staged.change(version, "data")
