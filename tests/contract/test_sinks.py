"""Every kind of destination keeps one law, on files and on S3: each row once, as it was sent."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from tests.support.s3_server import S3Server
from tests.support.sinks.destinations import everything_at, read
from tests.support.sinks.own_sink import EagerSink, ForgetfulSink, SqliteSink, lines_at

from tidelock.deliver.destinations.files.destination import FileSink
from tidelock.deliver.destinations.iceberg import IcebergSink
from tidelock.deliver.destinations.kinds import check_kind, open_sink
from tidelock.deliver.destinations.protocol import Sink
from tidelock.errors import InvalidOption
from tidelock.model.sinks import SinkDefinition
from tidelock.store.secrets import check_secrets, resolve
from tidelock.testing.sink_contract import SinkContract
from tidelock.testing.sink_rows import ODD_VALUES

LOCAL, S3 = "local", "s3"


class Placed(SinkContract):
    """A destination in a folder or a bucket, opened as Tidelock opens it."""

    to: str
    options: dict[str, Any]

    @pytest.fixture(autouse=True, params=[LOCAL, S3])
    def place(self, request: pytest.FixtureRequest, tmp_path: Path) -> None:
        self.folder = tmp_path
        if request.param == LOCAL:
            self.to, self.options = str(tmp_path / "out"), {}
            return
        server: S3Server = request.getfixturevalue("s3_server")
        self.to = f"s3://{request.getfixturevalue('s3_bucket')}/out"
        secret = tmp_path / "secret"
        secret.write_text("test\n")
        self.options = self.s3_options(server, f"file:{secret}")

    def s3_options(self, server: S3Server, secret: str) -> dict[str, Any]:
        given = server.storage_options
        hidden = {name: secret for name in given if "access_key" in name}
        return {"storage_options": given | hidden}

    def open(self, definition: SinkDefinition) -> Sink:
        check_kind(self.kind, self.options)
        check_secrets(self.options, self.to)
        return open_sink(self.placed(definition))

    def placed(self, definition: SinkDefinition) -> SinkDefinition:
        return replace(definition, kind=self.kind, to=self.to, options=self.options)


class Files(Placed):
    def files(self, definition: SinkDefinition) -> list[bytes]:
        """What whoever reads the whole place finds, listed or not."""
        sink = self.open(definition)
        assert isinstance(sink, FileSink)
        found = everything_at(sink.folder)
        assert sorted(one.path for one in sink.inventory.listed()) == sorted(found)
        return [read(sink.folder, key) for key in found]


class TestParquet(Files):
    kind = "parquet"

    def read_back(self, definition: SinkDefinition) -> pa.Table:
        return pa.concat_tables([pq.read_table(io.BytesIO(f)) for f in self.files(definition)])


class TestJsonLines(Files):
    """Values are compared in the form that JSON gives them, which is documented."""

    kind = "jsonl"

    def read_back(self, definition: SinkDefinition) -> pa.Table:
        lines = [line for file in self.files(definition) for line in file.decode().split("\n")[:-1]]
        return texts([json.loads(line) for line in lines])

    def held(self, rows: pa.Table) -> pa.Table:
        return texts([as_json(row, rows.schema) for row in rows.to_pylist()])


class TestCsv(Files):
    """CSV has numbers, dates and text; the rest is text in the form that JSON gives it."""

    kind = "csv"

    def read_back(self, definition: SinkDefinition) -> pa.Table:
        found = []
        for file in self.files(definition):
            names = file[: file.index(b"\n")].decode().replace('"', "").split(",")
            options = pa_csv.ConvertOptions(
                column_types={name: CSV_TYPES.get(name, pa.string()) for name in names},
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            )
            parsing = pa_csv.ParseOptions(newlines_in_values=True)
            found.append(
                pa_csv.read_csv(io.BytesIO(file), parse_options=parsing, convert_options=options)
            )
        return pa.concat_tables(found)

    def held(self, rows: pa.Table) -> pa.Table:
        columns = {}
        for field in rows.schema:
            values = rows.column(field.name)
            if field.name in CSV_TYPES:
                columns[field.name] = values.cast(CSV_TYPES[field.name])
            else:
                plain = [json_value(one, field.type) for one in values.to_pylist()]
                columns[field.name] = pa.array(
                    [one if one is None or isinstance(one, str) else compact(one) for one in plain],
                    pa.string(),
                )
        return pa.table(columns)


CSV_TYPES = {
    **dict.fromkeys(("id", "_sequence", "_version", "long"), pa.int64()),
    **dict.fromkeys(("tiny", "small", "whole"), pa.int32()),
    "real": pa.float32(),
    "double": pa.float64(),
    "money": pa.decimal128(38, 10),
    "yes": pa.bool_(),
    "day": pa.date32(),
}


class TestIceberg(Placed):
    kind = "iceberg"

    def s3_options(self, server: S3Server, secret: str) -> dict[str, Any]:
        catalog = {
            "type": "sql",
            "uri": f"sqlite:///{self.folder}/catalog.db",
            "s3.endpoint": server.endpoint,
            "s3.region": "us-east-1",
            "s3.access-key-id": secret,
            "s3.secret-access-key": secret,
        }
        return {"catalog": catalog}

    def read_back(self, definition: SinkDefinition) -> pa.Table:
        given = resolve(self.options).get("catalog") or {
            "type": "sql",
            "uri": f"sqlite:///{self.to}/catalog.db",
        }
        catalog = load_catalog("tidelock", **given)
        try:
            return catalog.load_table("tidelock.contract").scan().to_arrow()
        finally:
            catalog.close()


class TestDelta(Placed):
    kind = "delta"
    # Delta keeps two of them as NULL in a partition column; the sink refuses to lose them.
    odd_values = tuple(v for v in ODD_VALUES if v not in ("", "__HIVE_DEFAULT_PARTITION__"))

    def read_back(self, definition: SinkDefinition) -> pa.Table:
        options = resolve(self.options).get("storage_options") or None
        return pa.table(DeltaTable(self.to, storage_options=options).to_pyarrow_table())


class TestOwnSink(SinkContract):
    """A sink that somebody wrote."""

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.path = str(tmp_path / "rows.db")

    def open(self, definition: SinkDefinition) -> Sink:
        return open_sink(
            replace(definition, kind="tests.support.sinks.own_sink:open_sqlite", to=self.path)
        )

    def read_back(self, definition: SinkDefinition) -> pa.Table:
        return texts(lines_at(self.path))

    def held(self, rows: pa.Table) -> pa.Table:
        return texts([as_json(row, rows.schema) for row in rows.to_pylist()])


class Unlawful(TestOwnSink):
    __test__ = False
    sink: type[SqliteSink]

    def open(self, definition: SinkDefinition) -> Sink:
        return self.sink(self.path)


@pytest.mark.parametrize(
    ("sink", "test"),
    [
        (ForgetfulSink, "test_a_chunk_that_comes_again_adds_nothing"),
        (ForgetfulSink, "test_a_plan_that_comes_again_as_a_whole_adds_nothing"),
        (EagerSink, "test_a_chunk_that_breaks_in_the_middle_of_its_rows_is_sent_again"),
    ],
)
def test_the_suite_finds_a_sink_that_breaks_the_law(
    sink: type[SqliteSink], test: str, tmp_path: Path
) -> None:
    suite = Unlawful()
    suite.sink, suite.path = sink, str(tmp_path / "rows.db")
    with pytest.raises(AssertionError, match=r"^0 rows are missing and [0-9]+ should not be there"):
        getattr(suite, test)()


def test_no_catalog_is_made_in_a_bucket() -> None:
    definition = replace(TestIceberg().define(), to="s3://bucket/out")
    with pytest.raises(InvalidOption, match="cannot hold a catalog"):
        IcebergSink(definition, {})


# Values as JSON has them


def texts(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows whose values are compared as JSON."""
    return pa.Table.from_pylist([{k: compact(v) for k, v in row.items()} for row in rows])


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def as_json(row: dict[str, Any], schema: pa.Schema) -> dict[str, Any]:
    return {name: json_value(value, schema.field(name).type) for name, value in row.items()}


def json_value(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: json_value(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return {key: json_value(one, kind.item_type) for key, one in value}
    if pa.types.is_list(kind):
        return [json_value(one, kind.value_type) for one in value]
    if pa.types.is_float32(kind):
        return float(str(pa.scalar(value, pa.float32()).cast(pa.string()).as_py()))
    if isinstance(value, float) and value == float("inf"):
        return "Infinity"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, decimal.Decimal):
        return f"{value:f}"
    if isinstance(value, dt.datetime):
        plain = value.replace(tzinfo=None).isoformat()
        return plain + ("Z" if value.tzinfo else "")
    if isinstance(value, dt.date):
        return value.isoformat()
    return value
