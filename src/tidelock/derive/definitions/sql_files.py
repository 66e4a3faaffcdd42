"""Definitions in `.sql` files.

Owns: the statements that such a file may hold. Any number of them, each ended by a semicolon:

    CREATE [OR REPLACE] {MATERIALIZED VIEW | STREAM TABLE} [IF NOT EXISTS] name [(columns)]
        [COMMENT 'text'] [SCHEDULE {'1m' | EVERY 5 MINUTES}] [TBLPROPERTIES ('option' = 'value', …)]
        AS query
    CREATE [OR REPLACE] {TEMPORARY | TEMP} VIEW [IF NOT EXISTS] name [(columns)] [COMMENT 'text']
        AS query
    CREATE TABLE …                      as `model/ddl/statements.py` says

The options are those of a stream table, with the prefix `tidelock.` or without. `columns` are
names, each with a COMMENT if wanted, that replace those of the query. OR REPLACE and IF NOT EXISTS
change nothing: a file says what is to be, and not what is to be done. Comments are read and not
kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sqlglot.tokenizer_core import Token, TokenType

from tidelock.derive.definitions.file_sql import FileSql, Namespace, read_query
from tidelock.derive.definitions.options import check_option, option_name
from tidelock.derive.definitions.written import Written, refusal
from tidelock.errors import InvalidDefinition, InvalidName, InvalidOption
from tidelock.model.names import check_name
from tidelock.model.schema.declared import DeclaredTable
from tidelock.model.sql.script import cut
from tidelock.model.sql.text import TEXT_TYPES, line_of, word
from tidelock.store.schema.sources import read_table

_UNITS = {"SECOND": "s", "MINUTE": "m", "HOUR": "h", "DAY": "d", "WEEK": "w"}
_INSTEAD = (
    ("STREAMING", "A streaming table cannot be defined. Write CREATE MATERIALIZED VIEW … AS SELECT "
     "without STREAM: it follows all changes of what it reads."),
    ("FLOW", "A flow cannot be defined. Write one CREATE MATERIALIZED VIEW whose query joins what "
     "the flows append with UNION ALL."),
    ("OR REFRESH", "CREATE OR REFRESH is not known. Write CREATE OR REPLACE MATERIALIZED VIEW."),
    ("LIVE", "A live table cannot be defined. Write CREATE MATERIALIZED VIEW."),
    ("VIEW", "A view that is not materialized cannot be kept. Write CREATE MATERIALIZED VIEW, or "
     "CREATE TEMPORARY VIEW for a private part of other queries."),
)  # fmt: skip
_ONLY = (
    "Only CREATE TABLE, CREATE MATERIALIZED VIEW, CREATE STREAM TABLE and CREATE TEMPORARY VIEW "
    "may stand in a file of definitions."
)
_LAYOUT = ("USING", "PARTITIONED BY", "CLUSTER BY", "CLUSTERED", "LOCATION", "OPTIONS", "ROW")


def read_sql(file: Path, data: bytes, namespace: Namespace) -> list[Written]:
    """The definitions of stream tables in a file, in its order."""
    sql = FileSql(_decode(file, data), file, namespace)
    found = [tokens for tokens in _split(sql.tokens()) if not _declares_table(tokens)]
    return [_Statement(sql, tokens).read() for tokens in found]


def read_tables(file: Path, data: bytes, namespace: Namespace) -> list[DeclaredTable]:
    """The tables that a file declares, in its order, each with its line as origin."""
    sql = FileSql(_decode(file, data), file, namespace)
    tables = []
    for tokens in _split(sql.tokens()):
        if _declares_table(tokens):
            start, end = tokens[0].start, tokens[-1].end + 1
            # Errors count lines and columns from the beginning of the file.
            before = "\n" * sql.text.count("\n", 0, start)
            before += " " * (start - sql.text.rfind("\n", 0, start) - 1)
            (written,) = cut(before + sql.text[start:end])
            tables.append(read_table(written, file))
    return tables


def _declares_table(tokens: Sequence[Token]) -> bool:
    words = [word(token) for token in tokens[:4]]
    return words[:2] == ["CREATE", "TABLE"] or words == ["CREATE", "OR", "REPLACE", "TABLE"]


def _decode(file: Path, data: bytes) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise refusal(file, line, "This is not UTF-8 text. Save the file as UTF-8.") from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise refusal(file, line, "The file holds a NUL character. Save it as UTF-8 text.")
    # The same file must give the same definition from a checkout on any system.
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _split(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    statement: list[Token] = []
    for token in tokens:
        if token.token_type is not TokenType.SEMICOLON:
            statement.append(token)
        elif statement:
            yield statement
            statement = []
    if statement:
        yield statement


class _Statement:
    """Reads one statement from its tokens, from left to right."""

    def __init__(self, sql: FileSql, tokens: Sequence[Token]) -> None:
        self._sql = sql
        self._tokens = tokens
        self._at = 0
        self._options: dict[str, Any] = {}

    def read(self) -> Written:
        private = self._kind()
        self._take("IF", "NOT", "EXISTS")
        name = self._name()
        columns = self._columns()
        self._clauses(private)
        if self._at == len(self._tokens):
            raise self._wanted("a query after AS")
        query = read_query(self._sql, self._tokens[self._at :])
        line = line_of(self._sql.text, self._tokens[0].start)
        return Written(name, query, self._sql.file, line, self._options, columns, private)

    def _kind(self) -> bool:
        """Whether it is a private view; refuses what cannot be defined."""
        if not self._take("CREATE"):
            raise self._refuse(f"{self._shown()} is not a definition. {_ONLY}")
        self._take("OR", "REPLACE")
        if self._take("MATERIALIZED", "VIEW") or self._take("STREAM", "TABLE"):
            return False
        if self._take("TEMPORARY", "VIEW") or self._take("TEMP", "VIEW"):
            return True
        for words, advice in _INSTEAD:
            if self._take(*words.split()):
                raise self._refuse(advice, at=0)
        raise self._refuse(f"CREATE {self._shown()} is not a definition. {_ONLY}", at=0)

    def _name(self) -> str:
        start = self._at
        if self._word() == "AS":
            raise self._refuse("The name is missing before AS.")
        parts = [self._identifier("a name")]
        while self._take("."):
            parts.append(self._identifier("a name after the dot"))
        if not self._sql.namespace.covers(parts[:-1]):
            raise self._refuse(
                f"{'.'.join(parts)} names a database, and a lake has none. Write {parts[-1]} "
                "alone.",
                at=start,
            )
        return self._checked_name(parts[-1], "table", start)

    def _columns(self) -> tuple[str, ...]:
        names: list[str] = []
        if not self._take("("):
            return ()
        while True:
            start = self._at
            names.append(self._checked_name(self._identifier("a column name"), "column", start))
            if self._take("COMMENT"):
                self._string("the comment, in quotes")
            if self._take(")"):
                return tuple(names)
            if not self._take(","):
                raise self._wanted(
                    "a comma or ) after a column's name (types are given in the query, with CAST)"
                )

    def _clauses(self, private: bool) -> None:
        while not self._take("AS"):
            start = self._at
            if self._take("COMMENT"):
                self._string("the comment, in quotes")
            elif private:
                raise self._wanted("AS and a query")
            elif self._take("SCHEDULE"):
                self._set("schedule", self._schedule(), start)
            elif self._take("TBLPROPERTIES"):
                self._properties()
            elif self._word() in _LAYOUT:
                raise self._refuse(
                    f"{self._word()} says how a table is stored, which the lake decides. Remove it."
                )
            else:
                raise self._wanted(
                    "COMMENT, SCHEDULE, TBLPROPERTIES or AS (a name that is not a plain word "
                    "stands in backticks)"
                )

    def _schedule(self) -> str:
        if not self._take("EVERY"):
            return self._string("a schedule such as '1m', or EVERY 5 MINUTES")
        token = self._peek()
        if token is None or token.token_type is not TokenType.NUMBER:
            raise self._wanted("a number after EVERY")
        self._at += 1
        unit = _UNITS.get(self._word().removesuffix("S"))
        if unit is None:
            raise self._wanted("SECONDS, MINUTES, HOURS, DAYS or WEEKS")
        self._at += 1
        return token.text + unit

    def _properties(self) -> None:
        if not self._take("("):
            raise self._wanted("( after TBLPROPERTIES")
        while True:
            start = self._at
            name = self._key()
            self._take("=")
            self._set(name, self._value(), start)
            if self._take(")"):
                return
            if not self._take(","):
                raise self._wanted("a comma or ) after a property")

    def _key(self) -> str:
        start = self._at
        token = self._peek()
        if token is not None and token.token_type in TEXT_TYPES:
            # One literal only: the value may follow without an equals sign.
            text = token.text
            self._at += 1
        else:
            text = self._identifier("a property, such as 'schedule' = '1m'")
            while self._take("."):
                text += "." + self._identifier("the rest of the property")
        try:
            return option_name(text)
        except InvalidOption as error:
            raise self._refuse(error.message, at=start) from error

    def _value(self) -> str:
        token = self._peek()
        if token is not None and token.token_type is TokenType.NUMBER:
            self._at += 1
            return token.text
        return self._string("the value of the property, in quotes")

    def _set(self, name: str, value: str, start: int) -> None:
        if name in self._options:
            raise self._refuse(f"The option {name} is given twice. Remove one.", at=start)
        try:
            self._options[name] = check_option(name, value)
        except InvalidOption as error:
            raise self._refuse(error.message, at=start) from error

    def _identifier(self, wanted: str) -> str:
        token = self._peek()
        if token is None or token.token_type in TEXT_TYPES:
            raise self._wanted(wanted)
        if token.token_type is not TokenType.IDENTIFIER and not re.fullmatch(r"\w+", token.text):
            raise self._wanted(f"{wanted} (in backticks if it is not a plain word)")
        self._at += 1
        return token.text

    def _string(self, wanted: str) -> str:
        pieces: list[str] = []
        # Spark joins literals that stand next to each other.
        while (token := self._peek()) is not None and token.token_type in TEXT_TYPES:
            pieces.append(token.text)
            self._at += 1
        if not pieces:
            raise self._wanted(wanted)
        return "".join(pieces)

    def _checked_name(self, name: str, what: str, start: int) -> str:
        try:
            return check_name(name, what)
        except InvalidName as error:
            raise self._refuse(error.message, at=start) from error

    def _take(self, *words: str) -> bool:
        found = self._tokens[self._at : self._at + len(words)]
        if [word(token) for token in found] != list(words):
            return False
        self._at += len(words)
        return True

    def _peek(self) -> Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _word(self) -> str:
        token = self._peek()
        return word(token) if token is not None else ""

    def _shown(self) -> str:
        token = self._peek()
        if token is None:
            return "the end of the statement"
        return repr(self._sql.text[token.start : token.end + 1][:40])

    def _wanted(self, wanted: str) -> InvalidDefinition:
        return self._refuse(f"Expected {wanted}; found {self._shown()}.")

    def _refuse(self, message: str, at: int | None = None) -> InvalidDefinition:
        """An error at the token with that position; else where the reading stands."""
        position = min(self._at if at is None else at, len(self._tokens) - 1)
        return self._sql.refuse(self._tokens[position].start, message)
