"""A bank: transfers between accounts, and stream tables of what they come to.

A transfer is one commit that writes a debit row and a credit row of `entries`. Money only moves, so
in every snapshot, whoever wrote and refreshed meanwhile:

    debits, credits and balances stand for one version of `entries`, and are what it comes to;
    balance = credit - debit, account by account;       the sum of all balances = 0 = total
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from functools import cache

import tidelock
from tidelock import Lake, Snapshot, Transaction
from tidelock.model.streams import StreamState

ACCOUNTS = 12
DEBITS = "SELECT account, SUM(-amount) AS debit FROM entries WHERE amount < 0 GROUP BY account"
CREDITS = "SELECT account, SUM(amount) AS credit FROM entries WHERE amount > 0 GROUP BY account"
BALANCES = (
    "SELECT coalesce(c.account, d.account) AS account, "
    "coalesce(c.credit, 0) - coalesce(d.debit, 0) AS balance "
    "FROM credits c FULL JOIN debits d ON c.account = d.account"
)
TOTAL = "SELECT SUM(balance) AS total, COUNT(*) AS accounts FROM balances"
GROUP = ("credits", "debits", "balances")


def make(uri: str) -> None:
    with tidelock.open(uri, create=True, engine="sail") as lake:
        lake.create_table(
            "entries", "transfer STRING NOT NULL, account INT NOT NULL, amount BIGINT NOT NULL"
        )
        lake.create_stream_table("debits", DEBITS, refresh_mode="incremental")
        lake.create_stream_table("credits", CREDITS, refresh_mode="incremental")
        lake.create_stream_table("balances", BALANCES, refresh_mode="auto")
        lake.create_stream_table("total", TOTAL, refresh_mode="incremental")


def move_money(uri: str, seed: int, seconds: float) -> None:
    """Make transfers, and take some of them back."""
    chance = random.Random(seed)
    end = time.monotonic() + seconds
    made: list[str] = []
    with tidelock.open(uri, actor=f"teller {seed}") as lake:
        while time.monotonic() < end:
            if made and chance.random() < 0.15:
                taken_back = made.pop(chance.randrange(len(made)))
                lake.run(
                    lambda tx, one=taken_back: tx.delete("entries", where=f"transfer = '{one}'"),
                    retries=50,
                )
            else:
                made.append(f"{seed}-{len(made)}-{chance.random()}")
                _transfer(lake, chance, made[-1])
            time.sleep(chance.uniform(0.005, 0.03))


def _transfer(lake: Lake, chance: random.Random, transfer: str) -> None:
    payer, payee = chance.sample(range(ACCOUNTS), 2)
    amount = chance.randint(1, 100)

    def write(tx: Transaction) -> None:
        tx.append("entries", [{"transfer": transfer, "account": payer, "amount": -amount}])
        tx.append("entries", [{"transfer": transfer, "account": payee, "amount": amount}])

    lake.run(write)


def keep_refreshing(uri: str, seconds: float) -> None:
    with tidelock.open(uri, engine="sail", actor="refresher") as lake:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            lake.refresh()


def branch_office(uri: str, seed: int, seconds: float) -> None:
    """What the second process does: transfers, and a scheduler that follows all of them."""
    stop = threading.Event()
    teller = threading.Thread(target=move_money, args=(uri, seed, seconds))
    teller.start()
    ringer = threading.Timer(seconds, stop.set)
    ringer.start()
    with tidelock.open(uri, engine="sail", actor="scheduler") as lake:
        lake.serve_schedule(stop=stop)
    teller.join()


class Auditor:
    """Checks snapshots. What was found of one state of a table is found for all that share it."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self.entered = cache(self._entered)

    def check(self, snapshot: Snapshot) -> int:
        """Everything that must hold in one snapshot; the epoch that it shows."""
        where = f"version {snapshot.version}"
        states = {name: _stream(snapshot, name) for name in (*GROUP, "total")}
        standing = {(states[name].as_of, states[name].epoch) for name in GROUP}
        assert len(standing) == 1, f"{where}: {standing}"
        ((as_of, epoch),) = standing
        if not epoch:
            return epoch
        paid, received = self.entered(as_of)
        debits, credits_, balances = (
            _amounts(snapshot, name, column)
            for name, column in (
                ("debits", "debit"),
                ("credits", "credit"),
                ("balances", "balance"),
            )
        )
        assert debits == paid, where
        assert credits_ == received, where
        accounts = set(paid) | set(received)
        assert balances == {one: received[one] - paid[one] for one in accounts}, where
        assert sum(balances.values()) == 0, where
        if states["total"].populated:
            (row,) = snapshot.table("total").to_arrow().to_pylist()
            assert (row["total"] or 0) == 0, where
        return epoch

    def _entered(self, version: int) -> tuple[Counter[int], Counter[int]]:
        """What every account paid and received, by its entries at a version."""
        paid: Counter[int] = Counter()
        received: Counter[int] = Counter()
        entries = self._lake.snapshot(version=version).table("entries").to_arrow().to_pylist()
        assert sum(row["amount"] for row in entries) == 0, f"half a transfer at {version}"
        for row in entries:
            side = paid if row["amount"] < 0 else received
            side[row["account"]] += abs(row["amount"])
        return paid, received


def _stream(snapshot: Snapshot, name: str) -> StreamState:
    state = snapshot.states()[name].stream
    assert state is not None
    return state


def _amounts(snapshot: Snapshot, name: str, column: str) -> dict[int, int]:
    rows = snapshot.table(name).to_arrow().to_pylist()
    found = {row["account"]: row[column] for row in rows}
    assert len(found) == len(rows), f"an account is twice in {name!r} at {snapshot.version}"
    return found
