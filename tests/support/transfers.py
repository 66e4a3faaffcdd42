"""Transfers between two tables of accounts with a ledger: what the storms run, and what must hold.

Money moves from `left` to `right`; every transfer writes one row of the ledger. In every snapshot:

    sum(left) + sum(right) = TOTAL          sum(left) = TOTAL / 2 - sum(ledger)
    every operation is in the ledger at most once
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import tidelock
from tidelock import Lake, Snapshot, Transaction, errors

ACCOUNTS = 6
START = 1000
TOTAL = 2 * ACCOUNTS * START
LEDGER = pa.schema([("operation", pa.string()), ("amount", pa.int64())])


def make(uri: str, options: Mapping[str, str] | None = None) -> None:
    lake = tidelock.open(uri, create=True, storage_options=options)
    with lake, lake.transaction() as tx:
        for side in ("left", "right"):
            tx.create_table(side, "id BIGINT NOT NULL, balance BIGINT NOT NULL", key="id")
            tx.append(side, [{"id": i, "balance": START} for i in range(ACCOUNTS)])
        tx.create_table("ledger", "operation STRING NOT NULL, amount BIGINT NOT NULL")


def check(snapshot: Snapshot) -> pa.Table:
    """Read everything of a snapshot and check it; returns the ledger."""
    left, right = (snapshot.table(side).to_arrow() for side in ("left", "right"))
    ledger = snapshot.table("ledger").to_arrow()
    assert left.num_rows == right.num_rows == ACCOUNTS
    assert len(left["id"].unique()) == len(right["id"].unique()) == ACCOUNTS
    sums = [pc.sum(side["balance"]).as_py() for side in (left, right)]
    moved = pc.sum(ledger["amount"]).as_py() or 0
    assert sums == [TOTAL // 2 - moved, TOTAL // 2 + moved], f"version {snapshot.version}"
    assert len(ledger["operation"].unique()) == ledger.num_rows
    assert snapshot.states()["ledger"].rows == ledger.num_rows
    return ledger


def transfer(tx: Transaction, chance: random.Random, operation: str) -> None:
    amount = chance.randint(-20, 20)
    source, target = chance.randrange(ACCOUNTS), chance.randrange(ACCOUNTS)
    if chance.random() < 0.5:
        tx.update("left", {"balance": f"balance - ({amount})"}, where=f"id = {source}")
        tx.update("right", {"balance": f"balance + ({amount})"}, where=f"id = {target}")
    else:
        _move(tx, "left", source, -amount)
        tx.delete("right", where=f"id = {target} AND balance < -1000000")
        tx.update("right", {"balance": f"balance + ({amount})"}, where=f"id = {target}")
    row = [{"operation": operation, "amount": amount}]
    if chance.random() < 0.3:
        batches = [pa.RecordBatch.from_pylist(row, schema=LEDGER)]
        tx.append("ledger", pa.RecordBatchReader.from_batches(LEDGER, batches))
    else:
        tx.append("ledger", row)


def _move(tx: Transaction, side: str, account: int, amount: int) -> None:
    """The same as an update, by reading a row, deleting it and writing it anew."""
    row = tx.table(side).to_arrow(filter=f"id = {account}").to_pylist()[0]
    tx.delete(side, where=f"id = {account}")
    tx.append(side, [{"id": account, "balance": row["balance"] + amount}])


def work(
    uri: str, options: Mapping[str, str] | None, seed: int, journal: str, repeat: str | None
) -> None:
    """Make transfers until killed; what was acknowledged goes to the journal.

    `repeat` is an operation whose worker died before it told the outcome: it is run again.
    """
    log = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    lake = tidelock.open(uri, storage_options=options, actor=f"worker {seed}")
    number = 0
    while True:
        operation = repeat or f"{seed}-{number}"
        repeat = None
        number += 1
        os.write(log, f"try {operation}\n".encode())
        version = _commit(lake, operation)
        os.write(log, f"ack {operation} {version}\n".encode())


def _commit(lake: Lake, operation: str) -> int:
    while True:
        try:
            with lake.transaction(operation_id=operation, message=operation) as tx:
                # The same operation is the same transfer, whoever runs it.
                transfer(tx, random.Random(operation), operation)
            assert tx.commit is not None
            return tx.commit.version
        except errors.ConflictError:
            time.sleep(random.uniform(0, 0.02))


def keep(uri: str, options: Mapping[str, str] | None, seed: int) -> None:
    """Optimize and collect garbage without pause until killed."""
    chance = random.Random(seed)
    lake = tidelock.open(uri, storage_options=options, actor="keeper")
    while True:
        lake.optimize()
        report = lake.collect_garbage(older_than=0, versions=chance.randint(1, 3))
        assert not report.errors, report.errors


def acknowledged(journals: list[Path]) -> dict[str, int]:
    lines = [line.split() for path in journals for line in path.read_text().splitlines()]
    return {line[1]: int(line[2]) for line in lines if line[0] == "ack"}


def unanswered(journal: Path) -> str | None:
    """The operation that a dead worker tried last and was not answered."""
    lines = journal.read_text().splitlines() if journal.exists() else []
    last = lines[-1].split() if lines else ["ack"]
    return last[1] if last[0] == "try" else None
