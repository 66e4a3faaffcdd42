"""Oracle: of a file with bad records, those are put aside that a reader of each alone refuses.

Files of random good and bad records are read at once, and record by record by the reader that
refuses a whole file. Rows, order, lines and texts must agree, whatever the size of a block.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.lakes import fault_seconds, seed_of

from tidelock.errors import InputError
from tidelock.ingest.files import tolerant
from tidelock.ingest.files.read import read_file
from tidelock.ingest.files.row_file import RowFile
from tidelock.ingest.files.tolerant import BadRecord, Target, read_tolerantly
from tidelock.model.ddl import parse_schema

SCHEMA = parse_schema("id INT NOT NULL, v STRING, d DATE, n DECIMAL(5,2), l ARRAY<INT>")
HEADER = "id,v,d,n,l\n"
RECORDS = {
    "jsonl": [
        '{"id": 1}',
        '{"id": 2, "v": "x", "d": "2026-03-01", "n": 1.25, "l": [1, null]}',
        '{"ID": 3, "v": "\\u00fc\\n"}',
        '  {"id": 4}  ',
        "",
        '{"id": 3000000000}',
        '{"id": null}',
        '{"v": "no id"}',
        '{"id": 5, "d": "2026-02-30"}',
        '{"id": 5, "n": 1.255}',
        '{"id": 5, "l": {"a": 1}}',
        '{"id": 5, "w": 1}',
        '{"id": 5, "v": 1}',
        '{"id": 6',
        "[1]",
        "5",
        "\udcff",
        '{"id": 7, "v": "\udcfe"}',
    ],
    "csv": [
        "1,x,2026-03-01,1.25,[1]",
        "2,,,,",
        '3,"a\nb\n\nc",,,',
        '4,"say ""hi""",,,"[1, 2]"',
        "",
        '5,"",2026-03-01,,',
        ",no id,,,",
        "three,,,,",
        "6,x,2026-02-30,,",
        "6,x,,1.255,",
        "6,x,,,{}",
        "6,x",
        "6,x,,,,more",
        '7,"a\nb",never,,',
        "8,\udcff,,,",
    ],
}


@pytest.mark.parametrize("format", RECORDS)
def test_what_is_put_aside_is_what_each_record_alone_would_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    with seed_of() as seed:
        chance = random.Random(seed)
        deadline = time.monotonic() + fault_seconds(2.0)
        while time.monotonic() < deadline:
            monkeypatch.setattr(tolerant, "BLOCK_RECORDS", chance.choice([1, 2, 3, 7, 100]))
            kinds = chance.sample(RECORDS[format], chance.randrange(1, 8))
            records = [chance.choice(kinds) for _ in range(chance.randrange(1, 40))]
            header = HEADER if format == "csv" else ""
            path = tmp_path / f"a.{format}"
            path.write_bytes(_bytes(header + "".join(f"{one}\n" for one in records)))
            found = list(read_tolerantly(RowFile(str(path), format), Target(SCHEMA, "t")))
            assert _told(found) == _one_by_one(tmp_path, format, header, records)


def _told(found: list[pa.RecordBatch | BadRecord]) -> tuple[list[Any], list[Any]]:
    rows = [row for one in found if isinstance(one, pa.RecordBatch) for row in one.to_pylist()]
    return rows, [(one.line, one.record) for one in found if isinstance(one, BadRecord)]


def _one_by_one(
    folder: Path, format: str, header: str, records: list[str]
) -> tuple[list[Any], list[Any]]:
    rows: list[Any] = []
    bad: list[Any] = []
    line = 1 + header.count("\n")
    for record in records:
        path = folder / f"one.{format}"
        path.write_bytes(_bytes(f"{header}{record}\n"))
        try:
            if record:
                for batch in read_file(RowFile(str(path), format), SCHEMA, "t"):
                    rows += batch.to_pylist()
        except InputError:
            bad.append((line, _bytes(record).decode("utf-8", "replace")))
        line += record.count("\n") + 1
    return rows, bad


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
