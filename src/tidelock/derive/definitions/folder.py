"""Definitions in files: what `tidelock apply` reads.

Owns: turning a folder into complete definitions, in the order of its files and of their lines.
Invariants: a name is defined once in a folder; every origin names pipeline, file and line; no file
is passed over in silence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from tidelock.derive.definitions.pipeline import Pipeline, read_pipeline
from tidelock.derive.definitions.private_views import inline
from tidelock.derive.definitions.python_files import read_python, why_no_tables
from tidelock.derive.definitions.sql_files import read_sql, read_tables
from tidelock.derive.definitions.written import Defined, Written, origin_of, refusal
from tidelock.derive.graph.groups import check_policy
from tidelock.errors import InvalidOption
from tidelock.model.names import fold
from tidelock.model.schema.declared import DeclaredTable
from tidelock.model.streams import Definition

_READERS = {".sql": read_sql, ".py": read_python}


@dataclass(frozen=True, slots=True)
class Definitions:
    """The stream tables of a pipeline, and the tables that are declared beside them; of files that
    define nothing, that they do and why."""

    defined: tuple[Defined, ...]
    notes: tuple[str, ...] = ()
    tables: tuple[DeclaredTable, ...] = ()


def read_definitions(folder: Path) -> tuple[Defined, ...]:
    """The stream tables that the files of a folder define."""
    return read_files(read_pipeline(folder)).defined


def read_files(pipeline: Pipeline) -> Definitions:
    """What a pipeline defines. Python files that use the decorator are executed."""
    written: list[Written] = []
    tables: list[DeclaredTable] = []
    notes: list[str] = []
    for file in pipeline.files:
        data = _bytes_of(file)
        found = _READERS[file.suffix](file, data, pipeline.namespace)
        written.extend(found)
        declared = _tables_of(pipeline, file, data)
        tables.extend(declared)
        if not found and not declared:
            reason = why_no_tables(file, data) if file.suffix == ".py" else "it has no statement"
            path = file.relative_to(pipeline.folder).as_posix()
            notes.append(f"{pipeline.name}/{path} defines nothing: {reason}")
    _refuse_duplicates(written)
    _refuse_declared(written, tables)
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
    return Definitions(tuple(defined), tuple(notes), tuple(tables))


def _tables_of(pipeline: Pipeline, file: Path, data: bytes) -> list[DeclaredTable]:
    """The tables that a file declares, with origins that are the same wherever the folder lies."""
    if file.suffix != ".sql":
        return []
    path = file.relative_to(pipeline.folder).as_posix()
    return [
        replace(table, origin=origin_of(pipeline.name, path, _line(table)))
        for table in read_tables(file, data, pipeline.namespace)
    ]


def _line(table: DeclaredTable) -> int:
    assert table.origin is not None
    return int(table.origin.rpartition(":")[2])


def _bytes_of(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise refusal(file, 1, f"The file cannot be read: {reason}.") from error


def _refuse_declared(written: Iterable[Written], tables: Iterable[DeclaredTable]) -> None:
    declared = {fold(table.name): table for table in tables}
    for one in written:
        table = declared.get(fold(one.name))
        if table is not None:
            raise refusal(
                one.file,
                one.line,
                f"{one.name!r} is a stream table here, and a table in {table.origin}. Rename one.",
                name=one.name,
            )


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
