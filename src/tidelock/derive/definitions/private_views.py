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

from tidelock.derive.definitions.written import FileLine, TableUse, Written, refusal
from tidelock.model.names import fold, quote


@dataclass(frozen=True, slots=True)
class Inlined:
    """A query with its views in it: the place of each line, and the tables that all of it uses."""

    text: str
    file_lines: tuple[FileLine, ...]
    uses: tuple[TableUse, ...]


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
    text, file_lines = query.text, query.file_lines
    if needed:
        parts = ",\n".join(_as_cte(view) for view in needed)
        part_lines = [line for view in needed for line in _cte_lines(view)]
        if query.first_cte:
            within = text.count("\n", 0, query.first_cte)
            text = f"{text[: query.first_cte]}{parts},\n{text[query.first_cte :]}"
            file_lines = (*file_lines[:within], *part_lines, *file_lines[within:])
        else:
            text = f"WITH {parts}\n{text}"
            file_lines = (*part_lines, *file_lines)
    if written.columns:
        text = f"SELECT * FROM (\n{text}\n) AS {quote(written.name)}{_column_list(written)}"
        start = FileLine(written.file, written.line)
        file_lines = (start, *file_lines, start)
    every = (*query.uses, *(use for view in needed for use in view.query.uses))
    return Inlined(text, file_lines, tuple(use for use in every if fold(use.table) not in views))


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


def _cte_lines(view: Written) -> tuple[FileLine, ...]:
    start = FileLine(view.file, view.line)
    return (start, *view.query.file_lines, start)


def _column_list(written: Written) -> str:
    return f"({', '.join(map(quote, written.columns))})" if written.columns else ""
