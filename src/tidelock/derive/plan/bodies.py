"""Bodies as they are asked of the engine: as a state, and as one term of a change.

Owns: the law of a body's change. It is the sum over its leaves of the body with the changes of that
leaf in its place; the leaves before it are read as they are now, those after it as they were. So in
the term of a leaf

    the leaf is                        and its operator becomes
    on the left of Left or Anti        what it is, over the change of the left
    on the right of Left               a join: what has no partner does not change with the right
    among the partners of either       a join with the change of the partners, taken away: a row
                                       that gets its first partner no longer stands alone
    under a merge                      only what comes through that input

In what comes out every scan is a Leaf, which keeps its number whatever else is dropped, and Left
and Anti are the joins that engines know.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from tidelock.derive.algebra.builders import exactly, passing
from tidelock.derive.algebra.operators import (
    Anti,
    Generate,
    Join,
    Leaf,
    Left,
    Merge,
    Named,
    Operator,
    OuterJoin,
    Scan,
    Select,
    inputs,
    walk,
    with_inputs,
)


@dataclass(frozen=True)
class TermBody:
    """The body of one term, and the sign of its rows."""

    operator: Operator
    sign: int = 1


def state_body(body: Operator) -> Operator:
    """The body over whole relations."""
    return plain(numbered(body))


def term_body(body: Operator, leaf: int) -> TermBody:
    """The body of the term in which a leaf is replaced by its changes."""
    return _term(numbered(body), leaf)


def numbered(body: Operator) -> Operator:
    """The body with a leaf in the place of each scan, numbered from left to right."""
    return _number(body, iter(range(sum(isinstance(one, Scan) for one in walk(body)))))


def leaves_of(operator: Operator) -> list[Leaf]:
    return [one for one in walk(operator) if isinstance(one, Leaf)]


def _number(operator: Operator, numbers: Iterator[int]) -> Operator:
    if isinstance(operator, Scan):
        return Leaf(next(numbers), operator.columns)
    return with_inputs(operator, [_number(one, numbers) for one in inputs(operator)])


def plain(operator: Operator) -> Operator:
    """The operator as joins that engines know, over leaves."""
    if isinstance(operator, Left):
        left, right = plain(operator.left), plain(operator.right)
        return OuterJoin(left, right, "left", operator.keys, None, operator.null_safe)
    if isinstance(operator, Anti):
        left, partners = plain(operator.left), plain(operator.partners)
        return OuterJoin(left, partners, "anti", operator.keys, None, operator.null_safe)
    return with_inputs(operator, [plain(one) for one in inputs(operator)])


def _holds(operator: Operator, leaf: int) -> bool:
    return any(one.number == leaf for one in leaves_of(operator))


def _term(operator: Operator, leaf: int) -> TermBody:
    match operator:
        case Leaf():
            return TermBody(operator)
        case Select() | Generate():
            below = _term(operator.input, leaf)
            return TermBody(replace(operator, input=below.operator), below.sign)
        case Join():
            if _holds(operator.left, leaf):
                term = _term(operator.left, leaf)
                joined = replace(operator, left=term.operator, right=plain(operator.right))
            else:
                term = _term(operator.right, leaf)
                joined = replace(operator, left=plain(operator.left), right=term.operator)
            return TermBody(joined, term.sign)
        case Left():
            return _term_of_left(operator, leaf)
        case Anti():
            if _holds(operator.left, leaf):
                term = _term(operator.left, leaf)
                alone = plain(replace(operator, left=term.operator))
                return TermBody(alone, term.sign)
            return _without_partners(operator, leaf)
        case Merge():
            (through,) = (one for one in operator.inputs if _holds(one, leaf))
            term = _term(through, leaf)
            return TermBody(replace(operator, inputs=(term.operator,)), term.sign)
        case _:
            raise TypeError(f"{type(operator).__name__} is no part of a body")


def _term_of_left(operator: Left, leaf: int) -> TermBody:
    if _holds(operator.left, leaf):
        term = _term(operator.left, leaf)
        return TermBody(plain(replace(operator, left=term.operator)), term.sign)
    if _holds(operator.right, leaf):
        term = _term(operator.right, leaf)
        left = plain(operator.left)
        joined = Join(left, term.operator, operator.keys, None, operator.null_safe)
        return TermBody(joined, term.sign)
    alone = Anti(operator.left, operator.partners, operator.partner_keys, operator.null_safe)
    term = _without_partners(alone, leaf)
    nulls = tuple(
        Named(name, f"CAST(NULL AS {kind})", ())
        for name, kind in zip(operator.right.output, operator.types, strict=True)
    )
    return TermBody(Select(term.operator, (*passing(operator.left.output), *nulls)), term.sign)


def _without_partners(operator: Anti, leaf: int) -> TermBody:
    term = _term(operator.partners, leaf)
    left = plain(operator.left)
    joined = Join(left, term.operator, operator.keys, None, operator.null_safe)
    return TermBody(exactly(joined, operator.output), -term.sign)


def without_empty(operator: Operator, empty: Collection[int]) -> Operator | None:
    """The same rows without what reads leaves that have none; None if no row can come of it."""
    match operator:
        case Leaf():
            return None if operator.number in empty else operator
        case OuterJoin():
            left = without_empty(operator.left, empty)
            if left is None:
                return None
            right = without_empty(operator.right, empty)
            if right is None and operator.kind == "anti":
                return left
            # The right of a left join stays for the types of its columns.
            return replace(operator, left=left, right=right or operator.right)
        case Merge():
            kept = [without_empty(one, empty) for one in operator.inputs]
            rest = tuple(one for one in kept if one is not None)
            return replace(operator, inputs=rest) if rest else None
        case _:
            below = [without_empty(one, empty) for one in inputs(operator)]
            rest = tuple(one for one in below if one is not None)
            return with_inputs(operator, rest) if len(rest) == len(below) else None
