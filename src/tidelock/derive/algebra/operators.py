"""The operators of a query.

A query becomes a tree of frozen values. Every column of every operator has a name that no other
operator of the tree produces, except that operators which pass columns through keep their names; so
an expression names columns plainly, without qualifiers, and two inputs never clash. Expressions are
Spark SQL text.

Two sets of operators:

- as written: what SQL says, including outer joins, semi-joins, set operations and grouping sets;
- the core, to which everything else is lowered (core.py): Scan, Select, Generate, Join, Left,
  Anti, Merge, Once, Aggregate, Window, Top. Only these are kept up to date by delta.

In the core a change is a Z-set: rows with weights. Scan, Select, Generate and Merge are linear in
their inputs, Join is linear in each of its two, Left and Anti in the left one; Aggregate, Window
and Top are local to their keys: what they give for a key depends only on the input's rows that have
the key. No operator of the core takes rows away from others, so that a state has no row that does
not count, and no expression is asked of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from typing import Any, Literal, TypeAlias

JoinKind = Literal["left", "right", "full", "semi", "anti"]
SetKind = Literal["union", "intersect", "except"]


@dataclass(frozen=True)
class Named:
    """A column that an operator computes: its name and the expression over its input's columns."""

    name: str
    sql: str
    columns: tuple[str, ...]
    """The columns of the input that the expression reads."""

    @property
    def passed(self) -> str | None:
        """The column that this is, under a new name or the old; None for anything computed."""
        only = self.columns[0] if len(self.columns) == 1 else None
        return only if only is not None and self.sql == f"`{only}`" else None


@dataclass(frozen=True)
class Condition:
    """An expression that keeps the rows for which it is true."""

    sql: str
    columns: tuple[str, ...]


# The core


@dataclass(frozen=True)
class Scan:
    """A table of the lake. `columns` are (name here, name in the table)."""

    table: str
    columns: tuple[tuple[str, str], ...]

    @property
    def output(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)


@dataclass(frozen=True)
class Select:
    """Computed columns of the rows for which the condition is true.

    The condition reads the input's columns. Law: D(select(X)) = select(DX).
    """

    input: Operator
    columns: tuple[Named, ...]
    condition: Condition | None = None

    @property
    def output(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


@dataclass(frozen=True)
class Generate:
    """One row for each element that a generator (explode and its kin) gives for a row.

    Law: D(generate(X)) = generate(DX).
    """

    input: Operator
    sql: str
    reads: tuple[str, ...]
    names: tuple[str, ...]
    outer: bool = False
    """Whether a row without elements stays, with NULLs."""

    @property
    def output(self) -> tuple[str, ...]:
        return (*self.input.output, *self.names)


@dataclass(frozen=True)
class Join:
    """Pairs of rows with equal keys for which the condition is true; without keys, all pairs.

    `keys` are pairs of columns, left and right, compared with `=` (a NULL equals nothing), or with
    `<=>` for those whose position is in `null_safe`.
    Law: D(X join Y) = DX join Y_new + X_old join DY.
    """

    left: Operator
    right: Operator
    keys: tuple[tuple[str, str], ...] = ()
    condition: Condition | None = None
    null_safe: tuple[int, ...] = ()

    @property
    def output(self) -> tuple[str, ...]:
        return (*self.left.output, *self.right.output)


@dataclass(frozen=True)
class Left:
    """Every row of the left with each partner that it has on the right; without one, with NULLs.

    `partners` are the distinct keys of the right, and `partner_keys` pairs of columns, of the left
    and of the partners. Both joins are compared as `keys` of Join.
    Law: D(left(X, Y, P)) = left(DX, Y_old) + X_new join DY - (X_new join DP, with NULLs).
    """

    left: Operator
    right: Operator
    partners: Operator
    keys: tuple[tuple[str, str], ...]
    partner_keys: tuple[tuple[str, str], ...]
    null_safe: tuple[int, ...] = ()
    types: tuple[str, ...] = ()
    """Of the right's columns; empty until the engine was asked."""

    @property
    def output(self) -> tuple[str, ...]:
        return (*self.left.output, *self.right.output)


@dataclass(frozen=True)
class Anti:
    """The rows of the left that have no partner. The partners are distinct.

    Law: D(anti(X, P)) = anti(DX, P_old) - X_new join DP.
    """

    left: Operator
    partners: Operator
    keys: tuple[tuple[str, str], ...]
    null_safe: tuple[int, ...] = ()

    @property
    def output(self) -> tuple[str, ...]:
        return self.left.output


@dataclass(frozen=True)
class Merge:
    """The rows of all inputs, columns by position: UNION ALL.

    Law: D(merge(X...)) = merge(DX...).
    """

    inputs: tuple[Operator, ...]
    names: tuple[str, ...]
    types: tuple[str, ...] = ()
    """Of the columns, when all inputs are seen together; empty until the engine was asked."""

    @property
    def output(self) -> tuple[str, ...]:
        return self.names


@dataclass(frozen=True)
class Measure:
    """One aggregate function: `function(arguments) FILTER (WHERE condition)`.

    `sql` is the whole call over the input's columns; `function` its name in lower case, `argument`
    the SQL of its only argument where it has one.
    """

    name: str
    function: str
    sql: str
    columns: tuple[str, ...]
    argument: str | None = None
    distinct: bool = False
    condition: str | None = None


@dataclass(frozen=True)
class Aggregate:
    """One row for each distinct combination of the groups (columns of the input); without groups
    exactly one row, also of no input. NULLs are equal in groups.

    Law: D(aggregate(X)) = aggregate(X_new at K) - aggregate(X_old at K), K the groups of DX.
    """

    input: Operator
    groups: tuple[str, ...]
    measures: tuple[Measure, ...]

    @property
    def output(self) -> tuple[str, ...]:
        return (*self.groups, *(measure.name for measure in self.measures))


@dataclass(frozen=True)
class Window:
    """The input's rows with columns computed by window functions, all over one partitioning.

    Law: as Aggregate's, K the partitions of DX.
    """

    input: Operator
    partition: tuple[str, ...]
    columns: tuple[Named, ...]

    @property
    def output(self) -> tuple[str, ...]:
        return (*self.input.output, *(column.name for column in self.columns))


@dataclass(frozen=True)
class Once:
    """The input's rows, computed once and kept, for they are read in several places.

    Law: D(once(X)) = DX.
    """

    input: Operator

    @property
    def output(self) -> tuple[str, ...]:
        return self.input.output


@dataclass(frozen=True)
class Top:
    """The first rows of a total order. `order` is SQL such as "`c1` DESC NULLS LAST, `c2` ASC".

    Law: as Aggregate's, with one group that holds everything.
    """

    input: Operator
    order: str
    reads: tuple[str, ...]
    limit: int | None
    offset: int = 0

    @property
    def output(self) -> tuple[str, ...]:
        return self.input.output


# As written; core.py turns these into the core


@dataclass(frozen=True)
class OuterJoin:
    """LEFT, RIGHT and FULL joins, and the joins that only ask whether there is a partner.

    `same_types` says that each pair of keys has one type, so that values which `=` finds equal are
    one value in groups as well. ('1' and '01' both equal the number 1.)
    """

    left: Operator
    right: Operator
    kind: JoinKind
    keys: tuple[tuple[str, str], ...] = ()
    condition: Condition | None = None
    null_safe: tuple[int, ...] = ()
    same_types: bool = False

    @property
    def output(self) -> tuple[str, ...]:
        if self.kind in ("semi", "anti"):
            return self.left.output
        return (*self.left.output, *self.right.output)


@dataclass(frozen=True)
class Distinct:
    input: Operator

    @property
    def output(self) -> tuple[str, ...]:
        return self.input.output


@dataclass(frozen=True)
class SetOperation:
    """UNION, INTERSECT and EXCEPT, of sets or (all) of bags; columns by position."""

    left: Operator
    right: Operator
    kind: SetKind
    all: bool
    names: tuple[str, ...]

    @property
    def output(self) -> tuple[str, ...]:
        return self.names


@dataclass(frozen=True)
class GroupingSets:
    """An aggregate over several groupings at once. A group that a set leaves out is NULL there.

    `groups` are (name of the output, column of the input); `sets` hold positions in `groups`;
    `grouping_id`, where asked for, is the name of a column with Spark's grouping_id() over
    `groups`: bit i from the left is 1 where group i was left out.
    """

    input: Operator
    groups: tuple[tuple[str, str], ...]
    sets: tuple[tuple[int, ...], ...]
    measures: tuple[Measure, ...]
    grouping_id: str | None = None

    @property
    def output(self) -> tuple[str, ...]:
        names = tuple(name for name, _ in self.groups)
        extra = () if self.grouping_id is None else (self.grouping_id,)
        return (*names, *extra, *(measure.name for measure in self.measures))


# In the terms of a change


@dataclass(frozen=True)
class Leaf:
    """The n-th scan of a body. `columns` are (name here, name in the table)."""

    number: int
    columns: tuple[tuple[str, str], ...]

    @property
    def output(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)


Core: TypeAlias = (
    Scan | Select | Generate | Join | Left | Anti | Merge | Once | Aggregate | Window | Top
)
Operator: TypeAlias = Core | OuterJoin | Distinct | SetOperation | GroupingSets | Leaf


def inputs(operator: Operator) -> tuple[Operator, ...]:
    """The operators that this one reads, from left to right."""
    found: list[Operator] = []
    for field in fields(operator):
        value = getattr(operator, field.name)
        if isinstance(value, Operator):
            found.append(value)
        elif isinstance(value, tuple):
            found.extend(one for one in value if isinstance(one, Operator))
    return tuple(found)


def with_inputs(operator: Operator, below: Sequence[Operator]) -> Operator:
    """The operator reading others: as many as `inputs` gives, in that order."""
    rest = list(below)
    changes: dict[str, Any] = {}
    for field in fields(operator):
        value = getattr(operator, field.name)
        if isinstance(value, Operator):
            changes[field.name] = rest.pop(0)
        elif isinstance(operator, Merge) and field.name == "inputs":
            changes[field.name] = tuple(rest.pop(0) for _ in value)
    return replace(operator, **changes)


def walk(operator: Operator) -> Iterator[Operator]:
    """The operator and everything below it, inputs after what reads them."""
    yield operator
    for one in inputs(operator):
        yield from walk(one)


def walk_once(operator: Operator) -> Iterator[Operator]:
    """As `walk`, but what is read in several places comes once. A plan of nested queries, each of
    which reads the one before twice, has few operators and very many paths to them."""
    seen: set[int] = set()
    waiting = [operator]
    while waiting:
        one = waiting.pop()
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            waiting.extend(reversed(inputs(one)))


def reads_more(operator: Operator, tables: int) -> bool:
    """Whether there are more occurrences of tables than these; stops at the first beyond."""
    found = (one for one in walk(operator) if isinstance(one, Scan))
    return next(islice(found, tables, None), None) is not None


def scans(operator: Operator) -> tuple[Scan, ...]:
    """All occurrences of tables, from left to right; a table that is read twice occurs twice."""
    return tuple(one for one in walk(operator) if isinstance(one, Scan))
