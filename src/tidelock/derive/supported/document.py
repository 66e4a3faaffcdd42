"""What SQL is kept, and how: the text of docs/supported-sql.md.

Owns: the words. What they say of a query is what the parser says of it, and every function is told
from the lists that the parser uses, so that the document cannot say anything else.

    python -m tidelock.derive.supported.document > docs/supported-sql.md
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from tidelock.derive.algebra.core import lower
from tidelock.derive.algebra.operators import Measure, scans
from tidelock.derive.plan.aggregates import is_exact
from tidelock.derive.plan.bodies import state_body
from tidelock.derive.plan.column_origins import trace
from tidelock.derive.plan.segments import Bag, Groups, Segment, cut
from tidelock.derive.sql.query import parse_view
from tidelock.derive.supported.examples import CALLS, FORMS, TABLES, UNNAMED, UNTYPED
from tidelock.errors import BrokenInvariant, InvalidExpression, UnsupportedType
from tidelock.model.ddl import parse_schema
from tidelock.model.schema.schema import TableSchema
from tidelock.model.sql import functions
from tidelock.model.sql.trees import columns_of, expression
from tidelock.model.types import spell_type

How = Literal["rows", "sums", "touched", "anew"]
WORDS: Mapping[How, str] = {
    "rows": "by its changes",
    "sums": "by adding sums and counts",
    "touched": "by computing what was touched",
    "anew": "anew",
}
_COSTLIER: tuple[How, ...] = ("rows", "sums", "touched")


@dataclass(frozen=True)
class Support:
    """How a query is kept; the reason is that of what is computed anew."""

    how: How
    reason: str = ""


def schemas() -> dict[str, TableSchema]:
    """The tables of the examples."""
    return {name: parse_schema(ddl, key=key) for name, (ddl, key) in TABLES.items()}


def support_of(query: str) -> Support:
    """How a query over the tables of the examples is kept."""
    known = schemas()
    view = parse_view(query, known)
    if view.root is None:
        return Support("anew", view.obstacles[0].reason)
    hows = {_how(segment, known) for segment in cut(lower(view.root))}
    return Support(max(hows, key=_COSTLIER.index))


def support_of_call(call: str) -> Support:
    """How a query that groups by a column and calls this aggregate is kept."""
    return support_of(f"SELECT status, {call} AS v FROM orders GROUP BY status")


def _how(segment: Segment, known: Mapping[str, TableSchema]) -> How:
    if isinstance(segment.content, Bag):
        return "rows"
    if not isinstance(segment.content, Groups):
        return "touched"
    kinds = {measure.name: _kind(segment, measure, known) for measure in segment.content.measures}
    return "sums" if all(is_exact(one, kinds) for one in segment.content.measures) else "touched"


def _kind(segment: Segment, measure: Measure, known: Mapping[str, TableSchema]) -> str:
    """The type of what a measure is taken of, where that is a column of a table."""
    if measure.argument is None:
        return ""
    (name,) = columns_of(expression(measure.argument))
    (origin, *_) = trace(state_body(segment.body)).columns[name]
    # What the lowering itself sums are counts.
    if origin is None:
        return "int"
    schema = known.get(scans(segment.body)[origin.leaf].table)
    if schema is None:
        return "bigint"
    return spell_type(schema.column(origin.column).type).lower()


def document() -> str:
    """The whole document."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield from (
        "# Supported SQL",
        "",
        "Every query that Spark runs can define a stream table, if its columns can be those of a",
        "table: each has [a name of its own, and a type that tables have](#columns). This page",
        "says how each form is kept up to date. It is generated: every line is what the parser",
        "says of the query beside it, or of a query that calls the function.",
        "",
        "| kept | what a refresh costs |",
        "|---|---|",
        f"| {WORDS['rows']} | what changed, and what it meets in other tables |",
        f"| {WORDS['sums']} | what changed; sums and counts stand beside the rows |",
        f"| {WORDS['touched']} | the groups, partitions or first rows that a change touches |",
        f"| {WORDS['anew']} | the whole query, at each refresh at which an input changed |",
        "",
        "A query with several forms is kept in several segments, each in its own way.",
        "`lake.explain` shows them. One part that is computed anew makes the whole query so;",
        '`refresh_mode="incremental_strict"` refuses such a query when the table is created.',
        "",
        "## Queries",
        "",
        "| form | kept | example |",
        "|---|---|---|",
    )
    for example in FORMS:
        found = support_of(example.query)
        told = WORDS[found.how] + (f": {found.reason}" if found.reason else "")
        yield f"| {example.form} | {told} | `{_cell(example.query)}` |"
    yield from ("", "The examples read these tables:", "", "```sql")
    for name, (ddl, key) in TABLES.items():
        yield f"CREATE TABLE {name} ({ddl}){f' -- key: {key}' if key else ''}"
    yield "```"
    yield from _columns()
    yield from _aggregates()
    yield from _others()


def _columns() -> Iterator[str]:
    yield from (
        "",
        "## Columns",
        "",
        "A query that gives columns which no table can have is refused when the stream table is",
        "created:",
        "",
        "| refused | what is said | example |",
        "|---|---|---|",
    )
    for example in UNNAMED:
        yield f"| {example.form} | {_advice(example.query)} | `{_cell(example.query)}` |"
    for type_, query in UNTYPED.items():
        yield f"| a column of type {type_} | {_instead(type_)} | `{_cell(query)}` |"


def _advice(query: str) -> str:
    """What the parser refuses the query with, without the place that it names."""
    try:
        parse_view(query, schemas())
    except InvalidExpression as error:
        return error.message.partition(": ")[2]
    raise BrokenInvariant(f"the query is not refused: {query}")


def _instead(type_: str) -> str:
    try:
        parse_schema(f"c {type_}")
    except UnsupportedType as error:
        return str(error.instead)
    raise BrokenInvariant(f"the type is not refused: {type_}")


def _aggregates() -> Iterator[str]:
    found: dict[Support, list[str]] = defaultdict(list)
    for name in functions.AGGREGATES:
        found[support_of_call(CALLS.get(name, f"{name}(quantity)"))].append(name)
    yield from ("", "## Aggregates", "", "| kept | functions |", "|---|---|")
    for support in sorted(found, key=lambda one: [*WORDS].index(one.how)):
        told = WORDS[support.how] + (f": {support.reason}" if support.reason else "")
        yield f"| {told} | {_named(found[support])} |"
    yield from (
        "",
        "`min` and `max` are kept beside the sums, and computed again for a group whose least or",
        "greatest value leaves. Sums of floating-point numbers, and their least and greatest, are",
        "computed again for all groups that changed, so that they never drift. So is every",
        "aggregate with `DISTINCT`.",
        "",
        "Where Spark leaves an answer open it is settled, and `lake.explain` says how: lists of",
        "`collect_list`, `collect_set` and `listagg` are sorted; `max_by`, `min_by` and `mode`",
        "choose among equals by value; rows that an order leaves equal are ordered by their other",
        "columns.",
    )


def _others() -> Iterator[str]:
    yield from (
        "",
        "## Window functions",
        "",
        f"{WORDS['touched'].capitalize()}: {_named(functions.RANKING)}, and the aggregates above.",
        "",
        "## Functions that give rows",
        "",
        f"{WORDS['rows'].capitalize()}: {_named(functions.GENERATORS)}.",
        "",
        "## Functions that make a query be computed anew",
        "",
        "| functions | why |",
        "|---|---|",
    )
    reasons: dict[str, list[str]] = defaultdict(list)
    for name in functions.REFUSED:
        reasons[functions.why_refused(name, 0) or ""].append(name)
    for reason in sorted(reasons):
        yield f"| {_named(reasons[reason])} | {reason} |"
    yield f"| any other name | {functions.why_refused('no such function', 0)} |"
    yield from (
        "",
        "## Functions of one row",
        "",
        f"Kept with the query that they stand in: {_named(functions.SCALARS)}.",
    )


def _named(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(document())
