"""Temporary views: private parts of the queries that use them.

Owns: putting the text of a temporary view, as a common table expression, before a query that names
it, directly or through other temporary views. Its name stands in all files of the pipeline, before
a table of the lake with the same name.
Invariants: the names mean in the result what they meant apart. The views come first, each after
those that it uses, so that no expression of the query itself can be taken for a table of a view.
Every line of the result knows the place in a file that it came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelock.derive.defined import Place, Use, Written, refusal
from tidelock.model.names import fold, quote


@dataclass(frozen=True, slots=True)
class Inlined:
    """A query with its views in it: the place of each line, and the tables that all of it uses."""

    text: str
    places: tuple[Place, ...]
    uses: tuple[Use, ...]


def inline(written: Written, views: Mapping[str, Written]) -> Inlined:
    """The query with its views (by folded name) in it."""
    needed = _needed(written, views)
    query = written.query
    for view in needed:
        if fold(view.name) in query.ctes:
            raise refusal(
                written.file,
                written.line,
                f"The query's own {view.name!r} hides the temporary view of that name "
                f"({view.file}:{view.line}), which it uses as well. Rename one of them.",
            )
    text, places = query.text, query.places
    if needed:
        parts = ",\n".join(_as_cte(view) for view in needed)
        part_places = [place for view in needed for place in _cte_places(view)]
        if query.head:
            within = text.count("\n", 0, query.head)
            text = f"{text[: query.head]}{parts},\n{text[query.head :]}"
            places = (*places[:within], *part_places, *places[within:])
        else:
            text = f"WITH {parts}\n{text}"
            places = (*part_places, *places)
    if written.columns:
        text = f"SELECT * FROM (\n{text}\n) AS {quote(written.name)}{_column_list(written)}"
        head = Place(written.file, written.line)
        places = (head, *places, head)
    every = (*query.uses, *(use for view in needed for use in view.query.uses))
    return Inlined(text, places, tuple(use for use in every if fold(use.table) not in views))


def _needed(written: Written, views: Mapping[str, Written]) -> list[Written]:
    """The views that a query uses, each once and after those that it uses itself."""
    done: dict[str, Written] = {}
    path: list[str] = []

    def visit(user: Written) -> None:
        for use in user.query.uses:
            name = fold(use.table)
            if name not in views or name in done:
                continue
            view = views[name]
            if name in path:
                circle = [*path[path.index(name) :], name]
                raise refusal(
                    use.file,
                    use.line,
                    "Temporary views use each other in a circle: "
                    f"{' → '.join(views[step].name for step in circle)}. Remove one of the uses.",
                )
            path.append(name)
            visit(view)
            path.pop()
            done[name] = view

    visit(written)
    return list(done.values())


def _as_cte(view: Written) -> str:
    return f"{quote(view.name)}{_column_list(view)} AS (\n{view.query.text}\n)"


def _cte_places(view: Written) -> tuple[Place, ...]:
    head = Place(view.file, view.line)
    return (head, *view.query.places, head)


def _column_list(written: Written) -> str:
    return f"({', '.join(map(quote, written.columns))})" if written.columns else ""
