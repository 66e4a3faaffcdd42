"""From the operators of SQL to the core, each by a law of Z-sets.

    distinct(X)          one group of each row
    X union Y            distinct(X + Y)
    X intersect/except Y groups of X + Y that count, for each row, how often it is in X and in Y;
                         for ALL each row is repeated min(x, y), or x - y, times
    semi(X, Y)           X join distinct(keys of Y)
    anti(X, Y)           anti(X, distinct(keys of Y))
    left(X, Y)           left(X, Y, distinct(keys of Y)); right alike
    full(X, Y)           left(X, Y) + anti(Y, X) with NULLs for X
    where a join asks more of a row than keys that are equal, its partners are not the keys of Y but
    the distinct values of X that have one, and left(X, Y) = X join Y + anti(X, Y) with NULLs for Y
    grouping sets(X)     groups of X, each row once for each set, with NULL for what the set leaves
                         out, and by the set's grouping id

A subtree that a law uses twice stands in the result twice, with the same names. The two are never
joined under these names: one of them is renamed first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tidelock.derive.algebra.builders import exactly, passing
from tidelock.derive.algebra.laws import check, is_core
from tidelock.derive.algebra.operators import (
    Aggregate,
    Anti,
    Condition,
    Core,
    Distinct,
    Generate,
    GroupingSets,
    Join,
    Left,
    Measure,
    Merge,
    Named,
    Once,
    Operator,
    OuterJoin,
    Scan,
    Select,
    SetOperation,
    inputs,
    reads_more,
    walk_once,
    with_inputs,
)
from tidelock.derive.algebra.simplification import tidy
from tidelock.errors import BrokenInvariant


def lower(root: Operator) -> Core:
    """The core that gives the rows of the operators, each with its number as its weight."""
    lowered = _Lowering(_words(root)).lower(root)
    # A subtree that occurs twice stays the same in both places, so that it can be computed once.
    result = exactly(tidy(lowered), root.output)
    check(result)
    if not is_core(result):
        raise BrokenInvariant("an operator was not lowered")
    return result


def _words(root: Operator) -> set[str]:
    """Every word in the expressions and names of the tree, none of which can be a new name."""
    return set(re.findall(r"\w+", repr(root)))


@dataclass
class _Lowering:
    taken: set[str]
    _last: int = field(default=0)
    _lowered: dict[Operator, Operator] = field(default_factory=dict)

    def fresh(self) -> str:
        while True:
            self._last += 1
            name = f"d{self._last}"
            if name not in self.taken:
                return name

    def lower(self, operator: Operator) -> Operator:
        """The same for the same operator, so that what is read twice is kept once."""
        known = self._lowered.get(operator)
        if known is None:
            known = self._lowered[operator] = self._lower(operator)
        return known

    def _lower(self, operator: Operator) -> Operator:
        operator = with_inputs(operator, [self.lower(one) for one in inputs(operator)])
        match operator:
            case Distinct():
                return distinct(operator.input)
            case SetOperation():
                return self._set_operation(operator)
            case OuterJoin():
                return self._outer_join(operator)
            case GroupingSets():
                return self._grouping_sets(operator)
            case _:
                return operator

    # Sets ------------------------------------------------------------------------------------

    def _set_operation(self, operator: SetOperation) -> Operator:
        if operator.kind == "union":
            return distinct(Merge((operator.left, operator.right), operator.names))
        left, right = self.fresh(), self.fresh()
        counts_left, counts_right = self.fresh(), self.fresh()
        marked = Merge(
            (
                _marked(operator.left, (left, 1), (right, 0)),
                _marked(operator.right, (left, 0), (right, 1)),
            ),
            (*operator.names, left, right),
        )
        counted = Aggregate(
            marked, operator.names, (_sum(counts_left, left), _sum(counts_right, right))
        )
        both = (counts_left, counts_right)
        if operator.kind == "intersect":
            times = f"least(`{counts_left}`, `{counts_right}`)"
            kept = Condition(f"`{counts_left}` > 0 AND `{counts_right}` > 0", both)
        else:
            times = f"`{counts_left}` - `{counts_right}`"
            sign = ">" if operator.all else "> 0 AND `" + counts_right + "` ="
            other = f"`{counts_right}`" if operator.all else "0"
            kept = Condition(f"`{counts_left}` {sign} {other}", both)
        if not operator.all:
            return Select(counted, passing(operator.names), kept)
        return self._repeated(Select(counted, passing(counted.output), kept), times, both)

    def _repeated(self, operator: Operator, times: str, reads: tuple[str, ...]) -> Operator:
        each = self.fresh()
        rows = Generate(operator, f"explode(sequence(1, CAST({times} AS INT)))", reads, (each,))
        names = tuple(name for name in operator.output if name not in reads)
        return Select(rows, passing(names))

    # Joins -----------------------------------------------------------------------------------

    def _outer_join(self, operator: OuterJoin) -> Operator:
        if operator.kind == "semi":
            return self._semi(operator)
        if operator.kind == "anti":
            return self._anti(operator)
        if operator.kind == "right":
            return exactly(self._left(_turned(operator)), operator.output)
        if operator.kind == "left":
            return self._left(operator)
        if _tables(operator.right) <= _tables(operator.left):
            return self._full(operator)
        # The second side is read twice, so let it be the smaller one.
        return exactly(self._full(_turned(operator)), operator.output)

    def _full(self, operator: OuterJoin) -> Operator:
        operator = replace(operator, right=once(operator.right))
        alone = self._anti(_turned(operator))
        padded = (*self._nulls(operator.left.output), *passing(operator.right.output))
        return Merge((self._left(operator), Select(alone, padded)), operator.output)

    def _left(self, operator: OuterJoin) -> Operator:
        partners = self._partners(operator)
        if partners.by_values:
            return self._left_by_values(replace(operator, left=once(operator.left)))
        left, right, keys = operator.left, operator.right, operator.keys
        if operator.condition is not None:
            right = Select(right, passing(right.output), operator.condition)
        return Left(left, right, partners.rows, keys, partners.keys, operator.null_safe)

    def _left_by_values(self, operator: OuterJoin) -> Operator:
        left, right = operator.left, operator.right
        partners = self._partners(operator)
        pairs = Join(left, right, operator.keys, operator.condition, operator.null_safe)
        alone = Anti(left, partners.rows, partners.keys, partners.null_safe)
        padded = Select(alone, (*passing(left.output), *self._nulls(right.output)))
        return Merge((pairs, padded), operator.output)

    def _nulls(self, names: Iterable[str]) -> tuple[Named, ...]:
        """In place of the columns of a partner that is missing; a merge goes by position."""
        return tuple(Named(self.fresh(), "NULL", ()) for _ in names)

    def _anti(self, operator: OuterJoin) -> Operator:
        partners = self._partners(operator)
        return Anti(operator.left, partners.rows, partners.keys, partners.null_safe)

    def _semi(self, operator: OuterJoin) -> Operator:
        """The left rows that have a partner, each once."""
        partners = self._partners(operator)
        left = operator.left
        joined = Join(left, partners.rows, partners.keys, None, partners.null_safe)
        return exactly(joined, left.output)

    def _partners(self, operator: OuterJoin) -> _Partners:
        """By what a left row is told to have a partner."""
        read_left, read_right = _reads(operator)
        of_right = operator.condition is None or set(operator.condition.columns) <= set(read_right)
        if not read_left:
            return self._any(operator)
        if (
            operator.same_types
            and of_right
            and len(read_left) == len({one for one, _ in operator.keys})
        ):
            return self._by_keys(operator)
        return self._by_values(operator, read_left)

    def _any(self, operator: OuterJoin) -> _Partners:
        """One row if there is a right row for which the condition is true."""
        there = Named(self.fresh(), "TRUE", ())
        return _Partners(distinct(Select(operator.right, (there,), operator.condition)), ())

    def _by_keys(self, operator: OuterJoin) -> _Partners:
        """By the distinct keys of the right; its own rows for which the condition is true."""
        names = {right: self.fresh() for _, right in operator.keys}
        columns = tuple(Named(new, f"`{old}`", (old,)) for old, new in names.items())
        partners = distinct(Select(operator.right, columns, operator.condition))
        keys = tuple((left, names[right]) for left, right in operator.keys)
        return _Partners(partners, keys, operator.null_safe)

    def _by_values(self, operator: OuterJoin, read_left: Iterable[str]) -> _Partners:
        """By the distinct left values that have a partner: right whatever the types and conditions.

        Whether a row has a partner depends on the columns that keys and condition read, and on
        nothing else of it.
        """
        left = operator.left
        pairs = Join(left, operator.right, operator.keys, operator.condition, operator.null_safe)
        names = {name: self.fresh() for name in read_left}
        columns = tuple(Named(new, f"`{old}`", (old,)) for old, new in names.items())
        partnered = distinct(Select(pairs, columns))
        keys = tuple(names.items())
        return _Partners(partnered, keys, tuple(range(len(keys))), by_values=True)

    # Grouping sets ---------------------------------------------------------------------------

    def _grouping_sets(self, operator: GroupingSets) -> Operator:
        position = self.fresh()
        identity = operator.grouping_id or self.fresh()
        numbers = ", ".join(str(number) for number in range(len(operator.sets)))
        expanded = Generate(operator.input, f"explode(array({numbers}))", (), (position,))
        columns = [
            _left_out(name, column, index, operator.sets, position)
            for index, (name, column) in enumerate(operator.groups)
        ]
        ids = [_identity(one, len(operator.groups)) for one in operator.sets]
        listed = ", ".join(f"{one}L" for one in ids)
        chosen = f"element_at(array({listed}), `{position}` + 1)"
        columns.append(Named(identity, chosen, (position,)))
        groups = [*(name for name, _ in operator.groups), identity]
        if len(set(ids)) < len(ids):
            # Two equal sets give their rows twice.
            columns += passing([position])
            groups.append(position)
        reads = {name for one in operator.measures for name in one.columns}
        columns += passing(name for name in operator.input.output if name in reads)
        rows = Select(expanded, tuple(columns))
        counted = Aggregate(rows, tuple(groups), operator.measures)
        return exactly(counted, operator.output)


@dataclass(frozen=True)
class _Partners:
    """Distinct rows, and the pairs of columns (of the left, of these) that tell a partner."""

    rows: Operator
    keys: tuple[tuple[str, str], ...]
    null_safe: tuple[int, ...] = ()
    by_values: bool = False
    """Whether these are values of the left, and not keys of the right."""


READ_AGAIN_MAX = 3
"""What reads more tables than this is kept rather than computed in several places, so that plans do
not grow with every join around it."""


def once(operator: Operator) -> Operator:
    """The operator as one that several places can read."""
    small = not reads_more(operator, READ_AGAIN_MAX)
    return operator if small or isinstance(operator, Once | Aggregate) else Once(operator)


def _tables(operator: Operator) -> int:
    return sum(isinstance(one, Scan) for one in walk_once(operator))


def distinct(operator: Operator) -> Aggregate:
    return Aggregate(operator, operator.output, ())


def _marked(operator: Operator, *marks: tuple[str, int]) -> Select:
    columns = tuple(Named(name, str(value), ()) for name, value in marks)
    return Select(operator, (*passing(operator.output), *columns))


def _sum(name: str, column: str) -> Measure:
    return Measure(name, "sum", f"sum(`{column}`)", (column,), f"`{column}`")


def _turned(operator: OuterJoin) -> OuterJoin:
    """The same join seen from the right."""
    return OuterJoin(
        operator.right,
        operator.left,
        operator.kind,
        tuple((right, left) for left, right in operator.keys),
        operator.condition,
        operator.null_safe,
        operator.same_types,
    )


def _reads(operator: OuterJoin) -> tuple[list[str], list[str]]:
    """The columns of each side that keys and condition read."""
    read = [name for pair in operator.keys for name in pair]
    if operator.condition is not None:
        read += operator.condition.columns
    left, right = set(operator.left.output), set(operator.right.output)
    every = dict.fromkeys(read)
    return [name for name in every if name in left], [name for name in every if name in right]


def _left_out(
    name: str, column: str, index: int, sets: tuple[tuple[int, ...], ...], position: str
) -> Named:
    holding = [str(number) for number, one in enumerate(sets) if index in one]
    if len(holding) == len(sets):
        return Named(name, f"`{column}`", (column,))
    if not holding:
        # NULL of the column's type.
        return Named(name, f"CASE WHEN FALSE THEN `{column}` END", (column,))
    sql = f"CASE WHEN `{position}` IN ({', '.join(holding)}) THEN `{column}` END"
    return Named(name, sql, (position, column))


def _identity(held: tuple[int, ...], groups: int) -> int:
    """Spark's grouping_id: bit i from the left is 1 where group i is left out."""
    return sum(1 << (groups - 1 - index) for index in range(groups) if index not in held)
