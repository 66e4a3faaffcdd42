"""Every kind of source keeps one law: each row once, however reading is cut short."""

from __future__ import annotations

import bz2
import gzip
import io
import operator
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.s3_server import REGION, S3Server
from tests.support.sources import own_source
from tests.support.sources.own_source import append

import tidelock
from tidelock import Lake
from tidelock.errors import SourceDenied, SourceStopped, SourceUnavailable
from tidelock.ingest.landing.pattern import parse_path
from tidelock.ingest.landing.places import Before, open_place
from tidelock.testing.source_contract import Rows, SourceContract

LOCAL, S3 = "local", "s3"


class TestOwnSource(SourceContract):
    kind = "tests.support.sources.own_source:LogSource"

    @pytest.fixture(autouse=True)
    def prepare(self, tmp_path: Path) -> None:
        self.options = {"path": str(tmp_path / "log")}

    def put(self, numbers: Iterable[int]) -> Rows:
        rows = [{"id": number, "v": f"v{number}"} for number in numbers]
        append(self.options["path"], rows)
        return {"lines": rows}


@pytest.mark.parametrize("kind", ["ForgetfulSource", "HastySource", "RestlessSource"])
def test_a_source_that_breaks_the_law_is_found_out(kind: str, tmp_path: Path) -> None:
    class Suspect(TestOwnSource):
        pass

    Suspect.kind = f"{own_source.__name__}:{kind}"
    broken = []
    for name in dir(Suspect):
        if name.startswith("test_"):
            suspect = Suspect()
            suspect.options = {"path": str(tmp_path / name)}
            try:
                getattr(suspect, name)()
            except (AssertionError, StopIteration):
                broken.append(name)
    assert broken


class Landing:
    """A folder, or a bucket, in which files land."""

    def __init__(self, uri: str, options: dict[str, Any], client: Any = None) -> None:
        self.uri, self.options, self._client = uri, options, client

    def put(self, name: str, content: str | bytes) -> None:
        data = content.encode() if isinstance(content, str) else content
        if self._client is not None:
            bucket, _, prefix = self.uri.removeprefix("s3://").partition("/")
            self._client.put_object(Bucket=bucket, Key=f"{prefix}/{name}", Body=data)
            return
        path = Path(self.uri, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        moment = time.time() - 60
        os.utime(path, (moment, moment))


@pytest.fixture(params=[LOCAL, S3])
def landing(request: pytest.FixtureRequest, tmp_path: Path) -> Landing:
    if request.param == LOCAL:
        folder = tmp_path / "in"
        folder.mkdir()
        return Landing(str(folder), {})
    server: S3Server = request.getfixturevalue("s3_server")
    bucket = request.getfixturevalue("s3_bucket")
    secret = tmp_path / "secret"
    secret.write_text("test\n")
    hidden = {name: f"file:{secret}" for name in server.storage_options if "access_key" in name}
    client = boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        region_name=REGION,
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    return Landing(
        f"s3://{bucket}/landing", {"storage_options": server.storage_options | hidden}, client
    )


class TestFiles(SourceContract):
    kind = "files"
    table: ClassVar[str] = "events"

    @pytest.fixture(autouse=True)
    def prepare(self, landing: Landing) -> None:
        self.landing = landing
        self.options = {
            "path": f"{landing.uri}/**/*.csv",
            "table": self.table,
            "schema": "id BIGINT, v STRING",
            "settle": "0s",
            "files_per_commit": 2,
            **landing.options,
        }

    def put(self, numbers: Iterable[int]) -> Rows:
        rows = [{"id": number, "v": f"v{number}"} for number in numbers]
        for number in numbers:
            self.landing.put(f"{number // 5}/{number:03}.csv", f"id,v\n{number},v{number}\n")
        return {self.table: rows}


class TestFilesWithAKey(TestFiles):
    @pytest.fixture(autouse=True)
    def prepare_key(self, prepare: None) -> None:
        self.options = {**self.options, "key": "id", "on_error": "quarantine", "evolve": True}


class TestFilesWhoseNamesAscend(TestFiles):
    @pytest.fixture(autouse=True)
    def prepare_names(self, prepare: None) -> None:
        self.options = {**self.options, "names": "ascending"}


# What is particular to a place


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True, actor="tests") as lake:
        yield lake


def follow(lake: Lake, landing: Landing, **options: Any) -> None:
    given = {"path": f"{landing.uri}/**/*.json", "table": "t", "settle": "0s", **landing.options}
    lake.create_source("s", kind="files", **{**given, **options})


def ids(lake: Lake) -> list[int]:
    return sorted(row["id"] for row in lake.table("t").to_arrow().to_pylist())


def test_columns_are_inferred_and_a_change_is_noticed(lake: Lake, landing: Landing) -> None:
    landing.put("a/1.json", '{"id": 1, "v": "x"}\n')
    follow(lake, landing)
    assert lake.ingest("s").rows == 1
    assert lake.ingest("s").action == "idle"
    landing.put("a/1.json", '{"id": 1, "v": "yy"}\n')
    with pytest.raises(SourceStopped, match=r"/a/1\.json changed after it was taken"):
        lake.ingest("s")


def test_bad_records_and_columns_that_come_are_as_in_a_folder(lake: Lake, landing: Landing) -> None:
    landing.put("1.json", "nonsense\n" + '{"id": 1}\n')
    landing.put("2.json", '{"id": 2, "new": [1.5]}\n')
    follow(lake, landing, on_error="quarantine", evolve=True, schema="id BIGINT")
    lake.ingest("s")
    assert ids(lake) == [1, 2]
    (one,) = lake.source_quarantine("s")
    assert (one.file, one.line, one.record) == (f"{landing.uri}/1.json", 1, "nonsense")


def test_compressed_files_and_parquet_are_read_from_where_they_are(
    lake: Lake, landing: Landing
) -> None:
    landing.put("1.json.gz", gzip.compress(b'{"id": 1}\n'))
    landing.put("2.x.json.bz2", bz2.compress(b'{"id": 2}\n'))
    follow(lake, landing, path=f"{landing.uri}/*.json.{{gz,bz2}}", format="jsonl")
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": list(range(3, 5000))}), sink)
    landing.put("3.parquet", sink.getvalue())
    lake.create_source(
        "p", kind="files", path=f"{landing.uri}/*.parquet", table="t", settle="0s",
        **landing.options,
    )  # fmt: skip
    assert [report.rows for report in lake.ingest()] == [4997, 2]
    assert ids(lake) == list(range(1, 5000))


def test_a_place_that_is_listed_in_parts_has_the_same_files(landing: Landing) -> None:
    names = [f"{number % 4}/{number:03}.json" for number in range(60)]
    for name in names:
        landing.put(name, "{}\n")
    options = {
        name: "test" if "access_key" in name else value
        for name, value in landing.options.get("storage_options", {}).items()
    }
    place = open_place(parse_path(f"{landing.uri}/**/*.json"), options)

    def listed(*known: str, after: str = "") -> list[str]:
        pages = place.pages(after, Before(known))
        again = place.pages(after, Before(known, pages))
        assert all(map(operator.is_, pages, again))
        return [name for page in pages for name in page.column("name").to_pylist()]

    assert sorted(listed()) == sorted(names)
    assert sorted(listed("1/001.json", "2/a", "3/059.json")) == sorted(names)
    later = sorted(name for name in names if name > "2/030.json")
    assert listed("0/000.json", "3/x", after="2/030.json") == later


def test_a_young_file_is_told_by_the_clock_of_its_store(lake: Lake, landing: Landing) -> None:
    landing.put("1.json", '{"id": 1}\n')
    if landing.uri.startswith("/"):
        os.utime(f"{landing.uri}/1.json")
    follow(lake, landing, settle="2s", schema="id BIGINT")
    assert lake.ingest("s").rows == 0
    time.sleep(3.2)
    assert lake.ingest("s").rows == 1


def test_a_place_that_is_not_there_is_said(lake: Lake, s3_server: S3Server, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("test\n")
    hidden = {name: f"file:{secret}" for name in s3_server.storage_options if "access_key" in name}
    nowhere = Landing("s3://nowhere/x", {"storage_options": s3_server.storage_options | hidden})
    follow(lake, nowhere, schema="id BIGINT")
    with pytest.raises((SourceUnavailable, SourceDenied), match="no such bucket"):
        lake.ingest("s")
