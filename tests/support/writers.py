"""What the crash tests do to a lake: one transaction with every operation, and what it leads to."""

from __future__ import annotations

from collections import Counter

from tests.support.lakes import NUMBERS_DDL, Rows, numbers, streamed

import tidelock
from tidelock import Lake, Transaction

ACTOR = "the writer"
OPERATION = "load-1"


def make(uri: str) -> None:
    """A lake with tables that have rows in several fragments, and a history."""
    with tidelock.open(uri, create=True, actor="the founder") as lake:
        with lake.transaction("tables") as tx:
            tx.create_table("accounts", NUMBERS_DDL, key=["id"])
            tx.create_table("events", NUMBERS_DDL)
            tx.create_table("rates", NUMBERS_DDL)
            tx.create_table("old", NUMBERS_DDL)
        with lake.transaction("rows") as tx:
            tx.append("accounts", numbers((1, 10), (2, 20), (3, 30)))
            tx.append("events", numbers((1, 1), (1, 1), (2, 2)))
            tx.append("rates", numbers((7, 7)))
        with lake.transaction("more rows") as tx:
            tx.upsert("accounts", numbers((3, 31), (4, 40)))
            tx.append("events", numbers((3, 3)))


BEFORE: dict[str, Rows] = {
    "accounts": Counter([(1, 10), (2, 20), (3, 31), (4, 40)]),
    "events": Counter({(1, 1): 2, (2, 2): 1, (3, 3): 1}),
    "rates": Counter([(7, 7)]),
    "old": Counter(),
}
AFTER: dict[str, Rows] = {
    "accounts": Counter([(1, 15), (2, 20), (4, 44), (5, 50)]),
    "events": Counter({(1, 1): 2, (3, 3): 1, (8, 8): 1, (9, 9): 1}),
    "rates": Counter([(8, 80), (9, 90)]),
    "fresh": Counter([(1, 1)]),
}


def change_everything(tx: Transaction, streaming: bool) -> None:
    """Every operation, on five tables; with `streaming`, under an intent."""
    give = streamed if streaming else list
    tx.create_table("fresh", NUMBERS_DDL)
    tx.append("fresh", give(numbers((1, 1))))
    tx.upsert("accounts", give(numbers((4, 44), (5, 50))))
    tx.update("accounts", {"v": "v + 5"}, where="id = 1")
    tx.delete("accounts", where="id = 3")
    tx.append("events", give(numbers((8, 8), (9, 9))))
    tx.delete("events", where="id = 2")
    tx.overwrite("rates", give(numbers((8, 80), (9, 90))))
    tx.drop_table("old")


def write(uri: str, streaming: bool) -> None:
    with tidelock.open(uri, actor=ACTOR) as lake:
        write_with(lake, streaming)


def write_with(lake: Lake, streaming: bool, operation_id: str | None = OPERATION) -> None:
    with lake.transaction("everything", operation_id=operation_id) as tx:
        change_everything(tx, streaming)


def reopen(uri: str) -> None:
    tidelock.open(uri, actor="the healer").close()


def optimize(uri: str) -> None:
    with tidelock.open(uri, actor="the keeper") as lake:
        lake.optimize()


def collect(uri: str) -> None:
    with tidelock.open(uri, actor="the keeper") as lake:
        lake.collect_garbage(older_than=0)


def branch_and_tag(uri: str) -> None:
    with tidelock.open(uri, actor="the keeper") as lake:
        lake.create_branch("dev")
        write_on(lake, "dev")
        lake.tag("kept", branch="dev")
        lake.delete_branch("dev")
        lake.create_branch("dev", at="kept")


def write_on(lake: Lake, branch: str) -> None:
    with lake.transaction(branch=branch) as tx:
        tx.append("events", numbers((50, 50)))


def mirror(uri: str) -> None:
    with tidelock.open(uri, actor="the keeper") as lake:
        lake.mirror("accounts")
        with lake.transaction() as tx:
            tx.upsert("accounts", numbers((1, 10)))
        lake.mirror("accounts")
