"""SQL as text and tokens: the one reader of it.

Owns: the tokens of Spark SQL, where they stand, and taking tokens out of a text without changing
what the rest says. What a text means is for trees.py; which file it came from, for definitions.

A place is a line and a column, counted from 1; an offset counts characters from 0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from tidelock.errors import InvalidExpression, TidelockError
from tidelock.model.names import fold

TEXT_TYPES = (TokenType.STRING, TokenType.RAW_STRING)
_SPARK = Spark()
_UNCLOSED = re.compile(
    r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|(?P<open>/\*|['\"`])",
    re.DOTALL,
)


class Unreadable(Exception):
    """A text that has no tokens. `opened` is where a quote or a comment begins that never ends,
    with its sign; None if it is something else."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(reason)
        match = next((one for one in _UNCLOSED.finditer(text) if one["open"]), None)
        self.opened = None if match is None else (match.start(), match["open"])


def read_tokens(text: str) -> list[Token]:
    """The tokens of a text, comments left out, or Unreadable."""
    try:
        return list(_SPARK.tokenize(text))
    except SqlglotError as error:
        lines = str(error).strip().splitlines()
        raise Unreadable(text, lines[0] if lines else type(error).__name__) from error


def join_doubled_quotes(sql: str, tokens: Sequence[Token]) -> list[Token]:
    """Make 'it''s' one string, as Spark 4 does; sqlglot sees two strings side by side."""
    joined: list[Token] = []
    end = -1
    for token in tokens:
        last = joined[-1] if joined else None
        if (
            last is not None
            and last.token_type == token.token_type == TokenType.STRING
            and end + 1 == token.start
            and sql[end] == sql[token.start]
        ):
            joined[-1] = Token(
                TokenType.STRING,
                last.text + sql[end] + token.text,
                last.line,
                token.col,
                last.start,
                token.end,
                [],
            )
        else:
            joined.append(token)
        end = token.end
    return joined


def word(token: Token) -> str:
    """The token in capitals if it is a bare word or a sign; empty for anything in quotes."""
    quoted = token.token_type in (TokenType.IDENTIFIER, *TEXT_TYPES)
    return "" if quoted else token.text.upper()


_QUERY_BEGINS = ("SELECT", "WITH", "VALUES", "TABLE", "FROM")


def reads_query(text: str) -> bool:
    """Whether an expression holds a query of its own. In doubt it does."""
    try:
        words = [word(token) for token in read_tokens(text)]
    except Unreadable:
        return True
    return "SELECT" in words or any(
        before == "(" and after in _QUERY_BEGINS for before, after in pairwise(words)
    )


def same_query(one: str, other: str) -> bool:
    """Whether two queries differ in white space and comments alone."""
    if one == other:
        return True
    try:
        left, right = read_tokens(one), read_tokens(other)
    except Unreadable:
        return False
    return [(t.token_type, t.text) for t in left] == [(t.token_type, t.text) for t in right]


def line_of(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def start_of(node: exp.Expr) -> int:
    """The offset at which a name stands."""
    return int(node.meta.get("start", 0))


def without_comments(
    text: str, tokens: Sequence[Token], dropped: Sequence[tuple[int, int]]
) -> tuple[str, tuple[int, ...]]:
    """The text of the tokens, and which line each of its lines was.

    Tokens that begin inside of `dropped`, pairs of offsets, are left out with the comments.
    """
    kept: list[str] = []
    lines = [line_of(text, tokens[0].start)]
    end = tokens[0].start
    dropping = False

    def keep(piece: str, stop: int) -> None:
        """Add a piece that ends in the line of `stop`."""
        kept.append(piece)
        if newlines := piece.count("\n"):
            last = line_of(text, stop)
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
    return "".join(kept), tuple(lines)


@dataclass(frozen=True)
class QueryText:
    """The text of one query, and errors that name a place in it."""

    text: str

    @cached_property
    def tokens(self) -> tuple[Token, ...]:
        """Without the semicolon at its end."""
        try:
            tokens = join_doubled_quotes(self.text, read_tokens(self.text))
        except Unreadable:
            raise InvalidExpression(
                "The query cannot be read: a quote or a comment in it is not closed. Close it.",
                query=self.text,
            ) from None
        while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
            tokens.pop()
        return tuple(tokens)

    @cached_property
    def words(self) -> frozenset[str]:
        return frozenset(fold(token.text) for token in self.tokens)

    def place(self, offset: int) -> tuple[int, int]:
        return line_of(self.text, offset), offset - self.text.rfind("\n", 0, offset)

    def place_of(self, node: exp.Expr) -> tuple[int, int]:
        """Where the node begins, as far as its tree tells; the beginning of the text if not."""
        starts = [one.meta["start"] for one in node.walk() if "start" in one.meta]
        return self.place(min(starts)) if starts else (1, 1)

    def error(
        self, kind: type[TidelockError], place: tuple[int, int], message: str, **evidence: object
    ) -> TidelockError:
        line, column = place
        return kind(
            f"Line {line}, column {column}: {message}",
            line=line,
            column_number=column,
            **evidence,
        )
