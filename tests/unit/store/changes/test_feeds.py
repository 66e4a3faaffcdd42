"""A change feed follows a name: through drops, new tables of the name, and branches."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.lakes import NUMBERS_DDL, Rows, numbers, rows_of

import tidelock
from tidelock import Lake, errors
from tidelock.store.changes.change_reader import without_pairs


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True, actor="ada") as lake:
        lake.create_table("t", NUMBERS_DDL)
        yield lake


def add(lake: Lake, *ids: int, branch: str = "main", table: str = "t") -> tidelock.Commit:
    with lake.transaction(branch=branch) as tx:
        tx.append(table, numbers(*((one, one) for one in ids)))
    assert tx.commit is not None
    return tx.commit


def replace(lake: Lake, schema: str = NUMBERS_DDL, branch: str = "main") -> int:
    """Drop the table and create another of its name, in one commit."""
    with lake.transaction(branch=branch) as tx:
        tx.drop_table("t")
        tx.create_table("t", schema)
    assert tx.commit is not None
    return tx.commit.version


def changed(lake: Lake, since: Any, until: Any, branch: str = "main") -> Rows:
    """The changes as weights by row, without those that cancel out."""
    weights: Rows = Counter()
    for row in lake.changes("t", since, until, branch=branch).read_all().to_pylist():
        weights[row["id"], row["v"]] += row["_weight"]
    return Counter({row: weight for row, weight in weights.items() if weight})


def rows_at(lake: Lake, version: int, branch: str) -> Rows:
    snapshot = lake.snapshot(branch, version=version)
    return rows_of(snapshot.table("t")) if "t" in snapshot.states() else Counter()


def check_law(lake: Lake, branch: str = "main") -> None:
    """Between any two versions: the rows before and the changes are the rows after."""
    newest = lake.snapshot(branch).version
    for since, until in itertools.combinations(range(newest + 1), 2):
        total = rows_at(lake, since, branch)
        try:
            total.update(changed(lake, since, until, branch))
        except errors.TableNotFound:
            for version in range(since, until + 1):
                assert "t" not in lake.snapshot(branch, version=version).states()
        found = Counter({row: count for row, count in total.items() if count})
        assert found == rows_at(lake, until, branch), f"from {since} to {until}"


def history(lake: Lake) -> None:
    """Rows, a drop, another table meanwhile, the name again, maintenance, and a replacement."""
    add(lake, 1, 2)
    add(lake, 3)
    lake.drop_table("t")
    lake.create_table("other", NUMBERS_DDL)
    add(lake, 9, table="other")
    lake.create_table("T", NUMBERS_DDL)
    add(lake, 2, 4)
    lake.run(lambda tx: tx.delete("t", "id = 2"))
    lake.optimize("t")
    replace(lake)
    add(lake, 5)


def test_changes_add_up_between_any_two_versions_across_drops(lake: Lake) -> None:
    history(lake)
    check_law(lake)
    lake.drop_table("t")
    newest = lake.snapshot().version
    assert changed(lake, newest - 1, newest) == Counter({(5, 5): -1})
    check_law(lake)


def test_changes_add_up_on_a_branch_that_drops_what_its_parent_made(lake: Lake) -> None:
    add(lake, 1)
    replace(lake)
    add(lake, 2)
    lake.create_branch("dev")
    add(lake, 3)
    lake.drop_table("t", branch="dev")
    lake.create_table("t", NUMBERS_DDL, branch="dev")
    add(lake, 4, branch="dev")
    check_law(lake, "dev")
    check_law(lake)


def test_changes_tell_the_version_of_every_drop_and_come_in_commit_order(lake: Lake) -> None:
    add(lake, 1)
    version = replace(lake)
    add(lake, 1)
    table = lake.changes("t").read_all()
    told = [(row["_version"], row["_weight"]) for row in table.to_pylist()]
    assert told == [(2, 1), (version, -1), (4, 1)]


def test_a_name_that_no_table_had_in_the_range_is_not_found(lake: Lake) -> None:
    add(lake, 1)
    lake.drop_table("t")
    lake.create_table("other", NUMBERS_DDL)
    with pytest.raises(errors.TableNotFound, match="'t'"):
        lake.changes("t", 3)
    with pytest.raises(errors.TableNotFound, match="Did you mean 'other'"):
        lake.changes("othr")


@pytest.mark.parametrize("apart", [False, True])
def test_a_table_replaced_by_one_of_other_columns_says_where_to_divide(
    lake: Lake, apart: bool
) -> None:
    add(lake, 1)
    if apart:
        lake.drop_table("t")
        version = lake.create_table("t", "id BIGINT, note STRING").version
    else:
        version = replace(lake, "id BIGINT, note STRING")
    lake.run(lambda tx: tx.append("t", [{"id": 7, "note": "x"}]))
    with pytest.raises(errors.TableReplaced, match=f"replaced at version {version}") as caught:
        lake.changes("t")
    assert (caught.value.table, caught.value.version) == ("t", version)
    # Both halves are readable as the message says.
    assert f"up to version {version - 1}" in caught.value.message
    old = lake.changes("t", 0, version - 1).read_all()
    assert sum(old["_weight"].to_pylist()) == (0 if apart else 1)
    begin = version - 1 if apart else version
    assert f"from version {begin} on" in caught.value.message
    assert lake.changes("t", begin).read_all()["note"].to_pylist() == ["x"]


def test_a_range_is_named_by_tags_commit_ids_and_times_too(lake: Lake) -> None:
    first = add(lake, 1)
    lake.tag("rel-1", version=first.version)
    second = add(lake, 2)
    add(lake, 3)
    assert changed(lake, "rel-1", second.id) == Counter({(2, 2): 1})
    assert changed(lake, first.id, None) == Counter({(2, 2): 1, (3, 3): 1})
    assert changed(lake, "rel-1", second.time) == Counter({(2, 2): 1})
    with pytest.raises(errors.CommitNotFound, match="rel-2"):
        lake.changes("t", "rel-2")


def test_a_place_on_another_branch_does_not_name_a_range(lake: Lake) -> None:
    lake.create_branch("dev")
    own = add(lake, 1, branch="dev")
    add(lake, 2)
    with pytest.raises(errors.InvalidOption, match="not in the history of branch 'main'"):
        lake.changes("t", own.id)


def test_the_log_of_a_name_shows_every_table_that_had_it(lake: Lake) -> None:
    history(lake)
    lake.drop_table("t")
    versions = [commit.version for commit in lake.log(table="t", limit=None)]
    shown = {
        commit.version
        for commit in lake.log(limit=None)
        if commit.kind != "maintenance"
        and any(change.table.lower() == "t" for change in commit.tables)
    }
    assert versions == sorted(shown, reverse=True)
    assert [commit.version for commit in lake.log(table="t", limit=2)] == versions[:2]
    with pytest.raises(errors.TableNotFound, match="'nobody'"):
        lake.log(table="nobody")


@pytest.mark.parametrize("bad", [True, -1, 99])
def test_a_number_that_is_no_version_is_refused(lake: Lake, bad: int) -> None:
    for since, until in ((bad, None), (0, bad)):
        with pytest.raises(errors.InvalidOption, match="not a version of branch 'main'"):
            lake.changes("t", since, until)


def test_rows_that_go_and_come_within_a_commit_cancel_out_one_by_one() -> None:
    nan = float("nan")
    given: list[tuple[float | None, list[int] | None, int]] = [
        (1.0, [1], -1),
        (nan, None, -1),
        (None, [], -1),
        (1.0, [1], 1),
        (1.0, [1], 1),
        (nan, None, 1),
        (2.0, [2], 1),
    ]
    batch = pa.RecordBatch.from_pydict(
        {
            "f": pa.array([one for one, _, _ in given], pa.float64()),
            "l": pa.array([one for _, one, _ in given], pa.list_(pa.int64())),
            "_weight": pa.array([one for _, _, one in given], pa.int32()),
            "_version": pa.array([7] * len(given), pa.int64()),
        }
    )
    for batches in ([batch], [batch.slice(0, 3), batch.slice(3)]):
        left = pa.Table.from_batches(without_pairs(batches)).to_pylist()
        assert [(row["f"], row["l"], row["_weight"]) for row in left] == [
            (None, [], -1),
            (1.0, [1], 1),
            (2.0, [2], 1),
        ]
    assert without_pairs([]) == []


@pytest.mark.parametrize("late", [False, True])
def test_changes_lead_from_one_state_of_a_name_to_another_whoever_took_it_over(
    lake: Lake, late: bool
) -> None:
    """Tables that are renamed onto a name that was dropped, crosswise, and back."""
    lake.create_table("other", NUMBERS_DDL)
    add(lake, 1, 2)
    add(lake, 3, table="other")
    if late:
        lake.execute("DROP TABLE t; ALTER TABLE other RENAME TO t")
        lake.create_table("other", NUMBERS_DDL)
        add(lake, 4)
    lake.execute(
        "ALTER TABLE t RENAME TO u; ALTER TABLE other RENAME TO t; ALTER TABLE u RENAME TO other"
    )
    add(lake, 5)
    lake.execute("DROP TABLE other; ALTER TABLE t RENAME TO other")
    add(lake, 6, table="other")
    newest = lake.snapshot().version
    known = {
        (name, version): Counter(ids(lake, name, version))
        for version in range(newest + 1)
        for name in ("t", "other")
        if any(one.name == name for one in lake.snapshot(version=version).tables())
    }
    for name, since in known:
        for until in range(since + 1, newest + 1):
            told = Counter(known[name, since])
            for row in lake.changes(name, since, until).read_all().to_pylist():
                told[row["id"]] += row["_weight"]
            assert +told == known.get((name, until), Counter())
            assert not -told


def ids(lake: Lake, name: str, version: int) -> list[int]:
    return lake.snapshot(version=version).table(name).to_arrow()["id"].to_pylist()
