"""Diffs as people read them: a line for each table, and what a table differs in.

    + a row that only the state after has        ~ one with other values, before → after
    - a row that only the state before has

Nothing that comes from data is written as it is: text stands in quotes, on one line.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tidelock.model.plain_values import plain_value
from tidelock.model.printable import printable
from tidelock.model.types import type_name

if TYPE_CHECKING:
    from tidelock.model.history.diffs import ColumnDiff, DefinitionDiff, Diff, RowDiff, TableDiff
    from tidelock.model.schema.schema import Column

VALUE_LENGTH_MAX = 60
SIGNS = {"inserted": "+", "updated": "~", "deleted": "-"}
NOTHING = "none"


def summary(diff: Diff) -> str:
    """What differs, one line for each table."""
    lines = [told_points(diff)]
    width = max((len(one.name) for one in diff.tables), default=0)
    lines += [f"  {one.name:<{width}}  {_told(one)}".rstrip() for one in diff.tables]
    return "\n".join(lines)


def told_points(diff: Diff) -> str:
    between = f"From {diff.before.told} to {diff.after.told}: "
    if not diff.tables:
        return between + "no difference"
    told = f"{_counted(len(diff.tables), 'table')} {_verb(len(diff.tables), 'differ')}"
    if diff.same:
        told += f", {len(diff.same):,} {_verb(len(diff.same), 'are', 'is')} the same"
    return between + told


def headline(table: TableDiff) -> str:
    return f"{table.name}  {_told(table)}".rstrip()


def _told(table: TableDiff) -> str:
    counts = [
        f"{sign}{getattr(table, what):,}" for what, sign in SIGNS.items() if getattr(table, what)
    ]
    return "; ".join(part for part in (" ".join(counts), differs_in(table)) if part)


def differs_in(table: TableDiff) -> str:
    """In what a table differs, in a few words."""
    parts: list[str] = [] if table.what == "changed" else [table.what]
    if table.was is not None:
        parts.append(f"renamed from {table.was}")
    for one in table.columns:
        parts.append(f"column {one.name} {' and '.join(_words(one))}")
    parts += [f"rule {one.name} {_became(one)}" for one in table.rules]
    if table.comment is not None:
        parts.append("comment")
    if table.stream is not None:
        parts += [f"{one.name} differs" for one in table.stream.definition]
        parts += _standings(table.stream.before, table.stream.after)
    parts += [
        f"{name} in {_counted(count, 'row')}" for name, count in ranked(table.by_column) if count
    ]
    return ", ".join(parts)


def ranked(by_column: Mapping[str, int]) -> list[tuple[str, int]]:
    """The columns by how many rows differ in them, most first."""
    return sorted(by_column.items(), key=lambda one: (-one[1], one[0]))


def _words(column: ColumnDiff) -> list[str]:
    before, after = column.before, column.after
    if before is None or after is None:
        return [*column.what]
    told = {
        "renamed": f"renamed from {before.name}",
        "retyped": f"retyped from {type_name(before.type)} to {type_name(after.type)}",
        "required": "relaxed" if after.nullable else "required",
        "default": "with another default",
        "comment": "with another comment",
    }
    return [told[one] for one in column.what]


def _became(one: DefinitionDiff) -> str:
    return "added" if one.before is None else "dropped" if one.after is None else "differs"


def _standings(before: str | None, after: str | None) -> Iterator[str]:
    if before != after and before is not None and after is not None:
        if before != "current":
            yield f"before: {before}"
        if after != "current":
            yield f"after: {after}"


def details(table: TableDiff) -> list[str]:
    """What a table differs in, line by line: its columns, its rules, its definition, and rows."""
    lines = [f"column {one.name}: {_column_change(one)}" for one in table.columns]
    lines += [f"rule {one.name}: {_change(one)}" for one in table.rules]
    if table.comment is not None:
        lines.append(f"comment: {_change(table.comment)}")
    if table.stream is not None:
        lines += [f"{one.name}: {_change(one)}" for one in table.stream.definition]
        if table.stream.before != table.stream.after:
            lines.append(
                f"before: {table.stream.before or 'not a stream table'}; "
                f"after: {table.stream.after or 'not a stream table'}"
            )
    lines += [example(one, names_before(table)) for one in table.examples]
    more = table.rows_differ - len(table.examples)
    if more > 0 and table.examples:
        lines.append(f"… and {more:,} more {'row' if more == 1 else 'rows'}")
    return lines


def _column_change(column: ColumnDiff) -> str:
    if column.after is None:
        return "dropped"
    told = []
    if column.before is None:
        told.append(f"added, {type_name(column.after.type)}")
        if not column.after.nullable:
            told.append("NOT NULL")
        if column.after.default is not None:
            told.append(f"DEFAULT {column.after.default}")
        return " ".join(told)
    pairs: dict[str, tuple[Any, Any]] = {
        "renamed": (column.before.name, column.after.name),
        "retyped": (type_name(column.before.type), type_name(column.after.type)),
        "required": (_nullable(column.before), _nullable(column.after)),
        "default": (column.before.default, column.after.default),
        "comment": (shown(column.before.comment), shown(column.after.comment)),
    }
    for what in column.what:
        before, after = (NOTHING if one is None else one for one in pairs[what])
        told.append(f"{what} {before} → {after}")
    return ", ".join(told)


def _nullable(column: Column) -> str:
    return "NULL" if column.nullable else "NOT NULL"


def _change(one: DefinitionDiff) -> str:
    before, after = (NOTHING if text is None else _line(text) for text in (one.before, one.after))
    if one.before is None:
        return f"added, {after}"
    return f"dropped, {before}" if one.after is None else f"{before} → {after}"


def _line(text: str) -> str:
    return printable(" ".join(text.split()))


def names_before(table: TableDiff) -> dict[str, str]:
    """What the renamed columns of a table were called before."""
    return {one.name: one.before.name for one in table.columns if one.before is not None}


def example(row: RowDiff, before: Mapping[str, str]) -> str:
    """A row that differs, in one line. `before` are the earlier names of renamed columns."""
    key = row.key or {}
    named = f"{pairs(key)}: " if key else ""
    if row.before is not None and row.after is not None:
        told = ", ".join(
            f"{name} {shown(row.before.get(before.get(name, name)))} → {shown(row.after[name])}"
            for name in row.columns
        )
        if not key:
            rest = {name: one for name, one in row.after.items() if name not in row.columns}
            told = f"{pairs(rest)}: {told}" if rest else told
        return f"~ {named}{told}"
    values = row.after if row.before is None else row.before
    assert values is not None
    rest = {name: value for name, value in values.items() if name not in key}
    return f"{SIGNS[row.what]} {named}{pairs(rest)}".rstrip(": ")


def pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={shown(value)}" for name, value in values.items())


def shown(value: Any) -> str:
    """A value, so that text cannot be taken for anything else."""
    if value is None:
        return "NULL"
    if isinstance(value, str):
        text = repr(value)
    elif isinstance(value, bool):
        text = str(value).lower()
    else:
        text = printable(str(plain_value(value)))
    return text if len(text) <= VALUE_LENGTH_MAX else text[: VALUE_LENGTH_MAX - 1] + "…"


def as_html(text: str) -> str:
    return f"<pre>{html.escape(text)}</pre>"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun if number == 1 else noun + 's'}"


def _verb(number: int, many: str, one: str | None = None) -> str:
    return (one or many + "s") if number == 1 else many
