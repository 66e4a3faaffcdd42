"""The columns of rules are indexed like keys, and what is found does not depend on it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.support.lakes import settle_chores
from tests.support.ruled import cardinality, check, reference, refused, unique

import tidelock
from tidelock import Lake
from tidelock.model.schema.alterations import DropColumn, DropRule, RenameColumn, SetKey
from tidelock.store.tables.indexes import index_segments
from tidelock.store.upkeep.fold_plan import INDEX_ROWS_MIN

ROWS = INDEX_ROWS_MIN + 1000


def covered(lake: Lake, table: str) -> dict[str, int]:
    """The columns with an index, and how many fragments it covers."""
    return {s.column: len(s.fragments) for s in index_segments(lake.table(table).dataset)}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = tidelock.open(tmp_path / "lake", create=True)
    with lake.transaction() as tx:
        tx.create_table("p", "id BIGINT, code STRING, kind BIGINT", key="id")
        tx.create_table("c", "id BIGINT, p BIGINT, code STRING, n BIGINT, plain BIGINT")
        tx.alter_table("p", unique("code"))
        tx.alter_table(
            "c", reference("p", "p"), reference("code", "p", "code"), cardinality("n", most=3)
        )
        tx.alter_table("c", check("plain > 0"), unique("id", where="plain > 5"))
    numbers = np.arange(ROWS)
    codes = pa.array([f"c{n}" for n in numbers])
    with lake.transaction() as tx:
        tx.append("p", pa.table({"id": numbers, "code": codes, "kind": numbers % 3}))
        tx.append(
            "c",
            pa.table(
                {"id": numbers, "p": numbers, "code": codes, "n": numbers, "plain": [9] * ROWS}
            ),
        )
    settle_chores(lake)
    return lake


def test_upkeep_indexes_the_columns_of_rules(lake: Lake) -> None:
    assert set(covered(lake, "p")) == {"id", "code"}
    assert set(covered(lake, "c")) == {"p", "code", "n", "id"}
    with refused(lake, match="code = 'c7' is in 2 rows") as tx:
        tx.append("p", [{"id": ROWS, "code": "c7"}])
    with refused(lake, match=f"p = {ROWS} is not in p") as tx:
        tx.append("c", [{"id": ROWS, "p": ROWS}])
    with refused(lake, match="p = 7 is not in p") as tx:
        tx.delete("p", "id = 7")
    with refused(lake, match="id = 3 is in 2 rows") as tx:
        tx.append("c", [{"id": 3, "plain": 6}])
    with lake.transaction() as tx:
        tx.append("c", [{"id": 3, "plain": 5}, {"id": ROWS, "p": 3, "code": "c5", "n": 1}])


def test_indexes_survive_renames_dropped_columns_and_other_keys(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.alter_table("c", RenameColumn("p", "parent"), DropRule("c_n_cardinality"))
    with lake.transaction() as tx:
        tx.alter_table("c", DropColumn("n"))
    with lake.transaction() as tx:
        tx.alter_table("c", SetKey(("code",)))
    numbers = np.arange(ROWS, 3 * ROWS)
    codes = pa.array([f"c{n}" for n in numbers])
    with lake.transaction() as tx:
        tx.append("p", pa.table({"id": numbers, "code": codes}))
        tx.append("c", pa.table({"id": numbers, "parent": numbers, "code": codes}))
    settle_chores(lake)
    lake.optimize("c")
    lake.optimize("p")
    assert set(covered(lake, "c")) >= {"parent", "code", "id"}
    with refused(lake, match="parent = 5 is not in p") as tx:
        tx.delete("p", "id = 5")
    assert lake.verify().ok
