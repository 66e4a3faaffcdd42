"""Files of rows: which are meant by a name, a folder or a pattern, and of which format they are.

    parquet   .parquet .pq
    csv       .csv .tsv
    jsonl     .jsonl .ndjson .json

All but Parquet may be compressed: .gz .bz2 .zst .lz4 .br. A file without content is refused: a CSV
has at least its header, JSON lines at least one row.
"""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path

from tidelock.errors import Advice, InvalidOption
from tidelock.ingest.files.row_file import STDIN, Reading, RowFile

COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".br")
BY_SUFFIX = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
}
_SAY_FORMAT = Advice(
    "Say format='parquet', 'csv' or 'jsonl'.", "Say --format parquet, csv or jsonl."
)


def find_files(names: Sequence[str], reading: Reading) -> list[RowFile]:
    """The files that were named; a folder stands for the files of rows directly in it, a pattern
    for the files that it matches."""
    if not names:
        raise InvalidOption("Name the files to load.")
    if list(names) == [STDIN]:
        if reading.format is None:
            raise InvalidOption("The format of stdin cannot be told.", _SAY_FORMAT)
        return [RowFile(STDIN, reading.format, reading)]
    if STDIN in names:
        raise InvalidOption("Load either files or stdin (-), not both.")
    found: list[RowFile] = []
    for name in names:
        path = Path(name)
        if path.is_dir():
            found.extend(_in_folder(path, reading))
        elif path.exists():
            found.append(RowFile(name, reading.format or format_of(path), reading))
        else:
            found.extend(_matching(name, reading))
    return found


def _matching(pattern: str, reading: Reading) -> list[RowFile]:
    paths = sorted(path for path in glob.glob(pattern, recursive=True) if Path(path).is_file())
    if not paths:
        raise InvalidOption(f"There is no file {pattern!r}.", file=pattern)
    return [RowFile(path, reading.format or format_of(Path(path)), reading) for path in paths]


def _in_folder(folder: Path, reading: Reading) -> list[RowFile]:
    paths = sorted(
        path
        for path in folder.iterdir()
        if path.is_file() and _kind(path) in BY_SUFFIX and not path.name.startswith((".", "_"))
    )
    inside = f"{folder}/**/*.csv"
    if not paths:
        raise InvalidOption(
            f"There is no Parquet, CSV or JSON lines file directly in {str(folder)!r}. Files "
            f"further inside are named by a pattern in quotes: {inside!r}.",
            file=str(folder),
        )
    formats = sorted({format_of(path) for path in paths})
    if len(formats) > 1 and reading.format is None:
        raise InvalidOption(
            f"{str(folder)!r} holds files of several kinds: {', '.join(formats)}. Name those that "
            f"are meant, such as {str(folder / '*.csv')!r}.",
            file=str(folder),
            formats=formats,
        )
    return [RowFile(str(path), reading.format or format_of(path), reading) for path in paths]


def format_of(path: Path) -> str:
    found = BY_SUFFIX.get(_kind(path))
    if found is None:
        raise InvalidOption(
            f"The format cannot be told from {path.name!r}.",
            _SAY_FORMAT,
            file=str(path),
        )
    return found


def format_of_name(name: str) -> str | None:
    """The format that a name or a pattern tells, if it does."""
    return BY_SUFFIX.get(_kind(Path(name)))


def _kind(path: Path) -> str:
    """The suffix that tells the format: `.csv` of `a.csv.gz`."""
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix in COMPRESSED else suffix
