"""What is known of an operator's rows without looking at any: keys, NULLs, how many there are.

In doubt nothing is known. A key is a set of columns that no two rows of the relation share; the
empty key says that there is at most one row.
"""

from __future__ import annotations

from sqlglot import exp

from tidelock.derive.algebra.builders import INTEGERS
from tidelock.derive.algebra.operators import (
    Aggregate,
    Condition,
    Distinct,
    Generate,
    Join,
    Named,
    Once,
    Operator,
    OuterJoin,
    Scan,
    Select,
    SetOperation,
    Top,
    Window,
)
from tidelock.derive.sql.scopes import Planning
from tidelock.model.names import fold
from tidelock.model.sql.predicates import conjuncts, sides
from tidelock.model.sql.trees import expression

Keys = frozenset[frozenset[str]]
NONE: Keys = frozenset()
KEYS_MAX = 16


def keys(operator: Operator, planning: Planning) -> Keys:
    """Keys of the operator's rows."""
    match operator:
        case Scan():
            return _of_table(operator, planning)
        case Select():
            below = keys(operator.input, planning)
            fixed = _fixed(operator.condition, planning)
            return _through(operator.columns, frozenset(key - fixed for key in below))
        case Aggregate():
            return frozenset({frozenset(operator.groups)})
        case Distinct():
            below = keys(operator.input, planning)
            return below or frozenset({frozenset(operator.output)})
        case Once():
            return keys(operator.input, planning)
        case Window() | Top():
            below = keys(operator.input, planning)
            one_row = isinstance(operator, Top) and operator.limit in (0, 1)
            return frozenset({frozenset[str]()}) if one_row else below
        case Join():
            return _of_pairs(operator, planning)
        case OuterJoin():
            if operator.kind in ("semi", "anti"):
                return keys(operator.left, planning)
            return _of_pairs(operator, planning)
        case SetOperation():
            return NONE if operator.all else frozenset({frozenset(operator.names)})
        case _:
            return NONE


def _of_table(scan: Scan, planning: Planning) -> Keys:
    schema = planning.schemas.get(scan.table)
    here = {fold(original): name for name, original in scan.columns}
    if schema is None or not schema.key or not all(fold(one) in here for one in schema.key):
        return NONE
    return frozenset({frozenset(here[fold(one)] for one in schema.key)})


def _fixed(condition: Condition | None, planning: Planning) -> frozenset[str]:
    """The columns that have one value in all rows for which the condition is true."""
    fixed = set()
    for tree in [] if condition is None else conjuncts(expression(condition.sql)):
        both = sides(tree)
        if both is None:
            continue
        for one, two in (both[:2], both[1::-1]):
            if (
                isinstance(one, exp.Column)
                and len(one.parts) == 1
                and _is_exact(one, two, planning)
            ):
                fixed.add(one.name)
    return frozenset(fixed)


def _is_exact(column: exp.Column, value: exp.Expr, planning: Planning) -> bool:
    """Whether one value of the column alone equals the constant. (Of a STRING many equal 1.)"""
    if not isinstance(value, exp.Literal):
        return False
    return value.is_string or planning.types.get(column.name) in INTEGERS


def _through(columns: tuple[Named, ...], below: Keys) -> Keys:
    names: dict[str, str] = {}
    for one in columns:
        if one.passed is not None:
            names.setdefault(one.passed, one.name)
    kept = (key for key in below if key <= names.keys())
    return frozenset(frozenset(names[one] for one in key) for key in kept)


def _of_pairs(operator: Join | OuterJoin, planning: Planning) -> Keys:
    """One key of each side names a pair; one side's alone where the other has one partner at most.

    Keys are compared by value only where the two sides have one type; so a join counts as to one
    partner only where this is said.
    """
    left, right = keys(operator.left, planning), keys(operator.right, planning)
    found = {one | two for one in left for two in right}
    same = isinstance(operator, OuterJoin) and operator.same_types
    kind = operator.kind if isinstance(operator, OuterJoin) else "inner"
    to_one_right = same and _covers(right, {two for _, two in operator.keys})
    to_one_left = same and _covers(left, {one for one, _ in operator.keys})
    if kind in ("inner", "left") and (frozenset() in right or to_one_right):
        found |= left
    if kind in ("inner", "right") and (frozenset() in left or to_one_left):
        found |= right
    return frozenset(sorted(found, key=lambda key: (len(key), sorted(key)))[:KEYS_MAX])


def _covers(found: Keys, columns: set[str]) -> bool:
    return any(key <= columns for key in found)


def required(operator: Operator, planning: Planning) -> frozenset[str]:
    """The columns in which there is no NULL."""
    match operator:
        case Scan():
            schema = planning.schemas.get(operator.table)
            columns = () if schema is None else schema.columns
            solid = {fold(one.name) for one in columns if not one.nullable}
            return frozenset(name for name, original in operator.columns if fold(original) in solid)
        case Select():
            below = required(operator.input, planning)
            return frozenset(one.name for one in operator.columns if one.passed in below)
        case Join():
            return required(operator.left, planning) | required(operator.right, planning)
        case OuterJoin():
            left = required(operator.left, planning)
            right = required(operator.right, planning)
            kept = {"left": left, "semi": left, "anti": left, "right": right}
            return kept.get(operator.kind, frozenset())
        case Aggregate():
            counts = {one.name for one in operator.measures if one.function == "count"}
            return (required(operator.input, planning) & set(operator.groups)) | counts
        case Distinct() | Window() | Top() | Once():
            return required(operator.input, planning)
        case Generate():
            return required(operator.input, planning)
        case _:
            return frozenset()


def is_one_row(operator: Operator) -> bool:
    """Whether there is exactly one row, whatever the tables hold."""
    if isinstance(operator, Select):
        return operator.condition is None and is_one_row(operator.input)
    if isinstance(operator, Join):
        alone = not operator.keys and operator.condition is None
        return alone and is_one_row(operator.left) and is_one_row(operator.right)
    return isinstance(operator, Aggregate) and not operator.groups


def is_row_at_most(operator: Operator, planning: Planning) -> bool:
    """Whether there is at most one row, whatever the tables hold."""
    return frozenset() in keys(operator, planning)
