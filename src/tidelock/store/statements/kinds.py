"""Which statements there are.

Owns: the table of kinds. A kind is known by the words that a statement begins with, and has a
function that reads it (pure, in model/sql/statements) and one that runs it. To add one is to add a
line here. What declares tables is read by model/ddl and staged as `tx.declare` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidelock.errors import Advice, InvalidExpression
from tidelock.model.ddl.statements import read_statement
from tidelock.model.sql.cursor import Cursor
from tidelock.model.sql.script import Written
from tidelock.model.sql.statements.changes import (
    read_delete,
    read_insert,
    read_truncate,
    read_update,
)
from tidelock.model.sql.statements.merge import read_merge
from tidelock.store.statements.desk import Desk
from tidelock.store.statements.insert import run_insert
from tidelock.store.statements.merge import run_merge
from tidelock.store.statements.mutations import run_delete, run_truncate, run_update
from tidelock.store.statements.reports import StatementReport
from tidelock.store.statements.tables import run_declaration, tables_of


@dataclass(frozen=True)
class Kind:
    """How statements that begin with some words are read and run."""

    words: tuple[str, ...]
    read: Callable[[Written], Any]
    run: Callable[[Desk, Any], StatementReport]
    table: Callable[[Any], str]
    """What a statement changes, by name."""
    stages_once: bool = True
    """Whether it stages one thing, at its end, or takes care of itself."""

    @property
    def name(self) -> str:
        return " ".join(self.words)


def _change(word: str, read: Callable[[Cursor], Any], run: Callable[[Desk, Any], Any]) -> Kind:
    return Kind((word,), lambda one: read(one.change_cursor()), run, lambda one: str(one.table))


def _declaration(*words: str) -> Kind:
    def run(desk: Desk, statement: Any) -> StatementReport:
        return run_declaration(desk, statement, " ".join(words))

    return Kind(words, read_statement, run, tables_of, stages_once=False)


KINDS: tuple[Kind, ...] = (
    _change("INSERT", read_insert, run_insert),
    _change("UPDATE", read_update, run_update),
    _change("DELETE", read_delete, run_delete),
    _change("MERGE", read_merge, run_merge),
    _change("TRUNCATE", read_truncate, run_truncate),
    _declaration("CREATE", "TABLE"),
    _declaration("ALTER", "TABLE"),
    _declaration("DROP", "TABLE"),
    _declaration("COMMENT", "ON"),
)

_OF_TWO_WORDS = ("CREATE", "DROP", "ALTER", "SHOW", "REFRESH", "ANALYZE", "DESCRIBE")
_DECLARING = ("CREATE", "ALTER", "REPLACE")
"""What begins with these and is no kind has an answer of its own in model/ddl."""


def kind_of(written: Written) -> Kind:
    """The kind of a statement, or InvalidExpression that names it."""
    if written.is_query:
        raise InvalidExpression(
            f"Line {written.line}: a query changes nothing, and is not executed.",
            Advice(
                "Use sql(...), of the lake or of the transaction, which gives its rows.",
                "Run it with tidelock sql.",
            ),
            line=written.line,
        )
    for kind in KINDS:
        if written.words[: len(kind.words)] == kind.words:
            return kind
    if written.words[0] in _DECLARING and "VIEW" not in written.words:
        read_statement(written)
    named = " ".join(filter(None, written.words[: 1 + (written.words[0] in _OF_TWO_WORDS)]))
    known = ", ".join(kind.name for kind in KINDS)
    raise written.script.error(
        InvalidExpression,
        written.place,
        f"{named or 'this'} is no statement that can be executed here. There are {known}.",
        statement=named,
    )
