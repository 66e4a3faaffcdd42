"""Executing a text: its statements one after the other, all of them or none.

Owns: the order. All statements are read before the first one runs. If one fails, what those before
it staged is forgotten, so that a text is staged as a whole also where its error is caught.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from tidelock.errors import TidelockError
from tidelock.model.arguments import check_text
from tidelock.model.listing import Listing
from tidelock.model.sql.expressions.constants import PythonValue
from tidelock.model.sql.parameters import Parameters, bind
from tidelock.model.sql.script import Written, read_script
from tidelock.store.statements.desk import Desk
from tidelock.store.statements.kinds import Kind, kind_of
from tidelock.store.statements.reports import StatementReport, list_reports


@dataclass(frozen=True)
class Step:
    """One statement of a text, read."""

    written: Written
    kind: Kind
    statement: Any


@dataclass(frozen=True)
class Text:
    """The statements of a text, and the values of its parameters."""

    steps: Sequence[Step]
    values: Mapping[str, PythonValue]


def read_text(sql: str, params: Parameters) -> Text:
    """The statements of a text, or an error that says where it is none."""
    bound = bind(check_text(sql, "A statement"), params)
    steps = []
    for written in read_script(bound.text):
        kind = kind_of(written)
        steps.append(Step(written, kind, kind.read(written)))
    return Text(steps, bound.values)


def execute(desk: Desk, text: Text) -> Listing[StatementReport]:
    """Stage all statements, or none."""
    steps = text.steps
    reports: list[StatementReport] = []
    alone = len(steps) == 1 and steps[0].kind.stages_once
    with nullcontext() if alone else desk.tables.all_or_none():
        for step in steps:
            with named_statement(step.written, len(steps)):
                reports.append(step.kind.run(desk, step.statement))
    return list_reports(reports)


def nothing_done(text: Text) -> Listing[StatementReport]:
    """For a text that was executed before."""
    return list_reports(
        StatementReport(one.kind.name, one.kind.table(one.statement)) for one in text.steps
    )


@contextmanager
def named_statement(written: Written, count: int) -> Iterator[None]:
    """Around one of several statements: an error says which one it is about."""
    try:
        yield
    except TidelockError as error:
        if count == 1:
            raise
        where = f"Statement {written.number}, line {written.line}: "
        evidence = {**error.evidence, "statement_number": written.number}
        raise type(error)(where + error.message, error.advice, **evidence) from error
