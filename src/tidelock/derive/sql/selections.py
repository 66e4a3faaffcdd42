"""The select list: its stars written out, and the name that each column is seen under."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from tidelock.derive.sql.scopes import Planning, Relation, Scope, Visible, translate
from tidelock.errors import ColumnNotFound, InvalidExpression
from tidelock.model.names import fold, suggest
from tidelock.model.sql.trees import bare, column


@dataclass(frozen=True)
class Item:
    """One column of a select list. A star gives the column itself, whatever its name means."""

    name: str | None
    node: exp.Expr
    visible: Visible | None = None


def select_items(planning: Planning, select: exp.Select, relation: Relation) -> list[Item]:
    items: list[Item] = []
    for node in select.expressions:
        star = node.this if isinstance(node, exp.Column) else node
        if isinstance(star, exp.Star):
            items += _starred(planning, node, star, relation)
        elif isinstance(node, exp.Alias):
            items.append(Item(node.alias, node.this))
        else:
            items.append(Item(own_name(node), node))
    return items


def item_tree(planning: Planning, item: Item, scope: Scope) -> exp.Expr:
    """The item over the columns of operators."""
    if item.visible is not None:
        return column(item.visible.column)
    return translate(planning, item.node, scope)


def at_position(
    planning: Planning, node: exp.Expr, selected: Sequence[exp.Expr], clause: str
) -> exp.Expr | None:
    """The column of the select list that a number in a clause stands for; None for what is none."""
    if not isinstance(node, exp.Literal) or node.is_string or not node.name.isdigit():
        return None
    position = int(node.name)
    if not 1 <= position <= len(selected):
        raise planning.error(
            InvalidExpression,
            node,
            f"{clause} {position} is no position of the select list: it has {len(selected)}.",
        )
    return selected[position - 1].copy()


def own_name(node: exp.Expr) -> str | None:
    """The name that Spark gives to a column that was given none, where it is a plain one."""
    node = bare(node)
    if isinstance(node, exp.Cast):
        return own_name(node.this)
    if isinstance(node, exp.Column | exp.Dot):
        return str(node.name)
    return None


def _starred(
    planning: Planning, node: exp.Expr, star: exp.Star, relation: Relation
) -> Iterator[Item]:
    if any(value for name, value in star.args.items() if name != "except_"):
        planning.refuse(node, "this form of a star is not kept by delta")
    found: list[Visible] = list(relation.visible)
    if isinstance(node, exp.Column):
        qualifier = node.table
        if len(node.parts) > 2:
            planning.refuse(node, "a star behind a field is not kept by delta")
        everything = (*relation.hidden, *relation.visible)
        found = [one for one in everything if one.belongs_to(qualifier)]
        if not found and any(one.is_called(qualifier) for one in relation.visible):
            planning.refuse(node, "a star behind a field is not kept by delta")
        if not found:
            known = {one.qualifier for one in relation.visible if one.qualifier is not None}
            raise planning.error(
                InvalidExpression,
                node,
                f"There is no table {qualifier!r} in this FROM. {suggest(qualifier, known)}",
            )
    left_out = _excepted(planning, star, found)
    for one in found:
        if one not in left_out:
            yield Item(one.name, exp.Star(), one)


def _excepted(planning: Planning, star: exp.Star, found: list[Visible]) -> list[Visible]:
    left_out: list[Visible] = []
    for one in star.args.get("except_") or []:
        parts = [part.name for part in one.parts] if isinstance(one, exp.Column) else [one.name]
        matching = [
            visible
            for visible in found
            if visible.is_called(parts[-1]) and (len(parts) == 1 or visible.belongs_to(parts[-2]))
        ]
        if not matching:
            names = {visible.name for visible in found if visible.name is not None}
            raise planning.error(
                ColumnNotFound,
                one,
                f"There is no column {parts[-1]!r} to leave out. {suggest(parts[-1], names)}",
                column=parts[-1],
            )
        left_out += matching
    return left_out


def check_names(planning: Planning, query: exp.Expr, names: list[str | None]) -> None:
    """Every column of a stream table has a name of its own."""
    listed = query.expressions if isinstance(query, exp.Select) else []
    places = listed if len(listed) == len(names) else [query] * len(names)
    seen: set[str] = set()
    for position, (name, place) in enumerate(zip(names, places, strict=True), start=1):
        if name is None:
            raise planning.error(
                InvalidExpression,
                place,
                f"Column {position} has no name. Give it one: AS name.",
            )
        if fold(name) in seen:
            raise planning.error(
                InvalidExpression,
                place,
                f"Two columns are named {name!r}; names are compared without regard to case. "
                "Rename one: AS name.",
                column=name,
            )
        seen.add(fold(name))
