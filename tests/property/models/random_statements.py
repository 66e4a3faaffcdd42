"""Random statements that mean the same to Spark and to DuckDB.

Only what both engines agree on is said: whole numbers that stay small, ASCII text, comparisons, the
logic of three values, subqueries. Names are written in backticks, which `for_duckdb` makes into
double quotes; parameters as `:name`, which it makes into `$name`.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from typing import Any, Literal

NUMBERS = ("id", "n umber", "select")
TEXTS = ("s", "é'x")
COLUMNS = (*NUMBERS, *TEXTS)
STRINGS = ("", "a", "b", "A", "ab", "a?b", "a%")
TABLES = ("t", "other")
DELETES = "WHEN MATCHED THEN DELETE"

Type = Literal["number", "text"]


def for_duckdb(sql: str) -> str:
    return re.sub(r":(?=p\d)", "$", sql.replace("`", '"'))


def used(sql: str, params: dict[str, int]) -> dict[str, int]:
    """The parameters that a text has."""
    names = set(re.findall(r":(p\d+)", sql))
    return {name: value for name, value in params.items() if name in names}


@dataclass
class Said:
    """One statement: its text, the values of its parameters, and the table that it changes."""

    sql: str
    params: dict[str, int] = field(default_factory=dict)
    kind: str = ""
    table: str = "t"
    query: str = ""
    """Of INSERT OVERWRITE, which DuckDB has not: the rows that come."""
    allows_repeats: bool = False
    on: str = ""
    source: str = ""


class Statements:
    """Statements over two tables with the same columns, made by chance."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.params: dict[str, int] = {}

    def row(self) -> dict[str, Any]:
        chance = self.chance
        return {
            **{name: chance.choice([None, *range(5)]) for name in NUMBERS},
            **{name: chance.choice([None, "", "a", "b", "ab"]) for name in TEXTS},
        }

    def statement(self) -> Said:
        self.params = {}
        kinds = (self.insert, self.insert, self.update, self.delete, self.merge, self.merge)
        said = self.chance.choice(kinds)()
        # Parts that were made and not chosen have parameters of their own.
        said.params = used(said.sql, self.params)
        return said

    # Statements

    def insert(self) -> Said:
        table = self.chance.choice(TABLES)
        form = self.chance.choice(["values", "some columns", "select", "table", "overwrite"])
        if form == "values":
            rows = [
                "(" + ", ".join(self.constant(kind) for _, kind in self.typed()) + ")"
                for _ in range(self.chance.randint(1, 3))
            ]
            return Said(f"INSERT INTO {table} VALUES {', '.join(rows)}", kind="INSERT", table=table)
        if form == "some columns":
            chosen = self.chance.sample(self.typed(), self.chance.randint(1, len(COLUMNS)))
            if "id" not in [name for name, _ in chosen]:
                chosen.append(("id", "number"))
            names = ", ".join(f"`{name}`" for name, _ in chosen)
            selected = ", ".join(self.expression(kind, ["x"]) for _, kind in chosen)
            query = f"SELECT {selected} FROM {self.chance.choice(TABLES)} AS x{self.where(['x'])}"
            return Said(f"INSERT INTO {table} ({names}) {query}", kind="INSERT", table=table)
        if form == "table":
            source = self.chance.choice(TABLES)
            return Said(f"INSERT INTO {table} TABLE {source}", kind="INSERT", table=table)
        selected = ", ".join(self.expression(kind, ["x"]) for _, kind in self.typed())
        query = f"SELECT {selected} FROM {self.chance.choice(TABLES)} AS x{self.where(['x'])}"
        if form == "select":
            return Said(f"INSERT INTO {table} {query}", kind="INSERT", table=table)
        text = f"INSERT OVERWRITE {table} {query}"
        return Said(text, kind="INSERT", table=table, query=query)

    def update(self) -> Said:
        table = self.chance.choice(TABLES)
        return Said(
            f"UPDATE {table} AS x SET {self.assignments(['x'])}{self.where(['x'])}",
            kind="UPDATE",
            table=table,
        )

    def delete(self) -> Said:
        table = self.chance.choice(TABLES)
        condition = self.condition(["x"])
        return Said(f"DELETE FROM {table} AS x WHERE {condition}", kind="DELETE", table=table)

    def merge(self) -> Said:
        table = self.chance.choice(TABLES)
        source = self.chance.choice(
            [
                self.chance.choice(TABLES),
                f"(SELECT * FROM {self.chance.choice(TABLES)} AS x{self.where(['x'])})",
                "(SELECT max(`id`) AS `id`, `n umber`, min(`select`) AS `select`, max(`s`) AS `s`, "
                f"min(`é'x`) AS `é'x` FROM {self.chance.choice(TABLES)} GROUP BY `n umber`)",
            ]
        )
        on = self.chance.choice(
            [
                "x.`id` = y.`id`",
                "x.`id` = y.`id` AND x.`s` = y.`s`",
                "x.`n umber` = y.`n umber`",
                f"x.`id` = y.`id` AND {self.condition(['x', 'y'], plain=True)}",
                self.condition(["x", "y"], plain=True),
            ]
        )
        matched = self.clauses("MATCHED", ["x", "y"])
        unmatched = self.clauses("NOT MATCHED", ["y"])
        left = self.clauses("NOT MATCHED BY SOURCE", ["x"])
        if matched == [DELETES] or not [*matched, *unmatched, *left]:
            # DuckDB does not let it match a row twice, and by itself it can be said in other words.
            matched, unmatched, left = [DELETES], [], []
        clauses = [*matched, *unmatched, *left]
        return Said(
            f"MERGE INTO {table} AS x USING {source} AS y ON {on} {' '.join(clauses)}",
            kind="MERGE",
            table=table,
            allows_repeats=not matched or matched == [DELETES],
            on=on,
            source=source,
        )

    def clauses(self, rows: str, aliases: list[str]) -> list[str]:
        found = []
        count = self.chance.choice([0, 1, 1, 2])
        for number in range(count):
            last = number == count - 1
            condition = "" if last and self.chance.random() < 0.6 else self.condition(aliases, True)
            when = f"WHEN {rows}" + (f" AND {condition}" if condition else "")
            found.append(f"{when} THEN {self.action(rows, aliases)}")
        return found

    def action(self, rows: str, aliases: list[str]) -> str:
        if rows == "NOT MATCHED":
            if self.chance.random() < 0.3:
                return "INSERT *"
            chosen = [("id", "number"), *self.chance.sample(self.typed()[1:], 2)]
            names = ", ".join(f"`{name}`" for name, _ in chosen)
            values = ", ".join(self.expression(kind, aliases) for _, kind in chosen)
            return f"INSERT ({names}) VALUES ({values})"
        if self.chance.random() < 0.3:
            return "DELETE"
        if rows == "MATCHED" and self.chance.random() < 0.2:
            return "UPDATE SET *"
        return f"UPDATE SET {self.assignments(aliases)}"

    # Parts

    def typed(self) -> list[tuple[str, Type]]:
        return [*((name, "number") for name in NUMBERS), *((name, "text") for name in TEXTS)]

    def assignments(self, aliases: list[str]) -> str:
        # The key is set rarely: most values of it are taken.
        others = self.typed()[1:] if self.chance.random() < 0.85 else self.typed()
        chosen = self.chance.sample(others, self.chance.randint(1, 2))
        return ", ".join(f"`{name}` = {self.expression(kind, aliases)}" for name, kind in chosen)

    def where(self, aliases: list[str]) -> str:
        return "" if self.chance.random() < 0.3 else f" WHERE {self.condition(aliases)}"

    def constant(self, kind: Type) -> str:
        if self.chance.random() < 0.2:
            return "NULL"
        if kind == "text":
            return f"'{self.chance.choice(STRINGS)}'"
        value = self.chance.randrange(-2, 6)
        if self.chance.random() < 0.3:
            name = f"p{len(self.params)}"
            self.params[name] = value
            return f":{name}"
        return str(value)

    def column(self, kind: Type, aliases: list[str]) -> str:
        name = self.chance.choice(NUMBERS if kind == "number" else TEXTS)
        return f"{self.chance.choice(aliases)}.`{name}`"

    def expression(self, kind: Type, aliases: list[str], depth: int = 2) -> str:
        form = self.chance.randrange(7) if depth else self.chance.randrange(4)
        if form < 3:
            return self.column(kind, aliases)
        if form == 3:
            return self.constant(kind)
        one, two = (self.expression(kind, aliases, depth - 1) for _ in range(2))
        if form == 4:
            return f"coalesce({one}, {two})"
        if form == 5:
            condition = self.condition(aliases, plain=True, depth=depth - 1)
            return f"CASE WHEN {condition} THEN {one} ELSE {two} END"
        if kind == "text":
            return f"substr({one} || {two}, 1, 3)"
        return f"(({one} {self.chance.choice('+-*')} {two}) % 7)"

    def condition(self, aliases: list[str], plain: bool = False, depth: int = 2) -> str:
        form = self.chance.randrange(11) if depth else self.chance.randrange(6)
        number, text = self.column("number", aliases), self.column("text", aliases)
        if form < 2:
            operator = self.chance.choice(["=", "<>", "<", ">=", "IS DISTINCT FROM"])
            return f"{number} {operator} {self.expression('number', aliases, 0)}"
        if form == 2:
            return f"{text} {self.chance.choice(['=', '<', '>='])} {self.constant('text')}"
        if form == 3:
            return f"{number} IS {self.chance.choice(['', 'NOT '])}NULL"
        if form == 4:
            listed = ", ".join(self.constant("number") for _ in range(2))
            return f"{number} {self.chance.choice(['', 'NOT '])}IN ({listed})"
        if form == 5:
            return f"{text} LIKE 'a%'"
        if form < 8:
            one, two = (self.condition(aliases, plain, depth - 1) for _ in range(2))
            return f"({one} {self.chance.choice(['AND', 'OR'])} {two})"
        if form == 8:
            return f"NOT ({self.condition(aliases, plain, depth - 1)})"
        if plain:
            return f"{number} BETWEEN 1 AND 3"
        inner = self.chance.choice(TABLES)
        if form == 9:
            return f"EXISTS (SELECT 1 FROM {inner} AS z WHERE z.`id` = {number})"
        least = f"(SELECT min(z.`id`) FROM {inner} AS z)"
        return self.chance.choice(
            [
                f"{number} IN (SELECT z.`n umber` FROM {inner} AS z)",
                f"{number} >= {least}",
            ]
        )
