"""Compositions as stream tables of one lake, checked after every step of its life.

A batch of cases shares four small tables, full of NULLs and duplicates, and a lake. The tables are
filled before the stream tables are made; then they change. After every step each stream table is
compared, as a multiset, with what the engine itself says of its query over the same rows.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from tests.property.models.compositions import Case, Names, Relation

from tidelock.errors import TidelockError
from tidelock.model.names import quote
from tidelock.run.lake import Lake
from tidelock.store.spark.scan import spark_schema
from tidelock.store.transaction import Transaction

KEYS, NUMBERS, TEXTS = (0, 1, 2, 3), (-1, 0, 1, 2), ("a", "b", "", "a,b")
# Of the two numbers of each table. Sail 0.7.2 takes a UNION ALL for what its first part is.
PLAIN = (("BIGINT", "BIGINT"),) * 4
MIXED = (("BIGINT", "INT"), ("INT", "DECIMAL(9,0)"), ("BIGINT", "BIGINT"), ("BIGINT", "SMALLINT"))
ROW_COUNT = 6
ASKED_TOGETHER = 12


@dataclass(frozen=True)
class Found:
    """What became of a case: `delta`, `full`, `refused`, or what was wrong."""

    case: Case
    kind: str
    detail: str = ""
    step: str = ""
    query: str = ""
    rows: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    got: Counter[str] = field(default_factory=Counter)
    expected: Counter[str] = field(default_factory=Counter)
    empty: bool = False

    @property
    def is_wrong(self) -> bool:
        return self.kind not in ("delta", "full", "refused")

    def __str__(self) -> str:
        told = [f"{self.kind}: {self.case}", f"  query    {self.query}"]
        told += [f"  step     {self.step}"] if self.step else []
        told += [f"  {self.detail}"] if self.detail else []
        if self.got != self.expected:
            told.append(f"  too many {dict(self.got - self.expected)}")
            told.append(f"  missing  {dict(self.expected - self.got)}")
        told += [f"  {name} = {rows}" for name, rows in self.rows.items()]
        return "\n".join(told)


# Tables and their changes ---------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    name: str
    columns: tuple[str, ...]
    types: tuple[str, str]
    keyed: bool

    @property
    def relation(self) -> Relation:
        return Relation(quote(self.name), tuple(map(quote, self.columns)), None, is_table=True)

    @property
    def ddl(self) -> str:
        k, v, s = map(quote, self.columns)
        needed = " NOT NULL" if self.keyed else ""
        return f"{k} {self.types[0]}{needed}, {v} {self.types[1]}, {s} STRING"

    def rows(self, chance: random.Random, count: int, nulls: float) -> list[dict[str, Any]]:
        def maybe(values: Sequence[Any]) -> Any:
            return None if chance.random() < nulls else chance.choice(values)

        kinds = (KEYS, NUMBERS, TEXTS)
        found = [[maybe(values) for values in kinds] for _ in range(count)]
        if self.keyed:
            keys = chance.sample((*KEYS, 4, 5), min(count, 6))
            found = [[key, *row[1:]] for key, row in zip(keys, found, strict=False)]
        else:
            found += [list(row) for row in found[: count // 3]]
        return [dict(zip(self.columns, row, strict=True)) for row in found]


def make_tables(names: Names, types: Sequence[tuple[str, str]]) -> tuple[Table, ...]:
    """Three without a key, and one with."""
    called = names.some(4) if names.hostile else ["t1", "t2", "t3", "t4"]
    found = []
    for name, kinds in zip(called, types, strict=True):
        columns = names.some(3, stored=True) if names.hostile else ["k", "v", "s"]
        found.append(Table(name, tuple(columns), kinds, keyed=len(found) == 3))
    return tuple(found)


Step = Callable[[Transaction, Sequence[Table], random.Random], None]


def fill(tx: Transaction, tables: Sequence[Table], chance: random.Random) -> None:
    """Rows in every table; a table has NULLs, or has none, so that NOT IN finds something."""
    for table in tables:
        nulls = chance.choice((0.0, 0.0, 0.25))
        tx.append(table.name, table.rows(chance, ROW_COUNT, nulls))


def grow(tx: Transaction, tables: Sequence[Table], chance: random.Random) -> None:
    """More rows in one table: duplicates of what is there, and NULLs."""
    table = chance.choice(tables)
    rows = table.rows(chance, 3, 0.25)
    there = tx.table(table.name).to_arrow().to_pylist()
    if table.keyed:
        tx.upsert(table.name, rows)
    else:
        tx.append(table.name, rows + chance.sample(there, min(2, len(there))))


def shrink(tx: Transaction, tables: Sequence[Table], chance: random.Random) -> None:
    """Some rows leave one table: those with NULL, or those with one value."""
    table = chance.choice(tables)
    column = quote(table.columns[chance.choice((0, 1))])
    where = chance.choice((f"{column} IS NULL", f"{column} = {chance.choice((0, 1, 2))}"))
    tx.delete(table.name, where=where)


def alter(tx: Transaction, tables: Sequence[Table], chance: random.Random) -> None:
    """Rows of one table become others, in place."""
    table = chance.choice(tables)
    k, v, s = map(quote, table.columns)
    change = chance.choice(({v: f"{v} + 1"}, {s: "'a'"}, {v: "NULL"}))
    plain = {table.columns[1 if name == v else 2]: text for name, text in change.items()}
    tx.update(table.name, plain, where=f"{k} = {chance.choice(KEYS)}")
    if not table.keyed:
        tx.update(table.name, {table.columns[0]: f"{k} - 1"}, where=f"{v} = 1")


def mix(tx: Transaction, tables: Sequence[Table], chance: random.Random) -> None:
    """Everything at once, over all tables."""
    for table in tables:
        for step in chance.sample((grow, shrink, alter), chance.choice((1, 2, 3))):
            step(tx, [table], chance)


def empty_one(tx: Transaction, tables: Sequence[Table], chance: random.Random) -> None:
    tx.delete(chance.choice(tables).name, where="true")


def empty_all(tx: Transaction, tables: Sequence[Table], chance: random.Random) -> None:
    for table in tables:
        tx.delete(table.name, where="true")


def anew(tx: Transaction, tables: Sequence[Table], chance: random.Random) -> None:
    """Nothing changes: everything is computed again."""


STEPS: dict[str, tuple[Step, ...]] = {
    "short": (fill, mix, empty_all, fill),
    "long": (fill, grow, mix, shrink, mix, alter, empty_one, mix, empty_all, fill, anew),
}


# Asking and comparing -------------------------------------------------------------------------


def shown(value: Any) -> Any:
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple):
        return tuple(shown(one) for one in value)
    return [shown(one) for one in value] if isinstance(value, list) else value


def multiset(rows: pa.Table) -> Counter[str]:
    """The rows as texts; columns by their places, as the names are compared elsewhere."""
    columns = [column.to_pylist() for column in rows.columns]
    found = zip(*columns, strict=True)
    return Counter(repr(shown(row)) for row in found)


class Asked:
    """The engine itself, over the rows of the tables and nothing of ours."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.is_sail = type(session).__module__.startswith("pyspark.sql.connect")

    def show(self, name: str, rows: pa.Table) -> None:
        frame = self._session.createDataFrame(rows, schema=spark_schema(rows.schema)).coalesce(1)
        # Sail takes the name as it is, Spark reads it as SQL.
        frame.createOrReplaceTempView(name if self.is_sail else quote(name))

    def answers(self, queries: Sequence[Relation]) -> Iterator[Counter[str] | Exception]:
        for start in range(0, len(queries), ASKED_TOGETHER):
            some = queries[start : start + ASKED_TOGETHER]
            try:
                yield from self._ask(some)
            except Exception:  # noqa: BLE001
                # One of them is to blame.
                for query in some:
                    try:
                        # PySpark's Arrow has no NULL for a struct whose fields have none.
                        found = self._session.sql(query.sql).collect()
                        yield Counter(repr(shown(tuple(row))) for row in found)
                    except Exception as error:  # noqa: BLE001
                        yield error

    def _ask(self, queries: Sequence[Relation]) -> list[Counter[str]]:
        parts = []
        for number, query in enumerate(queries):
            names = [f"c{place}" for place in range(len(query.columns))]
            row = f"SELECT collect_list(struct({', '.join(names)})) AS a{number}"
            parts.append(f"({row} FROM ({query.sql}) AS q({', '.join(names)}))")
        answer = self._session.sql(f"SELECT * FROM {' CROSS JOIN '.join(parts)}").toArrow()
        return [
            multiset(pa.Table.from_struct_array(column.chunk(0).values))
            for column in answer.columns
        ]


# Living ---------------------------------------------------------------------------------------


@dataclass
class Life:
    """A batch of cases in one lake."""

    lake: Lake
    session: Any
    """One that nothing of ours uses."""
    cases: Sequence[Case]
    seed: str
    hostile: bool
    found: dict[Case, Found] = field(default_factory=dict)

    def live(self, steps: Sequence[Step]) -> list[Found]:
        """What became of each case; the first thing that is wrong with one, if anything is."""
        chance = random.Random(self.seed)
        self.asked = Asked(self.session)
        self.tables = make_tables(
            Names(chance, self.hostile), PLAIN if self.asked.is_sail else MIXED
        )
        self.rows: dict[str, pa.Table] = {}
        first, *later = steps
        with self.lake.transaction("create") as tx:
            for table in self.tables:
                tx.create_table(
                    table.name, table.ddl, key=table.columns[0] if table.keyed else None
                )
            first(tx, self.tables, chance)
        self.queries = self._create()
        self._check("first")
        for number, step in enumerate(later, 1):
            if step is not anew:
                with self.lake.transaction(step.__name__) as tx:
                    step(tx, self.tables, chance)
            self._check(f"{number} {step.__name__}", full=step is anew)
        return [self.found[case] for case in self.cases]

    def _create(self) -> dict[Case, tuple[str, Relation]]:
        relations = [table.relation for table in self.tables]
        made = {}
        for number, case in enumerate(self.cases):
            query, name = case.query(relations), f"case {number}"
            try:
                self.lake.create_stream_table(name, query.sql, refresh_mode="incremental")
            except TidelockError as error:
                self.found[case] = Found(case, "refused", str(error), query=query.sql)
            except Exception as error:  # noqa: BLE001
                self.found[case] = Found(case, "raised", repr(error), query=query.sql)
            else:
                made[case] = (name, query)
        return made

    def _check(self, step: str, full: bool = False) -> None:
        names = [name for name, _ in self.queries.values()]
        attempts = {
            one.table: one
            for one in (self.lake.refresh(names, full=True) if full else self.lake.refresh())
        }
        snapshot = self.lake.snapshot()
        before, self.rows = self.rows, {}
        for table in self.tables:
            self.rows[table.name] = snapshot.table(table.name).to_arrow()
            if self.rows[table.name] != before.get(table.name):
                self.asked.show(table.name, self.rows[table.name])
        answers = self.asked.answers([query for _, query in self.queries.values()])
        for (case, (name, query)), expected in zip(
            list(self.queries.items()), list(answers), strict=True
        ):
            table = snapshot.table(name).to_arrow()
            found = self._judge(case, query, attempts.get(name), table, expected, step, full)
            self.found[case] = found
            if found.is_wrong:
                del self.queries[case]

    def _judge(
        self,
        case: Case,
        query: Relation,
        attempt: Any,
        table: pa.Table,
        expected: Counter[str] | Exception,
        step: str,
        full: bool,
    ) -> Found:
        known = self.found.get(case)
        kind = known.kind if known is not None else "full"

        def wrong(kind: str, detail: str = "") -> Found:
            rows = {
                name: list(zip(*(c.to_pylist() for c in r.columns), strict=True))
                for name, r in self.rows.items()
                if quote(name) in query.sql
            }
            answer = expected if isinstance(expected, Counter) else Counter()
            return Found(case, kind, detail, step, query.sql, rows, multiset(table), answer)

        if isinstance(expected, Exception):
            return wrong("not asked", str(expected).splitlines()[0][:300])
        if attempt is not None and attempt.action not in ("full", "incremental", "none"):
            return wrong("failed", f"{attempt.action}: {attempt.reason}")
        if [quote(name) for name in table.column_names] != list(query.columns):
            return wrong("wrong names", f"{table.column_names}")
        if multiset(table) != expected:
            how = attempt.action if attempt is not None else "not refreshed"
            return wrong("wrong", f"{how}: {attempt.reason if attempt else ''}")
        if attempt is not None and attempt.action == "incremental":
            kind = "delta"
        elif attempt is not None and attempt.action == "full" and step != "first" and not full:
            if kind == "delta" or "were not those" in attempt.reason:
                return wrong("fell back", attempt.reason)
            return Found(case, "full", attempt.reason, query=query.sql)
        empty = (known is None or known.empty) and not expected
        return Found(case, kind, known.detail if known else "", query=query.sql, empty=empty)
