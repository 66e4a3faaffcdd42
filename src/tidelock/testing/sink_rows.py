"""The rows that the contract of destinations sends: every type, odd values, gaps in sequences."""

from __future__ import annotations

import datetime as dt
import decimal
from collections import Counter
from collections.abc import Sequence
from datetime import UTC
from typing import Any

import pyarrow as pa

from tidelock.model.positions import position_of
from tidelock.model.sinks import Feed

Rows = Counter[tuple[tuple[str, str], ...]]
_SEQUENCE = pa.field("_sequence", pa.int64(), nullable=False)

PLAIN = pa.schema([pa.field("id", pa.int64(), nullable=False), ("region", pa.string()), _SEQUENCE])
CHANGES = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("region", pa.string()),
        pa.field("_op", pa.string(), nullable=False),
        pa.field("_version", pa.int64(), nullable=False),
        _SEQUENCE,
    ]
)
TYPED = pa.schema(
    [
        ("tiny", pa.int8()),
        ("small", pa.int16()),
        ("whole", pa.int32()),
        ("long", pa.int64()),
        ("real", pa.float32()),
        ("double", pa.float64()),
        ("money", pa.decimal128(38, 10)),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("yes", pa.bool_()),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", "UTC")),
        ("clock", pa.timestamp("us")),
        ("list", pa.list_(pa.int32())),
        ("map", pa.map_(pa.string(), pa.int64())),
        ("pair", pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])),
        _SEQUENCE,
    ]
)
VALUES: list[dict[str, Any]] = [
    {},
    {
        "tiny": -(2**7),
        "small": -(2**15),
        "whole": -(2**31),
        "long": -(2**63),
        "real": -1.5,
        "double": 5e-324,
        "money": decimal.Decimal("9999999999999999999999999999.9999999999"),
        "text": "",
        "bytes": b"",
        "yes": False,
        "day": dt.date(1969, 12, 31),
        "moment": dt.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
        "clock": dt.datetime(2024, 2, 29, 1, 2, 3, 4),
        "list": [],
        "map": [],
        "pair": {"a": None, "b": None},
    },
    {
        "tiny": 2**7 - 1,
        "small": 2**15 - 1,
        "whole": 2**31 - 1,
        "long": 2**63 - 1,
        "real": 0.1,
        "double": float("inf"),
        "money": decimal.Decimal("-0.0000000001"),
        "text": 'two\nlines, "quoted", tab\t, Zürich 東京 🌊 \\',
        "bytes": bytes(range(256)),
        "yes": True,
        "day": dt.date(2999, 1, 1),
        "moment": dt.datetime(2999, 1, 1, 0, 0, 0, 1, UTC),
        "clock": dt.datetime(1900, 1, 1),
        "list": [1, None, -3],
        "map": [("", None), ("k", 1)],
        "pair": {"a": 1, "b": ["x", None, ""]},
    },
]
ODD_VALUES: tuple[str | None, ...] = (
    None,
    "EU",
    "eu",
    "",
    " ",
    ".",
    "..",
    "a/b",
    "a=b",
    "50%",
    "%2F",
    'it\'s "so"',
    "a\nb",
    "Zürich 東京",
    "__HIVE_DEFAULT_PARTITION__",
)
"""What may be in a partition column, and is easily lost on the way."""


def numbered(
    count: int, begin: int = 0, values: Sequence[str | None] = ("EU", "US", None)
) -> pa.Table:
    """Rows with sequences that leave gaps, as deletions do."""
    numbers = range(begin, begin + count)
    rows = [{"id": n, "region": values[n % len(values)], "_sequence": n * 2 + 1} for n in numbers]
    return pa.Table.from_pylist(rows, PLAIN)


def changed(versions: range) -> pa.Table:
    """An insertion, an update and a deletion in each version."""
    rows = []
    for version in versions:
        for operation, number in (("insert", version), ("delete", 0), ("insert", 100)):
            rows.append(
                {
                    "id": number,
                    "region": f"v{version}",
                    "_op": operation,
                    "_version": version,
                    "_sequence": number,
                }
            )
    return pa.Table.from_pylist(rows, CHANGES)


def positions(feed: Feed, rows: pa.Table) -> list[int]:
    """The position of every row, in order."""
    if feed == "inserts":
        return list(rows.column("_sequence").to_pylist())
    seen: Counter[int] = Counter()
    found = []
    for version in rows.column("_version").to_pylist():
        found.append(position_of(version, seen[version]))
        seen[version] += 1
    return found


def last_version(rows: pa.Table) -> int:
    return int(rows.column("_version")[-1].as_py())


def as_multiset(rows: pa.Table) -> Rows:
    """Rows with their columns by name, and how often each is there."""
    return Counter(
        tuple(sorted((name, repr(value)) for name, value in row.items()))
        for row in rows.to_pylist()
    )
