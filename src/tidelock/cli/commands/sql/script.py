"""What `tidelock sql` does with statements that change tables, and with several at once.

All of them are one commit, or nothing is changed. Queries among them see what the statements before
them did; their rows are shown when everything is committed, so that nobody reads what never was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidelock.cli import interrupts
from tidelock.cli.call import Call
from tidelock.cli.show import documents, results
from tidelock.cli.show.cells import count
from tidelock.cli.show.engines import starting
from tidelock.model.sql.parameters import BoundText, bind
from tidelock.model.sql.script import Written, read_script
from tidelock.store.branches import MAIN
from tidelock.store.spark.sessions import could_not, engine_errors
from tidelock.store.statements.execution import named_statement
from tidelock.store.statements.kinds import kind_of
from tidelock.store.statements.reports import StatementReport, list_reports, told_reports

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from tidelock import Commit, Snapshot, Transaction


@dataclass(frozen=True)
class Selected:
    """The rows of a query, and how many more there are."""

    rows: pa.Table
    more: int


@dataclass(frozen=True)
class Script:
    """A text of statements, with the values of its parameters."""

    bound: BoundText
    statements: Sequence[Written]

    @classmethod
    def of(cls, text: str, params: Mapping[str, Any]) -> Script:
        """Read the text, and refuse what cannot be run before anything is."""
        bound = bind(text, params)
        statements = read_script(bound.text)
        for one in statements:
            if not one.is_query:
                kind_of(one).read(one)
        return cls(bound, statements)

    @property
    def changes(self) -> bool:
        return not all(one.is_query for one in self.statements)

    @property
    def is_one_query(self) -> bool:
        return len(self.statements) == 1 and not self.changes

    def params(self, written: Written) -> dict[str, Any]:
        """The values of the parameters of one statement."""
        return self.bound.within(written.text)


def show_queries(call: Call, script: Script, snapshot: Snapshot, rows_max: int) -> None:
    """Run several queries over one snapshot."""
    found: list[Selected] = []
    for written in script.statements:
        with named_statement(written, len(script.statements)):
            with call.output.waiting(starting(**call.engine)):
                frame = snapshot.sql(written.text, script.params(written))
            found.append(_fetched(call, frame, rows_max, writes=False))
    if call.json:
        call.output.document(
            {
                "branch": snapshot.branch,
                "version": snapshot.version,
                "statements": [_document(one) for one in found],
            }
        )
        return
    for one in found:
        _show(call, one)


def execute_script(
    call: Call,
    script: Script,
    *,
    branch: str | None,
    message: str,
    operation_id: str | None,
    rows_max: int,
) -> None:
    """Run statements that change tables, and queries among them, as one commit."""
    done: list[StatementReport | Selected] = []
    with (
        call.open(write=True) as lake,
        lake.transaction(message, branch=branch or MAIN, operation_id=operation_id) as tx,
    ):
        if not tx.repeated:
            done = [_run(call, tx, script, one, rows_max) for one in script.statements]
        reports = [one for one in done if isinstance(one, StatementReport)]
        tx.message = tx.message or told_reports(reports)
    assert tx.commit is not None
    commit = tx.commit
    document = {
        **documents.of_commit(commit),
        "executed": not tx.repeated,
        "statements": [_document(one) for one in done],
    }
    call.output.answer(document, lambda: _show_all(call, commit, done, repeated=tx.repeated))


def _run(
    call: Call, tx: Transaction, script: Script, written: Written, rows_max: int
) -> StatementReport | Selected:
    params = script.params(written)
    with named_statement(written, len(script.statements)):
        if written.is_query:
            with call.output.waiting(starting(**call.engine)):
                frame = tx.sql(written.text, params)
            return _fetched(call, frame, rows_max, writes=True)
        with call.output.waiting(f"Running {written.words[0]}…"):
            (report,) = tx.execute(written.text, params)
        # An engine that was started may have put its own handler in place.
        interrupts.raise_from_now(writes=True)
        return report


def _fetched(call: Call, frame: DataFrame, rows_max: int, *, writes: bool) -> Selected:
    # The engine may have put its own handler in place.
    interrupts.raise_from_now(writes=writes)
    failed = could_not("could not run the query")
    with call.output.waiting("Running the query…"), engine_errors(frame.sparkSession, failed):
        return Selected(*results.fetch(frame, rows_max, counted=not call.json))


def _document(one: StatementReport | Selected) -> dict[str, Any]:
    if isinstance(one, StatementReport):
        return documents.of_statement(one)
    return {"statement": "SELECT", **results.as_document(one.rows, one.more)}


def _show_all(
    call: Call, commit: Commit, done: Sequence[StatementReport | Selected], *, repeated: bool
) -> None:
    if repeated:
        call.output.line(
            f"This operation was done before, as version {commit.version}. Nothing was executed."
        )
        return
    for one in done:
        if isinstance(one, Selected):
            _show(call, one)
    reports = [one for one in done if isinstance(one, StatementReport)]
    call.output.listed(list_reports(reports), "No statement was executed.")
    call.output.line(f"Committed as version {commit.version}")


def _show(call: Call, one: Selected) -> None:
    results.show_rows(call.output, one.rows)
    more = f"; {one.more:,} more: --limit 0 shows all" if one.more else ""
    call.output.note(f"{count(one.rows.num_rows, 'row')}{more}")
