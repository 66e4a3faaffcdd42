"""Window functions: every OVER becomes a column of an operator that has its partitions.

Where the order of a window leaves rows equal, Spark numbers them as they come. Here equals are told
apart by further columns, so that the same rows always give the same answer, and one that Spark
could have given. That must not be done where equals form one frame (RANGE): there only functions
are kept whose answer does not depend on the order among them.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from tidelock.derive.algebra.operators import Named, Window
from tidelock.derive.sql.aggregates import settled
from tidelock.derive.sql.calls import called
from tidelock.derive.sql.columns import check_local, with_columns
from tidelock.derive.sql.properties import keys
from tidelock.derive.sql.scopes import Planning, Relation
from tidelock.errors import InvalidExpression
from tidelock.model.names import fold
from tidelock.model.sql.functions import (
    AGGREGATES,
    CANONICAL,
    PEERLESS,
    POSITIONAL,
    RANKING,
    UNSETTLED,
)
from tidelock.model.sql.predicates import has_query
from tidelock.model.sql.trees import column, columns_of, function_name, rewrite, text_of

_CHOOSING = frozenset({"first", "last", "first_value", "last_value", "any_value", "nth_value"})


def named_windows(planning: Planning, select: exp.Select) -> dict[str, exp.Window]:
    """The windows that the clause WINDOW gives names to."""
    found: dict[str, exp.Window] = {}
    for window in select.args.get("windows") or []:
        found[fold(window.name)] = _completed(planning, window, found)
    return found


def with_windows_named(
    planning: Planning, tree: exp.Expr, windows: dict[str, exp.Window]
) -> exp.Expr:
    """The tree with each `OVER name` written out."""

    def change(node: exp.Expr) -> exp.Expr | None:
        if isinstance(node, exp.Window) and node.args.get("alias"):
            return _completed(planning, node, windows)
        return None

    return rewrite(tree, change)


def _completed(
    planning: Planning, window: exp.Window, windows: dict[str, exp.Window]
) -> exp.Window:
    copy = window.copy()
    alias = copy.args.get("alias")
    if alias is None:
        return copy
    base = windows.get(fold(alias.name))
    if base is None:
        raise planning.error(
            InvalidExpression, window, f"There is no window {alias.name!r}. Define it with WINDOW."
        )
    copy.set("alias", None)
    for part in ("partition_by", "order", "spec"):
        if not copy.args.get(part) and base.args.get(part):
            value = base.args[part]
            copies = [one.copy() for one in value] if isinstance(value, list) else value.copy()
            copy.set(part, copies)
    return copy


def plan_windows(
    planning: Planning, relation: Relation, trees: Sequence[exp.Expr]
) -> tuple[Relation, list[exp.Expr]]:
    """The relation with a column for each window function, and the trees that read these."""
    windows: dict[str, exp.Window] = {}
    for tree in trees:
        for window in tree.find_all(exp.Window):
            windows.setdefault(text_of(window), window)
    operator = relation.operator
    read = columns_of(*trees)
    results: dict[str, exp.Expr] = {}
    by_partition: dict[tuple[str, ...], list[Named]] = {}
    for text, window in windows.items():
        _check(planning, window, relation)
        partition = window.args.get("partition_by") or []
        operator, keys_ = with_columns(planning, operator, partition)
        if not any(columns_of(one) for one in partition):
            planning.refuse(window, "a window without PARTITION BY holds every row of the table")
        unique = tuple(sorted(dict.fromkeys(keys_)))
        tree, outside = _settled(planning, window, keys_, read, relation)
        name = planning.fresh()
        by_partition.setdefault(unique, []).append(Named(name, text_of(tree), columns_of(tree)))
        result: exp.Expr = column(name)
        if outside is not None:
            result = exp.Anonymous(this=outside, expressions=[result])
        results[text] = result
    for partition_, columns in by_partition.items():
        operator = Window(operator, partition_, tuple(columns))

    def change(node: exp.Expr) -> exp.Expr | None:
        return results[text_of(node)].copy() if isinstance(node, exp.Window) else None

    rewritten = [rewrite(tree, change) for tree in trees]
    return relation.over(operator), rewritten


def _check(planning: Planning, window: exp.Window, relation: Relation) -> None:
    if has_query(window):
        planning.refuse(window, "a subquery inside of a window is not kept by delta")
    check_local(planning, window, relation.operator)
    call = called(window.this)
    if call is None or function_name(call) not in AGGREGATES | RANKING:
        planning.refuse(window, "the function is no window function that is known")
    if window.this.find(exp.Window) is not None:
        raise planning.error(InvalidExpression, window, "A window inside of a window. Split them.")


def _settled(
    planning: Planning,
    window: exp.Window,
    partition: Sequence[str],
    read: Sequence[str],
    relation: Relation,
) -> tuple[exp.Expr, str | None]:
    """The window over columns alone, in a form that has one answer."""
    copy = window.copy()
    copy.set("partition_by", [column(name) for name in dict.fromkeys(partition)])
    call = called(copy.this)
    assert call is not None
    name = CANONICAL.get(function_name(call), function_name(call))
    order = copy.args.get("order")
    missing = _missing(planning, order, partition, read, relation)
    if name in PEERLESS:
        return copy, None
    if name in POSITIONAL:
        _break_ties(planning, window, copy, missing)
        return copy, None
    # A list in the order of the window depends on that order, as a choice does.
    choosing = name in _CHOOSING or (name in ("collect_list", "listagg") and order is not None)
    if not choosing and name in UNSETTLED:
        planning.refuse(window, "the answer depends on the order in which rows arrive")
    outside = None
    if not choosing:
        function, outside = settled(planning, copy.this)
        copy.set("this", function.copy())
    if order is None:
        if choosing:
            planning.refuse(window, "the answer depends on the order in which rows arrive")
    elif _counts_rows(copy) or (choosing and missing and _starts_at_first(copy, name)):
        _break_ties(planning, window, copy, missing)
    elif choosing and missing:
        planning.refuse(window, "rows of equal order share a frame, and which is taken is open")
    return copy, outside


def _counts_rows(window: exp.Window) -> bool:
    spec = window.args.get("spec")
    return spec is not None and str(spec.args.get("kind") or "").upper() == "ROWS"


def _starts_at_first(window: exp.Window, name: str) -> bool:
    """Whether telling equals apart leaves a choice that Spark could have made."""
    spec = window.args.get("spec")
    if spec is None:
        return name in ("first", "first_value")
    start = str(spec.args.get("start") or "").upper()
    end = str(spec.args.get("end") or "CURRENT ROW").upper()
    whole = end == "UNBOUNDED"
    return start == "UNBOUNDED" and (whole or name in ("first", "first_value"))


def _missing(
    planning: Planning,
    order: exp.Order | None,
    partition: Sequence[str],
    read: Sequence[str],
    relation: Relation,
) -> list[str]:
    """The columns that make the order total; none where it is."""
    given = set(partition)
    for one in order.expressions if order is not None else []:
        if isinstance(one.this, exp.Column) and len(one.this.parts) == 1:
            given.add(one.this.name)
    best: list[str] | None = None
    for key in keys(relation.operator, planning):
        rest = sorted(key - given)
        if best is None or len(rest) < len(best):
            best = rest
    return [name for name in read if name not in given] if best is None else best


def _break_ties(
    planning: Planning, node: exp.Expr, window: exp.Window, missing: Sequence[str]
) -> None:
    if not missing:
        return
    for name in missing:
        type_ = planning.types.get(name, "")
        if type_.startswith(("MAP<", "VARIANT")):
            planning.refuse(node, "rows of equal order cannot be told apart by a MAP")
    planning.note("Rows that a window's order leaves equal are ordered by their other columns.")
    added = [exp.Ordered(this=column(name), nulls_first=True) for name in missing]
    order = window.args.get("order")
    if order is None:
        window.set("order", exp.Order(expressions=added))
    else:
        for one in added:
            order.append("expressions", one)
