"""SQL that stands in a file: reading a query out of it without changing what it says.

Owns: which file and line every token, error and use of a table belongs to. Tokens and comments are
for `model/sql/text.py`.
Invariant: the text that is kept is the user's own, token by token; only comments, and the catalog
and database of the pipeline before a table's name, are left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError
from sqlglot.tokenizer_core import Token, TokenType

from tidelock.derive.definitions.written import FileLine, TableUse, WrittenQuery
from tidelock.errors import InvalidDefinition
from tidelock.model.names import fold
from tidelock.model.sql.tables import is_named, tables_in
from tidelock.model.sql.text import (
    Unreadable,
    line_of,
    read_tokens,
    start_of,
    without_comments,
    word,
)

_QUERY_STARTS = ("SELECT", "WITH", "FROM", "(")


@dataclass(frozen=True, slots=True)
class Namespace:
    """The catalog and the database that a pipeline names; a lake itself has neither."""

    catalog: str | None = None
    database: str | None = None

    def covers(self, qualifiers: Sequence[str]) -> bool:
        """Whether names qualified like this are names in the lake."""
        if not qualifiers:
            return True
        own = [part and fold(part) for part in (self.catalog, self.database)]
        return [fold(part) for part in qualifiers] == own[-len(qualifiers) :]


@dataclass(frozen=True, slots=True)
class FileSql:
    """SQL and where it stands: a whole file, or what the function at `function_line` returned."""

    text: str
    file: Path
    namespace: Namespace = Namespace()
    function_line: int | None = None

    def file_line(self, line: int) -> FileLine:
        if self.function_line is not None:
            return FileLine(self.file, self.function_line, line)
        return FileLine(self.file, line)

    def refuse(self, at: int, message: str) -> InvalidDefinition:
        return self.file_line_at(at).refuse(message)

    def file_line_at(self, offset: int) -> FileLine:
        return self.file_line(line_of(self.text, offset))

    def tokens(self) -> list[Token]:
        try:
            tokens = read_tokens(self.text)
        except Unreadable as error:
            if error.opened is None:
                raise self.refuse(0, "The SQL cannot be read. Check its quotes.") from error
            at, sign = error.opened
            raise self.refuse(at, f"{sign} is opened here and never closed. Close it.") from error
        self._refuse_variables(tokens)
        return tokens

    def _refuse_variables(self, tokens: Sequence[Token]) -> None:
        for token in tokens:
            if "${" in self.text[token.start : token.end + 2]:
                at = self.text.index("${", token.start)
                shown = self.text[at : at + 40].split("}")[0].split("\n")[0] + "}"
                raise self.refuse(
                    at,
                    f"The variable {shown} would not be filled in. Write its value, or build the "
                    "query in a Python file with @tidelock.stream_table.",
                )


def read_query(sql: FileSql, tokens: Sequence[Token]) -> WrittenQuery:
    """The query that the tokens make up."""
    first = tokens[0]
    if word(first) not in _QUERY_STARTS:
        raise sql.refuse(
            first.start, f"A query begins with SELECT or WITH, not with {first.text!r}."
        )
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            raise sql.refuse(token.start, "A definition is one query. Remove what follows the ;.")
    root = _parse(sql, tokens)
    named = [table for table in tables_in(root) if is_named(table) or _stream(table)]
    named.sort(key=lambda table: start_of(table.this))
    tables = [(table, _parts(table)) for table in named]
    for table, parts in tables:
        _check_table(sql, table, parts)
    dropped = _qualifiers(root, tables)
    text, lines = without_comments(sql.text, tokens, dropped)
    file_lines = tuple(map(sql.file_line, lines))
    uses = tuple(
        TableUse(parts[-1].name, sql.file, sql.file_line_at(start_of(parts[-1])).line)
        for _, parts in tables
    )
    with_ = root.args.get("with_")
    if with_ is None or word(first) != "WITH":
        return WrittenQuery(text, file_lines, uses)
    start = re.match(r"WITH\s+RECURSIVE\s*" if with_.recursive else r"WITH\s*", text, re.I)
    names = tuple(fold(cte.alias) for cte in with_.expressions)
    return WrittenQuery(text, file_lines, uses, names, start.end() if start else 0)


def _parse(sql: FileSql, tokens: Sequence[Token]) -> exp.Query:
    try:
        (root,) = Spark().parser().parse(list(tokens), sql.text)
    except ParseError as error:
        found = error.errors[0] if error.errors else {}
        near = str(found.get("highlight") or "")
        at = _offset(sql.text, found.get("line"), near, tokens)
        raise sql.refuse(at, f"The SQL cannot be read near {near!r}. Correct it.") from error
    except RecursionError as error:
        raise sql.refuse(
            tokens[0].start, "The query is nested too deeply. Split it into several stream tables."
        ) from error
    if not isinstance(root, exp.Query):
        raise sql.refuse(tokens[0].start, "This is not a query. Write a SELECT.")
    return root


def _offset(text: str, line: object, near: str, tokens: Sequence[Token]) -> int:
    """Where the parser stopped: the first token of that line that reads as it says."""
    for token in tokens:
        if token.line == line and text[token.start : token.end + 1] == near:
            return token.start
    return tokens[-1].start


def _stream(table: exp.Table) -> bool:
    """STREAM(t) or STREAM t, which read a table as a stream of appended rows."""
    if isinstance(table.this, exp.Anonymous):
        return str(table.this.this).upper() == "STREAM"
    bare = isinstance(table.this, exp.Identifier) and not table.this.quoted
    return bare and len(table.parts) == 1 and table.name.upper() == "STREAM" and bool(table.alias)


def _parts(table: exp.Table) -> list[exp.Identifier]:
    return [part for part in table.parts if isinstance(part, exp.Identifier)]


def _check_table(sql: FileSql, table: exp.Table, parts: Sequence[exp.Identifier]) -> None:
    at = start_of(table.this)
    if _stream(table):
        raise sql.refuse(
            at,
            "STREAM is not needed: a stream table follows all changes of what it reads. "
            "Name the table alone.",
        )
    names = [part.name for part in parts]
    if not sql.namespace.covers(names[:-1]):
        raise sql.refuse(
            at,
            f"{'.'.join(names)} names a database, and a lake has none. Write {names[-1]} alone.",
        )


def _qualifiers(
    root: exp.Expr, tables: Sequence[tuple[exp.Table, list[exp.Identifier]]]
) -> list[tuple[int, int]]:
    """Where a catalog or database stands before a table, or before a column of such a table."""
    qualified = {tuple(fold(part.name) for part in parts) for _, parts in tables if len(parts) > 1}
    spans = [parts for _, parts in tables if len(parts) > 1]
    if qualified:
        for column in root.find_all(exp.Column):
            owner = [part for part in column.parts[:-1] if isinstance(part, exp.Identifier)]
            if tuple(fold(part.name) for part in owner) in qualified:
                spans.append(owner)
    return [(start_of(parts[0]), start_of(parts[-1])) for parts in spans]
