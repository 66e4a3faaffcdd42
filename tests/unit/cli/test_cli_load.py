"""Files become rows of exactly the table's types, all in one commit, or nothing is loaded."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.cli.command_line import ORDERS, Cli, rows_of

EVENTS = (
    "id BIGINT NOT NULL, d DECIMAL(38,10), f DOUBLE, b BOOLEAN, day DATE, at TIMESTAMP, "
    "local TIMESTAMP_NTZ, raw BINARY, l ARRAY<INT>, s STRUCT<a: INT, at: TIMESTAMP>, "
    "m MAP<STRING, DECIMAL(5,2)>, mi MAP<INT, STRING>"
)
EVENT = {
    "id": 1,
    "d": "1234567890123456789012345678.0123456789",
    "f": "NaN",
    "b": True,
    "day": "2026-03-01",
    "at": "2026-03-01T12:00:00.123456Z",
    "local": "2026-03-01T12:00:00",
    "raw": "aGk=",
    "l": [1, None, 3],
    "s": {"a": 1, "at": "2026-03-01T12:00:00Z"},
    "m": {"x": "1.50"},
    "mi": [[1, "one"]],
}


def test_csv_text_becomes_the_declared_types(shop: Cli, tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text(
        "Customer,id,amount,at\n"
        "ann,1,9.99,2026-03-01 12:00:00\n"
        '"two\nlines",2,,2026-03-01T12:00:00+02:00\n'
        '"",3,+7.5,\n'
        ",4,0,2026-03-01\n"
    )
    loaded = shop("load", "orders", "orders.csv", "--json").document
    assert (loaded["read"], loaded["version"], loaded["message"]) == (4, 2, "load orders.csv")
    assert rows_of(shop, "orders") == [
        {"id": 1, "customer": "ann", "amount": "9.99", "at": "2026-03-01T12:00:00Z"},
        {"id": 2, "customer": "two\nlines", "amount": None, "at": "2026-03-01T10:00:00Z"},
        {"id": 3, "customer": "", "amount": "7.50", "at": None},
        {"id": 4, "customer": None, "amount": "0.00", "at": "2026-03-01T00:00:00Z"},
    ]


def test_csv_without_a_header_with_other_marks(shop: Cli, tmp_path: Path) -> None:
    (tmp_path / "orders.dat").write_text("1;-;\n2;bob;-\n")
    options = ("--format", "csv", "--delimiter", ";", "--columns", "id,customer,amount")
    shop("load", "orders", "orders.dat", *options, "--null", "-", "--null", "")
    assert [(r["id"], r["customer"], r["amount"]) for r in rows_of(shop, "orders")] == [
        (1, None, None),
        (2, "bob", None),
    ]


def test_many_files_of_many_formats_are_one_commit(shop: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("id\tcustomer\n1\tann\n")
    with gzip.open(tmp_path / "b.csv.gz", "wt") as file:
        file.write("id\n2\n")
    (tmp_path / "c.jsonl").write_text('{"id": 3}\n')
    pq.write_table(pa.table({"ID": pa.array([4], pa.int32())}), tmp_path / "d.parquet")
    shop("load", "orders", "a.tsv", "b.csv.gz", "c.jsonl", "d.parquet")
    assert [row["id"] for row in rows_of(shop, "orders")] == [1, 2, 3, 4]
    commits = shop("log", "--json").document
    assert [commit["version"] for commit in commits] == [2, 1]
    assert commits[0]["message"] == "load a.tsv, b.csv.gz, c.jsonl and 1 more"


def test_a_folder_stands_for_the_files_directly_in_it(shop: Cli, tmp_path: Path) -> None:
    (tmp_path / "day" / "part=1").mkdir(parents=True)
    (tmp_path / "day" / "part=1" / "x.csv").write_text("id\n1\n")
    (tmp_path / "day" / "y.csv").write_text("id\n2\n")
    (tmp_path / "day" / "_SUCCESS").write_text("")
    (tmp_path / "day" / ".hidden.csv").write_text("id\n3\n")
    shop("load", "orders", "day")
    assert [row["id"] for row in rows_of(shop, "orders")] == [2]
    (tmp_path / "outer").mkdir()
    (tmp_path / "day").rename(tmp_path / "outer" / "day")
    told = shop("load", "orders", "outer", code=3).err
    assert "'outer/**/*.csv'" in told
    shop("load", "orders", "outer/**/*.csv", "--mode", "upsert")
    assert [row["id"] for row in rows_of(shop, "orders")] == [1, 2]


def test_a_folder_of_several_kinds_is_refused(shop: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    (tmp_path / "b.json").write_text('{"id": 2}\n')
    assert "several kinds: csv, jsonl" in shop("load", "orders", ".", code=3).err
    shop("load", "orders", "*.csv")
    assert [row["id"] for row in rows_of(shop, "orders")] == [1]


def test_what_is_shown_as_json_is_loaded_as_the_same_row(shop: Cli) -> None:
    shop("table", "create", "events", EVENTS)
    empty = {"id": 2, **dict.fromkeys(list(EVENT)[1:])}
    lines = "\n".join(map(json.dumps, [EVENT, {"id": 2}]))
    shop("load", "events", "--format", "jsonl", stdin=lines.encode())
    assert rows_of(shop, "events") == [EVENT, empty]
    shown = "\n".join(map(json.dumps, rows_of(shop, "events")))
    shop("load", "events", "-", "--format", "jsonl", "--mode", "overwrite", stdin=shown.encode())
    assert rows_of(shop, "events") == [EVENT, empty]


def test_nested_columns_are_json_in_csv(shop: Cli) -> None:
    shop("table", "create", "events", EVENTS)
    text = 'id,l,s,m\n1,"[1,null]","{""A"": 2}","{""x"": 1.5}"\n2,,,\n'
    shop("load", "events", "--format", "csv", stdin=text.encode())
    first, second = rows_of(shop, "events")
    assert (first["l"], first["s"], first["m"]) == ([1, None], {"a": 2, "at": None}, {"x": "1.50"})
    assert (second["l"], second["s"], second["m"]) == (None, None, None)


def test_parquet_comes_through_a_pipe_too(shop: Cli, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "a.parquet")
    piped = (tmp_path / "a.parquet").read_bytes()
    shop("load", "orders", "--format", "parquet", stdin=piped)
    assert [row["id"] for row in rows_of(shop, "orders")] == [1, 2]


def test_a_file_larger_than_a_block_is_loaded_whole(
    shop: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelock.ingest.files.jsonl.BLOCK_BYTES", 100)
    monkeypatch.setattr("tidelock.ingest.files.csv.BLOCK_BYTES", 100)
    lines = "\n".join(json.dumps({"id": i, "customer": f"c{i}"}) for i in range(500))
    shop("load", "orders", "--format", "jsonl", stdin=lines.encode())
    text = "id,customer\n" + "".join(f'{i},"c\n{i}"\n' for i in range(500, 1000))
    shop("load", "orders", "--format", "csv", stdin=text.encode())
    assert [row["id"] for row in rows_of(shop, "orders")] == list(range(1000))


def test_upsert_replaces_and_append_refuses_what_is_there(shop: Cli) -> None:
    shop("load", "orders", "--format", "csv", stdin=b"id,amount\n1,1\n2,2\n")
    shop("load", "orders", "--format", "csv", code=3, stdin=b"id,amount\n3,3\n2,5\n")
    shop("load", "orders", "--mode", "upsert", "--format", "csv", stdin=b"id,amount\n3,3\n2,5\n")
    assert [row["amount"] for row in rows_of(shop, "orders")] == ["1.00", "5.00", "3.00"]
    shop("load", "orders", "--mode", "overwrite", "--format", "csv", stdin=b"id\n9\n")
    assert [row["id"] for row in rows_of(shop, "orders")] == [9]


def test_an_operation_id_is_loaded_once(shop: Cli) -> None:
    def load() -> Any:
        options = ("--format", "csv", "--operation-id", "day 1", "--json")
        return shop("load", "orders", *options, stdin=b"id\n1\n").document

    first, second = load(), load()
    assert (first["loaded"], second["loaded"]) == (True, False)
    assert first["version"] == second["version"] == 2
    assert (
        "done before, as version 2"
        in shop(
            "load", "orders", "--format", "csv", "--operation-id", "day 1", stdin=b"id\n1\n"
        ).out
    )


def test_a_missing_table_is_created_from_a_parquet_file(shop: Cli, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("price", pa.decimal128(9, 3))])
    pq.write_table(pa.table({"id": [1], "price": [None]}, schema), tmp_path / "a.parquet")
    shop("load", "prices", "a.parquet", code=3)
    created = shop("load", "prices", "a.parquet", "--create", "--key", "id", "--json").document
    assert created["tables"][0]["created"]
    shown = shop("table", "show", "prices", "--json").document
    assert (shown["ddl"], shown["key"]) == ("id BIGINT NOT NULL, price DECIMAL(9,3)", ["id"])
    shop("load", "prices", "a.parquet", "--create", "--mode", "upsert")


def test_a_missing_table_is_created_as_its_files_tell_which_is_shown_before(
    shop: Cli, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("id,name,day\n1,x,2026-03-01\n")
    assert "--create creates it" in shop("load", "names", "a.csv", code=3).err
    told = shop("load", "names", "a.csv", "--create", "--key", "id").out
    assert told.startswith("Creating names: id BIGINT, name STRING, day DATE\nLoaded 1 row")
    assert rows_of(shop, "names") == [{"id": 1, "name": "x", "day": "2026-03-01"}]


def test_files_are_loaded_once_and_bad_rows_are_put_aside(shop: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,name\n1,x\n")
    (tmp_path / "b.csv").write_text("id,name\ntwo,y\n3,z\n")
    load = ("load", "names", "*.csv", "--create", "--schema", "id INT, name STRING")
    put_aside = (*load, "--only-new", "--on-bad-row", "quarantine")
    assert "Put 1 record aside in names_quarantine" in shop(*put_aside).out
    assert [one["line"] for one in rows_of(shop, "names_quarantine")] == [2]
    assert shop(*put_aside).out == "Nothing is new: 2 files loaded before. Nothing was loaded.\n"
    assert rows_of(shop, "names") == [{"id": 1, "name": "x"}, {"id": 3, "name": "z"}]


def test_a_missing_table_is_created_from_a_schema(shop: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,name\n1,x\n")
    shop("load", "names", "a.csv", "--create", "--schema", "id INT, name STRING")
    assert rows_of(shop, "names") == [{"id": 1, "name": "x"}]


BAD = {
    "a value of another type": (
        "a.csv",
        'id,customer,amount\n1,"two\nlines",1\n\n2,x,9.999\n',
        {"line": 5, "column": "amount", "values": ["9.999"], "condition": "WRONG_TYPE"},
    ),
    "a row with too many fields": (
        "a.csv",
        "id,customer\n1,x\n2,x,y\n",
        {"line": 3, "condition": "WRONG_TYPE"},
    ),
    "a required value that is missing": (
        "a.csv",
        "id,customer\n1,x\n,y\n",
        {"line": 3, "column": "id", "condition": "REQUIRED_COLUMN_NULL"},
    ),
    "an unknown column of an empty file": (
        "a.csv",
        "id,custmer\n",
        {"column": "custmer", "condition": "COLUMN_NOT_FOUND"},
    ),
    "a column twice": ("a.csv", "id,ID\n1,1\n", {"condition": "INVALID_SCHEMA"}),
    "a required column that is missing": (
        "a.csv",
        "customer\nann\n",
        {"column": "id", "condition": "REQUIRED_COLUMN_NULL"},
    ),
    "bytes that are no text": ("a.csv", b"id,customer\n1,\xff\n", {"condition": "WRONG_TYPE"}),
    "a line that is no JSON": (
        "a.jsonl",
        '{"id": 1}\n\n{"id": 2\n',
        {"line": 3, "condition": "WRONG_TYPE"},
    ),
    "a line that is no object": ("a.jsonl", '[{"id": 1}]', {"line": 1}),
    "a number in a string": (
        "a.jsonl",
        '{"id": 1}\n\n{"id": "2"}\n',
        {"line": 3, "column": "id", "condition": "WRONG_TYPE"},
    ),
    "a decimal that would be rounded": (
        "a.jsonl",
        '{"id": 1, "amount": 1.5}\n{"id": 2, "amount": 0.125}\n',
        {"line": 2, "column": "amount"},
    ),
    "an unknown field": (
        "a.jsonl",
        '{"id": 1}\n{"id": 2, "custmer": "x"}\n',
        {"line": 2, "column": "custmer", "condition": "COLUMN_NOT_FOUND"},
    ),
    "a required field that is missing": (
        "a.jsonl",
        '{"id": 1}\n{"amount": 2}\n',
        {"line": 2, "column": "id", "condition": "REQUIRED_COLUMN_NULL"},
    ),
    "a file that is no Parquet": ("a.parquet", "id,customer\n", {"condition": "WRONG_TYPE"}),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_file_is_named_with_line_and_column_and_nothing_is_loaded(
    shop: Cli, tmp_path: Path, what: str
) -> None:
    name, content, evidence = BAD[what]
    assert isinstance(name, str)
    bytes_ = content if isinstance(content, bytes) else str(content).encode()
    (tmp_path / name).write_bytes(bytes_)
    (tmp_path / "good.csv").write_text("id\n100\n")
    error = shop("load", "orders", "good.csv", name, "--json", code=3).error
    assert error | dict(evidence) == error  # type: ignore[call-overload]
    assert error["file"] == name
    assert error["message"].startswith(name)
    assert error["message"].removesuffix(" --evolve adds it.").endswith("Nothing was loaded.")
    assert rows_of(shop, "orders") == []
    assert len(shop("log", "--json").document) == 1


def test_a_bad_row_of_a_parquet_file_is_named_by_its_number(shop: Cli, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2, None]}), tmp_path / "a.parquet")
    error = shop("load", "orders", "a.parquet", code=3).err
    assert error.startswith("error: a.parquet, row 3: Column 'id' of table 'orders' is NOT NULL")


def test_a_bad_row_from_a_pipe_is_named_by_its_number(shop: Cli) -> None:
    error = shop("load", "orders", "--format", "csv", code=3, stdin=b"id\n1\nx\n").err
    assert error.startswith("error: stdin, row 2: Column 'id'")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("orders", "none.csv"), "There is no file 'none.csv'."),
        (("orders", "file.txt"), "Say --format"),
        (("orders",), "The format of stdin cannot be told. Say --format"),
        (("orders", "-", "file.txt", "--format", "csv"), "not both"),
        (("orders", "empty"), "no Parquet, CSV or JSON lines file"),
        (("orders", "file.txt", "--format", "csv", "--delimiter", "ab"), "one character"),
        (("orders", "file.txt", "--format", "csv", "--key", "id"), "created. Say --create"),
        (("nothing", "file.txt", "--format", "csv"), "There is no table 'nothing'."),
    ],
)
def test_a_load_that_cannot_be_says_why(
    shop: Cli, tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    (tmp_path / "file.txt").write_text("id\n1\n")
    (tmp_path / "empty").mkdir()
    assert told in shop("load", *arguments, code=3).err


@pytest.mark.parametrize("mode", ["append", "upsert", "overwrite"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", b""),
        ("a.csv", b"\xef\xbb\xbf"),
        ("a.csv", b"\n\n"),
        ("a.csv.gz", gzip.compress(b"")),
        ("a.jsonl", b""),
        ("a.jsonl", b"\xef\xbb\xbf\n"),
        ("a.jsonl", b"\n \n"),
    ],
)
def test_a_file_without_content_is_refused_and_the_table_stays(
    shop: Cli, tmp_path: Path, name: str, content: bytes, mode: str
) -> None:
    shop("load", "orders", "--format", "csv", stdin=b"id\n1\n")
    (tmp_path / name).write_bytes(content)
    told = shop("load", "orders", name, "--mode", mode, code=3).err
    assert told.startswith(f"error: {name}: It is empty")
    assert [row["id"] for row in rows_of(shop, "orders")] == [1]
    assert len(shop("log", "--json").document) == 2


def test_nothing_on_stdin_is_refused(shop: Cli) -> None:
    for form in ("csv", "jsonl"):
        told = shop("load", "orders", "--format", form, "--mode", "overwrite", code=3).err
        assert told.startswith("error: stdin: It is empty")
    columns = ("--format", "csv", "--columns", "id")
    assert "It is empty." in shop("load", "orders", *columns, code=3).err


def test_a_header_without_rows_is_a_file_of_no_rows(shop: Cli) -> None:
    shop("load", "orders", "--format", "csv", stdin=b"id\n1\n")
    load = ("load", "orders", "--format", "csv", "--mode", "overwrite", "--json")
    assert shop(*load, stdin=b"id,amount\n").document["read"] == 0
    assert rows_of(shop, "orders") == []


ENCODED = {
    "Latin-1 in a value": ("a.csv", "id,customer\n1,André\n".encode("latin-1")),
    "Latin-1 in a header": ("a.csv", "id,é\n1,x\n".encode("latin-1")),
    "UTF-16": ("a.csv", "id,customer\n1,x\n".encode("utf-16")),
    "UTF-16 without a mark": ("a.csv", "id,customer\n1,x\n".encode("utf-16-le")),
    "JSON in Latin-1": ("a.jsonl", '{"id": 1, "customer": "é"}'.encode("latin-1")),
    "JSON in UTF-16": ("a.jsonl", '{"id": 1}'.encode("utf-16")),
}


@pytest.mark.parametrize("what", ENCODED)
def test_text_of_another_encoding_is_called_so(shop: Cli, tmp_path: Path, what: str) -> None:
    name, content = ENCODED[what]
    (tmp_path / name).write_bytes(content)
    told = shop("load", "orders", name, code=3).err
    assert told.startswith(f"error: {name}")
    assert "not UTF-8" in told
    assert rows_of(shop, "orders") == []


def test_a_byte_order_mark_is_no_part_of_the_first_name(shop: Cli) -> None:
    shop("load", "orders", "--format", "csv", stdin=b"\xef\xbb\xbfid\n1\n")
    shop("load", "orders", "--format", "jsonl", stdin=b'\xef\xbb\xbf{"id": 2}\n')
    assert [row["id"] for row in rows_of(shop, "orders")] == [1, 2]


def test_times_without_a_zone_are_read_in_the_zone_of_the_session(
    shop: Cli, tmp_path: Path
) -> None:
    zone = '[spark.conf]\n"spark.sql.session.timeZone" = "Europe/Berlin"\n'
    (tmp_path / "tidelock.toml").write_text(zone)
    (tmp_path / "a.csv").write_text(
        "id,at\n1,2026-07-01 12:00:00\n2,2026-07-01 12:00:00Z\n3,2026-01-01\n"
    )
    (tmp_path / "b.jsonl").write_text('{"id": 4, "at": "2026-07-01T12:00:00"}\n')
    naive = pa.table({"id": [5], "at": pa.array([0], pa.timestamp("us"))})
    pq.write_table(naive, tmp_path / "c.parquet")
    shop("load", "orders", "a.csv", "b.jsonl", "c.parquet")
    assert [row["at"] for row in rows_of(shop, "orders")] == [
        "2026-07-01T10:00:00Z",
        "2026-07-01T12:00:00Z",
        "2025-12-31T23:00:00Z",
        "2026-07-01T10:00:00Z",
        "1969-12-31T23:00:00Z",
    ]


def test_creating_a_table_that_is_there_as_something_else_is_refused(
    shop: Cli, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    load = ("load", "orders", "a.csv", "--create")
    told = shop(*load, "--key", "customer", code=3).err
    assert "has the key (id), not (customer)" in told
    told = shop(*load, "--schema", "id INT, customer STRING", code=3).err
    assert "customer STRING, amount DECIMAL(12,2)" in told
    assert "not id INT, customer STRING" in told
    assert rows_of(shop, "orders") == []
    shop(*load, "--key", "ID", "--schema", ORDERS)
    shop(*load, "--mode", "upsert")
    shop("table", "create", "plain", "id INT")
    assert "has no key, not (id)" in shop("load", "plain", *load[2:], "--key", "id", code=3).err


def test_an_upsert_replaces_whole_rows(shop: Cli) -> None:
    shop("load", "orders", "--format", "csv", stdin=b"id,customer,amount\n1,ann,1\n")
    shop("load", "orders", "--format", "csv", "--mode", "upsert", stdin=b"id,amount\n1,2\n")
    assert [(r["customer"], r["amount"]) for r in rows_of(shop, "orders")] == [(None, "2.00")]


def test_rows_go_to_the_branch_that_is_named(shop: Cli) -> None:
    shop("branch", "create", "dev")
    shop("load", "orders", "--branch", "dev", "--format", "csv", "-m", "try", stdin=b"id\n1\n")
    assert rows_of(shop, "orders") == []
    assert shop("log", "-b", "dev", "--json").document[0]["message"] == "try"
