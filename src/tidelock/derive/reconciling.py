"""From what files define and what the lake has to a plan of changes.

Owns: deciding, for each stream table, whether it is created, replaced, altered, dropped or left,
and refusing definitions that cannot stand together. Pure: it reads no file and no lake.

Invariants:
    only what this pipeline created is dropped (see `defined.py` for how it is told);
    a query that differs in white space or comments alone is the same query, and a definition that
    moved within its file the same definition;
    after the plan, every stream table of the lake reads tables that exist, and none reads itself.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

from tidelock.derive.apply_plan import Change, Plan
from tidelock.derive.defined import Defined, Use, pipeline_of, refusal
from tidelock.derive.graph import Graph
from tidelock.derive.options import option_changes
from tidelock.derive.query_text import same_query
from tidelock.errors import CircularDefinition
from tidelock.model.names import fold, suggest
from tidelock.model.streams import Definition

DIFF_LINES_MAX = 20
Sources = Callable[[Defined], tuple[str, ...]]
"""The tables that a definition reads. Asked for those of the files and for those in the lake."""


def plan_changes(
    defined: Iterable[Defined],
    current: Mapping[str, Definition],
    tables: Collection[str],
    sources: Sources,
    *,
    pipeline: str,
) -> Plan:
    """The plan that brings the lake to what the files define.

    `current` are the stream tables of the lake, `tables` all its tables, these included or not.
    """
    here = {fold(one.name): one for one in defined}
    held = {fold(name): _stored(name, definition) for name, definition in current.items()}
    dropped = {
        name: one
        for name, one in held.items()
        if name not in here and pipeline_of(one.definition.origin) == pipeline
    }
    kept = {name: one for name, one in held.items() if name not in here and name not in dropped}
    base = {fold(name): name for name in tables if fold(name) not in held}
    _refuse_taken_names(here, base)
    _refuse_foreign(here, held, pipeline)
    known = {name: one.name for name, one in {**kept, **here}.items()} | base
    for one in here.values():
        _refuse_unknown(one, [use.table for use in one.uses], known, dropped)
    reads = {name: sources(one) for name, one in {**kept, **here}.items()}
    for name, one in here.items():
        _refuse_unknown(one, reads[name], known, dropped)
    _refuse_bereft(kept, reads, dropped)
    order = _order(here, {one.name: reads[name] for name, one in {**kept, **here}.items()})
    drop_order = Graph.of({one.name: sources(one) for one in dropped.values()}).stream_tables
    drops = [_drop(dropped[fold(name)]) for name in reversed(drop_order)]
    rest = [_change(here[name], held.get(name)) for name in order]
    return Plan(pipeline, (*drops, *rest))


def _stored(name: str, definition: Definition) -> Defined:
    """A stream table of the lake, at the place that its origin names."""
    file, _, line = (definition.origin or "").rpartition(":")
    return Defined(name, definition, Path(file or name), int(line) if line.isdecimal() else 1)


def _refuse_taken_names(here: Mapping[str, Defined], base: Mapping[str, str]) -> None:
    for name, one in here.items():
        if name in base:
            raise refusal(
                one.file,
                one.line,
                f"The lake has a table {base[name]!r} that is no stream table. Rename the "
                "definition, or drop the table first.",
                table=base[name],
            )


def _refuse_foreign(
    here: Mapping[str, Defined], held: Mapping[str, Defined], pipeline: str
) -> None:
    """Two pipelines that define one name would take it from each other, again and again."""
    for name, one in here.items():
        origin = held[name].definition.origin if name in held else None
        if pipeline_of(origin) not in (None, pipeline):
            raise refusal(
                one.file,
                one.line,
                f"{one.name!r} is defined by another pipeline, in {origin}. Rename one of them. If "
                "it moved here, drop it first; if its folder was renamed, name this pipeline as "
                "that one in spark-pipeline.yml.",
                table=held[name].name,
            )


def _refuse_unknown(
    one: Defined, read: Iterable[str], known: Mapping[str, str], dropped: Mapping[str, Defined]
) -> None:
    for table in read:
        if fold(table) in known:
            continue
        place = next((use for use in one.uses if fold(use.table) == fold(table)), None)
        place = place or Use(table, one.file, one.line)
        if fold(table) in dropped:
            message = (
                f"{one.name!r} reads {table!r}, which is no longer defined and would be dropped. "
                f"Define it again, or change the query."
            )
        else:
            message = (
                f"{one.name!r} reads {table!r}, and there is no such table. "
                f"{suggest(table, known.values())}"
            )
        raise refusal(place.file, place.line, message, table=table)


def _refuse_bereft(
    kept: Mapping[str, Defined],
    reads: Mapping[str, tuple[str, ...]],
    dropped: Mapping[str, Defined],
) -> None:
    for name, one in kept.items():
        for table in reads[name]:
            gone = dropped.get(fold(table))
            if gone is not None:
                raise refusal(
                    gone.file,
                    gone.line,
                    f"{gone.name!r} is no longer defined, and {one.name!r}, which was created "
                    f"elsewhere, reads it. Define it again, or drop {one.name!r} first.",
                    table=gone.name,
                )


def _order(here: Mapping[str, Defined], reads: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The folded names of what is defined here, sources first."""
    try:
        graph = Graph.of(reads)
    except CircularDefinition as error:
        one = next((here[fold(name)] for name in error.path if fold(name) in here), None)
        if one is None:
            raise
        raise CircularDefinition(
            f"{one.file}:{one.line}: {error.message}",
            **{**error.evidence, "file": str(one.file), "line": one.line},
        ) from error
    return [fold(name) for name in graph.stream_tables if fold(name) in here]


def _drop(one: Defined) -> Change:
    reason = f"no longer defined (was {one.definition.origin})"
    return Change("drop", one.name, reason, one.definition)


def _change(one: Defined, held: Defined | None) -> Change:
    new = one.definition
    if held is None:
        return Change("create", one.name, f"new in {new.origin}", new)
    old = held.definition
    reasons = [*option_changes(old, new), *_origin_reasons(old, new)]
    if not same_query(old.query, new.query):
        reasons.insert(0, "query changed")
        return Change("replace", one.name, "; ".join(reasons), new, _diff(old.query, new.query))
    if reasons:
        return Change("alter", one.name, "; ".join(reasons), new)
    return Change("unchanged", one.name, "as defined", old)


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
