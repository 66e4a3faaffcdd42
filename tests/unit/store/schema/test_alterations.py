"""Tables whose columns change while rows, snapshots and followers live on."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pytest

import tidelock
from tidelock import Lake, errors
from tidelock.model.ddl.statements import read_statements

Row = dict[str, Any]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        yield lake


def rows_of(lake: Lake, table: str = "t", **selector: Any) -> list[Row]:
    rows: list[Row] = lake.snapshot(**selector).table(table).to_arrow().to_pylist()
    return sorted(rows, key=repr)


def append(lake: Lake, *rows: Row, table: str = "t") -> None:
    with lake.transaction() as tx:
        tx.append(table, list(rows))


def alter(lake: Lake, *actions: str, table: str = "t") -> tidelock.Commit:
    with lake.transaction() as tx:
        tx.alter_table(table, *actions)
    assert tx.commit is not None
    return tx.commit


def execute(lake: Lake, text: str) -> None:
    with lake.transaction() as tx:
        for statement in read_statements(text):
            tx.declare(statement)


def index(lake: Lake) -> None:
    lake._store.maintainer.index(lake._store.branches.head("main").branch, "t", rows_min=1)


def test_columns_of_one_type_keep_their_values_when_they_change_names(lake: Lake) -> None:
    lake.create_table("t", "a INT, b INT, c INT")
    append(lake, {"a": 1, "b": 2, "c": 3})
    alter(lake, "RENAME COLUMN a TO x, RENAME COLUMN b TO a, RENAME COLUMN x TO b")
    assert rows_of(lake) == [{"b": 1, "a": 2, "c": 3}]
    alter(lake, "DROP COLUMN a", "ADD COLUMN a INT", "ALTER COLUMN a FIRST")
    append(lake, {"a": 7, "b": 8, "c": 9})
    assert rows_of(lake) == [{"a": 7, "b": 8, "c": 9}, {"a": None, "b": 1, "c": 3}]
    assert rows_of(lake, version=2) == [{"a": 1, "b": 2, "c": 3}]


NAMES = ["a b", "ü", "日本", "a-b", "a'b", "a:b", "select", '"q"', "a$b", "%x", "a,b", "a(b)", "😀"]


def test_columns_of_any_name_are_renamed_widened_dropped_and_added(lake: Lake) -> None:
    lake.create_table("t", "id INT PRIMARY KEY, " + ", ".join(f"`{n}` INT" for n in NAMES))
    append(lake, {"id": 1, **{name: n for n, name in enumerate(NAMES)}})
    alter(lake, *(f"RENAME COLUMN `{name}` TO `{name} y`" for name in NAMES))
    alter(lake, *(f"ALTER COLUMN `{name} y` TYPE BIGINT" for name in NAMES))
    assert rows_of(lake) == [{"id": 1, **{f"{name} y": n for n, name in enumerate(NAMES)}}]
    alter(lake, *(f"DROP COLUMN `{name} y`" for name in NAMES))
    assert rows_of(lake) == [{"id": 1}]
    alter(lake, *(f"ADD COLUMN `{name}` INT DEFAULT 3" for name in NAMES))
    assert rows_of(lake) == [{"id": 1, **dict.fromkeys(NAMES, 3)}]
    assert lake.verify().ok


def test_the_id_of_a_column_is_given_once_also_when_no_file_has_it_any_more(lake: Lake) -> None:
    lake.create_table("t", "a INT, b INT, s STRUCT<x: INT, y: ARRAY<STRUCT<z: INT>>>")
    for number in range(5):
        append(lake, {"a": number, "b": number, "s": {"x": 1, "y": [{"z": 5}]}})
    given = {column.id for column in lake.table("t").schema.columns}
    alter(lake, "DROP COLUMN b", "DROP COLUMN s")
    lake.optimize()
    alter(lake, "ADD COLUMN b INT")
    assert lake.table("t").schema.column("b").id > max(given)
    changes = lake.changes("t", 0).read_all()
    assert changes.column("b").null_count == len(changes)


def test_widened_columns_live_with_deletions_compaction_mirrors_and_collection(lake: Lake) -> None:
    lake.create_table(
        "t",
        "id BIGINT PRIMARY KEY, a INT, d DATE, f FLOAT, s STRUCT<x: INT, y: ARRAY<INT>>, "
        "m MAP<INT, INT>",
    )
    day = datetime.date(2020, 1, 1)
    for start in range(0, 60, 10):
        append(
            lake,
            *(
                {
                    "id": n,
                    "a": n,
                    "d": day,
                    "f": 0.5,
                    "s": {"x": n, "y": [n]} if n % 3 else None,
                    "m": {n: n},
                }
                for n in range(start, start + 10)
            ),
        )
    with lake.transaction() as tx:
        tx.delete("t", "id IN (0, 7, 14, 33, 59)")
    before = rows_of(lake)
    alter(
        lake,
        "ALTER COLUMN a TYPE DECIMAL(12,2), ALTER COLUMN d TYPE TIMESTAMP_NTZ",
        "ALTER COLUMN f TYPE DOUBLE",
        "ALTER COLUMN s TYPE STRUCT<x: BIGINT, y: ARRAY<BIGINT>>",
        "ALTER COLUMN m TYPE MAP<INT, BIGINT>",
    )
    midnight = datetime.datetime(2020, 1, 1)
    assert [{**row, "d": day} for row in rows_of(lake)] == before
    assert {row["d"] for row in rows_of(lake)} == {midnight}
    assert lake.verify().ok
    with lake.transaction() as tx:
        tx.delete("t", "id >= 20 AND id < 25")
        tx.update("t", {"a": "a + 1"}, "id > 40")
        tx.upsert("t", [{"id": 3, "a": 2**31}])
    kept = rows_of(lake)
    lake.mirror("t")
    lake.optimize()
    lake.mirror("t")
    assert lance.dataset(lake.table("t").path).count_rows() == len(kept)
    assert not lake.collect_garbage(older_than=0).errors
    alter(lake, "ALTER COLUMN a TYPE DECIMAL(20,4)")
    assert not lake.collect_garbage(older_than=0).errors
    assert lake.verify().ok
    assert rows_of(lake) == kept


def test_keys_are_found_after_they_were_renamed_widened_and_chosen_anew(lake: Lake) -> None:
    lake.create_table("t", "id INT PRIMARY KEY, b BIGINT NOT NULL")
    append(lake, *({"id": n, "b": n * 2} for n in range(50)))
    index(lake)
    alter(lake, "RENAME COLUMN id TO k", "ALTER COLUMN k TYPE BIGINT")
    with lake.transaction() as tx:
        tx.upsert("t", [{"k": 5, "b": 7}, {"k": 2**40, "b": 1}])
    table = lake.table("t")
    assert table.key == ("k",)
    assert table.to_arrow(filter="k = 5").to_pylist() == [{"k": 5, "b": 7}]
    assert table.count() == 51
    with pytest.raises(errors.DuplicateKey):
        append(lake, {"k": 7, "b": 0})
    alter(lake, "DROP PRIMARY KEY", "ADD PRIMARY KEY (k, b)")
    with lake.transaction() as tx:
        tx.upsert("t", [{"k": 5, "b": 7}, {"k": 5, "b": 8}])
    lake.optimize()
    assert lake.table("t").count() == 52


def test_alterations_and_rows_of_one_transaction_are_seen_in_their_order(lake: Lake) -> None:
    lake.create_table("t", "id INT PRIMARY KEY, a INT")
    with lake.transaction() as tx:
        tx.append("t", [{"id": 1, "a": 1}])
        tx.alter_table("t", "ADD COLUMN b INT")
        tx.append("t", [{"id": 2, "b": 5}])
        tx.upsert("t", [{"id": 1, "b": 9}])
        tx.alter_table("t", "RENAME COLUMN b TO c")
        tx.update("t", {"c": "c + 1"})
        tx.alter_table("t", "DROP COLUMN a")
        assert tx.table("t").schema.names == ("id", "c")
    assert rows_of(lake) == [{"id": 1, "c": 10}, {"id": 2, "c": 6}]


def test_tables_change_their_names_with_each_other(lake: Lake) -> None:
    lake.create_table("a", "x INT")
    lake.create_table("b", "y INT")
    append(lake, {"x": 1}, table="a")
    append(lake, {"y": 2}, table="b")
    execute(
        lake,
        "ALTER TABLE a RENAME TO tmp; ALTER TABLE b RENAME TO a; ALTER TABLE tmp RENAME TO b;"
        "ALTER TABLE b ADD COLUMN z INT",
    )
    assert rows_of(lake, "b") == [{"x": 1, "z": None}]
    assert rows_of(lake, "a") == [{"y": 2}]
    assert rows_of(lake, "a", version=4) == [{"x": 1}]


def test_a_name_that_was_given_away_is_free_in_the_same_transaction(lake: Lake) -> None:
    lake.create_table("t", "a INT")
    append(lake, {"a": 1})
    with lake.transaction() as tx:
        tx.rename_table("t", "old")
        tx.create_table("t", "b STRING PRIMARY KEY")
        tx.append("t", [{"b": "x"}])
    assert rows_of(lake) == [{"b": "x"}]
    assert rows_of(lake, "old") == [{"a": 1}]
    with lake.transaction() as tx:
        tx.alter_table("t", "ADD COLUMN c INT")
        tx.drop_table("t")
        tx.create_table("t", "c INT")
        tx.rename_table("old", "gone")
        tx.drop_table("gone")
    assert [state.name for state in lake.tables()] == ["t"]
    assert rows_of(lake) == []


def test_branches_change_one_table_each_in_its_own_way(lake: Lake) -> None:
    lake.create_table("t", "a INT")
    append(lake, {"a": 1})
    lake.create_branch("dev")
    with lake.transaction(branch="dev") as tx:
        tx.alter_table("t", "ADD COLUMN b INT")
        tx.append("t", [{"b": 1}])
    with lake.transaction() as tx:
        tx.alter_table("t", "ADD COLUMN c STRING")
        tx.append("t", [{"c": "x"}])
    lake.optimize()
    lake.optimize(branch="dev")
    lake.collect_garbage(older_than=0)
    assert rows_of(lake) == [{"a": 1, "c": None}, {"a": None, "c": "x"}]
    assert rows_of(lake, branch="dev") == [{"a": 1, "b": None}, {"a": None, "b": 1}]


def test_conditions_follow_renames_and_name_fields_as_they_are(lake: Lake) -> None:
    lake.create_table(
        "t", "a INT, s STRUCT<a: INT>, CHECK (t.a > 0 AND s.a > 0), UNIQUE (a) WHERE (s.a IN (1,2))"
    )
    alter(lake, "RENAME COLUMN a TO `z z`")
    rules = lake.table("t").schema.rules
    assert [rule.condition for rule in rules] == ["`z z` > 0 AND s.a > 0", "s.a IN (1,2)"]
    with pytest.raises(errors.InvalidSchema, match="read by the rule"):
        alter(lake, "DROP COLUMN s")
    alter(lake, "DROP COLUMN s CASCADE")
    assert lake.table("t").schema.rules == ()


CONDITIONS = {
    "a > (SELECT 1)": "subquery",
    "sum(a) > 0": "aggregate",
    "a > rand()": r"rand\(\) depends on chance",
    "d < current_date": r"current_date\(\) depends on the time",
    "d < current_date()": "depends on the time",
    "a < unix_timestamp()": r"unix_timestamp\(\) depends on the time",
    "d <= DATE 'today'": "'today' AS DATE.* depends on the time|DATE 'today' depends on the time",
    "d < CAST(' Now UTC' AS DATE)": "depends on the time",
    "d < to_date('tomorrow')": "depends on the time",
    "my_check(a)": "not built into Spark",
    "a + 1": "not a condition",
    "b > 0": "no column 'b'",
    "a > 0 AND current_user() = 'x'": "session",
    "row_number() OVER (ORDER BY a) > 0": "window",
}


@pytest.mark.parametrize(("condition", "says"), CONDITIONS.items())
def test_a_check_is_a_condition_on_one_row_that_answers_alike_for_good(
    lake: Lake, condition: str, says: str
) -> None:
    with pytest.raises(errors.InputError, match=says):
        lake.create_table("t", f"a INT, d DATE, CHECK ({condition})")
    lake.create_table("t", "a INT, d DATE")
    with pytest.raises(errors.InputError, match=says):
        alter(lake, f"ADD CONSTRAINT c UNIQUE (a) WHERE ({condition})")


REFUSED = {
    "RENAME COLUMN a TO _rowid": "reserved",
    "RENAME COLUMN a TO b": "already",
    "RENAME COLUMN x TO b": "no column 'x'",
    "DROP COLUMN id": "in the key",
    "ALTER COLUMN a TYPE STRING": "not every value would be kept",
    "ALTER COLUMN a TYPE SMALLINT": "not every value would be kept",
    "ADD COLUMN A INT": "already",
    "ALTER COLUMN a AFTER a": "behind itself",
    "ALTER COLUMN id DROP NOT NULL": "stays NOT NULL",
    "DROP CONSTRAINT x": "no rule 'x'",
    "ADD CONSTRAINT c CHECK (a > 0), ADD CONSTRAINT C CHECK (a > 1)": "already",
    "ADD PRIMARY KEY (a)": "has a key already",
    "DROP PRIMARY KEY, DROP PRIMARY KEY": "no key to drop",
    "ADD COLUMN n INT NOT NULL": "Give it a DEFAULT",
    "ADD COLUMN n INT NOT NULL BACKFILL AS (b)": "NULL in 1 rows",
    "ADD COLUMN n INT DEFAULT 'x'": "does not fit INT",
    "ALTER COLUMN a SET DEFAULT b": "names a column",
    "ADD UNIQUE (a), ALTER COLUMN a TYPE DOUBLE": "cannot be compared exactly",
    "ADD CARDINALITY (a) AT MOST 3, ALTER COLUMN a TYPE DOUBLE": "cannot be compared exactly",
    'ADD UNIQUE (a), RENAME COLUMN a TO `a"b`': "cannot look up",
}


@pytest.mark.parametrize(("action", "says"), REFUSED.items())
def test_what_cannot_be_is_refused_and_changes_nothing(lake: Lake, action: str, says: str) -> None:
    lake.create_table("t", "id INT PRIMARY KEY, a INT, b INT")
    append(lake, {"id": 1})
    before = lake.table("t").schema
    with pytest.raises(errors.InputError, match=says):
        alter(lake, action)
    assert lake.snapshot().version == 2
    assert lake.table("t").schema == before


def test_what_need_not_be_there_is_passed_over(lake: Lake) -> None:
    execute(
        lake,
        "CREATE TABLE t (id INT PRIMARY KEY, a INT);"
        "CREATE TABLE IF NOT EXISTS T (x INT);"
        "ALTER TABLE t ADD COLUMN IF NOT EXISTS a STRING, DROP COLUMN IF EXISTS q,"
        " DROP CONSTRAINT IF EXISTS c, DROP CONSTRAINT t_pkey, DROP PRIMARY KEY IF EXISTS;"
        "ALTER TABLE IF EXISTS u DROP COLUMN a; DROP TABLE IF EXISTS u;"
        "COMMENT ON COLUMN t.a IS 'what it is'; COMMENT ON TABLE t IS 'rows'",
    )
    schema = lake.table("t").schema
    assert schema.names == ("id", "a")
    assert schema.key == ()
    assert (schema.comment, schema.column("a").comment) == ("rows", "what it is")


def test_a_value_for_the_rows_that_are_there_comes_with_a_column(lake: Lake) -> None:
    lake.create_table("t", "id INT PRIMARY KEY, a INT")
    append(lake, {"id": 1, "a": 1}, {"id": 2, "a": 2})
    commit = alter(
        lake,
        "ADD COLUMN n INT NOT NULL DEFAULT 3 AFTER id",
        "ADD COLUMN double INT NOT NULL BACKFILL AS (a + a)",
        "ADD COLUMN mark STRING DEFAULT uuid()",
    )
    rows = rows_of(lake)
    assert [(row["id"], row["n"], row["double"]) for row in rows] == [(1, 3, 2), (2, 3, 4)]
    assert len({row["mark"] for row in rows}) == 2
    assert commit.table("t").updated == 6
    # Who follows the table learns what its rows have now.
    changes = lake.changes("t", 2).read_all().to_pylist()
    assert sorted((c["id"], c["_weight"], c["n"]) for c in changes) == [
        (1, -1, None),
        (1, 1, 3),
        (2, -1, None),
        (2, 1, 3),
    ]


def test_metadata_alone_is_written_where_no_value_changes(lake: Lake, tmp_path: Path) -> None:
    lake.create_table("t", "id INT PRIMARY KEY, a INT NOT NULL, b INT")
    append(lake, {"id": 1, "a": 1, "b": 2})

    def data_files() -> set[Path]:
        return set((tmp_path / "lake" / "tables").rglob("*.lance"))

    before = data_files()
    alter(
        lake,
        "ADD COLUMN c STRING",
        "RENAME COLUMN b TO d",
        "DROP COLUMN d",
        "ALTER COLUMN a DROP NOT NULL",
        "ALTER COLUMN a COMMENT 'x'",
        "ALTER COLUMN c FIRST",
        "ALTER COLUMN a SET DEFAULT 7",
    )
    execute(lake, "ALTER TABLE t RENAME TO u")
    assert data_files() == before
    alter(lake, "ALTER COLUMN a TYPE BIGINT", table="u")
    assert len(data_files()) == len(before) + 1


def test_writers_of_rows_follow_what_loses_nothing_and_conflict_with_the_rest(lake: Lake) -> None:
    lake.create_table("t", "id INT PRIMARY KEY, a INT, b INT")
    append(lake, {"id": 0, "a": 0, "b": 0})
    harmless = [
        "ADD COLUMN c INT",
        "RENAME COLUMN a TO z",
        "ALTER COLUMN b FIRST",
        "ALTER COLUMN b SET DEFAULT 9",
        "ALTER COLUMN b COMMENT 'x'",
    ]
    for number, action in enumerate(harmless, start=1):
        tx = lake.transaction()
        name = tx.table("t").schema.names
        tx.append("t", [{"id": number, name[-1]: None, "b": number}])
        alter(lake, action)
        tx.publish()
    assert [row["b"] for row in sorted(rows_of(lake), key=lambda r: r["id"])] == [*range(6)]
    for action in ["DROP COLUMN b", "ALTER COLUMN z TYPE BIGINT", "ADD COLUMN d INT DEFAULT 4"]:
        tx = lake.transaction()
        tx.append("t", [{"id": 100, "z": 1}])
        alter(lake, action)
        with pytest.raises(errors.CommitConflict, match="altered"):
            tx.publish()
    tx = lake.transaction()
    tx.alter_table("t", "ADD COLUMN e INT")
    append(lake, {"id": 200})
    tx.publish()
    assert lake.table("t").count() == 7
    tx = lake.transaction()
    tx.alter_table("t", "ADD COLUMN f INT")
    alter(lake, "ADD COLUMN g INT")
    with pytest.raises(errors.CommitConflict, match="altered"):
        tx.publish()


def test_two_who_rename_a_table_do_not_both_succeed(lake: Lake) -> None:
    lake.create_table("t", "a INT")
    tx = lake.transaction()
    tx.rename_table("t", "u")
    execute(lake, "ALTER TABLE t RENAME TO v")
    with pytest.raises(errors.CommitConflict, match="renamed"):
        tx.publish()
    tx = lake.transaction()
    tx.append("v", [{"a": 1}])
    execute(lake, "ALTER TABLE v RENAME TO w")
    tx.publish()
    assert rows_of(lake, "w") == [{"a": 1}]


def test_a_damaged_declaration_is_named_and_its_table_can_be_dropped(tmp_path: Path) -> None:
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        lake.create_table("t", "a INT UNIQUE")
        lake.create_table("u", "a INT")
    (kept,) = (tmp_path / "lake" / "_tidelock" / "schemas").iterdir()
    kept.write_bytes(kept.read_bytes()[:-9])
    with tidelock.open(tmp_path / "lake") as lake:
        (finding,) = lake.verify().findings
        assert (finding.kind, finding.what) == ("declaration", "damaged")
        with pytest.raises(errors.CorruptObject):
            append(lake, {"a": 1})
        append(lake, {"a": 1}, table="u")
        lake.drop_table("t")
        lake.create_table("t", "a INT UNIQUE")
        append(lake, {"a": 1})
        assert lake.verify().ok


def test_a_lake_that_syncs_is_altered_too(tmp_path: Path) -> None:
    with tidelock.open(tmp_path / "lake", create=True, durability="fsync") as lake:
        lake.create_table("t", "a INT UNIQUE, b INT")
        append(lake, {"a": 1})
        alter(lake, "ALTER COLUMN a TYPE BIGINT", "ADD COLUMN c INT DEFAULT 4", "DROP COLUMN b")
        assert rows_of(lake) == [{"a": 1, "c": 4}]


@pytest.mark.parametrize("change", ["renamed", "made anew"])
def test_rows_that_wait_for_their_turn_are_written_with_the_columns_of_now(
    tmp_path: Path, change: str
) -> None:
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        lake.create_table("t", "id BIGINT NOT NULL, v BIGINT, w BIGINT", key="id")
        lake.run(lambda tx: tx.append("t", [{"id": 1, "v": 1, "w": 1}]))
        if change == "renamed":
            lake.alter_table("t", "RENAME COLUMN v TO new")
        else:
            lake.alter_table("t", "DROP COLUMN v")
            lake.alter_table("t", "ADD COLUMN new BIGINT")
            lake.alter_table("t", "RENAME COLUMN new TO v")
        column = lake.table("t").schema.names[1 if change == "renamed" else 2]
    rows = {"id": 2, column: 2, "w": 2}
    with tidelock.open(tmp_path / "lake") as lake:
        lake.table("t").to_arrow()
        # The pin that was opened last has other columns than the newest.
        lake.snapshot(version=2).table("t").to_arrow()
        with lake._store.publisher.claim("main", [lake.snapshot().states()["t"].id]):
            # Somebody else of this process is about to publish a commit to the table.
            lake.run(lambda tx: tx.append("t", [rows]))
        (found,) = lake.table("t").to_arrow(filter="id = 2").to_pylist()
        assert found == rows
