"""From what files define and what the lake has to a plan of changes.

Owns: deciding, for each stream table, whether it is created, replaced, altered, dropped or left,
and refusing definitions that cannot stand together. Pure: it reads no file and no lake.

Invariants:
    only what this pipeline created is dropped (see `written.py` for how it is told);
    a query that differs in white space or comments alone is the same query, and a definition that
    moved within its file the same definition;
    after the plan, every stream table of the lake reads tables that exist, and none reads itself.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

from tidelock.derive.definitions.apply_plan import ApplyPlan, Change
from tidelock.derive.definitions.options import option_changes
from tidelock.derive.definitions.written import Defined, TableUse, pipeline_of, refusal
from tidelock.derive.graph.graph import Graph
from tidelock.errors import CircularDefinition
from tidelock.model.names import fold, suggest
from tidelock.model.sql.text import same_query
from tidelock.model.streams import Definition

DIFF_LINES_MAX = 20
Inputs = Callable[[Defined], tuple[str, ...]]
"""The tables that a definition reads. Asked for those of the files and for those in the lake."""


def plan_changes(
    defined: Iterable[Defined],
    current: Mapping[str, Definition],
    tables: Collection[str],
    inputs: Inputs,
    *,
    pipeline: str,
) -> ApplyPlan:
    """The plan that brings the lake to what the files define.

    `current` are the stream tables of the lake, `tables` all its tables, these included or not.
    """
    here = {fold(view.name): view for view in defined}
    held = {fold(name): _stored(name, definition) for name, definition in current.items()}
    dropped = {
        name: view
        for name, view in held.items()
        if name not in here and pipeline_of(view.definition.origin) == pipeline
    }
    kept = {name: view for name, view in held.items() if name not in here and name not in dropped}
    base = {fold(name): name for name in tables if fold(name) not in held}
    _refuse_taken_names(here, base)
    _refuse_foreign(here, held, pipeline)
    known = {name: view.name for name, view in {**kept, **here}.items()} | base
    for name, view in here.items():
        if name not in held or not same_query(held[name].definition.query, view.definition.query):
            # What a query that the lake has means by its names, the lake knows.
            _refuse_unknown(view, [use.table for use in view.uses], known, dropped)
    reads = {name: inputs(view) for name, view in {**kept, **here}.items()}
    for name, view in here.items():
        _refuse_unknown(view, reads[name], known, dropped)
    _refuse_bereft(kept, reads, dropped)
    order = _order(here, {view.name: reads[name] for name, view in {**kept, **here}.items()})
    drop_order = Graph.of({view.name: inputs(view) for view in dropped.values()}).stream_tables
    drops = [_drop(dropped[fold(name)]) for name in reversed(drop_order)]
    rest = [_change(here[name], held.get(name)) for name in order]
    return ApplyPlan(pipeline, (*drops, *rest))


def _stored(name: str, definition: Definition) -> Defined:
    """A stream table of the lake, at the place that its origin names."""
    file, _, line = (definition.origin or "").rpartition(":")
    return Defined(name, definition, Path(file or name), int(line) if line.isdecimal() else 1)


def _refuse_taken_names(here: Mapping[str, Defined], base: Mapping[str, str]) -> None:
    for name, view in here.items():
        if name in base:
            raise refusal(
                view.file,
                view.line,
                f"The lake has a table {base[name]!r} that is no stream table. Rename the "
                "definition, or drop the table first.",
                table=base[name],
            )


def _refuse_foreign(
    here: Mapping[str, Defined], held: Mapping[str, Defined], pipeline: str
) -> None:
    """Two pipelines that define one name would take it from each other, again and again."""
    for name, view in here.items():
        origin = held[name].definition.origin if name in held else None
        if pipeline_of(origin) not in (None, pipeline):
            raise refusal(
                view.file,
                view.line,
                f"{view.name!r} is defined by another pipeline, in {origin}. Rename one of them. "
                "If it moved here, drop it first; if its folder was renamed, name this pipeline as "
                "that one in spark-pipeline.yml.",
                table=held[name].name,
            )


def _refuse_unknown(
    view: Defined,
    read: Iterable[str],
    known: Mapping[str, str],
    dropped: Mapping[str, Defined],
) -> None:
    for table in read:
        if fold(table) in known:
            continue
        use_here = next((use for use in view.uses if fold(use.table) == fold(table)), None)
        use_here = use_here or TableUse(table, view.file, view.line)
        if fold(table) in dropped:
            message = (
                f"{view.name!r} reads {table!r}, which is no longer defined and would be dropped. "
                f"Define it again, or change the query."
            )
        else:
            message = (
                f"{view.name!r} reads {table!r}, and there is no such table. "
                f"{suggest(table, known.values())}"
            )
        raise refusal(use_here.file, use_here.line, message, table=table)


def _refuse_bereft(
    kept: Mapping[str, Defined],
    reads: Mapping[str, tuple[str, ...]],
    dropped: Mapping[str, Defined],
) -> None:
    for name, view in kept.items():
        for table in reads[name]:
            gone = dropped.get(fold(table))
            if gone is not None:
                raise refusal(
                    gone.file,
                    gone.line,
                    f"{gone.name!r} is no longer defined, and {view.name!r}, which was created "
                    f"elsewhere, reads it. Define it again, or drop {view.name!r} first.",
                    table=gone.name,
                )


def _order(here: Mapping[str, Defined], reads: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The folded names of what is defined here, inputs first."""
    try:
        graph = Graph.of(reads)
    except CircularDefinition as error:
        view = next((here[fold(name)] for name in error.path if fold(name) in here), None)
        if view is None:
            raise
        raise CircularDefinition(
            f"{view.file}:{view.line}: {error.message}",
            **{**error.evidence, "file": str(view.file), "line": view.line},
        ) from error
    return [fold(name) for name in graph.stream_tables if fold(name) in here]


def _drop(view: Defined) -> Change:
    reason = f"no longer defined (was {view.definition.origin})"
    return Change("drop", view.name, reason, view.definition)


def _change(view: Defined, held: Defined | None) -> Change:
    new = view.definition
    if held is None:
        return Change("create", view.name, f"new in {new.origin}", new)
    old = held.definition
    reasons = [*option_changes(old, new), *_origin_reasons(old, new)]
    if not same_query(old.query, new.query):
        reasons.insert(0, "query changed")
        return Change("replace", view.name, "; ".join(reasons), new, _diff(old.query, new.query))
    if reasons:
        return Change("alter", view.name, "; ".join(reasons), new)
    return Change("unchanged", view.name, "as defined", old)


def _origin_reasons(old: Definition, new: Definition) -> Iterator[str]:
    """Another file counts, another line does not: it changes with every edit above it."""
    if old.origin is None:
        yield f"now defined in {new.origin}"
    elif new.origin and old.origin.rpartition(":")[0] != new.origin.rpartition(":")[0]:
        yield f"moved from {old.origin} to {new.origin}"


def _diff(old: str, new: str) -> tuple[str, ...]:
    lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=1))[2:]
    if len(lines) > DIFF_LINES_MAX:
        more = len(lines) - DIFF_LINES_MAX
        lines = [*lines[:DIFF_LINES_MAX], f"… {more} more lines"]
    return tuple(lines)
