"""What a folder of definitions holds, as values.

Owns: a stream table as it stands in a file, where it uses other tables, and the wording
of errors about files.
Invariant: every value and every error names the file and the line that it came from.

An origin is `<pipeline>/<path>:<line>`, the path being relative to the folder, with slashes on
every system. The pipeline is the `name` of the folder's specification, or the name of the folder.
It holds no slash, so that the first one ends it. `apply` owns the stream tables whose origin begins
with its pipeline, wherever the folder lies on whichever machine; what was created elsewhere has no
origin or another pipeline's, and is never dropped. Two folders of one name that are applied to one
lake must therefore be told apart by the `name` in their specifications.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidelock.errors import Advice, InvalidDefinition
from tidelock.model.names import fold
from tidelock.model.streams import Definition


@dataclass(frozen=True, slots=True)
class TableUse:
    """One place where a query names a table."""

    table: str
    file: Path
    line: int


@dataclass(frozen=True, slots=True)
class FileLine:
    """Where a line of a query stands: a line of a file, or, where a function returned the query,
    the line of the function and the line of what it returned."""

    file: Path
    line: int
    returned_line: int | None = None

    def refuse(self, message: str, **evidence: Any) -> InvalidDefinition:
        if self.returned_line is not None:
            message = f"line {self.returned_line} of the query: {message}"
        return refusal(self.file, self.line, message, **evidence)


@dataclass(frozen=True, slots=True)
class WrittenQuery:
    """A query as it is kept: without comments, every table by its name alone."""

    text: str
    file_lines: tuple[FileLine, ...]
    """One for each line of the text."""
    uses: tuple[TableUse, ...]
    ctes: tuple[str, ...] = ()
    """The names, folded, of the common table expressions that it begins with."""
    first_cte: int = 0
    """Where in the text its first common table expression stands; 0 if there is none."""


@dataclass(frozen=True, slots=True)
class Written:
    """One definition as a file has it, before private views are put into the queries that use them.

    `private` is a temporary view: it becomes a part of other queries and no table of its own.
    """

    name: str
    query: WrittenQuery
    file: Path
    line: int
    options: Mapping[str, Any]
    columns: tuple[str, ...] = ()
    private: bool = False


@dataclass(frozen=True, slots=True)
class Defined:
    """A stream table that a file defines, complete."""

    name: str
    definition: Definition
    file: Path
    line: int
    uses: tuple[TableUse, ...] = ()
    file_lines: tuple[FileLine, ...] = ()
    """One for each line of the definition's query."""

    def file_line(self, query_line: int | None) -> FileLine:
        """Where a line of the query stands; where the definition begins, if that is not known."""
        if query_line is not None and 1 <= query_line <= len(self.file_lines):
            return self.file_lines[query_line - 1]
        return FileLine(self.file, self.line)

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that its query reads, each once, in the order of their first use."""
        spelled: dict[str, str] = {}
        for use in self.uses:
            spelled.setdefault(fold(use.table), use.table)
        return tuple(spelled.values())


def origin_of(pipeline: str, path: str, line: int) -> str:
    return f"{pipeline}/{path}:{line}"


def pipeline_of(origin: str | None) -> str | None:
    """The pipeline that an origin names; None for what was created elsewhere."""
    return origin.split("/", 1)[0] if origin and "/" in origin else None


def refusal(
    file: Path, line: int, message: str, advice: Advice | None = None, **evidence: Any
) -> InvalidDefinition:
    return InvalidDefinition(
        f"{file}:{line}: {message}", advice, file=str(file), line=line, **evidence
    )
