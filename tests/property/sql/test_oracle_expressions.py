"""Oracle: what Lance or Arrow computes for an expression is what Spark computes.

Adversarial data, with deletions and in several fragments, is given to Spark and to Lance, there
without any index and with a BTREE index on every column that covers some of the fragments. Every
filter that is translated must select the same rows in all three; every assignment that is computed
without Spark must have Spark's values, and an error exactly where Spark has one.

The seed is in every failure; TIDELOCK_SEED replays it.
"""

from __future__ import annotations

import datetime as dt
import os
import random
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation
from tests.support.lakes import fresh_seed

from tidelock.errors import WrongType
from tidelock.model.schema.schema import Column, TableSchema
from tidelock.model.sql.expressions import Filter, parse_assignment, parse_filter

SEED = fresh_seed()
ROW_COUNT = 6000
GENERATED_COUNT = int(os.environ.get("TIDELOCK_FILTERS", "500"))
BATCH = 100

NEGATIVE_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]
FLOATS: list[float | None] = [
    float("nan"),
    NEGATIVE_NAN,
    0.0,
    -0.0,
    float("inf"),
    float("-inf"),
    1.0,
    -1.0,
    0.1,
    0.5,
    5e-324,
    -5e-324,
    1e-45,
    1.7976931348623157e308,
    3.4028234663852886e38,
    -3.4028234663852886e38,
    16777216.0,
    16777217.0,
    9007199254740992.0,
    9007199254740994.0,
    None,
]
STRINGS = [
    *["", " ", "a", "A", "a ", " a", "ab", "aB", "a%", "a_b", "a\nb", "a\x00", "\x01", "\x7f"],
    *["é", "e\u0301", "É", "ß", "ss", "ﬀ", "\uffff", "\U0010ffff", "\U0010ffffx", "😀", "😀b"],
    *["it's", 'say "x"', "--", "/* x */", ";", "%", "_", "true", "5", "2024-01-01", "日本", "`"],
]
BYTES = [b"", b"\x00", b"\x00\x00", b"\xff", b"\xff\xff", b"abc", b"ab", b"\x7f", b"\x80"]
DATES = [
    dt.date(1, 1, 1),
    dt.date(9999, 12, 31),
    dt.date(1582, 10, 4),
    dt.date(1582, 10, 15),
    dt.date(1900, 2, 28),
    dt.date(1969, 12, 31),
    dt.date(1970, 1, 1),
    dt.date(2024, 2, 29),
    dt.date(2024, 3, 31),
]
TIMES = [
    dt.datetime(1, 1, 1),
    dt.datetime(1, 1, 1, 0, 0, 0, 1),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
    dt.datetime(1582, 10, 10, 12),
    dt.datetime(1883, 11, 18, 12, 3, 58),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
    dt.datetime(1970, 1, 1),
    dt.datetime(2024, 3, 10, 7),
    dt.datetime(2024, 3, 31, 0, 59, 59, 999999),
    dt.datetime(2024, 3, 31, 1),
    dt.datetime(2024, 3, 31, 2, 30),
    dt.datetime(2024, 10, 27, 0, 30),
    dt.datetime(2024, 10, 27, 1, 30),
    dt.datetime(2024, 7, 1, 12, 0, 0, 120000),
    dt.datetime(2024, 7, 1, 12, 0, 0, 123456),
]
TYPES: dict[str, pa.DataType] = {
    "i8": pa.int8(),
    "i8b": pa.int8(),
    "i16": pa.int16(),
    "i32": pa.int32(),
    "i32b": pa.int32(),
    "i64": pa.int64(),
    "i64b": pa.int64(),
    "dec": pa.decimal128(12, 2),
    "decb": pa.decimal128(12, 2),
    "d1": pa.decimal128(1, 0),
    "d38": pa.decimal128(38, 0),
    "d3830": pa.decimal128(38, 30),
    "d3838": pa.decimal128(38, 38),
    "f": pa.float32(),
    "fb": pa.float32(),
    "d": pa.float64(),
    "db": pa.float64(),
    "s": pa.string(),
    "sb": pa.string(),
    "bin": pa.binary(),
    "binb": pa.binary(),
    "b": pa.bool_(),
    "bb": pa.bool_(),
    "da": pa.date32(),
    "dab": pa.date32(),
    "ts": pa.timestamp("us", "UTC"),
    "tsb": pa.timestamp("us", "UTC"),
    "nt": pa.timestamp("us"),
    "ntb": pa.timestamp("us"),
    "With Space": pa.int32(),
    'Ünï"c': pa.string(),
    "select": pa.int64(),
    "it's": pa.float64(),
}
SCHEMA = TableSchema(
    (Column("id", pa.int64(), nullable=False), *(Column(n, t) for n, t in TYPES.items()))
)

# Written by hand: each of these has its own way to go wrong.
NASTY = '''
i8 < 1000 | i8 > 1000 | i8 = 1000 | i8 <> 1000 | i8 >= -129 | NOT i8 < 1000 | i8 NOT IN (1000)
i8 IN (1000, 1) | i8 < 127.5 | i8 = 1.5 | i8 <> 1.5 | i8 <= -128.5 | i8 > -0.5 | i8 < 1e3
i32 < 1.5e0 | i32 = 1e0 | i32 < 1e300 | NOT i32 > -1e300 | i64 < 1.5 | i64 >= 9223372036854775807
i64 = -9223372036854775808 | i64 > -9223372036854775808 | i64 IN (-9223372036854775808, 5)
i64 < 9223372036854775807.5 | i64 <= 9223372036854775808 | i64 > -9223372036854775809
i64 = 9007199254740993 | i64 <> NULL | NOT (i64 = NULL) | i64 <=> NULL | NOT i64 <=> NULL
i64 <=> 5 | NOT (i64 <=> 5) | i64 IS DISTINCT FROM i64b | i64 IS NOT DISTINCT FROM i64b
i64 IS DISTINCT FROM NULL | i64 IN (NULL) | i64 NOT IN (NULL) | i64 IN (1, NULL)
i64 NOT IN (1, NULL) | NOT i64 NOT IN (1, NULL) | i64 BETWEEN 1 AND NULL
i64 NOT BETWEEN 1 AND NULL | i64 NOT BETWEEN NULL AND 1 | i64 BETWEEN 5 AND 1
i64 NOT BETWEEN 5 AND 1 | i64 = i64 | i64 <> i64 | NOT i64 = i64 | i32 = i32b | i32 < i64
NOT (i32 = 1 AND s = 'a') | NOT (i32 = 1 OR s = 'a') | NOT (b OR NULL) | NOT (b AND NULL)
b OR NULL | b AND NULL | b | NOT b | NOT NOT b | b = TRUE | b <> TRUE | b < TRUE | b >= FALSE
b <=> NULL | b IN (TRUE, NULL) | b IS NOT NULL AND NOT b | TRUE | FALSE | NOT FALSE | 1 = 1
1 = 2 OR b | 1 < 2 AND NOT b | (b) AND ((i32) > (0)) | b = bb | b <= bb | b = (i32 > 0)
dec = 0 | dec = 1.10 | dec = 1.100 | dec < 1.105 | dec <> 1.105 | dec >= -9999999999.99
dec < 10000000000 | dec > 99999999999999999999 | dec IN (0, 1.5, NULL, 1.555) | dec = 1e0
dec NOT IN (0, 1.555) | dec < 12345678901234567890123456789012345678 | dec = decb
dec = 0.12345678901234567890123456789012345678 | d38 = 99999999999999999999999999999999999999
d38 < -99999999999999999999999999999999999998 | d38 > 0.5 | d3838 < 0.1 | d3838 = 0 | d3838 < 1
d3838 <= 0.99999999999999999999999999999999999999 | d3830 > 5 | d3830 = 12345678 | d3830 < 123456789
d3830 = 1.5 | d3830 <> 5L | d3830 IN (5) | d3830 IN (5, 1.5) | d1 < 10 | d1 <= 9.5 | d1 = -9
d = 0.0 | d = -0.0 | d < 0 | d <= -0.0 | d > 0 | d >= 0 | d <> 0 | d = 0.1 | d < 0.1 | d > 1e308
d <= 1.7976931348623157e308 | d > 1.7976931348623157e308 | d = 5e-324 | d > -5e-324D | d < 1e-320
d IN (0, 1, 0.1, 0.5, 16777216, 5e-324) | d NOT IN (0, 1, 0.1, 0.5, 16777216) | d = -0e0
d IN (-0e0, 1e0, 2e0, 3e0, 4e0, 5e0) | d BETWEEN -1 AND 1 | d NOT BETWEEN -1 AND 1 | d <=> 0
NOT (d <=> 0) | NOT (d > 0) | NOT (d < 0) | NOT (d >= 0.5 OR d < -0.5) | d = 9007199254740993
d > 9007199254740993 | d = d | d < db | d = 9223372036854775807 | d < 1.5F | d = 0.1F
f = 0.1 | f <> 0.1 | f < 0.1 | f <= 0.1 | f > 0.1 | f >= 0.1 | f = 0.5 | f > 0.5 | f = 0.1F
f < 1e-46 | f > 1e-46 | f >= -1e-46 | f < 3.5e38 | f > 3.5e38 | f >= -3.5e38 | f < -3.5e38
f <= 3.4028234663852886e38 | f > 3.4028234663852886e38 | f = 16777217 | f > 16777217 | f <= 16777217
f IN (16777217, 16777216) | f IN (0.1, 0.5) | f NOT IN (0.1, 0.5) | f = 0 | f < 0 | f = 1.5D
f BETWEEN 0.1 AND 1 | NOT (f BETWEEN 0.1 AND 1) | f = fb | f < d | f = 9007199254740993L
s = '' | s = ' ' | s = 'a' | s <> 'a' | s < 'a' | s > 'ﬀ' | s >= '\U0010ffff' | s = 'é'
s = 'e\u0301' | s = 'it''s' | s = "it's" | s = 'say "x"' | s = "say ""x""" | s = 'a' 'b'
s IN ('', 'a', NULL) | s NOT IN ('', 'a') | s LIKE 'a%' | s NOT LIKE 'a%' | NOT s LIKE 'a%'
s LIKE '%' | s LIKE '' | s LIKE '_' | s LIKE '__' | s LIKE '%b' | s LIKE 'a_b' | s LIKE '%a%'
s LIKE '\U0010ffff%' | s LIKE '\uffff%' | s LIKE 'A%' | s LIKE '%''%' | s LIKE '_%_' | s LIKE '%%'
s LIKE '😀_' | s LIKE '_b' | s LIKE 'a' | s LIKE NULL | NOT s LIKE NULL | s LIKE '.*' | s LIKE 'é%'
s BETWEEN 'a' AND 'b' | s = sb | s < sb | s <=> sb | NOT (s <=> sb) | s = '--' | s = '/* x */'
s = ';' | s = '5' | s LIKE '%`%' | s = '`' | s > 'a' AND s < 'b' | NOT (s > 'a' AND s < 'b')
bin = X'' | bin = X'00' | bin > X'7f' | bin <> X'ff' | bin IN (X'', X'616263') | bin < X'80'
bin = binb | bin BETWEEN X'00' AND X'7F' | bin NOT IN (X'00', NULL) | bin <=> X'00'
da = DATE '2024-02-29' | da < '1970-01-01' | da >= DATE '9999-12-31' | da <= '0001-01-01'
da <> DATE'1969-12-31' | da IN ('1970-01-01', '2024-02-29')
da BETWEEN '1582-10-04' AND '1582-10-15'
da IN (DATE '1970-01-01', NULL) | da NOT IN (DATE '1970-01-01') | da = dab | da < NULL
da = CAST('1970-01-01' AS DATE) | da NOT BETWEEN DATE '1900-01-01' AND DATE '2000-01-01'
ts = TIMESTAMP '2024-07-01 12:00:00.123456' | ts < TIMESTAMP '0001-01-01 00:00:00.000001'
ts >= '9999-12-31 23:59:59.999999' | ts = TIMESTAMP '1970-01-01' | ts = '1970-01-01'
ts <= TIMESTAMP '2024-03-31T01:00:00Z' | ts < '2024-03-31 01:00:00+01:00' | ts = tsb
ts = '2024-07-01 12:00:00.12' | ts <> TIMESTAMP_LTZ '1970-01-01 00:00:00' | ts > DATE '2024-01-01'
ts IN ('1970-01-01', '2024-03-31 01:00:00') | ts BETWEEN '1969-12-31' AND '1970-01-02'
ts < TIMESTAMP '2024-03-31 02:30:00' | ts < '2024-03-31 02:30:00' | ts < '2024-10-27 02:30:00'
ts < '2024-03-10 02:30:00' | ts < '1883-11-18 12:00:00' | ts >= '2024-07-01 12:00:00'
ts > '2024-07-01T00:00:00-18:00' | ts > TIMESTAMP '1582-10-10 12:00:00' | ts <=> '1970-01-01'
nt = TIMESTAMP_NTZ '2024-07-01 12:00:00.123456' | nt < '0001-01-01 00:00:00.000001'
nt >= TIMESTAMP_NTZ '9999-12-31 23:59:59.999999' | nt = '1970-01-01' | nt = DATE '1970-01-01'
nt <> TIMESTAMP_NTZ '1970-01-01' | nt < TIMESTAMP_NTZ '2024-03-31T02:30:00' | nt = ntb
nt IN ('1970-01-01 00:00:00', NULL) | nt > '1969-12-31 23:59:59.999999' | nt = ts
`With Space` = 5 | `with space` < 0 OR `with space` IS NULL | `Ünï"c` LIKE 'a%' | `select` > 0
`it's` < 0.5 | `it's` IS NULL | NOT `it's` > 0.5 | I32 = 1 AND `I32` = 1 | `Ünï"c` = 'it''s'
i32 IS NULL OR i32 = 0 | NOT (i32 IS NULL OR i32 = 0) | i32 <> 0 OR i32 < 5 | 5 > i32 | 5 = i32
NULL = i32 | 1.5 < dec | '1970-01-01' <= da | 'a' = s | TRUE = b | -(5) = i32 | i32 = -5 | i32 = - 5
i32 = 5L | i32 = 5S | i32 = -5Y | i32 == 5 | i32 != 5 | ! i32 = 5 | !b | i32 = +5 | s = +'a'
i32 <= 2147483647 | i32 > 2147483647 | i32 = 2147483648 | i32 < -2147483649 | i32 >= -2147483648
i32 < 100000000000000000000 | i32 > 99999999999999999999.5 | i64 = 100000000000000000000
'''


def filters_by_hand() -> list[str]:
    return [part.strip() for line in NASTY.splitlines() for part in line.split(" | ") if part]


class Data:
    """Draws values that are likely to show a difference, and literals near them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def value(self, kind: pa.DataType) -> Any:
        draw = self.random
        if draw.random() < 0.12:
            return None
        if pa.types.is_integer(kind):
            bound = 1 << (kind.bit_width - 1)
            near = draw.choice([-bound, bound - 1, 0, 0, 0, 2**53, 2**31 - 1, -(2**31), 127])
            value = near + draw.randint(-6, 6)
            if draw.random() < 0.2:
                value = draw.randint(-bound, bound - 1)
            return min(max(value, -bound), bound - 1)
        if pa.types.is_decimal(kind):
            bound = 10**kind.precision - 1
            near = draw.choice([-bound, bound, 0, 0, 10**kind.scale, draw.randint(-bound, bound)])
            unscaled = min(max(near + draw.randint(-6, 6), -bound), bound)
            return decimal_of(unscaled, kind.scale)
        if pa.types.is_floating(kind):
            return draw.choice(FLOATS) if draw.random() < 0.8 else draw.uniform(-2, 2)
        if kind == pa.string():
            text = draw.choice(STRINGS)
            return text + draw.choice(STRINGS) if draw.random() < 0.3 else text
        if kind == pa.binary():
            return draw.choice(BYTES)
        if kind == pa.bool_():
            return draw.random() < 0.5
        if kind == pa.date32():
            return draw.choice(DATES)
        moment = draw.choice(TIMES)
        return moment if kind.tz is None else moment.replace(tzinfo=dt.UTC)

    def table(self, row_count: int, first_id: int = 0) -> pa.Table:
        columns = {"id": pa.array(range(first_id, first_id + row_count), pa.int64())}
        for name, kind in TYPES.items():
            columns[name] = pa.array([self.value(kind) for _ in range(row_count)], kind)
        return pa.table(columns)

    def literal(self, kind: pa.DataType) -> str:
        """A literal that Spark can compare with a column of this type, mostly of this type."""
        draw = self.random
        value = self.value(kind)
        if value is None:
            return "NULL"
        if pa.types.is_integer(kind):
            return draw.choice([f"{value}", f"{value}", f"{value}L", f"{value}.5", f"{value}e0"])
        if pa.types.is_decimal(kind):
            return draw.choice([f"{value:f}", f"{value:f}", f"{int(value)}"])
        if pa.types.is_floating(kind):
            if value != value or value in (float("inf"), float("-inf")):
                return draw.choice(["0", "-0.0", "1e308", "0.1", "3.4028234663852886e38"])
            short = draw.choice(["0", "0.1", "0.5", "1", "-1", "16777217", "-0e0", "1.5F"])
            return draw.choice([short, f"{value!r}D", f"{value!r}D"])
        if kind == pa.string():
            return "'" + value.replace("'", "''") + "'"
        if kind == pa.binary():
            return f"X'{value.hex()}'"
        if kind == pa.bool_():
            return str(value).upper()
        if kind == pa.date32():
            return draw.choice(["", "DATE "]) + f"'{value.isoformat()}'"
        text = value.replace(tzinfo=None).isoformat(sep=draw.choice(" T"))
        if kind.tz is None:
            return draw.choice(["", "TIMESTAMP_NTZ "]) + f"'{text}'"
        zone = draw.choice(["", "", "Z", "+02:00"]) if value.year not in (1, 9999) else ""
        return draw.choice(["", "TIMESTAMP ", "TIMESTAMP_LTZ "]) + f"'{text}{zone}'"

    def condition(self, depth: int) -> str:
        draw = self.random
        if depth > 0 and draw.random() < 0.7:
            word = draw.choice(["AND", "OR", "NOT", "NOT AND", "NOT OR", "flat"])
            parts = [self.condition(depth - 1) for _ in range(draw.randint(2, 3))]
            if word == "flat":
                # Without parentheses, what is tested is that both agree on which binds tighter.
                return self.leaf() + "".join(
                    f" {draw.choice(['AND', 'OR', 'AND NOT', 'OR NOT', 'AND !'])} {self.leaf()}"
                    for _ in range(draw.randint(1, 4))
                )
            if word == "NOT":
                return f"NOT ({parts[0]})"
            joined = f" {word.split()[-1]} ".join(f"({part})" for part in parts)
            return f"NOT ({joined})" if word.startswith("NOT") else joined
        return self.leaf()

    def leaf(self) -> str:
        draw = self.random
        name, kind = draw.choice(list(TYPES.items()))
        column = f"`{name}`"
        ops = ["=", "<>", "<", "<=", ">", ">=", "<=>"]
        shape = draw.random()
        if shape < 0.08:
            return f"{column} IS {draw.choice(['', 'NOT '])}NULL"
        if shape < 0.14:
            peers = [other for other, type_ in TYPES.items() if type_ == kind]
            return f"{column} {draw.choice(ops)} `{draw.choice(peers)}`"
        if shape < 0.30:
            listed = ", ".join(self.literal(kind) for _ in range(draw.randint(1, 8)))
            return f"{column} {draw.choice(['', 'NOT '])}IN ({listed})"
        if shape < 0.42:
            ends = f"{self.literal(kind)} AND {self.literal(kind)}"
            return f"{column} {draw.choice(['', 'NOT '])}BETWEEN {ends}"
        if shape < 0.5 and kind == pa.string():
            pattern = "".join(
                draw.choice(["%", "_", "a", "b", "é", "\U0010ffff", "😀", "''", " "])
                for _ in range(draw.randint(0, 4))
            )
            return f"{column} {draw.choice(['', 'NOT '])}LIKE '{pattern}'"
        if shape < 0.55 and kind == pa.bool_():
            return column
        literal = self.literal(kind)
        if draw.random() < 0.2:
            return f"{literal} {draw.choice(ops)} {column}"
        return f"{column} {draw.choice(ops)} {literal}"


def decimal_of(unscaled: int, scale: int) -> Decimal:
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


class Stored:
    """The same rows in Lance without and with indexes, and in Spark."""

    def __init__(self, spark: Any, path: Path) -> None:
        data = Data(SEED)
        dataset = lance.write_dataset(
            data.table(ROW_COUNT),
            path / "rows.lance",
            enable_stable_row_ids=True,
            max_rows_per_file=ROW_COUNT // 4,
        )
        self.plain = deleted(dataset, "id % 7 = 3")
        indexed = self.plain
        for name in TYPES:
            index = indexed.create_index_uncommitted(
                name, "BTREE", name=f"by_{name}", fragment_ids=[0, 1, 2]
            )
            indexed = commit(indexed, LanceOperation.CreateIndex([index], []))
        self.plain = deleted(self.plain, "id % 11 = 5")
        self.indexed = deleted(indexed, "id % 11 = 5")
        rows = self.plain.to_table()
        assert rows.num_rows < ROW_COUNT
        self.frame = frame_of(spark, rows)
        self.spark = spark

    def by_lance(self, condition: str, dataset: LanceDataset) -> set[int]:
        ids = dataset.scanner(columns=["id"], filter=condition).to_table()["id"].to_pylist()
        assert len(ids) == len(set(ids))
        return set(ids)

    def by_spark(self, conditions: list[str], zone: str) -> list[set[int]]:
        found: list[set[int]] = []
        with session_zone(self.spark, zone):
            for start in range(0, len(conditions), BATCH):
                batch = conditions[start : start + BATCH]
                texts = [f"({text}) AS c{k}" for k, text in enumerate(batch)]
                answers = self.frame.selectExpr("id", *texts).toArrow()
                ids = answers["id"]
                found += [set(ids.filter(answers[f"c{k}"]).to_pylist()) for k in range(len(batch))]
        return found


def frame_of(spark: Any, rows: pa.Table) -> Any:
    # Without a schema, PySpark makes TIMESTAMP of Arrow's timestamps without a zone.
    ddl = ", ".join(f"`{field.name}` {spark_type(field.type)}" for field in rows.schema)
    return spark.createDataFrame(rows, ddl).cache()


def commit(dataset: LanceDataset, operation: Any) -> LanceDataset:
    return LanceDataset.commit(dataset, operation, read_version=dataset.version, detached=True)


def deleted(dataset: LanceDataset, condition: str) -> LanceDataset:
    updated = [fragment.delete(condition) for fragment in dataset.get_fragments()]
    return commit(dataset, LanceOperation.Delete(updated, [], condition))


@contextmanager
def session_zone(spark: Any, zone: str) -> Iterator[None]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        yield
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


@pytest.fixture(scope="module")
def stored(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Stored:
    return Stored(spark, tmp_path_factory.mktemp("expressions"))


def assert_same_rows(stored: Stored, texts: list[str], zone: str) -> list[Filter]:
    filters = [parse_filter(text, SCHEMA, zone=zone) for text in texts]
    native = [one for one in filters if one.lance is not None]
    expected = stored.by_spark([one.sql for one in native], zone)
    wrong = []
    for one, ids in zip(native, expected, strict=True):
        assert one.lance is not None
        for what, dataset in (("scan", stored.plain), ("index", stored.indexed)):
            found = stored.by_lance(one.lance, dataset)
            if found != ids:
                some = sorted(found ^ ids)[:3]
                rows = stored.plain.to_table(columns=list(one.columns), filter=f"id IN ({some[0]})")
                wrong.append(
                    f"{one.sql}\n  as {one.lance}\n  by {what}: {len(found)} rows, by Spark "
                    f"{len(ids)}; differ in {some}, the first is {rows.to_pylist()}"
                )
    assert not wrong, f"TIDELOCK_SEED={SEED} zone={zone}\n" + "\n".join(wrong)
    return native


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York", "+05:30"])
def test_filters_written_by_hand_select_the_same_rows(stored: Stored, zone: str) -> None:
    texts = filters_by_hand()
    if zone != "UTC":
        texts = [text for text in texts if "ts" in text or "nt" in text or "da" in text]
    native = assert_same_rows(stored, texts, zone)
    assert len(native) > len(texts) * 0.7


def test_generated_filters_select_the_same_rows(stored: Stored) -> None:
    data = Data(SEED + 1)
    texts = [data.condition(depth) for depth in (0, 0, 1, 2) for _ in range(GENERATED_COUNT // 4)]
    native = assert_same_rows(stored, texts, "UTC")
    assert len(native) > len(texts) * 0.5


ASSIGNED_TYPES = {
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.bool_(): "BOOLEAN",
    pa.date32(): "DATE",
    pa.timestamp("us", "UTC"): "TIMESTAMP",
    pa.timestamp("us"): "TIMESTAMP_NTZ",
}
ASSIGNED_BY_HAND = """
i8 := i8 + 1 | i8 := -i8 | i8 := i8 * i8b | i8 := i8 + i8b | i16 := i8 * i8b | i32 := i32 + 1
i32 := i32 * i32b | i64 := i32 * i32b | i64 := i32 * 1L * i32b | i64 := i64 - 10 | i64 := -i64
i64 := -(-i64) | i32 := i32 + 2147483647 + 1 | i32 := i32 - 1 + 1 | i32 := i32 * 2 - i32
i32 := 1000 | i8 := 1000 | i8 := i64 | i16 := i32 | i64 := i8 | i32 := i32b + (i32 * i32)
i32 := i64 + i32 | i32 := (i32 * i32) + i32b | i32 := i32b * (i32 + 1) | i64 := NULL | i64 := i32
i64 := i64 + -9223372036854775808 | i64 := i64 - -2147483648 | i32 := i32 + -2147483648
i32 := i32 + -(2147483648) | i32 := 5 - i32 | i32 := 0 * i32 | i32 := i8 * i16 | i64 := i64 * 0
dec := dec * 1.1 | dec := dec + decb | dec := dec - 0.005 | dec := dec * 0.5 | dec := dec * decb
dec := dec * 2 | dec := dec + 1 | dec := dec + i8 | dec := i32 | dec := i64 | dec := 1.005
dec := -dec | dec := dec * i32 | dec := 12345678901 | dec := 1.115 | dec := -1.115 | dec := 0.995
dec := dec + 0.995 | dec := 9999999999.995 | dec := -0.004 | d1 := d1 * 0.5 | d1 := dec | d1 := i8
d1 := 9.5 | d1 := -9.4999 | d38 := d38 | d38 := d38 + 1 | d38 := i64 | d38 := dec | d3838 := 0.5
d3838 := d1 | d3830 := dec | d3830 := d3838 | d3838 := d3830 | d38 := d3830 | d1 := d3838
d3830 := dec * dec | dec := d3830 | dec := d38 | dec := dec - 1L | dec := dec * 1.10BD
d := d * 1.1 | d := d + db | d := d * db | d := -d | d := i64 | d := i64 + 0.5 | d := d + i64
d := 0.1 | d := 1e308 | d := f | d := f * 1.5 | d := f + 1 | d := f + fb | d := f * d | d := dec
d := 9007199254740993 | d := i32 * 1e0 | d := 0.30000000000000004 | d := d - i64 | d := d * 1.1F
d := 123456789012345678.123456789 | d := d + 123456789012345678.123456789
f := f + fb | f := f * fb | f := d | f := 0.5 | f := 0.1 | f := -f | f := f * 2 | f := d * 2
f := 1 | f := 16777217 | f := i32 | f := f - 1.5F
s := 'x' | s := 'it''s' | s := sb | s := NULL | s := '' | s := "a""b" | bin := X'00ff' | bin := binb
b := TRUE | b := bb | b := NULL | b := FALSE | da := DATE '2024-02-29' | da := dab | da := NULL
ts := TIMESTAMP '2024-07-01 12:00:00.5' | ts := tsb | ts := TIMESTAMP '2024-07-01 12:00:00+02:00'
nt := TIMESTAMP_NTZ '0001-01-01 00:00:00' | nt := ntb | `With Space` := `with space` * 2
dec := i32 + 1.5 | dec := i64 * 1.1 | i32 := i32b | i64 := i64b + i32 | dec := 1 - dec
dec := i32 * i32b
"""


def assignments(data: Data) -> list[tuple[str, str]]:
    written = [
        tuple(part.strip().split(" := "))
        for line in ASSIGNED_BY_HAND.splitlines()
        for part in line.split(" | ")
        if part
    ]
    numeric = [
        name
        for name, kind in TYPES.items()
        if pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_floating(kind)
    ]
    draw = data.random

    def operand(depth: int) -> str:
        shape = draw.random()
        if depth and shape < 0.5:
            return f"({operand(depth - 1)} {draw.choice('+-*')} {operand(depth - 1)})"
        if shape < 0.85:
            return draw.choice(["", "", "", "-"]) + f"`{draw.choice(numeric)}`"
        return draw.choice(["1", "2", "-1", "10L", "1.1", "0.05", "-2147483648", "1e0", "3Y"])

    generated = [
        (draw.choice(numeric), f"{operand(1)} {draw.choice('+-*')} {operand(1)}")
        for _ in range(GENERATED_COUNT // 2)
    ]
    return [(name.strip("`"), text) for name, text in [*written, *generated]]


def spark_type(kind: pa.DataType) -> str:
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    return ASSIGNED_TYPES[kind]


def split_by_error(evaluate: Callable[[pa.Table], Any], rows: pa.Table) -> tuple[dict, list[int]]:
    """The value of every row that has one, by id, and the ids of the rows that raise."""
    ids = rows["id"].to_pylist()
    try:
        return dict(zip(ids, evaluate(rows).to_pylist(), strict=True)), []
    except WrongType:
        if rows.num_rows == 1:
            return {}, ids
    middle = rows.num_rows // 2
    values, errors = split_by_error(evaluate, rows.slice(0, middle))
    more_values, more_errors = split_by_error(evaluate, rows.slice(middle))
    return values | more_values, errors + more_errors


def same_value(one: Any, two: Any) -> bool:
    if isinstance(one, float) and isinstance(two, float):
        return struct.pack("<d", one) == struct.pack("<d", two) or (one != one and two != two)
    return bool(one == two)


def test_assignments_give_the_values_and_errors_of_spark(spark: Any) -> None:
    data = Data(SEED + 2)
    rows = data.table(120)
    frame = frame_of(spark, rows)
    native = []
    for name, text in assignments(data):
        one = parse_assignment(name, text, SCHEMA)
        if one.native is not None:
            values, errors = split_by_error(one.evaluate, rows)
            assert one.evaluate(rows.slice(0, 0)).type == TYPES[name]
            cast = f"CAST(({one.sql}) AS {spark_type(TYPES[name])})"
            native.append((one, values, errors, cast))
    assert len(native) > 150
    wrong = []
    for start in range(0, len(native), BATCH):
        batch = native[start : start + BATCH]
        texts = [
            f"CASE WHEN id NOT IN ({', '.join(map(str, [-1, *errors]))}) THEN {cast} END AS c{k}"
            for k, (_, _, errors, cast) in enumerate(batch)
        ]
        answers = frame.selectExpr("id", *texts).toArrow().to_pylist()
        for k, (one, values, _, _) in enumerate(batch):
            for answer in answers:
                row = answer["id"]
                if row in values and not same_value(values[row], answer[f"c{k}"]):
                    given = rows.select(one.columns).slice(row, 1).to_pylist()
                    wrong.append(
                        f"{one.column.name} := {one.sql}: {values[row]!r}, by Spark "
                        f"{answer[f'c{k}']!r} in {given}"
                    )
                    break
    raising = [case for case in native if case[2]]
    # One query for each, as the first error ends it: a sample keeps the test quick.
    for one, _, errors, cast in data.random.sample(raising, min(len(raising), 60)):
        row = data.random.choice(errors)
        try:
            answer = frame.where(f"id = {row}").selectExpr(f"{cast} AS c").toArrow()
        except Exception as error:
            if "OVERFLOW" in str(error) or "OUT_OF_RANGE" in str(error):
                continue
            raise
        given = rows.select(one.columns).slice(row, 1).to_pylist()
        wrong.append(
            f"{one.column.name} := {one.sql}: raises, by Spark {answer['c'].to_pylist()} in {given}"
        )
    assert not wrong, f"TIDELOCK_SEED={SEED}\n" + "\n".join(wrong)
