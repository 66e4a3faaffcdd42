"""Files: the same rows give the same bytes, and read back as what they were."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from tidelock.deliver.destinations.files.formats import FORMATS, regrouped
from tidelock.store.rows.json_values import encode_lines, join_lines

UTC = dt.UTC
MOMENTS = [dt.datetime(1, 1, 1), None, dt.datetime(9999, 12, 31, 23, 59, 59, 999999)]
STRUCT = pa.struct([("a", pa.int32()), ("b", pa.string())])
REQUIRED = pa.field("r", pa.int32(), nullable=False)
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "tiny": (pa.int8(), [0, None, -128]),
    "small": (pa.int16(), [-(2**15), None, 2**15 - 1]),
    "int": (pa.int32(), [-(2**31), None, 2**31 - 1]),
    "big": (pa.int64(), [-(2**63), None, 2**63 - 1]),
    "float": (pa.float32(), [0.5, None, -0.0]),
    "double": (pa.float64(), [0.1, None, 5e-324]),
    "odd": (pa.float64(), [math.inf, None, -math.inf]),
    "nan": (pa.float64(), [math.nan, None, 1e300]),
    "decimal": (pa.decimal128(38, 20), [Decimal("1E-20"), None, Decimal("-123.45")]),
    "whole": (pa.decimal128(38, 0), [Decimal(10) ** 37, None, Decimal(-1)]),
    "text": (pa.string(), ["", None, 'a"b\\c\nd\té😀\x7f,\r']),
    "plain": (pa.large_string(), ["", None, "é😀"]),
    "binary": (pa.binary(), [b"", None, b"\0\xff"]),
    "truth": (pa.bool_(), [True, None, False]),
    "date": (pa.date32(), [dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]),
    "moment": (pa.timestamp("us", "UTC"), MOMENTS),
    "time": (pa.timestamp("us"), MOMENTS),
    "struct": (STRUCT, [{"a": 1, "b": None}, None, {"a": None, "b": '"'}]),
    "required": (pa.struct([REQUIRED]), [{"r": 1}, None, {"r": 2}]),
    "inside": (pa.list_(pa.struct([REQUIRED])), [[None, {"r": 1}], None, []]),
    "list": (pa.list_(pa.int32()), [[1, None], None, []]),
    "structs": (pa.list_(STRUCT), [[{"a": 1, "b": "x"}, None], None, []]),
    "decimals": (pa.list_(pa.decimal128(38, 20)), [[Decimal("1E-20"), None], None, []]),
    "doubles": (pa.list_(pa.float64()), [[math.nan, math.inf], None, [1.5]]),
    "map": (pa.map_(pa.string(), pa.int64()), [[('k"', 1), ("", None)], None, []]),
    "pairs": (pa.map_(pa.int32(), STRUCT), [[(1, {"a": 1, "b": "x"}), (2, None)], None, []]),
    "maps": (pa.list_(pa.map_(pa.string(), pa.bool_())), [[[("k", True)], None], None, [[]]]),
    "moments": (pa.list_(pa.timestamp("us", "UTC")), [[MOMENTS[2]], None, [None]]),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()])


def everything(times: int = 1) -> pa.RecordBatch:
    columns = [pa.array(values * times, kind) for kind, values in COLUMNS.values()]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def cut_up(rows: pa.RecordBatch, chance: random.Random) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of any size, some of them slices, some of their own."""
    place = 0
    while place < rows.num_rows:
        count = chance.randint(1, max(1, rows.num_rows // 3))
        piece = rows.slice(place, count)
        if chance.random() < 0.5:
            piece = piece.take(pa.array(range(piece.num_rows)))
        yield piece
        place += count


def written(kind: str, path: Path, rows: Iterator[pa.RecordBatch], schema: pa.Schema) -> bytes:
    _, write = FORMATS[kind]
    write(path, schema, rows)
    return path.read_bytes()


@pytest.mark.parametrize("kind", FORMATS)
def test_the_same_rows_give_the_same_bytes_in_whatever_batches(kind: str, tmp_path: Path) -> None:
    rows = everything(200)
    whole = written(kind, tmp_path / "whole", iter([rows]), SCHEMA)
    for seed in range(5):
        pieces = cut_up(rows, random.Random(seed))
        assert written(kind, tmp_path / str(seed), pieces, SCHEMA) == whole, f"seed {seed}"


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_the_same_wide_rows_give_the_same_bytes_in_whatever_batches(
    kind: str, tmp_path: Path
) -> None:
    """Rows enough for several pages of a column, which a writer ends by their size."""
    chance = random.Random(3)
    texts = [chance.randbytes(1500).hex() for _ in range(3000)]
    few = [f"v{chance.randrange(2000)}" for _ in range(3000)]
    rows = pa.RecordBatch.from_pydict({"text": texts, "few": few, "n": range(3000)})
    whole = written(kind, tmp_path / "whole", iter([rows]), rows.schema)
    for seed in range(4):
        pieces = cut_up(rows, random.Random(seed))
        assert written(kind, tmp_path / str(seed), pieces, rows.schema) == whole, f"seed {seed}"


def test_row_groups_are_cut_by_the_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelock.deliver.destinations.files.formats.GROUP_ROWS_MAX", 50)
    rows = everything(100)
    expected = [50] * 6
    for seed in range(5):
        tables = list(regrouped(cut_up(rows, random.Random(seed)), SCHEMA))
        assert [table.num_rows for table in tables] == expected
        assert repr(pa.concat_tables(tables).to_pylist()) == repr(rows.to_pylist())
    assert list(regrouped(iter([]), SCHEMA)) == []


def test_parquet_gives_every_type_back_exactly(tmp_path: Path) -> None:
    rows = everything()
    written("parquet", tmp_path / "f", iter([rows]), SCHEMA)
    back = pq.read_table(tmp_path / "f")
    # A field that a struct must have is not told from one that it may have.
    told = [field for field in SCHEMA if field.name not in ("required", "inside")]
    assert [back.schema.field(field.name) for field in told] == told
    for name in SCHEMA.names:
        found, given = back.column(name).combine_chunks(), rows.column(name)
        assert repr(found.to_pylist()) == repr(given.to_pylist()), name


def test_a_file_without_rows_is_still_a_file(tmp_path: Path) -> None:
    for kind in FORMATS:
        written(kind, tmp_path / kind, iter([]), SCHEMA)
    assert pq.read_table(tmp_path / "parquet").schema.names == SCHEMA.names
    assert (tmp_path / "jsonl").read_bytes() == b""
    assert (tmp_path / "csv").read_text().count("\n") == 1


def plain(value: Any) -> Any:
    """What is documented for a value in JSON."""
    match value:
        case bool() | int() | str() | None:
            return value
        case float():
            odd = {math.inf: "Infinity", -math.inf: "-Infinity"}
            return "NaN" if math.isnan(value) else odd.get(value, value)
        case bytes():
            return base64.b64encode(value).decode()
        case dt.datetime():
            zone = "Z" if value.tzinfo else ""
            return value.replace(tzinfo=None).isoformat() + zone
        case dt.date():
            return value.isoformat()
        case list() | tuple():
            return [plain(one) for one in value]
        case dict():
            return {name: plain(one) for name, one in value.items()}
    raise AssertionError(value)


def named(value: Any, column: str) -> Any:
    """A value whose maps with keys of text are objects, as they are in JSON."""
    if value is None or column not in ("map", "maps"):
        return value
    if column == "maps":
        return [None if one is None else dict(one) for one in value]
    return dict(value)


def same(found: Any, given: Any) -> bool:
    if isinstance(given, Decimal):
        return isinstance(found, str) and Decimal(found) == given
    if isinstance(given, list):
        return len(found) == len(given) and all(map(same, found, given))
    return repr(found) == repr(plain(given))


def test_lines_of_json_hold_every_type_as_documented(tmp_path: Path) -> None:
    rows = everything()
    body = written("jsonl", tmp_path / "f", iter([rows]), SCHEMA)
    texts = body.decode().removesuffix("\n").split("\n")
    lines = [json.loads(text) for text in texts]
    for name in SCHEMA.names:
        for line, given in zip(lines, rows.column(name).to_pylist(), strict=True):
            assert same(line[name], named(given, name)), (name, line[name], given)
    assert [list(line) for line in lines] == [SCHEMA.names] * 3


@pytest.mark.parametrize("offset", [0, 1, 2])
def test_a_slice_of_rows_gives_the_lines_of_those_rows(offset: int) -> None:
    rows = everything(2)
    lines = join_lines(encode_lines(rows)).split(b"\n")
    assert join_lines(encode_lines(rows.slice(offset, 3))) == b"\n".join(
        [*lines[offset : offset + 3], b""]
    )
    assert join_lines(encode_lines(rows.slice(0, 0))) == b""


def test_numbers_that_json_does_not_know_are_text_and_zero_keeps_its_sign() -> None:
    values = [math.nan, math.inf, -math.inf, -0.0, 0.0, 0.1, 1e300, None]
    rows = pa.RecordBatch.from_pydict({"x": pa.array(values, from_pandas=False)})
    assert bytes(join_lines(encode_lines(rows))).decode().split() == [
        '{"x":"NaN"}',
        '{"x":"Infinity"}',
        '{"x":"-Infinity"}',
        '{"x":-0.0}',
        '{"x":0.0}',
        '{"x":0.1}',
        '{"x":1e+300}',
        '{"x":null}',
    ]


def test_names_and_rows_without_columns_are_json_too() -> None:
    rows = pa.RecordBatch.from_pydict({'a "b"\\\n': [1], "größe": ["x"]})
    assert json.loads(join_lines(encode_lines(rows))) == {'a "b"\\\n': 1, "größe": "x"}


def test_csv_tells_null_from_the_empty_text(tmp_path: Path) -> None:
    rows = everything()
    written("csv", tmp_path / "f", iter([rows]), SCHEMA)
    options = pa_csv.ConvertOptions(
        column_types=dict.fromkeys(SCHEMA.names, pa.string()),
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        null_values=[""],
    )
    parse = pa_csv.ParseOptions(newlines_in_values=True)
    back = pa_csv.read_csv(tmp_path / "f", convert_options=options, parse_options=parse)
    assert back.column_names == SCHEMA.names
    assert back.column("text").to_pylist() == COLUMNS["text"][1]
    assert back.column("plain").to_pylist() == COLUMNS["plain"][1]
    for name in SCHEMA.names:
        nulls = [value is None for value in rows.column(name).to_pylist()]
        assert pc.is_null(back.column(name)).to_pylist() == nulls, name
    assert [int(one) for one in back.column("big").to_pylist() if one] == [-(2**63), 2**63 - 1]
    decimals = [Decimal(one) for one in back.column("decimal").to_pylist() if one]
    assert decimals == [Decimal("1E-20"), Decimal("-123.45")]
    assert back.column("moment").to_pylist()[2] == "9999-12-31T23:59:59.999999Z"
    assert back.column("date").to_pylist()[0] == "0001-01-01"
    assert base64.b64decode(back.column("binary").to_pylist()[2]) == b"\0\xff"
    for name in ("struct", "list", "structs", "map", "pairs", "maps"):
        found = [one and json.loads(one) for one in back.column(name).to_pylist()]
        assert found == [plain(named(one, name)) for one in rows.column(name).to_pylist()], name


def test_csv_writes_decimals_in_digits_and_all_else_as_arrow_does(tmp_path: Path) -> None:
    tiny = pa.array([Decimal("1E-20"), Decimal(0), Decimal("-0.00000001"), None])
    rows = pa.RecordBatch.from_pydict(
        {"d": tiny.cast(pa.decimal128(38, 20)), "n": pa.array([1, 2, None, 4])}
    )
    assert written("csv", tmp_path / "f", iter([rows]), rows.schema).decode() == (
        '"d","n"\n'
        "0.00000000000000000001,1\n"
        "0.00000000000000000000,2\n"
        "-0.00000001000000000000,\n"
        ",4\n"
    )
    alike = ["tiny", "small", "int", "big", "float", "double", "odd", "nan", "text", "truth"]
    some = everything(2).select([*alike, "date"])
    expected = pa.BufferOutputStream()
    pa_csv.write_csv(pa.Table.from_batches([some]), expected)
    found = written("csv", tmp_path / "g", iter([some]), some.schema)
    assert found == expected.getvalue().to_pybytes()
