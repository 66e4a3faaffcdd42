"""Rules over Spark frames: what executors wrote is compared by joins, wherever it breaks a rule."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.ruled import (
    ON_SPARK,
    cardinality,
    check,
    reference,
    unique,
    violations,
)

import tidelock
from tidelock import Lake, Transaction
from tidelock.errors import DuplicateKey, RuleBroken
from tidelock.model.schema.alterations import Alteration, SetKey
from tidelock.store.log.line import Line
from tidelock.store.rules import verification
from tidelock.store.rules.limits import Limits

BOTH_ENGINES = pytest.mark.parametrize("lake", ["sail", "spark"], indirect=True)
KNOWN = {
    "paid": lambda row: None if row["v"] is None else row["v"] >= 0,
    "short": lambda row: None if row["note"] is None else len(row["note"]) < 5,
    "one_open": lambda row: row["note"] is not None and row["note"].upper() == "OPEN",
}


@pytest.fixture
def lake(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Lake]:
    """On the engine that is quick; on Apache Spark where a test says so."""
    engine = getattr(request, "param", "sail")
    if engine == "spark":
        request.getfixturevalue("spark")
    with tidelock.open(tmp_path / "lake", create=True, engine=engine) as lake:
        with lake.transaction() as tx:
            tx.create_table("p", "id BIGINT, code STRING", key="id")
            tx.create_table("c", "id BIGINT, p BIGINT, v DECIMAL(10,2), note STRING", key="id")
            tx.alter_table("p", unique("code", name="codes"))
            tx.alter_table(
                "c",
                reference("p", "p", name="fk"),
                unique("p", "v", name="once"),
                unique("p", where="upper(note) = 'OPEN'", name="one_open"),
                check("v >= 0", name="paid"),
                check("length(note) < 5", name="short"),
                cardinality("p", most=5, name="few"),
            )
        yield lake


@pytest.fixture(params=[Limits(), ON_SPARK], ids=["here", "by joins"])
def limits(request: pytest.FixtureRequest) -> Limits:
    """Whether rows are compared by the driver, as few are, or by joins, as many are."""
    given: Limits = request.param
    return given


@contextmanager
def begin(lake: Lake, limits: Limits) -> Iterator[Transaction]:
    with lake.transaction() as transaction:
        transaction._rules.limits = limits
        yield transaction


def children(lake: Lake, rows: int, start: int = 0, **other: str) -> Any:
    columns = {
        "id": "id",
        "p": "id DIV 2",
        "v": "CAST(id AS DECIMAL(10,2))",
        "note": "IF(id % 2 = 0, 'open', 'done')",
    }
    texts = [f"{text} AS {name}" for name, text in {**columns, **other}.items()]
    return lake.spark.range(start, start + rows).selectExpr(*texts)


def fill(lake: Lake) -> None:
    """Parents 0 to 99; two children for each of the first fifty."""
    with lake.transaction() as tx:
        tx.append("c", children(lake, 100))
        tx.append("p", lake.spark.range(100).selectExpr("id", "concat('c', id) AS code"))


@BOTH_ENGINES
def test_frames_that_agree_are_published(lake: Lake, limits: Limits) -> None:
    fill(lake)
    with begin(lake, limits) as tx:
        tx.append("c", children(lake, 100, 100))
        tx.upsert("c", children(lake, 50, 25, v="CAST(id + 1000 AS DECIMAL(10,2))"))
    assert lake.table("c").count() == 200
    assert not violations(lake.snapshot(), KNOWN)


@pytest.mark.parametrize(
    ("other", "rule", "count", "told"),
    [
        ({"p": "id"}, "fk", 100, "p = 100 is not in p (id)"),
        ({"v": "CAST(50 - id AS DECIMAL(10,2))"}, "paid", 100, "v >= 0 is false for (id = 100, v"),
        ({"note": "IF(id = 150, 'longer', 'x')"}, "short", 1, "note = 'longer'"),
        ({"note": "'open'"}, "one_open", 100, "p = 50 is in 2 rows"),
        ({"v": "CAST(1 AS DECIMAL(10,2))"}, "once", 100, "(p, v) = (50, 1.00) is in 2 rows"),
        ({"p": "1", "note": "NULL"}, "few", 102, "p = 1 has 102 rows, and may have 5 at most"),
    ],
)
def test_frames_that_break_a_rule_are_refused_with_the_first_rows(
    lake: Lake, limits: Limits, other: dict[str, str], rule: str, count: int, told: str
) -> None:
    fill(lake)
    with pytest.raises(RuleBroken) as caught, begin(lake, limits) as tx:
        tx.append("c", children(lake, 100, 100, **other))
    assert (caught.value.rule, caught.value.count) == (rule, count)
    assert told in caught.value.message
    assert 1 <= len(caught.value.rows) <= 10
    assert set(caught.value.rows[0]) == {"id", "p", "v", "note"}
    assert lake.table("c").count() == 100
    assert not lake.intents()


@BOTH_ENGINES
def test_values_that_are_there_are_found(lake: Lake, limits: Limits) -> None:
    fill(lake)
    with pytest.raises(RuleBroken, match=r"code = 'c\d+' is in 2 rows") as caught:
        append_codes(lake, limits, "concat('c', id - 93)")
    assert caught.value.count == 186


def append_codes(lake: Lake, limits: Limits, code: str) -> None:
    with begin(lake, limits) as tx:
        tx.append("p", lake.spark.range(100, 300).selectExpr("id", f"{code} AS code"))


def test_parents_that_leave_are_looked_for_among_their_children(lake: Lake, limits: Limits) -> None:
    fill(lake)

    def overwrite(tx: Transaction, stop: int) -> None:
        tx.overwrite("p", lake.spark.range(stop).selectExpr("id", "concat('d', id) AS code"))

    with begin(lake, limits) as tx:
        overwrite(tx, 50)
    with pytest.raises(RuleBroken) as caught, begin(lake, limits) as tx:
        overwrite(tx, 49)
    assert (caught.value.rule, caught.value.count) == ("fk", 2)
    assert "p = 49 is not in p (id)" in caught.value.message
    with pytest.raises(RuleBroken), begin(lake, limits) as tx:
        tx.delete("p", "id IN (3, 4, 5)")
    with begin(lake, limits) as tx:
        tx.delete("c", "p = 3")
        tx.delete("p", "id = 3")
    assert not violations(lake.snapshot(), KNOWN)


@BOTH_ENGINES
def test_rows_of_few_fragments_leave_from_the_middle(lake: Lake, limits: Limits) -> None:
    fill(lake)
    with begin(lake, limits) as tx:
        tx.append("p", lake.spark.range(1000, 3000).selectExpr("id", "concat('e', id) AS code"))
    with begin(lake, limits) as tx:
        tx.delete("p", "id >= 1500 AND id < 2900")
        tx.update("p", {"code": "concat('f', id)"}, "id < 60")
    with pytest.raises(RuleBroken, match="p = 40 is not in p"), begin(lake, limits) as tx:
        tx.delete("p", "id = 40 OR (id >= 1000 AND id < 1400)")
    assert lake.table("p").count() == 700


@pytest.mark.parametrize(
    ("alteration", "error"),
    [
        (unique("note"), RuleBroken),
        (unique("v", where="upper(note) = 'DONE'"), None),
        (check("v < 99"), RuleBroken),
        (check("v + 1 < 101"), None),
        (reference("id", "p"), None),
        (cardinality("p", least=2), RuleBroken),
        (cardinality("note", most=49), RuleBroken),
        (SetKey(("note",)), DuplicateKey),
        (SetKey(("id", "p")), None),
    ],
)
def test_rules_that_come_are_compared_with_all_rows(
    lake: Lake, limits: Limits, alteration: Alteration, error: type[Exception] | None
) -> None:
    fill(lake)
    transaction = lake.transaction()
    transaction._rules.limits = limits
    if isinstance(alteration, SetKey):
        transaction.update("c", {"p": "coalesce(p, 0)"}, "id = 1")
        transaction.alter_table("c", "DROP PRIMARY KEY")
    transaction.alter_table("c", alteration)
    if error is None:
        transaction.publish()
        return
    with pytest.raises(error):
        transaction.publish()
    assert lake.snapshot().version == 2


def test_a_parent_without_children_is_found(lake: Lake, limits: Limits) -> None:
    fill(lake)
    with begin(lake, limits) as tx:
        tx.create_table("one", "p BIGINT")
        tx.append("one", lake.spark.range(100).selectExpr("id AS p"))
        tx.alter_table("one", reference("p", "p"), cardinality("p", least=1, name="each"))
    with pytest.raises(RuleBroken) as caught, begin(lake, limits) as tx:
        tx.append("p", lake.spark.range(200, 400).selectExpr("id", "CAST(NULL AS STRING) AS code"))
    assert caught.value.rule == "each"
    assert "has no rows, and must have 1 at least" in caught.value.message


def test_after_a_lost_race_only_what_won_is_compared(
    lake: Lake, limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(lake)
    whole: list[str] = []
    plain = verification.check_changes

    def counted(prospect: Any, changes: Any, references: Any) -> None:
        whole.extend(change.table for change in changes)
        plain(prospect, changes, references)

    def race(start: int, winner: Any) -> Transaction:
        late = lake.transaction()
        late._rules.limits = limits
        late.append("c", children(lake, 20, start))
        late.rebase(Line.up_to(lake._store.log, late._head))
        with lake.transaction() as tx:
            winner(tx)
        monkeypatch.setattr(verification, "check_changes", counted)
        return late

    late = race(100, lambda tx: tx.append("c", [{"id": 1000, "p": 90}]))
    late.publish()
    assert whole == ([] if limits is ON_SPARK else ["c"])
    monkeypatch.undo()
    assert not violations(lake.snapshot(), KNOWN)
    late = race(160, lambda tx: tx.delete("p", "id = 80"))
    with pytest.raises(RuleBroken, match="p = 80 is not in p"):
        late.publish()
    late = race(180, lambda tx: tx.append("c", [{"id": 2000, "p": 95, "v": 190}]))
    with pytest.raises(RuleBroken, match="once"):
        late.publish()
