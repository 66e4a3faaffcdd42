"""Names: what a query can see, and which column of which operator a name means.

A relation is an operator together with the names under which a query sees its columns. A scope is
what an expression can see: a relation, then the aliases of the select list in front of it, then the
scope around the query. As in Spark, names are compared without regard to case, a qualifier is
first taken for a table and then for a column with fields, and a name that two columns have is
refused only when it is used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn, Protocol, TypeAlias

from sqlglot import exp

from tidelock.derive.algebra.operators import Operator
from tidelock.derive.sql.calls import is_inside_aggregate
from tidelock.derive.sql.view import Obstacle
from tidelock.errors import ColumnNotFound, InvalidExpression, TidelockError
from tidelock.model.names import fold, suggest
from tidelock.model.schema.schema import TableSchema
from tidelock.model.sql.functions import (
    CLOCK,
    SURROUNDINGS,
    WITHOUT_PARENTHESES,
    why_refused,
)
from tidelock.model.sql.text import QueryText
from tidelock.model.sql.trees import (
    bare,
    column,
    function_name,
    rewrite,
    substitute,
    text_of,
    wrapped,
)


class Refused(Exception):
    """Not an error: says, while planning, what keeps the query from being kept by delta."""

    def __init__(self, obstacle: Obstacle) -> None:
        super().__init__(str(obstacle))
        self.obstacle = obstacle


@dataclass(frozen=True)
class Cte:
    """A query that WITH gives a name to, and the names that it can use itself."""

    query: exp.Expr
    columns: tuple[str, ...]
    ctes: Ctes


Place: TypeAlias = tuple[int, int, str]
"""A line and a column of the text, and what stands there: of two queries one of which begins with
the other, both are at one place."""

Ctes: TypeAlias = Mapping[str, Cte]
"""Queries by their (folded) names."""


class PlanQuery(Protocol):
    """Plans a whole query. Conditions by which it hangs on the query around go to `outward`, if
    that is given; without it they keep the query from being planned."""

    def __call__(
        self,
        planning: Planning,
        node: exp.Expr,
        ctes: Ctes,
        outer: Scope | None,
        outward: list[exp.Expr] | None = None,
    ) -> Relation: ...


class KeepRows(Protocol):
    """The rows for which all of the conditions are true, with subqueries in them joined."""

    def __call__(
        self,
        planning: Planning,
        relation: Relation,
        conditions: Sequence[exp.Expr],
        ctes: Ctes,
        outer: Scope | None,
    ) -> Relation: ...


class AnswerConditions(Protocol):
    """The relation with the subqueries in the conditions joined, and the conditions over it; they
    are true where they were, and unknown or false where they were either."""

    def __call__(
        self,
        planning: Planning,
        relation: Relation,
        conditions: Sequence[exp.Expr],
        ctes: Ctes,
        outer: Scope | None,
    ) -> tuple[Relation, list[exp.Expr]]: ...


@dataclass
class Planning:
    """What the planning of one query shares: its text, the schemas, and a supply of names."""

    text: QueryText
    schemas: Mapping[str, TableSchema]
    plan_query: PlanQuery
    keep_rows: KeepRows
    answer: AnswerConditions
    """All given by query.py, which knows all of the syntax."""
    types: dict[str, str] = field(default_factory=dict)
    """The types of columns of operators, as far as they are known."""
    notes: list[str] = field(default_factory=list)
    written: dict[str, exp.Expr] = field(default_factory=dict)
    """How the text spells columns of operators, for messages."""
    keep_once: frozenset[Place] = frozenset()
    """Where queries stand that WITH gives a name to and that are kept, for they are read often."""
    ctes: dict[Place, Relation] = field(default_factory=dict)
    """Those that are planned already."""
    reads: Counter[Place] = field(default_factory=Counter)
    """How often each of them is read."""
    kept: dict[int, Operator] = field(default_factory=dict)
    """What stands for each operator that is kept once, so that it stays one in all places."""
    _last: int = 0

    def fresh(self, type_: str | None = None) -> str:
        """A name that neither an operator nor the text uses."""
        while True:
            self._last += 1
            name = f"c{self._last}"
            if name not in self.text.words:
                break
        if type_ is not None:
            self.types[name] = type_
        return name

    def obstacle(self, node: exp.Expr, reason: str) -> Obstacle:
        shown = text_of(substitute(node, self.written))
        shown = shown if len(shown) <= 80 else shown[:79] + "…"
        return Obstacle(reason, shown, *self.text.place_of(node))

    def refuse(self, node: exp.Expr, reason: str) -> NoReturn:
        raise Refused(self.obstacle(node, reason))

    def note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)

    def error(
        self, kind: type[TidelockError], node: exp.Expr, message: str, **evidence: object
    ) -> TidelockError:
        return self.text.error(kind, self.text.place_of(node), message, **evidence)


@dataclass(frozen=True)
class Visible:
    """A column as a query sees it. A column that was given no name can only be seen by `*`."""

    name: str | None
    qualifier: str | None
    column: str

    def is_called(self, name: str) -> bool:
        return self.name is not None and fold(self.name) == fold(name)

    def belongs_to(self, qualifier: str) -> bool:
        return self.qualifier is not None and fold(self.qualifier) == fold(qualifier)


@dataclass(frozen=True)
class Relation:
    """An operator and what is seen of it. `hidden` columns are found by qualified names only."""

    operator: Operator
    visible: tuple[Visible, ...]
    hidden: tuple[Visible, ...] = ()

    def over(self, operator: Operator) -> Relation:
        """What is seen stays the same, of another operator that has its columns."""
        return Relation(operator, self.visible, self.hidden)

    def renamed(self, qualifier: str | None) -> Relation:
        """The relation as a table of that name."""
        visible = tuple(Visible(one.name, qualifier, one.column) for one in self.visible)
        return Relation(self.operator, visible)


@dataclass(frozen=True)
class Scope:
    relation: Relation
    outer: Scope | None = None
    aliases: Mapping[str, tuple[exp.Expr, ...]] = field(default_factory=dict)
    """What the select list in front calls by a (folded) name, over the relation's columns."""
    aliases_first: bool = False
    """Whether a name means the select list before it means the relation, as in ORDER BY."""
    groups: tuple[exp.Expr, ...] | None = None
    """In HAVING, the groups: of the relation they alone go before the select list there."""


def translate(planning: Planning, node: exp.Expr, scope: Scope) -> exp.Expr:
    """The expression over columns of operators. Subqueries in it stay as they were written."""

    def change(one: exp.Expr) -> exp.Expr | None:
        if isinstance(one, exp.Column):
            if isinstance(one.this, exp.Star):
                planning.refuse(one, "a star inside of an expression")
            return None if _is_lambda_variable(one) else _resolve(planning, one, scope)
        if isinstance(one, exp.Star) and not _is_counted(one):
            planning.refuse(one.parent or one, "a star inside of an expression")
        if isinstance(one, exp.Dot) and isinstance(one.expression, exp.Anonymous):
            planning.refuse(one, "the function is not built into Spark")
        if isinstance(one, exp.Parameter | exp.Placeholder | exp.SessionParameter):
            raise planning.error(
                InvalidExpression, one, f"{text_of(one)} is a parameter. Write the value itself."
            )
        return None

    return rewrite(node, change)


def _is_counted(star: exp.Star) -> bool:
    call = star.parent
    return isinstance(call, exp.Anonymous) and function_name(call) == "count"


def _is_lambda_variable(node: exp.Column) -> bool:
    name = fold(node.parts[0].name)
    ancestor = node.find_ancestor(exp.Lambda)
    while ancestor is not None:
        if any(fold(variable.name) == name for variable in ancestor.expressions):
            return True
        ancestor = ancestor.find_ancestor(exp.Lambda)
    return False


def _resolve(planning: Planning, node: exp.Column, scope: Scope) -> exp.Expr:
    parts = [part.name for part in node.parts]
    inner: Scope | None = scope
    while inner is not None:
        found = _look_up(planning, node, parts, inner)
        if found is not None:
            if len(parts) == 1 and _is_call(parts[0], scope):
                planning.refuse(node, "the name means a function here, not the column")
            return found
        inner = inner.outer
    name = ".".join(parts)
    if len(parts) == 1 and fold(name) in CLOCK | SURROUNDINGS:
        planning.refuse(node, why_refused(fold(name), 0) or "")
    known = [one.name for one in scope.relation.visible if one.name is not None]
    raise planning.error(
        ColumnNotFound,
        node,
        f"There is no column {name!r}. {suggest(parts[-1], set(known))}",
        column=name,
    )


def _is_call(name: str, scope: Scope) -> bool:
    """Whether Spark calls a function, though a column has the name: it looks for a function before
    it looks at aliases, at rows of the query around, and behind the select list of ORDER BY."""
    if fold(name) not in WITHOUT_PARENTHESES:
        return False
    if (scope.aliases_first or scope.groups is not None) and fold(name) in scope.aliases:
        return False
    return scope.aliases_first or not any(one.is_called(name) for one in scope.relation.visible)


def _look_up(
    planning: Planning, node: exp.Column, parts: list[str], scope: Scope
) -> exp.Expr | None:
    """What the name means in this scope alone, its fields taken; None if it means nothing."""
    relation = scope.relation
    if len(parts) > 1:
        everything = (*relation.visible, *relation.hidden)
        qualified = [
            one for one in everything if one.belongs_to(parts[0]) and one.is_called(parts[1])
        ]
        if qualified:
            return _with_fields(_only(planning, node, qualified), parts[2:])
    plain = [one for one in relation.visible if one.is_called(parts[0])]
    aliased = scope.aliases.get(fold(parts[0]), ())
    if plain and not (aliased and _alias_wins(planning, node, plain, aliased, scope)):
        return _with_fields(_only(planning, node, plain), parts[1:])
    if len(aliased) > 1:
        raise _ambiguous(planning, node, parts[0])
    if aliased:
        return _with_fields(wrapped(aliased[0]), parts[1:])
    return None


def _alias_wins(
    planning: Planning,
    node: exp.Column,
    plain: list[Visible],
    aliased: tuple[exp.Expr, ...],
    scope: Scope,
) -> bool:
    """Whether a name that is both a column and an alias means the alias."""
    means_both = len(plain) == len(aliased) == 1 and bare(aliased[0]) == column(plain[0].column)
    if means_both:
        return False
    if scope.groups is not None:
        grouped = any(column(one.column) in scope.groups for one in plain)
        return not grouped and not is_inside_aggregate(node)
    if scope.aliases_first and is_inside_aggregate(node):
        planning.refuse(node, "the name means a column and an alias, inside of an aggregate")
    return scope.aliases_first


def _only(planning: Planning, node: exp.Column, found: list[Visible]) -> exp.Expr:
    columns = {one.column for one in found}
    if len(columns) > 1:
        raise _ambiguous(planning, node, ".".join(part.name for part in node.parts))
    tree = column(found[0].column)
    # Messages about the tree still name the place and the words of the text.
    tree.meta.update(node.parts[0].meta)
    planning.written.setdefault(tree.name, node.copy())
    return tree


def _ambiguous(planning: Planning, node: exp.Column, name: str) -> TidelockError:
    return planning.error(
        InvalidExpression,
        node,
        f"{name!r} is ambiguous: several columns have this name. Write the table in front of it.",
        column=name,
    )


def _with_fields(tree: exp.Expr, fields: Iterable[str]) -> exp.Expr:
    for one in fields:
        tree = exp.Dot(this=tree, expression=exp.Identifier(this=one, quoted=True))
    return tree
