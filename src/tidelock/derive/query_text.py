"""SQL as text and tokens: reading a query out of a file without changing what it says.

Owns: tokens with their lines, removing comments, and finding the tables that a query names.
Invariant: the text that is kept is the user's own, token by token; only comments, and the catalog
and database of the pipeline before a table's name, are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from tidelock.derive.defined import Place, Query, Use
from tidelock.errors import InvalidDefinition
from tidelock.model.names import fold

SPARK = Dialect.get_or_raise("spark")
TEXT_TYPES = (TokenType.STRING, TokenType.RAW_STRING)
_QUERY_STARTS = ("SELECT", "WITH", "FROM", "(")
_UNCLOSED = re.compile(
    r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|(?P<open>/\*|['\"`])",
    re.DOTALL,
)


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
class SqlText:
    """SQL and where it stands: a whole file, or what the function at `function_line` returned."""

    text: str
    file: Path
    namespace: Namespace = Namespace()
    function_line: int | None = None

    def line(self, at: int) -> int:
        return self.text.count("\n", 0, at) + 1

    def place(self, line: int) -> Place:
        if self.function_line is not None:
            return Place(self.file, self.function_line, line)
        return Place(self.file, line)

    def refuse(self, at: int, message: str) -> InvalidDefinition:
        return self.place(self.line(at)).refuse(message)

    def tokens(self) -> list[Token]:
        try:
            tokens = list(SPARK.tokenize(self.text))
        except TokenError as error:
            opened = next((m for m in _UNCLOSED.finditer(self.text) if m["open"]), None)
            if opened is None:
                raise self.refuse(0, "The SQL cannot be read. Check its quotes.") from error
            raise self.refuse(
                opened.start(), f"{opened['open']} is opened here and never closed. Close it."
            ) from error
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


def word(token: Token) -> str:
    """The token in capitals if it is a bare word or a sign; empty for anything in quotes."""
    quoted = token.token_type in (TokenType.IDENTIFIER, *TEXT_TYPES)
    return "" if quoted else token.text.upper()


def same_query(one: str, other: str) -> bool:
    """Whether two queries differ in white space and comments alone."""
    if one == other:
        return True
    try:
        left, right = SPARK.tokenize(one), SPARK.tokenize(other)
    except TokenError:
        return False
    return [(t.token_type, t.text) for t in left] == [(t.token_type, t.text) for t in right]


def read_query(sql: SqlText, tokens: Sequence[Token]) -> Query:
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
    tables = [(table, _parts(table)) for table in _tables(root)]
    for table, parts in tables:
        _check_table(sql, table, parts)
    dropped = _qualifiers(root, tables)
    text, places = _without_comments(sql, tokens, dropped)
    uses = tuple(
        Use(parts[-1].name, sql.file, sql.place(sql.line(_start(parts[-1]))).line)
        for _, parts in tables
    )
    with_ = root.args.get("with_")
    if with_ is None or word(first) != "WITH":
        return Query(text, places, uses)
    start = re.match(r"WITH\s+RECURSIVE\s*" if with_.recursive else r"WITH\s*", text, re.I)
    names = tuple(fold(cte.alias) for cte in with_.expressions)
    return Query(text, places, uses, names, start.end() if start else 0)


def _parse(sql: SqlText, tokens: Sequence[Token]) -> exp.Query:
    try:
        (root,) = SPARK.parser().parse(list(tokens), sql.text)
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


def _tables(root: exp.Expr) -> Iterator[exp.Table]:
    """The tables that a query names, in the order of its text; its own expressions are none."""
    found: list[exp.Table] = []
    pending: list[tuple[exp.Expr, frozenset[str]]] = [(root, frozenset())]
    while pending:
        node, hidden = pending.pop()
        with_ = node.args.get("with_")
        if with_ is not None:
            # A name hides tables from where it stands on, and from itself only if it recurses.
            for cte in with_.expressions:
                named = hidden | {fold(cte.alias)}
                pending.append((cte.this, named if with_.recursive else hidden))
                hidden = named
        if isinstance(node, exp.Table) and not (
            len(node.parts) == 1
            and isinstance(node.this, exp.Identifier)
            and fold(node.name) in hidden
        ):
            found.append(node)
        for child in node.iter_expressions():
            # A hint names aliases of the query, which are written like tables.
            if child is not with_ and not isinstance(child, exp.Hint):
                pending.append((child, hidden))
    named_tables = [
        table for table in found if isinstance(table.this, exp.Identifier) or _stream(table)
    ]
    yield from sorted(named_tables, key=lambda table: _start(table.this))


def _stream(table: exp.Table) -> bool:
    """STREAM(t) or STREAM t, which read a table as a stream of appended rows."""
    if isinstance(table.this, exp.Anonymous):
        return str(table.this.this).upper() == "STREAM"
    bare = isinstance(table.this, exp.Identifier) and not table.this.quoted
    return bare and len(table.parts) == 1 and table.name.upper() == "STREAM" and bool(table.alias)


def _start(node: exp.Expr) -> int:
    return int(node.meta.get("start", 0))


def _parts(table: exp.Table) -> list[exp.Identifier]:
    return [part for part in table.parts if isinstance(part, exp.Identifier)]


def _check_table(sql: SqlText, table: exp.Table, parts: Sequence[exp.Identifier]) -> None:
    at = _start(table.this)
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
    return [(_start(parts[0]), _start(parts[-1])) for parts in spans]


def _without_comments(
    sql: SqlText, tokens: Sequence[Token], dropped: Sequence[tuple[int, int]]
) -> tuple[str, tuple[Place, ...]]:
    """The text of the tokens, and where each of its lines stands."""
    text = sql.text
    kept: list[str] = []
    lines = [sql.line(tokens[0].start)]
    end = tokens[0].start
    dropping = False

    def keep(piece: str, stop: int) -> None:
        """Add a piece that ends in the line of `stop`."""
        kept.append(piece)
        if newlines := piece.count("\n"):
            last = sql.line(stop)
            lines.extend(range(last - newlines + 1, last + 1))

    for token in tokens:
        gap = text[end : token.start]
        if gap.strip():
            gap = "\n" + gap.rpartition("\n")[2] if "\n" in gap else " "
        if not dropping:
            keep(gap, token.start)
        dropping = any(start <= token.start < stop for start, stop in dropped)
        if not dropping:
            keep(text[token.start : token.end + 1], token.end)
        end = token.end + 1
    return "".join(kept), tuple(map(sql.place, lines))
