"""Rules hold between transactions that begin together, whichever tables they touch.

Each case has two transactions of which each alone agrees with the rule. The one that is published
second is refused, or does what the first made necessary; with few rows it is compared with the new
head, with many what the first changed is compared with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from tests.support.lakes import wait_until
from tests.support.ruled import (
    FEW_AGAIN,
    cardinality,
    check,
    new_lake,
    reference,
    rows_in,
    unique,
    violations,
)

import tidelock
from tidelock import Lake, Transaction
from tidelock.errors import ConflictError, RuleBroken
from tidelock.store.log.line import Line
from tidelock.store.rules import verification
from tidelock.store.rules.limits import Limits

Step = Callable[[Transaction], Any]
KNOWN = {"paid": lambda row: row["v"] is None or row["v"] >= 0}


def related() -> Lake:
    """Parents 1 to 4; children (1, 1), (2, 1), (3, 2)."""
    lake = new_lake()
    with lake.transaction() as tx:
        tx.create_table("p", "id BIGINT, code STRING", key="id")
        tx.create_table("c", "id BIGINT, p BIGINT, v BIGINT", key="id")
        tx.create_table("loose", "p BIGINT, v BIGINT")
        tx.alter_table("p", unique("code"))
        tx.alter_table("c", reference("p", "p"), unique("v"), cardinality("p", most=3))
        tx.alter_table("c", check("v >= 0", name="paid"))
        tx.alter_table("loose", reference("p", "p"), cardinality("v", least=2))
        tx.append("p", [{"id": n, "code": f"c{n}"} for n in (1, 2, 3, 4)])
        tx.append("c", [child(1, 1), child(2, 1), child(3, 2)])
    return lake


def child(id: int, p: int | None, v: int | None = None) -> dict[str, Any]:
    return {"id": id, "p": p, "v": v}


@dataclass(frozen=True)
class Race:
    first: Step
    second: Step
    refused: bool = True


RACES = {
    "the same unique value": Race(
        lambda tx: tx.append("p", [{"id": 10, "code": "x"}]),
        lambda tx: tx.append("p", [{"id": 11, "code": "x"}]),
    ),
    "other unique values": Race(
        lambda tx: tx.append("p", [{"id": 10, "code": "x"}]),
        lambda tx: tx.append("p", [{"id": 11, "code": "y"}]),
        refused=False,
    ),
    "a unique value by an upsert": Race(
        lambda tx: tx.append("c", [child(10, None, 7)]),
        lambda tx: tx.upsert("c", [child(1, 1, 7)]),
    ),
    "a unique value that the first upsert replaces": Race(
        lambda tx: tx.append("c", [child(10, None, 7)]),
        lambda tx: tx.upsert("c", [child(10, 2, 8), child(11, 2, 7)]),
        refused=False,
    ),
    "a child of a parent that left": Race(
        lambda tx: tx.delete("p", "id = 3"), lambda tx: tx.append("c", [child(10, 3)])
    ),
    "a child of another parent": Race(
        lambda tx: tx.delete("p", "id = 3"), lambda tx: tx.append("c", [child(10, 4)]), False
    ),
    "a parent that got a child": Race(
        lambda tx: tx.append("c", [child(10, 3)]), lambda tx: tx.delete("p", "id = 3")
    ),
    "a parent that got a child in a table without a key": Race(
        lambda tx: tx.append("loose", [{"p": 3}]), lambda tx: tx.delete("p", "id = 3")
    ),
    "a parent that got a child by an update": Race(
        lambda tx: tx.update("c", {"p": "3"}, "id = 1"), lambda tx: tx.delete("p", "id = 3")
    ),
    "a parent that is moved away": Race(
        lambda tx: tx.append("c", [child(10, 3)]),
        lambda tx: tx.update("p", {"id": "33"}, "id = 3"),
    ),
    "a parent whose child leaves first": Race(
        lambda tx: tx.delete("c", "id = 3"), lambda tx: tx.delete("p", "id = 4"), False
    ),
    "together too many": Race(
        lambda tx: tx.append("c", [child(10, 1)]), lambda tx: tx.append("c", [child(11, 1)])
    ),
    "together as many as allowed": Race(
        lambda tx: tx.append("c", [child(10, 2)]),
        lambda tx: tx.append("c", [child(11, 2)]),
        refused=False,
    ),
    "a rule that comes, and nothing against it": Race(
        lambda tx: tx.alter_table("loose", reference("p", "p", name="again")),
        lambda tx: tx.delete("p", "id = 3"),
        refused=False,
    ),
}


@pytest.mark.parametrize("limits", [Limits(), FEW_AGAIN], ids=["few rows", "many rows"])
@pytest.mark.parametrize("race", RACES.values(), ids=RACES)
def test_of_two_that_break_a_rule_together_one_is_refused(race: Race, limits: Limits) -> None:
    lake = related()
    late = lake.transaction()
    late._rules.limits = limits
    race.second(late)
    # Compared with the head that it began on, as a large one is before its turn.
    late.rebase(Line.up_to(lake._store.log, late._head))
    with lake.transaction() as tx:
        race.first(tx)
    if race.refused:
        with pytest.raises((RuleBroken, ConflictError)):
            late.publish()
    else:
        late.publish()
    assert not violations(lake.snapshot(), KNOWN)


def test_what_is_unrelated_is_not_compared_again(monkeypatch: pytest.MonkeyPatch) -> None:
    lake = related()
    lake.create_table("other", "id BIGINT")
    calls: list[str] = []

    def counted(name: str, plain: Any) -> Any:
        def call(*arguments: Any) -> Any:
            calls.append(name)
            return plain(*arguments)

        return call

    for name in ("check_changes", "check_deltas"):
        monkeypatch.setattr(verification, name, counted(name, getattr(verification, name)))
    late = lake.transaction()
    late._rules.limits = FEW_AGAIN
    late.append("c", [child(10, 3)])
    late.rebase(Line.up_to(lake._store.log, late._head))
    with lake.transaction() as tx:
        tx.append("other", [{"id": 1}])
    lake.optimize()
    late.publish()
    assert calls == ["check_changes"]

    late = lake.transaction()
    late._rules.limits = FEW_AGAIN
    late.append("c", [child(11, 3), child(12, 3)])
    late.rebase(Line.up_to(lake._store.log, late._head))
    with lake.transaction() as tx:
        tx.append("p", [{"id": 77}])
    late.publish()
    assert calls == ["check_changes"] * 3 + ["check_deltas"]


def test_many_writers_of_one_process_never_break_a_rule_together() -> None:
    lake = related()
    outcomes: list[str] = []

    def write(number: int) -> None:
        for turn in range(6):
            try:
                with lake.transaction() as tx:
                    if number % 3 == 0:
                        tx.append("p", [{"id": 100 + 100 * turn + number, "code": f"same{turn}"}])
                    elif number % 3 == 1:
                        tx.append("c", [child(1000 + 1000 * turn + number, 4)])
                    else:
                        tx.delete("p", f"id = {100 + 100 * turn + number - 2}")
                        tx.delete("c", "p = 4")
                outcomes.append("published")
            except (RuleBroken, ConflictError):
                outcomes.append("refused")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {"published", "refused"} == set(outcomes)
    newest = lake.snapshot().version
    for version in range(2, newest + 1):
        assert not violations(lake.snapshot(version=version), KNOWN), version


@pytest.fixture
def mirrored(tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        with lake.transaction() as tx:
            tx.create_table("p", "id BIGINT", key="id")
            tx.create_table("c", "id BIGINT, p BIGINT")
            tx.alter_table("c", unique("id"), reference("p", "p"), check("id > 0"))
            tx.append("p", [{"id": 1}, {"id": 2}])
            tx.append("c", [{"id": 1, "p": 1}])
        lake.mirror("c")
        lake.mirror("p")
        yield lake


@pytest.mark.parametrize("row", [(1, 1), (2, 3), (-1, 1)])
def test_foreign_rows_that_break_a_rule_are_not_adopted(
    mirrored: Lake, row: tuple[int, int]
) -> None:
    table = mirrored.table("c")
    rows = pa.table({"id": [row[0]], "p": [row[1]]}, schema=table.dataset.schema)
    lance.write_dataset(rows, table.path, mode="append")
    with pytest.raises(RuleBroken):
        mirrored.repair("c", adopt=True)
    assert mirrored.table("c").count() == 1


def test_foreign_rows_that_agree_are_adopted_and_missing_parents_are_not(mirrored: Lake) -> None:
    table = mirrored.table("c")
    rows = pa.table({"id": [2], "p": [2]}, schema=table.dataset.schema)
    lance.write_dataset(rows, table.path, mode="append")
    assert mirrored.repair("c", adopt=True).adopted is not None
    lance.dataset(mirrored.table("p").path).delete("id = 2")
    with pytest.raises(RuleBroken, match="p = 2 is not in p"):
        mirrored.repair("p", adopt=True)
    assert sorted(row["id"] for row in rows_in(mirrored.table("p"))) == [1, 2]


def test_a_turn_is_not_taken_while_rules_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others publish while one transaction compares what it staged before its turn."""
    lake = related()
    inside, go_on = threading.Event(), threading.Event()
    plain = verification.check_changes

    def slow(*arguments: Any) -> None:
        if threading.current_thread().name == "slow":
            inside.set()
            assert go_on.wait(30)
        plain(*arguments)

    monkeypatch.setattr(verification, "check_changes", slow)
    late = lake.transaction()
    late.append("c", [child(10, 3)])
    thread = threading.Thread(target=late.publish, name="slow")
    thread.start()
    wait_until(inside.is_set)
    with lake.transaction() as tx:
        tx.append("p", [{"id": 50, "code": "z"}])
    assert not late.commit
    go_on.set()
    thread.join()
    assert late.commit is not None
