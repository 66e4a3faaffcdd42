"""Walking over the tokens of a statement, or of a list of columns.

Owns: what is a word, a name, a text or a sign there, where an expression or a part of a statement
ends, and how an error says where the reading stopped. Words that a statement is made of must be in
backticks where they are the names of columns. Tokens are those of `model/sql/text.py`; words that
stand together in one of them (PRIMARY KEY) are taken apart, so that white space and comments make
no difference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NoReturn

from sqlglot.tokenizer_core import Token, TokenType

from tidelock.errors import Advice, InputError, InvalidExpression, InvalidSchema
from tidelock.model.sql.text import (
    TEXT_TYPES,
    QueryText,
    Unreadable,
    join_doubled_quotes,
    read_tokens,
)

_WORDS = re.compile(r"\w+(?:\s+\w+)*")
_OPEN, _CLOSE = ("(", "[", "{"), (")", "]", "}")
_AFTER_NAMES = ("=", ",", ")", ".")
SHOWN_MAX = 20

Kind = Literal["word", "name", "text", "number", "sign"]


@dataclass(frozen=True, slots=True)
class Piece:
    """A word as it is written, a name in backticks, a text in quotes, a number or a sign."""

    kind: Kind
    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """In capitals if it is a bare word or a sign; empty for anything in quotes."""
        return self.text.upper() if self.kind in ("word", "sign") else ""


class Cursor:
    """A place between the pieces of a text. What it hands out is as it was written."""

    def __init__(self, text: str, pieces: Sequence[Piece], errors: Errors) -> None:
        self.text = text
        self._pieces = pieces
        self._errors = errors
        self._at = 0
        self.definitions = ""
        """What stands in front of the verb of a statement: WITH and its queries."""

    def begin_at(self, position: int) -> None:
        """Go on from a piece; what stands before it are definitions."""
        self._at = position
        self.definitions = self._slice(0, position) if position else ""

    def copy(self) -> Cursor:
        """Another one at the same place, to look ahead with."""
        other = Cursor(self.text, self._pieces, self._errors)
        other._at, other.definitions = self._at, self.definitions
        return other

    # Looking

    @property
    def ended(self) -> bool:
        return self._at >= len(self._pieces)

    @property
    def offset(self) -> int:
        """Where the next piece begins."""
        if not self.ended:
            return self._pieces[self._at].start
        return self._pieces[-1].end if self._pieces else len(self.text)

    @property
    def word(self) -> str:
        return self.peek()

    def peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._pieces[at].word if 0 <= at < len(self._pieces) else ""

    def kind(self, ahead: int = 0) -> Kind | None:
        at = self._at + ahead
        return self._pieces[at].kind if 0 <= at < len(self._pieces) else None

    def sees(self, *words: str, after: int = 0) -> bool:
        return all(self.peek(after + n) == one for n, one in enumerate(words))

    # Taking

    def take(self, *words: str) -> bool:
        """Go past these words if they come next."""
        found = self.sees(*words)
        self._at += len(words) * found
        return found

    def take_any(self, *choices: str) -> str | None:
        """Go past one of the choices, each of one or several words; returns which it was."""
        return next((one for one in choices if self.take(*one.split())), None)

    def need(self, *words: str) -> None:
        if not self.take(*words):
            self.fail(" ".join(words))

    def name(self, what: str) -> str:
        """A plain word, or anything in backticks."""
        if self.kind() not in ("word", "name"):
            self.fail(f"{what} (in backticks if it is not a plain word)")
        self._at += 1
        return self._pieces[self._at - 1].text

    def names(self, what: str) -> tuple[str, ...]:
        """A name that may have others before it: `a`, `t.a`."""
        parts = [self.name(what)]
        while self.take("."):
            parts.append(self.name(what))
        return tuple(parts)

    def alias(self, *ends: str) -> str | None:
        """`[AS] name`, unless what follows is one of the words that go on."""
        if self.take("AS"):
            return self.name("an alias")
        if self.word in ends or self.kind() not in ("word", "name"):
            return None
        return self.name("an alias")

    def string(self, what: str) -> str:
        """A text in quotes. Spark joins those that stand next to each other."""
        if self.kind() != "text":
            self.fail(f"{what}, in quotes")
        parts: list[str] = []
        while self.kind() == "text":
            parts.append(self._pieces[self._at].text)
            self._at += 1
        return "".join(parts)

    def whole_number(self, what: str) -> int:
        text = self._pieces[self._at].text if self.kind() == "number" else ""
        if not text.isdecimal():
            self.fail(what)
        self._at += 1
        return int(text)

    def listed(self, what: str) -> tuple[str, ...]:
        """`(a, b)`: names in parentheses."""
        self.need("(")
        names = [self.name(what)]
        while self.take(","):
            names.append(self.name(what))
        if not self.take(")"):
            self.fail("a comma or )")
        return tuple(names)

    def enclosed(self, what: str) -> str:
        """What stands in the parentheses that come next, without comments."""
        self.need("(")
        inside = self.expression(what, lambda cursor: False)
        self.need(")")
        return inside

    def expression(self, what: str, ends: Callable[[Cursor], bool]) -> str:
        """The expression up to a comma, a closing parenthesis or where it `ends`, outside of
        parentheses; as it was written, without comments."""
        begin, depth = self._at, 0
        while not self.ended:
            sign = self.word
            if not depth and (sign == "," or sign in _CLOSE or (self._at > begin and ends(self))):
                break
            depth += (sign in _OPEN) - (sign in _CLOSE)
            self._at += 1
        if depth:
            self.fail("a parenthesis that closes")
        if self._at == begin:
            self.fail(what)
        return self._written(begin, self._at)

    def until(self, what: str, *ends: str) -> str:
        """The part up to one of the words, or to the end, outside of parentheses and of CASE ...
        END; as it was written."""
        begin = self._at
        depth = cases = 0
        while not self.ended:
            sign = self.word
            if not depth and not cases and sign in ends:
                break
            named = self.peek(-1) == "." or self.peek(1) in _AFTER_NAMES
            if sign == "CASE" and not named:
                cases += 1
            elif sign == "END" and cases and self.peek(-1) != ".":
                cases -= 1
            depth += (sign in _OPEN) - (sign in _CLOSE)
            if depth < 0:
                self.refuse("a parenthesis closes that was not opened.")
            self._at += 1
        if depth:
            self.fail("a parenthesis that closes")
        if self._at == begin:
            self.fail(what)
        return self._slice(begin, self._at)

    def _slice(self, begin: int, end: int) -> str:
        return self.text[self._pieces[begin].start : self._pieces[end - 1].end]

    def _written(self, begin: int, end: int) -> str:
        """The text of some pieces; where a comment stood, there is a space."""
        parts: list[str] = []
        for number in range(begin, end):
            piece = self._pieces[number]
            if number > begin:
                gap = self.text[self._pieces[number - 1].end : piece.start]
                parts.append(" " if gap.strip() else gap)
            parts.append(self.text[piece.start : piece.end])
        return "".join(parts)

    def end(self, instead: str) -> None:
        if not self.ended:
            self.fail(instead)

    # Refusing

    def wanted(self, what: str) -> InputError:
        """The error that something else was expected here."""
        shown = self.text[self.offset : self.offset + SHOWN_MAX]
        found = "the end" if self.ended else repr(shown.split("\n")[0])
        return self._errors.wanted(self.offset, what, found)

    def fail(self, what: str) -> NoReturn:
        raise self.wanted(what)

    def refuse(
        self, sentence: str, advice: Advice | None = None, *, at: int | None = None, **evidence: Any
    ) -> NoReturn:
        """What stands here, or at an offset, can be read, and cannot be."""
        error = self._errors.kind(sentence, advice, **evidence)
        raise self._errors.placed(self.offset if at is None else at, error)

    @contextmanager
    def placing(self) -> Iterator[None]:
        """Whatever is wrong with what is read from here on, as an error at this place."""
        offset = self.offset
        try:
            yield
        except InputError as error:
            if "line" in error.evidence or "position" in error.evidence:
                raise
            placed = self._errors.placed(offset, error)
            if placed is error:
                raise
            raise placed from error


class Errors:
    """How a list of columns that is given by itself says what is wrong with it."""

    kind: ClassVar[type[InputError]] = InvalidSchema

    def wanted(self, offset: int, wanted: str, found: str) -> InputError:
        return InvalidSchema(
            f"The schema cannot be read at character {offset + 1}: expected {wanted}, "
            f"found {found}.",
            position=offset,
            expected=wanted,
        )

    def placed(self, offset: int, error: InputError) -> InputError:
        """The same error, with the place that it is about."""
        return error


@dataclass(frozen=True)
class StatementErrors(Errors):
    """How a statement that declares tables does."""

    script: QueryText
    statement: str
    """Its first words."""

    def wanted(self, offset: int, wanted: str, found: str) -> InputError:
        told = f"this {self.statement} cannot be read: expected {wanted}, found {found}."
        return self.placed(offset, self.kind(told, expected=wanted, found=found))

    def placed(self, offset: int, error: InputError) -> InputError:
        line, column = self.script.place(offset)
        evidence = {"statement": self.statement, "line": line, "column_number": column}
        return type(error)(
            f"Line {line}, column {column}: {error.message}",
            error.advice,
            **{**error.evidence, **evidence},
        )


class ChangeErrors(StatementErrors):
    """How a statement that changes rows does."""

    kind = InvalidExpression


def read_pieces(text: str) -> list[Piece]:
    """The pieces of a text, comments left out, or Unreadable."""
    # Behind a sign no word begins a command, whose rest would be taken for one text.
    tokens = [
        Token(t.token_type, t.text, t.line, t.col, t.start - 1, t.end - 1)
        for t in read_tokens("(" + text)[1:]
    ]
    pieces: list[Piece] = []
    for token in join_doubled_quotes(text, tokens):
        # Of a number with a suffix, such as 1.5BD, sqlglot makes three tokens in one place.
        if not pieces or token.start >= pieces[-1].end:
            pieces.extend(_pieces(text, token))
    return pieces


def _pieces(text: str, token: Token) -> Iterator[Piece]:
    start, end = token.start, token.end + 1
    raw = text[start:end]
    if token.token_type is TokenType.IDENTIFIER:
        yield Piece("name", token.text, start, end)
    elif token.token_type in TEXT_TYPES:
        yield Piece("text", token.text, start, end)
    elif token.token_type is TokenType.NUMBER:
        yield Piece("number", raw, start, end)
    elif _WORDS.fullmatch(raw):
        for match in re.finditer(r"\w+", raw):
            yield Piece("word", match[0], start + match.start(), start + match.end())
    elif raw == "<>":
        # It may be a type with nothing inside of its brackets.
        yield Piece("sign", "<", start, start + 1)
        yield Piece("sign", ">", start + 1, end)
    else:
        yield Piece("sign", raw, start, end)


def schema_cursor(text: str) -> Cursor:
    """For a list of columns, or a type, that is given by itself."""
    try:
        return Cursor(text, read_pieces(text), Errors())
    except Unreadable as error:
        raise unclosed(text, error) from None


def unclosed(text: str, error: Unreadable) -> InvalidSchema:
    at, sign = error.opened or (0, "A quote or a comment")
    line, column = QueryText(text).place(at)
    return InvalidSchema(
        f"Line {line}, column {column}: {sign} is opened here and never closed. Close it.",
        line=line,
        column_number=column,
    )
