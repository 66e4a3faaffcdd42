"""Queries that are compositions: an operator above an operator above a table, and above that.

Every relation has two numbers, a text and at most one nested column, whatever it is made of; so
every operator can stand above every other. An operator is a template of SQL over the relation below
it (`composed_operators`); what else it reads is a base table.

Words of the templates, all of them quoted already:

    {inner}, {twin}     the relation below, and once more; {ik} {iv} {is}, {jk} {jv} {js} are theirs
    {other}, {lookup}   base tables; {ok} {ov} {os}, {qk} {qv} {qs} are theirs; qk is a key
    {k} {v} {s} {x}     what the result calls its columns; x is the nested one
    {ix}, {ig}, {ox}    the nested column of the relation below, if it has one: as a column of the
                        result, as one more expression, and as a value of other's of the same type
    {jx}, {nx}, {xg}    the same, under the alias {jn} or {n}, and by the name that the result has
    {n} {m} {jn} {on}   names for whatever the template needs; all but m are aliases
    {ik_}, {iv_} ...    the names of columns, without their relation
"""

from __future__ import annotations

import itertools
import math
import random
import string
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from tests.property.models.hostile_names import COLUMNS, HOSTILE

from tidelock.model.names import fold, quote

# No name holds these, so that they can be replaced in a text that is full of names.
FIRST, SECOND = "\x01", "\x02"


@dataclass(frozen=True)
class Relation:
    """A table or a query, and its columns: number, number, text, and what may be nested."""

    sql: str
    columns: tuple[str, ...]
    nested: str | None = None
    """How to make a value of the nested column's type of two numbers, FIRST and SECOND."""
    is_table: bool = False


@dataclass(frozen=True)
class Operator:
    """One way to make a relation of a relation."""

    name: str
    family: str
    template: str
    nested: str
    """`keep` and `drop` say what becomes of the nested column; else how a new one is made."""
    only_spark: str | None = None
    """Why Sail is no oracle for it."""

    @property
    def words(self) -> frozenset[str]:
        found = (word for _, word, _, _ in string.Formatter().parse(self.template) if word)
        return frozenset(found)

    @property
    def passes_names(self) -> bool:
        return self.template.startswith("SELECT *")

    @property
    def is_unary(self) -> bool:
        beside = {"other", "twin", "lookup", "jn"}
        return not self.words & beside and "LATERAL" not in self.template


@dataclass
class Names:
    """What columns, aliases and tables are called.

    Names come again at other levels of a query, where they mean something else.
    """

    chance: random.Random
    hostile: bool
    pools: dict[bool, list[str]] = field(init=False)

    def __post_init__(self) -> None:
        tame = [f"{one}{number}" for one in "kvsx" for number in range(1, 6)]
        columns = self.chance.sample(COLUMNS, 20) if self.hostile else tame
        others = self.chance.sample(HOSTILE, 4) if self.hostile else []
        self.pools = {True: columns, False: columns + others}

    def some(self, count: int, stored: bool = False, but: Iterable[str] = ()) -> list[str]:
        """Names that differ from each other; `stored` ones may be those of a table's columns."""
        found: dict[str, str] = {}
        pool = self.pools[stored]
        for name in self.chance.sample(pool, len(pool)):
            found.setdefault(fold(name), name)
        return [one for one in found.values() if quote(one) not in but][:count]


@dataclass(frozen=True)
class Case:
    """Operators, the uppermost first, over tables that chance chooses."""

    operators: tuple[Operator, ...]
    seed: str
    hostile: bool = False

    def __str__(self) -> str:
        names = " hostile" if self.hostile else ""
        return f"{' over '.join(one.name for one in self.operators)} [{self.seed}{names}]"

    @property
    def tame(self) -> Case:
        return replace(self, hostile=False)

    @property
    def only_spark(self) -> str | None:
        return next((one.only_spark for one in self.operators if one.only_spark), None)

    def query(self, tables: Sequence[Relation]) -> Relation:
        """The query; the last of the tables has a key."""
        names = " ".join(one.name for one in self.operators)
        chance = random.Random(f"{self.seed} {names}")
        known = Names(chance, self.hostile)
        found = chance.choice(tables)
        for number, one in reversed(list(enumerate(self.operators))):
            last = all(above.passes_names for above in self.operators[:number])
            found = place(one, found, chance.choice(tables), tables[-1], known, last)
        return found


def place(
    operator: Operator,
    inner: Relation,
    other: Relation,
    lookup: Relation,
    names: Names,
    last: bool,
) -> Relation:
    """The operator above a relation; if it is the last, its columns are those of a table."""
    qualified = not operator.is_unary or names.chance.random() < 0.5
    # In a subquery that has a column of that name, an alias would be taken for the column.
    columns = (*inner.columns, *other.columns, *lookup.columns)
    aliases = [quote(one) for one in names.some(7, but=columns)]
    words = dict(zip(("n", "jn", "on"), aliases[4:], strict=True))
    words.update(zip("kvsx", map(quote, names.some(4, stored=last)), strict=True))
    words["m"] = quote(names.some(1, but=(*columns, *(words[one] for one in "kvsx")))[0])
    parts = (("inner", inner), ("jtwin", inner), ("other", other), ("qlookup", lookup))
    for alias, (word, relation) in zip(aliases, parts, strict=False):
        text = relation.sql if relation.is_table else f"({relation.sql})"
        words[word.removeprefix("j").removeprefix("q")] = f"{text} AS {alias}"
        for kind, column in zip("kvs", relation.columns, strict=False):
            words[word[0] + kind] = f"{alias}.{column}" if qualified else column
            words[f"{word[0]}{kind}_"] = column
    words.update(_nested(inner, aliases[0] if qualified else None, words))
    sql = operator.template.format_map(words)
    if operator.passes_names:
        return Relation(sql, inner.columns, inner.nested)
    results, made = (words["k"], words["v"], words["s"]), None
    if operator.nested not in ("keep", "drop"):
        made = operator.nested.format_map(words)
    elif operator.nested == "keep" and words["ix"] and operator.words & {"ix", "jx"}:
        made = inner.nested
    return Relation(sql, results if made is None else (*results, words["x"]), made)


def _nested(inner: Relation, alias: str | None, words: dict[str, str]) -> dict[str, str]:
    if inner.nested is None:
        return dict.fromkeys(("ix", "ig", "ox", "jx", "nx", "xg"), "")
    column = f"{alias}.{inner.columns[3]}" if alias else inner.columns[3]
    value = inner.nested.replace(FIRST, words["ok"]).replace(SECOND, words["ov"])
    return {
        "ix": f", {column} AS {words['x']}",
        "ig": f", {column}",
        "ox": f", {value} AS {words['x']}",
        "jx": f", {words['jn']}.{inner.columns[3]} AS {words['x']}",
        "nx": f", {words['n']}.{words['x']} AS {words['x']}",
        "xg": f", {words['x']}",
    }


def families_of(operators: Iterable[Operator]) -> dict[str, list[Operator]]:
    found: dict[str, list[Operator]] = {}
    for one in operators:
        found.setdefault(one.family, []).append(one)
    return found


def every(operators: Iterable[Operator], depth: int, seed: int) -> Iterator[Case]:
    """Every composition of families, the first time round; then with other members of them.

    A family is one law that has several spellings. Round for round, each composition of families
    is there once more, until every composition of operators was.
    """
    families = families_of(operators)
    chance = random.Random(f"{seed} {depth}")
    combined = list(itertools.product(families, repeat=depth))
    chance.shuffle(combined)
    sizes = [[len(families[name]) for name in names] for names in combined]
    firsts = [[chance.randrange(size) for size in one] for one in sizes]
    for number in itertools.count():
        left = False
        for names, size, first in zip(combined, sizes, firsts, strict=True):
            if number >= math.prod(size):
                continue
            left = True
            rest, chosen = number, []
            for name, count, begin in zip(names, size, first, strict=True):
                rest, place_ = divmod(rest, count)
                chosen.append(families[name][(begin + place_) % count])
            yield Case(tuple(chosen), str(seed))
        if not left:
            return


def one_of_each(operators: Iterable[Operator], seed: int) -> Iterator[Case]:
    """Pairs in which every family is once above and once below."""
    families = families_of(operators)
    chance = random.Random(f"{seed} one of each")
    above, below = ([*families] for _ in range(2))
    chance.shuffle(above)
    chance.shuffle(below)
    for names in zip(above, below, strict=True):
        yield Case(tuple(chance.choice(families[name]) for name in names), str(seed))
