"""Definitions in files: what `tidelock apply` reads.

Owns: turning a folder into complete definitions, in the order of its files and of their lines.
Invariants: a name is defined once in a folder; every origin names pipeline, file and line; no file
is passed over in silence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tidelock.derive.definitions.pipeline import Pipeline, read_pipeline
from tidelock.derive.definitions.private_views import inline
from tidelock.derive.definitions.python_files import read_python, why_no_tables
from tidelock.derive.definitions.sql_files import read_sql
from tidelock.derive.definitions.written import Defined, Written, origin_of, refusal
from tidelock.derive.graph.groups import check_policy
from tidelock.errors import InvalidOption
from tidelock.model.names import fold
from tidelock.model.streams import Definition

_READERS = {".sql": read_sql, ".py": read_python}


@dataclass(frozen=True, slots=True)
class Definitions:
    """The stream tables of a pipeline; of files that define nothing, that they do and why."""

    defined: tuple[Defined, ...]
    notes: tuple[str, ...] = ()


def read_definitions(folder: Path) -> tuple[Defined, ...]:
    """The stream tables that the files of a folder define."""
    return read_files(read_pipeline(folder)).defined


def read_files(pipeline: Pipeline) -> Definitions:
    """The stream tables of a pipeline. Python files that use the decorator are executed."""
    written: list[Written] = []
    notes: list[str] = []
    for file in pipeline.files:
        data = _bytes_of(file)
        found = _READERS[file.suffix](file, data, pipeline.namespace)
        written.extend(found)
        if not found:
            reason = why_no_tables(file, data) if file.suffix == ".py" else "it has no statement"
            path = file.relative_to(pipeline.folder).as_posix()
            notes.append(f"{pipeline.name}/{path} defines nothing: {reason}")
    _refuse_duplicates(written)
    views = {fold(one.name): one for one in written if one.private}
    defined: list[Defined] = []
    for one in written:
        # Also for a view that nobody uses, so that its mistakes are told.
        query = inline(one, views)
        if one.private:
            continue
        path = one.file.relative_to(pipeline.folder).as_posix()
        origin = origin_of(pipeline.name, path, one.line)
        definition = Definition(query.text, origin=origin, **one.options)
        try:
            check_policy(one.name, definition)
        except InvalidOption as error:
            raise refusal(one.file, one.line, error.message, advice=error.advice) from error
        defined.append(
            Defined(one.name, definition, one.file, one.line, query.uses, query.file_lines)
        )
    return Definitions(tuple(defined), tuple(notes))


def _bytes_of(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise refusal(file, 1, f"The file cannot be read: {reason}.") from error


def _refuse_duplicates(written: Iterable[Written]) -> None:
    seen: dict[str, Written] = {}
    for one in written:
        first = seen.setdefault(fold(one.name), one)
        if first is not one:
            raise refusal(
                one.file,
                one.line,
                f"{one.name!r} is defined twice: here, and in {first.file}:{first.line}. "
                "Remove or rename one.",
                name=one.name,
                other_file=str(first.file),
                other_line=first.line,
            )
