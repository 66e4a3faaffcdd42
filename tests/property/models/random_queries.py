"""Random queries over the oracle's tables: every operator, nested in every other.

Every column is a number, or text that is one, so that any two can be compared; names are chosen to
be in the way of generated ones (c1, c2, ...).
"""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Rows:
    """A query, and the names of its columns."""

    sql: str
    columns: tuple[str, ...]


BASE = (
    ("t", ("a", "b")),
    ("t", ("a", "b")),
    ("u", ("a", "c")),
    ("u", ("a", "c")),
    ("n", ("id",)),
    ("w", ("v",)),
    ("w", ("k", "v")),
    ("e", ("a", "b")),
)


JOINS = (
    "JOIN",
    "JOIN",
    "LEFT JOIN",
    "LEFT JOIN",
    "RIGHT JOIN",
    "FULL JOIN",
    "LEFT SEMI JOIN",
    "LEFT ANTI JOIN",
    ",",
)
CONDITIONS = (
    "{one} > {number}",
    "{one} <> {number}",
    "({one} IS NULL OR {two} > 0)",
    "{one} <= {two}",
    "NOT ({one} = {number})",
    "{one} IN (1, 2, 10)",
    "({one} = {number} OR {two} > {number})",
    "{one} BETWEEN 1 AND 10",
    "{one} IS NOT NULL",
    "coalesce({one}, 1) < 15",
)


class Queries:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._names = 0

    def name(self) -> str:
        self._names += 1
        return f"c{self._names}"

    def query(self, depth: int = 3) -> Rows:
        forms = [self.select, self.grouped, self.set_operation, self.distinct]
        forms += [self.windowed, self.limited, self.selected_subquery, self.grouping_sets]
        return self.random.choice(forms)(depth)

    # Parts -----------------------------------------------------------------------------------

    def source(self, depth: int) -> tuple[str, list[str]]:
        """A FROM item and its qualified columns."""
        alias = self.random.choice("pqrs") + self.name()
        if depth <= 0 or self.random.random() < 0.5:
            table, columns = self.random.choice(BASE)
            return f"{table} {alias}", [f"{alias}.{one}" for one in columns]
        inner = self.query(depth - 1)
        return f"({inner.sql}) {alias}", [f"{alias}.{one}" for one in inner.columns]

    def joined(self, depth: int) -> tuple[str, list[str], list[str]]:
        """A FROM, the columns that it shows, and conditions for the WHERE."""
        text, columns = self.source(depth)
        where: list[str] = []
        for _ in range(self.random.choice((0, 0, 1, 1, 2))):
            right, more = self.source(depth - 1)
            kind = self.random.choice(JOINS)
            if kind == ",":
                text += f" CROSS JOIN {right}"
                where.append(f"{self.pick(columns)} = {self.pick(more)}")
            else:
                text += f" {kind} {right} ON {self.on(columns, more)}"
            if "SEMI" not in kind and "ANTI" not in kind:
                columns = columns + more
        return text, columns, where

    def on(self, left: list[str], right: list[str]) -> str:
        sign = self.random.choice(("=", "=", "=", "<=>"))
        parts = [f"{self.pick(left)} {sign} {self.pick(right)}"]
        if self.random.random() < 0.2:
            parts.append(f"{self.pick(left)} <= {self.pick(right)}")
        if self.random.random() < 0.2:
            parts.append(self.simple(left if self.random.random() < 0.5 else right))
        return " AND ".join(parts)

    def pick(self, columns: list[str]) -> str:
        return self.random.choice(columns)

    def value(self, columns: list[str]) -> str:
        one, two = self.pick(columns), self.pick(columns)
        number = self.random.choice((0, 1, 2, 5, 10))
        forms = (one, one, f"{one} + {number}", f"coalesce({one}, {two})", f"{one} - {two}")
        return self.random.choice((*forms, f"CASE WHEN {one} > {number} THEN {two} END"))

    def simple(self, columns: list[str]) -> str:
        one, two = self.pick(columns), self.pick(columns)
        number = self.random.choice((0, 1, 2, 5, 10))
        form = self.random.choice(CONDITIONS)
        return form.format(one=one, two=two, number=number)

    def condition(self, columns: list[str], depth: int) -> str:
        roll = self.random.random()
        if roll < 0.55 or depth <= 0:
            return self.simple(columns)
        table, names = self.random.choice(BASE)
        alias = "i" + self.name()
        inner = [f"{alias}.{one}" for one in names]
        outside = self.pick(columns)
        correlated = f"{self.pick(inner)} = {outside}"
        if self.random.random() < 0.4:
            correlated += f" AND {self.simple(inner)}"
        if self.random.random() < 0.2:
            correlated += f" AND {self.pick(inner)} <> {self.pick(columns)}"
        no = self.random.choice(("", "NOT "))
        if roll < 0.7:
            return f"{no}EXISTS (SELECT 1 FROM {table} {alias} WHERE {correlated})"
        if roll < 0.85:
            chosen = f"SELECT {self.pick(inner)} FROM {table} {alias}"
            filtered = f" WHERE {self.simple(inner)}" if self.random.random() < 0.5 else ""
            return f"{outside} {no}IN ({chosen}{filtered})"
        function = self.random.choice(("max", "min", "sum", "count"))
        scalar = f"SELECT {function}({self.pick(inner)}) FROM {table} {alias}"
        if self.random.random() < 0.6:
            scalar += f" WHERE {self.pick(inner)} = {self.pick(columns)}"
        return f"{outside} {self.random.choice(('<', '>=', '='))} ({scalar})"

    def where(self, columns: list[str], depth: int, given: list[str]) -> str:
        parts = list(given)
        for _ in range(self.random.choice((0, 0, 1, 1, 2))):
            parts.append(self.condition(columns, depth))
        self.random.shuffle(parts)
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def listed(self, trees: list[str]) -> tuple[str, tuple[str, ...]]:
        names = tuple(self.name() for _ in trees)
        return ", ".join(f"{t} AS {n}" for t, n in zip(trees, names, strict=True)), names

    # Queries ---------------------------------------------------------------------------------

    def select(self, depth: int) -> Rows:
        text, columns, given = self.joined(depth)
        trees = [self.value(columns) for _ in range(self.random.choice((1, 2, 3)))]
        shown, names = self.listed(trees)
        return Rows(f"SELECT {shown} FROM {text}{self.where(columns, depth, given)}", names)

    def distinct(self, depth: int) -> Rows:
        inner = self.select(depth)
        return Rows(inner.sql.replace("SELECT", "SELECT DISTINCT", 1), inner.columns)

    def measures(self, columns: list[str]) -> list[str]:
        one, two = self.pick(columns), self.pick(columns)
        known = ["count(*)", f"sum({one})", f"min({one})", f"max({two})", f"count({one})"]
        known += [f"count(DISTINCT {one})", f"sum({one}) FILTER (WHERE {self.simple(columns)})"]
        chosen = self.random.sample(known, self.random.choice((1, 2)))
        return [f"CAST({one} AS INT)" for one in chosen]

    def grouped(self, depth: int) -> Rows:
        text, columns, given = self.joined(depth)
        where = self.where(columns, depth, given)
        groups = list(
            dict.fromkeys(self.pick(columns) for _ in range(self.random.choice((0, 1, 2))))
        )
        shown, names = self.listed([*groups, *self.measures(columns)])
        by = f" GROUP BY {', '.join(groups)}" if groups else ""
        having = ""
        if self.random.random() < 0.2:
            having = self.random.choice((" HAVING count(*) > 1", f" HAVING max({columns[0]}) > 1"))
        return Rows(f"SELECT {shown} FROM {text}{where}{by}{having}", names)

    def grouping_sets(self, depth: int) -> Rows:
        text, columns, given = self.joined(depth - 1)
        one, two = self.pick(columns), self.pick(columns)
        form = self.random.choice(
            (f"ROLLUP ({one}, {two})", f"CUBE ({one}, {two})", f"GROUPING SETS (({one}), ({two}))")
            if one != two
            else (f"ROLLUP ({one})", f"GROUPING SETS (({one}), ())")
        )
        shown, names = self.listed([one, *self.measures(columns)])
        where = self.where(columns, 0, given)
        return Rows(f"SELECT {shown} FROM {text}{where} GROUP BY {form}", names)

    def set_operation(self, depth: int) -> Rows:
        left, right = self.query(depth - 1), self.query(depth - 1)
        width = min(len(left.columns), len(right.columns))
        kind = self.random.choice(
            ("UNION", "UNION ALL", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL")
        )
        sides = [
            f"SELECT {', '.join(one.columns[:width])} FROM ({one.sql})" for one in (left, right)
        ]
        return Rows(f"{sides[0]} {kind} {sides[1]}", left.columns[:width])

    def windowed(self, depth: int) -> Rows:
        text, columns, given = self.joined(depth - 1)
        part, order = self.pick(columns), self.pick(columns)
        over = f"(PARTITION BY {part} ORDER BY {order})"
        function = self.random.choice(
            (
                f"rank() OVER {over}",
                f"sum({part}) OVER {over}",
                f"count(*) OVER (PARTITION BY {part})",
            )
        )
        shown, names = self.listed([part, order, f"CAST({function} AS INT)"])
        return Rows(f"SELECT {shown} FROM {text}{self.where(columns, depth - 1, given)}", names)

    def limited(self, depth: int) -> Rows:
        inner = self.query(depth - 1)
        order = ", ".join(f"{one} {self.random.choice(('ASC', 'DESC'))}" for one in inner.columns)
        limit = self.random.choice(("LIMIT 3", "LIMIT 2 OFFSET 1", "LIMIT 5"))
        chosen = ", ".join(inner.columns)
        return Rows(f"SELECT {chosen} FROM ({inner.sql}) ORDER BY {order} {limit}", inner.columns)

    def selected_subquery(self, depth: int) -> Rows:
        text, columns, given = self.joined(depth - 1)
        table, names_ = self.random.choice(BASE)
        inner = [f"i.{one}" for one in names_]
        outside = self.pick(columns)
        function = self.random.choice(("count(*)", f"max({inner[0]})", f"1 + count({inner[-1]})"))
        scalar = f"(SELECT {function} FROM {table} i WHERE {self.pick(inner)} = {outside})"
        exists = f"EXISTS (SELECT 1 FROM {table} i WHERE {self.pick(inner)} = {outside})"
        second = f"CASE WHEN {exists} THEN 1 ELSE 0 END"
        shown, names = self.listed([outside, f"CAST({scalar} AS INT)", second])
        return Rows(f"SELECT {shown} FROM {text}{self.where(columns, 0, given)}", names)
