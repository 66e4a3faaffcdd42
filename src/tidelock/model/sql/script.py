"""A text of one or several statements, cut at its semicolons.

Owns: where each statement begins and ends, and by which words it is known. A statement that defines
names in front (WITH) is known by the word that follows them. What a statement says is for
`model/ddl`, which reads those that declare tables, and for `model/sql/statements`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from tidelock.errors import InvalidExpression, InvalidSchema
from tidelock.model.sql.cursor import (
    ChangeErrors,
    Cursor,
    Piece,
    StatementErrors,
    read_pieces,
    unclosed,
)
from tidelock.model.sql.text import QueryText, Unreadable

_QUERIES = frozenset({"SELECT", "VALUES", "TABLE", "FROM", "("})
_AFTER_WITH = frozenset(
    {"SELECT", "VALUES", "TABLE", "FROM", "INSERT", "UPDATE", "DELETE", "MERGE"}
)
_OPEN, _CLOSE = ("(", "["), (")", "]")
WORDS_MAX = 4


@dataclass(frozen=True)
class Written:
    """One statement of a text, not read yet."""

    script: QueryText
    pieces: tuple[Piece, ...]
    number: int
    """Which one it is, from 1."""

    @property
    def text(self) -> str:
        return self.script.text[self.pieces[0].start : self.pieces[-1].end]

    @property
    def line(self) -> int:
        return self.place[0]

    @property
    def place(self) -> tuple[int, int]:
        return self.script.place(self.pieces[0].start)

    @cached_property
    def verb_at(self) -> int:
        """Which of its pieces is the word that says what it does."""
        if self.pieces[0].word != "WITH":
            return 0
        depth = 0
        for position, piece in enumerate(self.pieces):
            depth += (piece.word in _OPEN) - (piece.word in _CLOSE)
            if depth == 0 and piece.word in _AFTER_WITH:
                return position
        return 0

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The words that it begins with, behind what it defines in front."""
        return tuple(piece.word for piece in self.pieces[self.verb_at :][:WORDS_MAX])

    @cached_property
    def is_query(self) -> bool:
        if self.words[0] == "FROM" and any(piece.word == "INSERT" for piece in self.pieces):
            return False
        return self.words[0] in _QUERIES

    def cursor(self, statement: str) -> Cursor:
        """At the beginning of a statement that declares tables."""
        return Cursor(self.script.text, self.pieces, StatementErrors(self.script, statement))

    def change_cursor(self) -> Cursor:
        """At the verb of a statement that changes rows."""
        errors = ChangeErrors(self.script, self.words[0] or "statement")
        cursor = Cursor(self.script.text, self.pieces, errors)
        cursor.begin_at(self.verb_at)
        return cursor


def cut(text: str) -> list[Written]:
    """The statements of a text, cut at its semicolons."""
    try:
        pieces = read_pieces(text)
    except Unreadable as error:
        raise unclosed(text, error) from None
    script = QueryText(text)
    return [Written(script, part, number) for number, part in enumerate(_parts(pieces), start=1)]


def read_script(text: str) -> list[Written]:
    """As `cut`, for a text to be executed: InvalidExpression if it holds none or cannot be read."""
    try:
        found = cut(text)
    except InvalidSchema as error:
        raise InvalidExpression(error.message, error.advice, query=text, **error.evidence) from None
    if not found:
        raise InvalidExpression("The text holds no statement. Write one.", query=text)
    return found


def _parts(pieces: Sequence[Piece]) -> Iterator[tuple[Piece, ...]]:
    part: list[Piece] = []
    for piece in pieces:
        if piece.word != ";":
            part.append(piece)
        elif part:
            yield tuple(part)
            part = []
    if part:
        yield tuple(part)
