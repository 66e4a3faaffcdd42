"""Oracle: random statements do to a lake what they do to DuckDB, statement by statement.

Tables with and without a key; NULLs and equal rows; several statements in one transaction, each
seeing what those before it did. DuckDB has no key here: whether one would be broken is asked of it
after each statement, and then the lake must refuse the statement and go on as if it had not been.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from tests.property.models.random_statements import (
    NUMBERS,
    TEXTS,
    Said,
    Statements,
    for_duckdb,
    used,
)
from tests.support.lakes import Rows, fault_seconds, rows_of, seed_of

import tidelock
from tidelock import Lake, Transaction, errors

DDL = ", ".join([*(f"`{name}` INT" for name in NUMBERS), *(f"`{name}` STRING" for name in TEXTS)])
STEPS_MIN = 15
"""Enough for statements of every kind, whatever else the machine does."""
REFUSED = (errors.DuplicateKey, errors.RequiredColumnNull)


class Twin:
    """The same two tables in a lake and in DuckDB."""

    def __init__(self, lake: Lake, seed: int, *, keyed: bool) -> None:
        self.lake, self.keyed = lake, keyed
        self.statements = Statements(seed)
        self.duck = duckdb.connect()
        self.done = Counter[str]()
        for table in ("t", "other"):
            lake.create_table(table, DDL, key=["id"] if keyed else None)
            self.duck.execute(for_duckdb(f"CREATE TABLE {table} ({DDL})"))
        with lake.transaction() as tx:
            for table in ("t", "other"):
                rows = [self.statements.row() for _ in range(6)]
                if keyed:
                    rows = [{**row, "id": number} for number, row in enumerate(rows)]
                tx.append(table, rows)
                for row in rows:
                    self.duck.execute(
                        f"INSERT INTO {table} VALUES (?, ?, ?, ?, ?)", [*row.values()]
                    )

    def step(self) -> None:
        """One transaction of a few statements."""
        with self.lake.transaction() as tx:
            for _ in range(self.statements.chance.randint(1, 3)):
                self.execute(tx, self.statements.statement())
        self.compare(self.lake.snapshot(), "after the commit")

    def execute(self, tx: Transaction, said: Said) -> None:
        self.duck.execute("BEGIN")
        expected = self.expected(said)
        before = ids_of(tx, said.table)
        raised: Exception | None = None
        try:
            (report,) = tx.execute(said.sql, said.params)
        except (*REFUSED, errors.MultipleMatches) as error:
            raised = error
            self.duck.execute("ROLLBACK")
            self.done[type(error).__name__] += 1
        else:
            assert expected is None, f"{said.sql}\nwas to be refused: {expected}"
            self.duck.execute("COMMIT")
            self.done[said.kind] += 1
            after = ids_of(tx, said.table)
            kept = len(np.intersect1d(before, after))
            assert kept == len(before) - report.deleted, f"{said.sql}\n{report}: ids were lost"
            assert len(after) == kept + report.inserted, f"{said.sql}\n{report}"
        assert raised is None or isinstance(raised, expected or ()), f"{said.sql}\n{raised}"
        self.compare(tx, said.sql)

    def expected(self, said: Said) -> Any:
        """Do it in DuckDB: the errors that the lake is to raise, or None."""
        try:
            self.run(said)
        except duckdb.InvalidInputException as error:
            if "same target row more than once" not in str(error):
                raise
            self.duck.execute("ROLLBACK; BEGIN")
            if not said.allows_repeats:
                # What it would write may be refused before that is found out.
                return (errors.MultipleMatches, *(REFUSED if self.keyed else ()))
            self.delete_matched(said)
        if not self.keyed:
            return None
        broken = self.duck.execute(
            f"SELECT count(*) - count(DISTINCT id) FROM {said.table}"
        ).fetchone()
        return REFUSED if broken != (0,) else None

    def run(self, said: Said) -> None:
        if said.query:
            self.ask(said, f"CREATE TEMP TABLE coming AS {said.query}")
            self.ask(said, f"DELETE FROM {said.table}")
            self.ask(said, f"INSERT INTO {said.table} FROM coming")
            self.ask(said, "DROP TABLE coming")
        else:
            self.ask(said, said.sql)

    def ask(self, said: Said, sql: str) -> None:
        self.duck.execute(for_duckdb(sql), used(sql, said.params) or None)

    def delete_matched(self, said: Said) -> None:
        """A MERGE that only deletes may match a row several times, and DuckDB does not let it."""
        assert "WHEN NOT" not in said.sql, said.sql
        self.ask(
            said,
            f"DELETE FROM {said.table} AS x WHERE EXISTS "
            f"(SELECT 1 FROM {said.source} AS y WHERE {said.on})",
        )

    def compare(self, seen: Any, where: str) -> None:
        for table in ("t", "other"):
            expected: Rows = Counter(self.duck.execute(f"FROM {table}").fetchall())
            actual = rows_of(seen.table(table))
            missing, extra = expected - actual, actual - expected
            assert actual == expected, f"{table}: missing {missing}, extra {extra}\n{where}"


def ids_of(tx: Transaction, table: str) -> Any:
    rows = tx.table(table).dataset.to_table(columns=[], with_row_id=True)
    return rows.column("_rowid").to_numpy()


def run(lake: Lake, seed: int, *, keyed: bool, seconds: float, steps_min: int) -> Twin:
    twin = Twin(lake, seed, keyed=keyed)
    deadline = time.monotonic() + seconds
    steps = 0
    while steps < steps_min or time.monotonic() < deadline:
        twin.step()
        steps += 1
    return twin


@pytest.mark.parametrize("keyed", [True, False], ids=["with a key", "without a key"])
def test_random_statements_do_what_they_do_to_duckdb(tmp_path: Path, keyed: bool) -> None:
    with (
        seed_of() as seed,
        tidelock.open(str(tmp_path / "lake"), create=True, engine="sail") as lake,
    ):
        twin = run(lake, seed, keyed=keyed, seconds=fault_seconds(6), steps_min=STEPS_MIN)
    assert {"INSERT", "UPDATE", "MERGE"} <= set(twin.done)


@pytest.mark.parametrize("keyed", [True, False], ids=["with a key", "without a key"])
@pytest.mark.usefixtures("spark")
def test_random_statements_do_it_on_spark_too(tmp_path: Path, keyed: bool) -> None:
    with seed_of() as seed, tidelock.open(str(tmp_path / "lake"), create=True) as lake:
        run(lake, seed, keyed=keyed, seconds=fault_seconds(8), steps_min=3)
