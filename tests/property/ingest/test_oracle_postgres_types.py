"""Values of every type of real PostgreSQL servers: converted, given back, and kept in a lake.

Each round makes a table with a column of each type and of arrays of each, fills it with random and
hostile values, and reads it as text under our settings. Laws:

    text_of(convert(texts)) = texts, with what is kept; also after the lake had the values
    a value is the one that its text says, by an independent reading of it
    a value is missing only where its text says what the lake's type cannot hold

The seed is printed when a run fails; `TIDELOCK_SEED` replays it.
"""

from __future__ import annotations

import json
import random
import re
import struct
import time
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.support.lakes import fault_seconds, seed_of
from tests.support.postgres import Server, installed, running

import tidelock
from tidelock.ingest.postgres.types import (
    KEPT_TEXTS,
    SETTINGS,
    Mapped,
    PgColumn,
    PgType,
    convert,
    keep_beside,
    kept_beside,
    map_columns,
    taken_columns,
    text_of,
)

psycopg = pytest.importorskip("psycopg")

ROWS = 60
SECONDS = 2.0
VERSIONS = [version for version in (15, 18) if version in installed()]
OPTIONS = " ".join(f"-c {name}={value}" for name, value in SETTINGS.items())
TEXTS = [
    "",
    " ",
    "a",
    "a    ",
    "NULL",
    "null",
    '"',
    "\\",
    "a,b",
    "{}",
    "{a}",
    "é",
    "\n",
    "\t",
    "😀",
]
KINDS = {"b": "base", "e": "enum", "d": "domain", "c": "composite", "r": "range", "m": "multirange"}
SETUP = (
    "CREATE TYPE mood AS ENUM ('ok', 'so so', 'NULL', '{a,\"b\"}')",
    "CREATE TYPE pair AS (a int, b text)",
    "CREATE TYPE date_like AS ENUM ('2024-01-01')",
    "CREATE DOMAIN price AS numeric(10, 2)",
    "CREATE DOMAIN best_price AS price CHECK (value > -1e9)",
    "CREATE DOMAIN ints AS integer[]",
    "CREATE DOMAIN corner AS box",
)

Values = Callable[[random.Random], str]


def hostile(often: list[str], other: Values | None = None) -> Values:
    return lambda r: r.choice(often) if other is None or r.random() < 0.4 else other(r)


def of_float(layout: str, digits: str) -> Values:
    """A number of any bits: endless ones, small and large ones, each as likely."""

    def value(r: random.Random) -> str:
        number = struct.unpack(layout, r.randbytes(struct.calcsize(layout)))[0]
        return format(number, digits)

    return value


def digits(r: random.Random, whole: int, after: int) -> str:
    text = str(r.randrange(10 ** r.randrange(1, whole + 1)) if whole else 0)
    count = r.randrange(after + 1)
    rest = "".join(r.choices("0000123456789", k=count))
    return r.choice(["", "-"]) + text + (f".{rest}" if rest else "")


def day(r: random.Random) -> str:
    return (date(1, 1, 1) + timedelta(r.randrange(3_652_059))).isoformat()


def moment(r: random.Random) -> str:
    fraction = str(r.randrange(10 ** r.randrange(7))) if r.random() < 0.7 else "0"
    return f"{day(r)} {r.randrange(24):02}:{r.randrange(60):02}:{r.randrange(60):02}.{fraction}"


def point(r: random.Random) -> str:
    return f"({r.randrange(-9, 9)},{r.choice(['1e300', '0.1', '-0', 'NaN', '2'])})"


def signed(bits: int) -> Values:
    ends = [str(-(1 << (bits - 1))), str((1 << (bits - 1)) - 1), "0", "-1"]
    return hostile(ends, lambda r: str(r.randrange(-(1 << (bits - 1)), 1 << (bits - 1))))


FAR_DAYS = ["infinity", "-infinity", "0044-03-15 BC", "4713-01-01 BC", "0001-01-01", "9999-12-31"]
FAR_MOMENTS = ["infinity", "-infinity", "0044-03-15 10:00:00.5 BC", "9999-12-31 23:59:59.999999"]
FAR_MOMENTS += ["0001-01-01 00:00:00", "294276-12-31 23:59:59.999999", "2024-02-29 12:00:00.10"]
NOT_NUMBERS = ["NaN", "0", "0.00", "-0.01", "1.50"]
TYPES: dict[str, Values] = {
    "boolean": hostile(["t", "f"]),
    "smallint": signed(16),
    "integer": signed(32),
    "bigint": signed(64),
    "oid": hostile(["0", "4294967295"]),
    "real": hostile(
        ["NaN", "Infinity", "-Infinity", "-0", "1e6", "999999", "1e-4", "1e-5", "16777217", "1e10"],
        of_float("<f", ".9g"),
    ),
    "double precision": hostile(
        [
            *["NaN", "Infinity", "-Infinity", "-0", "1e23", "1e15", "999999999999999", "1e-4"],
            *[
                "12345678901.5",
                "9007199254740993",
                "1719828000123",
                "5e-324",
                "0.1",
                "1e10",
                "9e-5",
            ],
        ],
        hostile([str(n / 7) for n in range(30)], of_float("<d", ".17g")),
    ),
    "numeric(10,2)": hostile(NOT_NUMBERS, lambda r: digits(r, 8, 2)),
    "numeric(38,10)": hostile(NOT_NUMBERS, lambda r: digits(r, 28, 10)),
    "numeric(38,38)": hostile(["NaN", "0", "-1e-38"], lambda r: digits(r, 0, 38)),
    "numeric(38,0)": hostile(["NaN", "-0", "9" * 38], lambda r: digits(r, 38, 0)),
    "numeric(60,5)": hostile(NOT_NUMBERS, lambda r: digits(r, 55, 5)),
    "numeric(60,30)": hostile(NOT_NUMBERS, lambda r: digits(r, 30, 30)),
    "numeric(3,5)": hostile(["NaN", "0.00999", "-0.00001", "0"]),
    "numeric(3,-2)": hostile(["NaN", "12300", "-100", "0"]),
    "numeric": hostile(
        [*NOT_NUMBERS, "Infinity", "-Infinity", "1e40", "1e-18", "1e-19", "-0.0000001", "1e-30"],
        lambda r: digits(r, r.choice([3, 20, 25]), r.choice([0, 2, 18, 25])),
    ),
    "date": hostile([*FAR_DAYS, "10000-01-01", "5874897-12-31"], day),
    "timestamp": hostile(FAR_MOMENTS, moment),
    "timestamp(3)": hostile(FAR_MOMENTS[:3], moment),
    "timestamptz": hostile(FAR_MOMENTS, lambda r: moment(r) + r.choice(["", "+02", "-05:30"])),
    "bytea": hostile(["\\x", "\\x00", "\\x5c22"], lambda r: "\\x" + r.randbytes(9).hex()),
    "uuid": lambda r: r.randbytes(16).hex(),
    "text": hostile(TEXTS, lambda r: "".join(r.choices(TEXTS, k=4))),
    "varchar(20)": hostile(TEXTS),
    "char(5)": hostile(["", "a", "a b", "NULL", "é"]),
    "name": hostile(TEXTS),
    '"char"': hostile(["", "a", '"', "\\", ","]),
    "json": hostile(['{"a" : 1, "a":2}', "[]", '"\\u0041"', " 1 ", "null"]),
    "jsonb": hostile(['{"b": 1, "a": 3}', "[1.50]", '"x"', "null"]),
    "xml": hostile(["<a>b</a>", "text"]),
    "interval": hostile(["1 year 2 mons -3 days 04:05:06.789", "0", "-1 mon", "1000000 hours"]),
    "time": hostile(["24:00:00", "00:00:00.000001", "10:00:00.50"]),
    "timetz": hostile(["24:00:00-15:59:59", "10:00:00+02", "10:00:00.5-05:30"]),
    "money": hostile(["1.5", "-1234567.89"]),
    "inet": hostile(["192.168.0.1/24", "::1", "10.0.0.1"]),
    "cidr": hostile(["10.0.0.0/8", "::/0"]),
    "macaddr": hostile(["08:00:2b:01:02:03"]),
    "macaddr8": hostile(["08:00:2b:01:02:03:04:05"]),
    "bit(3)": hostile(["101", "000"]),
    "varbit": hostile(["", "1", "010101"]),
    "tsvector": hostile(["", "a:1 b:2A", "'a b' '\\\\'"]),
    "tsquery": hostile(["a & b", "!'x y' | z:*"]),
    "point": point,
    "line": hostile(["{1,-1,0}"]),
    "lseg": lambda r: f"[{point(r)},(1,1)]",
    "box": lambda r: f"{point(r)},(1,1)",
    "path": lambda r: f"({point(r)},(1,1))",
    "polygon": lambda r: f"({point(r)},(1,1))",
    "circle": lambda r: f"<{point(r)},1>",
    "pg_lsn": hostile(["0/0", "FFFFFFFF/FFFFFFFF", "0/16B3748"]),
    "xid": hostile(["0", "4294967295"]),
    "xid8": hostile(["0", "18446744073709551615"]),
    "int2vector": hostile(["", "1 2 3"]),
    "oidvector": hostile(["", "1 2"]),
    "int4range": hostile(["empty", "[1,6)", "(,)", "[1,)"]),
    "numrange": hostile(["[1.50,2]", "(,Infinity]", "empty"]),
    "tstzrange": hostile(['["2024-01-01 00:00:00+00",infinity)', "empty"]),
    "int4multirange": hostile(["{}", "{[1,3),[5,8)}"]),
    "mood": hostile(["ok", "so so", "NULL", '{a,"b"}']),
    "date_like": hostile(["2024-01-01"]),
    "pair": hostile(["(,)", '(1,"x,y")', '(-1,"")', '(1,"""")']),
    "price": hostile(["1.5", "NaN", "-0.01"]),
    "best_price": hostile(["1.5", "0"]),
    "ints": hostile(["{}", "{1,NULL}", "{{1,2},{3,4}}", "[0:0]={1}"]),
    "corner": lambda r: f"{point(r)},(1,1)",
}


@pytest.fixture(scope="module", params=VERSIONS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with running(request.param) as server:
        server.execute(*SETUP)
        yield server


def test_every_value_comes_back_as_postgresql_printed_it(server: Server) -> None:
    deadline, rounds = time.monotonic() + fault_seconds(SECONDS), 0
    with server.connect(options=OPTIONS) as connection:
        names = usable(connection)
        assert len(names) > 50
        while not rounds or time.monotonic() < deadline:
            with seed_of() as seed:
                run(connection, random.Random(seed), names, f"types-{server.version}-{rounds}")
            rounds += 1


def usable(connection: Any) -> list[str]:
    """The types that this server has: not every one is built with XML."""
    found = []
    for name, values in TYPES.items():
        try:
            connection.execute(f"SELECT CAST(%s::text AS {name})", [values(random.Random(0))])
            found.append(name)
        except psycopg.errors.FeatureNotSupported:
            assert name == "xml"
    return found


def run(connection: Any, chance: random.Random, names: list[str], lake: str) -> None:
    declared = [f"c{n} {name}" for n, name in enumerate(names)]
    declared += [f"a{n} {name}[]" for n, name in enumerate(names)]
    makers: list[Values] = [TYPES[name] for name in names]
    makers += [arrays_of(TYPES[name], ";" if name in ("box", "corner") else ",") for name in names]
    connection.execute("DROP TABLE IF EXISTS t")
    connection.execute(f"CREATE TABLE t (id bigint, {', '.join(declared)})")
    connection.execute("ALTER TABLE t ADD g bigint GENERATED ALWAYS AS (id + 1) STORED")
    listed = ", ".join(one.split()[0] for one in declared)
    with connection.cursor().copy(f"COPY t (id, {listed}) FROM STDIN") as copy:
        for number in range(ROWS):
            row = [None if chance.random() < 0.1 else make(chance) for make in makers]
            copy.write_row([number, *row])
    columns = described(connection)
    assert list(taken_columns(columns).notes) == ["g"]
    mapped = map_columns(columns)
    check(mapped, texts_of(connection, [one.name for one in mapped]), lake)
    check_arrays(connection, mapped)


def arrays_of(element: Values, delimiter: str) -> Values:
    def item(r: random.Random) -> str:
        if r.random() < 0.1:
            return "NULL"
        return '"' + element(r).replace("\\", "\\\\").replace('"', '\\"') + '"'

    def value(r: random.Random) -> str:
        count = r.randrange(4)
        items = "{" + delimiter.join(item(r) for _ in range(count)) + "}"
        if count and r.random() < 0.1:
            return f"[0:{count - 1}]={items}"
        if count and r.random() < 0.1:
            return f"{{{items}{delimiter}{items}}}"
        return items

    return value


def described(connection: Any) -> list[PgColumn]:
    """The columns of the table, as the catalog has them."""

    def type_of(oid: int, typmod: int) -> PgType:
        shown, kind, base, base_typmod, element, category, delimiter = connection.execute(
            "SELECT format_type(oid, %s), typtype, typbasetype, typtypmod, typelem, typcategory,"
            " typdelim FROM pg_type WHERE oid = %s",
            [typmod, oid],
        ).fetchone()
        if kind == "d":
            return PgType(oid, shown, typmod, "domain", type_of(base, base_typmod), None, delimiter)
        if category == "A":
            return PgType(oid, shown, typmod, "array", None, type_of(element, typmod), delimiter)
        return PgType(oid, shown, typmod, KINDS[kind], delimiter=delimiter)  # type: ignore[arg-type]

    rows = connection.execute(
        "SELECT attname, attnum, atttypid, atttypmod, attnotnull, attgenerated <> '',"
        " attidentity <> '' FROM pg_attribute"
        " WHERE attrelid = 't'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
    ).fetchall()
    return [
        PgColumn(name, number, type_of(oid, typmod), *flags)
        for name, number, oid, typmod, *flags in rows
    ]


def texts_of(connection: Any, names: list[str]) -> list[pa.Array]:
    """The columns of the table, as the output functions of their types print them."""
    listed = ", ".join(names)
    result = connection.execute(f"SELECT {listed} FROM t ORDER BY id").pgresult
    return [
        pa.array(
            [
                None if (octets := result.get_value(row, n)) is None else octets.decode()
                for row in range(result.ntuples)
            ],
            pa.string(),
        )
        for n in range(len(names))
    ]


def check(mapped: tuple[Mapped, ...], texts: list[pa.Array], lake: str) -> None:
    made = [convert(given, one) for given, one in zip(texts, mapped, strict=True)]
    for one, given, (values, _) in zip(mapped, texts, made, strict=True):
        check_values(one, given.to_pylist(), values)
    marked = {
        one.name: (given, kept) for one, given, (_, kept) in zip(mapped, texts, made, strict=True)
    }
    beside = keep_beside(marked, ROWS)
    schema = pa.schema([*((one.name, one.type) for one in mapped), ("kept", KEPT_TEXTS)])
    rows = pa.table([*(values for values, _ in made), beside], schema=schema)
    with tidelock.open(f"memory://{lake}", create=True) as opened:
        opened.create_table("t", schema)
        with opened.transaction() as tx:
            tx.append("t", rows)
        read = opened.table("t").to_arrow().sort_by("id").combine_chunks()
        opened.drop_table("t")
    assert read.schema.equals(schema)
    kept_texts = read.column("kept").chunk(0)
    for one, given in zip(mapped, texts, strict=True):
        column = read.column(one.name).chunk(0)
        told = text_of(column, one, kept_beside(kept_texts, one.name))
        wrong = [
            pair
            for pair in zip(told.to_pylist(), given.to_pylist(), strict=True)
            if len({*pair}) > 1
        ]
        assert not wrong, (one.name, one.column.type_name, wrong[:5])


def check_values(mapped: Mapped, texts: list[str | None], values: pa.Array) -> None:
    reading = next((read for matches, read in READINGS if matches(mapped.type)), None)
    if reading is None:
        return
    for text, value in zip(texts, values.to_pylist(), strict=True):
        expected = None if text is None else reading(text, mapped.type)
        assert repr(value) == repr(expected), (mapped.column.type_name, text, value)


def small_float(text: str) -> float:
    number: float = struct.unpack("<f", struct.pack("<f", float(text)))[0]
    return number


def exact_decimal(text: str, type_: pa.DataType) -> Decimal | None:
    if text in ("NaN", "Infinity", "-Infinity"):
        return None
    sign, whole, after = re.fullmatch(r"(-?)(\d+)\.?(\d*)", text).groups()  # type: ignore[union-attr]
    unscaled = (whole + after[: type_.scale].ljust(type_.scale, "0")).lstrip("0")
    if len(unscaled) > type_.precision or after[type_.scale :].strip("0"):
        return None
    return Decimal((sign == "-" and unscaled != "", tuple(map(int, unscaled or "0")), -type_.scale))


def in_calendar(read: Callable[[str], Any]) -> Callable[[str, pa.DataType], Any]:
    def value(text: str, _: pa.DataType) -> Any:
        return read(text) if re.match(r"\d{4}-", text) and not text.endswith("BC") else None

    return value


READINGS: list[tuple[Callable[[pa.DataType], bool], Callable[[str, pa.DataType], Any]]] = [
    (pa.types.is_boolean, lambda text, _: text == "t"),
    (pa.types.is_integer, lambda text, _: int(text)),
    (pa.types.is_float32, lambda text, _: small_float(text)),
    (pa.types.is_float64, lambda text, _: float(text)),
    (pa.types.is_decimal, exact_decimal),
    (pa.types.is_date, in_calendar(date.fromisoformat)),
    (
        lambda type_: pa.types.is_timestamp(type_) and type_.tz is None,
        in_calendar(datetime.fromisoformat),
    ),
    (pa.types.is_binary, lambda text, _: bytes.fromhex(text[2:])),
    (pa.types.is_string, lambda text, _: text),
]


def check_arrays(connection: Any, mapped: tuple[Mapped, ...]) -> None:
    """Arrays of texts and of integers, as PostgreSQL itself says what is in them."""
    for one in mapped:
        if one.column.type_name not in ("text[]", "integer[]", "boolean[]", "uuid[]", "mood[]"):
            continue
        name = one.name
        said = connection.execute(
            f"SELECT CASE WHEN array_ndims({name}) > 1 OR array_lower({name}, 1) <> 1 THEN NULL"
            f" ELSE to_json({name})::text END FROM t ORDER BY id"
        ).fetchall()
        values, _ = convert(texts_of(connection, [name])[0], one)
        assert values.to_pylist() == [
            None if text is None else json.loads(text) for (text,) in said
        ]
