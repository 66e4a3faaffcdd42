"""Where declared tables come from: texts, files and folders of SQL.

Owns: reading them, with the file and the line that each table came from. A folder stands for all
`.sql` files in it, sorted by path; what begins with a dot or an underscore does not count.
Statements that define stream tables may stand beside: they are for `tidelock apply`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from tidelock.errors import InputError, InvalidDefinition, InvalidOption
from tidelock.model.ddl.statements import read_create_table
from tidelock.model.schema.declared import DeclaredTable
from tidelock.model.sql.script import Written, cut

Source: TypeAlias = str | os.PathLike[str] | Sequence[DeclaredTable]
_OF_STREAMS = (
    ("CREATE", "MATERIALIZED"),
    ("CREATE", "STREAM"),
    ("CREATE", "TEMPORARY"),
    ("CREATE", "TEMP"),
)


@dataclass(frozen=True)
class Declared:
    """What a source declares; of what else it holds, that it does."""

    tables: tuple[DeclaredTable, ...]
    notes: tuple[str, ...] = ()


def read_source(source: Source) -> Declared:
    """The tables that are declared by a text, a file, a folder, or as values."""
    if isinstance(source, os.PathLike):
        return _read_path(Path(source))
    if not isinstance(source, str):
        return _read_values(source)
    if not source.strip():
        # As a path it would be the folder that this process happens to be in.
        raise InvalidOption(
            "Nothing is declared: the text is empty. Give CREATE TABLE statements, or the path of "
            "a file or a folder of them.",
            actual=source,
        )
    if _is_text(source):
        return read_text(source)
    return _read_path(Path(source))


def _is_text(source: str) -> bool:
    """Whether it is SQL, and no path: a path names something, or has no parenthesis and no line."""
    if "\n" in source or ";" in source:
        return True
    return "(" in source and not Path(source).exists()


def _read_values(source: Sequence[DeclaredTable]) -> Declared:
    if not isinstance(source, Sequence) or not all(isinstance(t, DeclaredTable) for t in source):
        raise InvalidOption(
            "Tables are declared by SQL text, a file or a folder of .sql files, not by "
            f"{type(source).__name__}.",
            actual=type(source).__name__,
        )
    return Declared(tuple(source))


def _read_path(path: Path) -> Declared:
    if path.is_dir():
        files = sorted(_sql_files(path), key=lambda file: file.relative_to(path).as_posix())
        if not files:
            raise InvalidOption(
                f"There is no .sql file in {str(path)!r}. Name a folder of CREATE TABLE "
                "statements.",
                file=str(path),
            )
    elif path.is_file():
        files = [path]
    else:
        raise InvalidOption(
            f"There is no file or folder {str(path)!r}, and it is no SQL: tables are declared by "
            "CREATE TABLE statements.",
            file=str(path),
        )
    found = [_read_file(file) for file in files]
    tables = tuple(table for one in found for table in one.tables)
    return Declared(tables, tuple(note for one in found for note in one.notes))


def _sql_files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*.sql"):
        hidden = any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
        if path.is_file() and not hidden:
            yield path


def _read_file(file: Path) -> Declared:
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InvalidDefinition(
            f"{file}: The file cannot be read: {reason}.", file=str(file)
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidDefinition(
            f"{file}: This is not UTF-8 text. Save the file as UTF-8.", file=str(file)
        ) from error
    return read_text(text.replace("\r\n", "\n"), file)


def read_text(text: str, file: Path | None = None) -> Declared:
    """The tables that a text declares; `file` is where it stands."""
    tables: list[DeclaredTable] = []
    streams = 0
    with naming(file):
        for written in cut(text):
            if written.words[:2] in _OF_STREAMS or written.words[2:4] in _OF_STREAMS:
                streams += 1
                continue
            tables.append(read_table(written, file))
    if not streams:
        return Declared(tuple(tables))
    what = "a stream table" if streams == 1 else f"{streams} stream tables"
    where = "The text" if file is None else str(file)
    return Declared(
        tuple(tables), (f"{where} defines {what}, which `tidelock apply` brings to the lake",)
    )


def read_table(written: Written, file: Path | None) -> DeclaredTable:
    """The table that a statement declares."""
    with naming(file):
        table = read_create_table(written).table
    line, _ = written.place
    return replace(table, origin=f"line {line}" if file is None else f"{file}:{line}")


class naming:
    """Whatever is wrong with a text in a file, as an error that names the file and the line."""

    def __init__(self, file: Path | None) -> None:
        self._file = file

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._file is None or not isinstance(error, InputError):
            return
        if isinstance(error, InvalidDefinition):
            return
        line = error.evidence.get("line", 1)
        column = error.evidence.get("column_number", 1)
        message = error.message.removeprefix(f"Line {line}, column {column}: ")
        evidence = {**error.evidence, "file": str(self._file), "cause": error.condition}
        raise InvalidDefinition(
            f"{self._file}:{line}:{column}: {message}", error.advice, **evidence
        ) from error
