"""Random schemas, random rows and random queries over them, in which every column has a type.

Where `random_queries` nests operators over fixed tables of numbers, this draws the tables too:
other types, NULLs, duplicates, with and without a key. Values are few, so that rows meet.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

TYPES: dict[str, tuple[str, list[Any], list[str]]] = {
    "int": ("INT", [-1, 0, 1, 2], ["0", "1", "2"]),
    "long": ("BIGINT", [0, 1, 2, 1 << 40], ["0", "1", "5"]),
    "decimal": (
        "DECIMAL(12,2)",
        [Decimal("-0.50"), Decimal("0.00"), Decimal("1.25")],
        ["0.00", "1.25"],
    ),
    "string": ("STRING", ["", "a", "b", "é"], ["'a'", "''"]),
    "date": (
        "DATE",
        [date(2024, 2, 28), date(2024, 2, 29), date(2024, 3, 1)],
        ["DATE'2024-02-29'"],
    ),
    "moment": (
        "TIMESTAMP",
        [datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC)],
        ["TIMESTAMP'2024-01-01 00:00:00Z'"],
    ),
    "bool": ("BOOLEAN", [True, False], ["true", "false"]),
    "float": ("DOUBLE", [0.5, -1.5, 0.1, 3.0], ["0.5D", "0.0D"]),
    "tags": ("ARRAY<STRING>", [[], ["a"], ["a", "b"], ["b", None], ["b", "b"]], []),
}
SUMMED = ("int", "long", "decimal")
JOINS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN")


@dataclass(frozen=True)
class Column:
    name: str
    kind: str


@dataclass(frozen=True)
class Relation:
    """A base table, or a query, and its columns."""

    sql: str
    columns: tuple[Column, ...]
    key: str | None = None
    only_spark: bool = False
    """Whether Sail answers it otherwise than Spark, so that it is no oracle there."""

    @property
    def ddl(self) -> str:
        parts = [
            f"{one.name} {TYPES[one.kind][0]}{' NOT NULL' if one.name == self.key else ''}"
            for one in self.columns
        ]
        return ", ".join(parts)


def random_tables(chance: random.Random) -> dict[str, Relation]:
    tables = {}
    for number in range(3):
        kinds = chance.sample(list(TYPES), 4) + (["tags"] if number == 0 else [])
        columns = [Column("g", "int"), *(Column(f"c{i}", k) for i, k in enumerate(kinds))]
        key = "id" if chance.random() < 0.6 else None
        if key:
            columns.insert(0, Column("id", "int"))
        tables[f"r{number}"] = Relation(f"r{number}", tuple(columns), key)
    return tables


def random_row(chance: random.Random, table: Relation, key: int) -> dict[str, Any]:
    return {
        one.name: key
        if one.name == table.key
        else None
        if chance.random() < 0.2
        else chance.choice(TYPES[one.kind][1])
        for one in table.columns
    }


class TypedQueries:
    def __init__(self, chance: random.Random, tables: dict[str, Relation]) -> None:
        self.chance = chance
        self.tables = tables
        self.forms = {
            "select": self.select,
            "joined": self.joined,
            "set operation": self.set_operation,
            "distinct": self.distinct,
            "grouped": self.grouped,
            "grouping sets": self.grouping_sets,
            "windowed": self.windowed,
            "top": self.top,
            "top by partition": self.top_by_partition,
            "with a subquery": self.with_a_subquery,
            "scalar": self.scalar,
            "exploded": self.exploded,
        }
        self._names = 0

    def query(self, depth: int) -> Relation:
        return self.chance.choice(list(self.forms.values()))(depth)

    # Parts ----------------------------------------------------------------------------------

    def name(self) -> str:
        self._names += 1
        return f"q{self._names}"

    def source(self, depth: int) -> Relation:
        """A FROM item; its columns are named with its alias."""
        alias = self.name()
        if depth <= 0 or self.chance.random() < 0.5:
            found = self.chance.choice(list(self.tables.values()))
            text = f"{found.sql} {alias}"
        else:
            found = self.query(depth - 1)
            text = f"({found.sql}) {alias}"
        columns = tuple(Column(f"{alias}.{one.name}", one.kind) for one in found.columns)
        return Relation(text, columns, only_spark=found.only_spark)

    def listed(self, chosen: list[tuple[str, str]]) -> tuple[str, tuple[Column, ...]]:
        """A SELECT list of expressions and their kinds."""
        columns = tuple(Column(self.name(), kind) for _, kind in chosen)
        shown = [f"{text} AS {one.name}" for (text, _), one in zip(chosen, columns, strict=True)]
        return ", ".join(shown), columns

    def some(self, columns: tuple[Column, ...], count: int) -> list[Column]:
        return self.chance.sample(columns, min(count, len(columns)))

    def values(self, columns: tuple[Column, ...]) -> list[tuple[str, str]]:
        return [
            (self.value(one), one.kind) for one in self.some(columns, self.chance.choice((2, 3)))
        ]

    def value(self, one: Column) -> str:
        if one.kind == "tags" or self.chance.random() < 0.6:
            return one.name
        literal = self.literal(one.kind)
        forms = [f"coalesce({one.name}, {literal})", f"nullif({one.name}, {literal})"]
        if one.kind == "string":
            forms.append(f"upper({one.name})")
        return self.chance.choice(forms)

    def literal(self, kind: str) -> str:
        return self.chance.choice(TYPES[kind][2])

    def condition(self, columns: tuple[Column, ...]) -> str:
        one = self.chance.choice(columns)
        if one.kind == "tags":
            return f"coalesce(size({one.name}), 0) <> 1"
        sign = self.chance.choice(("=", "<>", "<", ">="))
        forms = [
            f"{one.name} {sign} {self.literal(one.kind)}",
            f"{one.name} IS {self.chance.choice(('NULL', 'NOT NULL'))}",
            f"({one.name} IS NULL OR {one.name} <> {self.literal(one.kind)})",
            f"NOT ({one.name} = {self.literal(one.kind)})",
        ]
        alike = [two for two in columns if two.kind == one.kind and two is not one]
        if alike:
            forms.append(f"{one.name} {sign} {self.chance.choice(alike).name}")
        return self.chance.choice(forms)

    def pairs(
        self, left: tuple[Column, ...], right: tuple[Column, ...]
    ) -> list[tuple[Column, Column]]:
        return [(a, b) for a in left for b in right if a.kind == b.kind and a.kind != "tags"]

    def alike(self, depth: int) -> tuple[Relation, Relation, list[tuple[Column, Column]]]:
        """Two FROM items that have columns to be compared."""
        left, right = self.source(depth), self.source(depth - 1)
        while not (pairs := self.pairs(left.columns, right.columns)):
            left, right = self.source(0), self.source(0)
        return left, right, pairs

    # Queries --------------------------------------------------------------------------------

    def select(self, depth: int) -> Relation:
        source = self.source(depth)
        shown, columns = self.listed(self.values(source.columns))
        where = f" WHERE {self.condition(source.columns)}" if self.chance.random() < 0.7 else ""
        return Relation(
            f"SELECT {shown} FROM {source.sql}{where}", columns, None, source.only_spark
        )

    def joined(self, depth: int) -> Relation:
        left, right, pairs = self.alike(depth)
        kind = self.chance.choice(JOINS)
        one, other = self.chance.choice(pairs)
        on = [f"{one.name} {self.chance.choice(('=', '=', '=', '<=>'))} {other.name}"]
        if self.chance.random() < 0.4:
            side = left if self.chance.random() < 0.5 else right
            on.append(self.condition(side.columns))
        if self.chance.random() < 0.25:
            one, other = self.chance.choice(pairs)
            on.append(f"{one.name} <= {other.name}")
        there = left.columns if "SEMI" in kind or "ANTI" in kind else left.columns + right.columns
        shown, columns = self.listed(self.values(there))
        text = f"SELECT {shown} FROM {left.sql} {kind} {right.sql} ON {' AND '.join(on)}"
        return Relation(text, columns, None, left.only_spark or right.only_spark)

    def set_operation(self, depth: int) -> Relation:
        left, right, pairs = self.alike(depth)
        chosen = self.chance.sample(pairs, min(2, len(pairs)))
        shown, columns = self.listed([(one.name, one.kind) for one, _ in chosen])
        kind = self.chance.choice(("UNION", "INTERSECT", "EXCEPT"))
        every = self.chance.choice(("", " ALL"))
        other = ", ".join(two.name for _, two in chosen)
        text = f"SELECT {shown} FROM {left.sql} {kind}{every} SELECT {other} FROM {right.sql}"
        only = (bool(every) and kind != "UNION") or left.only_spark or right.only_spark
        return Relation(text, columns, None, only)

    def distinct(self, depth: int) -> Relation:
        inner = self.select(depth)
        plain = tuple(one for one in inner.columns if one.kind != "tags")
        if len(plain) < len(inner.columns):
            return self.grouped(depth)
        text = inner.sql.replace("SELECT", "SELECT DISTINCT", 1)
        return Relation(text, inner.columns, None, inner.only_spark)

    def grouping_columns(self, source: Relation, count: int) -> list[Column]:
        plain = tuple(one for one in source.columns if one.kind not in ("tags", "float"))
        return self.some(plain, count)

    def measures(self, columns: tuple[Column, ...]) -> list[tuple[str, str]]:
        plain = [one for one in columns if one.kind != "tags"]
        found = [("count(*)", "long")]
        for one in self.chance.sample(plain, min(2, len(plain))):
            found += [(f"count({one.name})", "long"), (f"count(DISTINCT {one.name})", "long")]
            found += [(f"min({one.name})", one.kind), (f"max({one.name})", one.kind)]
            if one.kind in SUMMED:
                summed = "DECIMAL(12,2)" if one.kind == "decimal" else "BIGINT"
                kind = "decimal" if one.kind == "decimal" else "long"
                filtered = f"sum({one.name}) FILTER (WHERE {self.condition(columns)})"
                found.append((f"CAST(sum({one.name}) AS {summed})", kind))
                found.append((f"CAST({filtered} AS {summed})", kind))
                found.append((f"CAST(avg({one.name}) AS DOUBLE)", "float"))
            if one.kind == "bool":
                found += [(f"bool_and({one.name})", "bool"), (f"bool_or({one.name})", "bool")]
        return self.chance.sample(found, min(len(found), self.chance.choice((1, 2, 3))))

    def grouped(self, depth: int) -> Relation:
        source = self.source(depth)
        groups = self.grouping_columns(source, self.chance.choice((0, 1, 1, 2)))
        chosen = [(one.name, one.kind) for one in groups] + self.measures(source.columns)
        shown, columns = self.listed(chosen)
        where = f" WHERE {self.condition(source.columns)}" if self.chance.random() < 0.3 else ""
        by = f" GROUP BY {', '.join(one.name for one in groups)}" if groups else ""
        having = " HAVING count(*) > 1" if self.chance.random() < 0.3 else ""
        text = f"SELECT {shown} FROM {source.sql}{where}{by}{having}"
        return Relation(text, columns, None, source.only_spark)

    def grouping_sets(self, depth: int) -> Relation:
        source = self.source(depth - 1)
        groups = self.grouping_columns(source, 2)
        if len(groups) < 2:
            return self.grouped(depth)
        one, two = (column.name for column in groups)
        sets = self.chance.choice(
            ("ROLLUP ({0}, {1})", "CUBE ({0}, {1})", "GROUPING SETS (({0}), ({1}), ())")
        ).format(one, two)
        chosen = [(column.name, column.kind) for column in groups]
        shown, columns = self.listed([*chosen, *self.measures(source.columns)])
        return Relation(
            f"SELECT {shown} FROM {source.sql} GROUP BY {sets}", columns, None, only_spark=True
        )

    def windowed(self, depth: int) -> Relation:
        source = self.source(depth - 1)
        parts = self.grouping_columns(source, 1)
        if not parts:
            return self.select(depth)
        plain = [one for one in source.columns if one.kind != "tags"]
        order = self.chance.choice(plain).name
        over = f"(PARTITION BY {parts[0].name} ORDER BY {order})"
        function = self.chance.choice(
            (
                f"rank() OVER {over}",
                f"dense_rank() OVER {over}",
                f"count(*) OVER {over}",
                f"count({order}) OVER (PARTITION BY {parts[0].name})",
            )
        )
        chosen = [(f"CAST({function} AS BIGINT)", "long"), *self.values(source.columns)]
        shown, columns = self.listed(chosen)
        return Relation(f"SELECT {shown} FROM {source.sql}", columns, None, source.only_spark)

    def ordered(self, columns: tuple[Column, ...]) -> str:
        """An order in which only rows that are the same are equal."""
        parts = [f"{one.name} {self.chance.choice(('ASC', 'DESC'))}" for one in columns]
        return ", ".join(self.chance.sample(parts, len(parts)))

    def plain(self, depth: int) -> Relation:
        """A query without columns that have no order."""
        while True:
            found = self.query(depth)
            if all(one.kind != "tags" for one in found.columns):
                return found

    def top(self, depth: int) -> Relation:
        inner = self.plain(depth - 1)
        shown = ", ".join(one.name for one in inner.columns)
        limit = self.chance.choice(("LIMIT 3", "LIMIT 2 OFFSET 1", "LIMIT 6"))
        text = f"SELECT {shown} FROM ({inner.sql}) ORDER BY {self.ordered(inner.columns)} {limit}"
        return Relation(text, inner.columns, None, inner.only_spark)

    def top_by_partition(self, depth: int) -> Relation:
        inner = self.plain(depth - 1)
        parts = self.grouping_columns(inner, 1)
        if not parts:
            return self.top(depth)
        over = f"PARTITION BY {parts[0].name} ORDER BY {self.ordered(inner.columns)}"
        shown = ", ".join(one.name for one in inner.columns)
        place = self.name()
        text = (
            f"SELECT {shown} FROM (SELECT {shown}, row_number() OVER ({over}) AS {place} "
            f"FROM ({inner.sql})) WHERE {place} <= 2"
        )
        return Relation(text, inner.columns, None, inner.only_spark)

    def with_a_subquery(self, depth: int) -> Relation:
        outer = self.source(depth - 1)
        inner = self.source(0)
        while not (pairs := self.pairs(outer.columns, inner.columns)):
            outer = self.source(0)
        one, two = self.chance.choice(pairs)
        no = self.chance.choice(("", "NOT "))
        filtered = self.condition(inner.columns)
        correlated = f"{two.name} = {one.name}"
        where = self.chance.choice(
            (
                f"{no}EXISTS (SELECT 1 FROM {inner.sql} WHERE {correlated} AND {filtered})",
                f"{one.name} {no}IN (SELECT {two.name} FROM {inner.sql} WHERE {filtered})",
                f"{one.name} >= (SELECT max({two.name}) FROM {inner.sql} WHERE {filtered})",
                f"1 > (SELECT count(*) FROM {inner.sql} WHERE {correlated})",
            )
        )
        shown, columns = self.listed(self.values(outer.columns))
        text = f"SELECT {shown} FROM {outer.sql} WHERE {where}"
        return Relation(text, columns, None, outer.only_spark or inner.only_spark)

    def scalar(self, depth: int) -> Relation:
        outer, inner = self.source(depth - 1), self.source(0)
        pairs = self.pairs(outer.columns, inner.columns)
        where = ""
        if pairs and self.chance.random() < 0.7:
            one, two = self.chance.choice(pairs)
            where = f" WHERE {two.name} = {one.name}"
        (measure, kind), *_ = self.measures(inner.columns)
        chosen = [(f"(SELECT {measure} FROM {inner.sql}{where})", kind)]
        shown, columns = self.listed([*chosen, *self.values(outer.columns)])
        text = f"SELECT {shown} FROM {outer.sql}"
        return Relation(text, columns, None, outer.only_spark or inner.only_spark)

    def exploded(self, depth: int) -> Relation:
        having = [one for one in self.tables.values() if any(c.kind == "tags" for c in one.columns)]
        if not having:
            return self.select(depth)
        table = self.chance.choice(having)
        alias, tag = self.name(), self.name()
        tags = next(one for one in table.columns if one.kind == "tags")
        outer = self.chance.choice(("", "OUTER "))
        view = f"LATERAL VIEW {outer}explode({alias}.{tags.name}) AS {tag}"
        others = tuple(Column(f"{alias}.{one.name}", one.kind) for one in table.columns)
        shown, columns = self.listed([(tag, "string"), *self.values(others)])
        text = f"SELECT {shown} FROM {table.sql} {alias} {view}"
        return Relation(text, columns, None, table.only_spark)
