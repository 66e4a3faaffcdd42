from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from tidelock.errors import InvalidName, InvalidOption
from tidelock.store.objects.kinds.location import locate

S3 = {"region": "eu-central-1"}


@pytest.fixture(autouse=True)
def no_aws_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("/data/shop.lake", "/data/shop.lake"),
        ("/data/shop.lake/", "/data/shop.lake"),
        ("//data//x/../shop.lake", "/data/shop.lake"),
        ("/with space/Größe/100%/a#b?c", "/with space/Größe/100%/a#b?c"),
        ("file:///data/shop.lake/", "/data/shop.lake"),
        ("FILE:///data/a%20b%25", "/data/a b%"),
        ("file://localhost/data", "/data"),
        ("file:/data", "/data"),
        (Path("/data/shop.lake"), "/data/shop.lake"),
        ("/odd:name", "/odd:name"),
    ],
)
def test_a_file_location_is_an_absolute_path(given: str | Path, expected: str) -> None:
    location = locate(given)
    assert (location.kind, location.uri) == ("file", expected)
    assert location.lance_uri("tables/t 1") == f"{expected}/tables/t 1"
    assert location.lance_options is None


def test_relative_and_home_paths_are_made_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/users/me")
    assert locate("shop.lake").uri == f"{tmp_path}/shop.lake"
    assert locate("./a/../shop.lake").uri == f"{tmp_path}/shop.lake"
    assert locate("odd:name").uri == f"{tmp_path}/odd:name"
    assert locate("~/shop.lake").uri == "/users/me/shop.lake"
    assert locate(Path("~/shop.lake")).uri == "/users/me/shop.lake"


@pytest.mark.parametrize(
    ("given", "uri", "lance_uri"),
    [
        ("s3://bucket", "s3://bucket", "s3://bucket/t"),
        ("s3://bucket/a/b//", "s3://bucket/a/b", "s3://bucket/a/b/t"),
        ("S3://bucket/ü %20#?", "s3://bucket/ü %20#?", "s3://bucket/%C3%BC%20%2520%23%3F/t"),
    ],
)
def test_an_s3_location_is_a_bucket_and_a_literal_prefix(
    given: str, uri: str, lance_uri: str
) -> None:
    location = locate(given, S3)
    assert (location.kind, location.uri) == ("s3", uri)
    assert location.lance_uri("t") == lance_uri
    assert location.lance_options == {"aws_region": "eu-central-1"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("", "cannot be the path"),
        ("a\x00b", "cannot be the path"),
        ("/", "root of the file system"),
        ("file://", "three slashes"),
        ("file://host/data", "three slashes"),
        ("file:data", "two slashes"),
        ("s3://", "bucket"),
        ("s3:///prefix", "bucket"),
        ("s3://bucket/a//b", "two in a row"),
        ("s3://bucket/../b", "'..'"),
        ("s3:/bucket/prefix", "two slashes"),
        ("s3a://bucket/prefix", "Write s3:// instead"),
        ("gs://bucket/prefix", "Use a path, file://, s3:// or memory://"),
        ("memory://", "has no name"),
        ("memory:", "two slashes"),
        (Path("s3://bucket/prefix"), "two slashes"),
    ],
)
def test_what_cannot_be_a_location_is_refused_with_what_to_write(
    given: str | Path, says: str
) -> None:
    with pytest.raises(InvalidName) as caught:
        locate(given)
    assert says in str(caught.value)


def test_options_have_one_name_whatever_they_are_called() -> None:
    expected = {
        "aws_access_key_id": "me",
        "aws_endpoint_url_s3": "http://localhost:1",
        "allow_http": "true",
        "aws_virtual_hosted_style_request": "false",
    }
    for given in (
        {
            "AWS_ACCESS_KEY_ID": "me",
            "AWS_ENDPOINT_URL": "http://localhost:1",
            "AWS_ALLOW_HTTP": "true",
            "aws_virtual_hosted_style_request": "false",
        },
        {
            "access_key_id": "me",
            "endpoint": "http://localhost:1",
            "allow_http": True,
            "Virtual_Hosted_Style_Request": False,
        },
    ):
        assert locate("s3://bucket", given).storage_options == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"secret": "x"}, "no storage option 'secret'"),
        ({"region": "a", "aws_region": "b"}, "given twice"),
        ({"endpoint": "http://localhost:1"}, "allow_http"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        locate("s3://bucket", options)
    assert says in str(caught.value)
    assert caught.value.option in (*options, "allow_http")


@pytest.mark.parametrize("options", [{"timeout": "soon"}, {"client_max_retries": "many"}])
def test_option_values_that_cannot_be_read_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(InvalidOption, match="do not work"):
        locate("s3://bucket", {**S3, **options}).objects()


@pytest.mark.parametrize("uri", ["/data", "memory://x"])
def test_only_s3_takes_options(uri: str) -> None:
    with pytest.raises(InvalidOption, match="takes no storage options"):
        locate(uri, S3)


def test_an_endpoint_of_the_environment_without_encryption_needs_a_word_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://localhost:1")
    with pytest.raises(InvalidOption, match="AWS_ALLOW_HTTP"):
        locate("s3://bucket")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    assert locate("s3://bucket").lance_options is None


def test_an_unknown_durability_is_refused() -> None:
    with pytest.raises(InvalidOption, match="process, fsync"):
        locate("/data").objects("eventually")


def test_secrets_are_not_shown_and_locations_pickle() -> None:
    location = locate("s3://bucket", {"secret_access_key": "hunter2"})
    assert "hunter2" not in repr(location)
    assert pickle.loads(pickle.dumps(location)) == location
    assert hash(location) == hash(locate("s3://bucket", {"secret_access_key": "hunter2"}))


def test_a_memory_lake_is_shared_by_its_name_within_the_process() -> None:
    one, same, other = locate("memory://a b"), locate("memory://a b/"), locate("memory://a%20b")
    one.objects().put_new("x", b"1")
    assert same.objects().get("x") == b"1"
    assert other.objects().list("") == []
    assert one.lance_uri("t") == same.lance_uri("t") != other.lance_uri("t")


IN_A_PROCESS = """
import os, sys, signal
from tidelock.store.objects.kinds.location import locate
folder = locate("memory://lake").lance_uri("tables")
os.makedirs(folder)
open(folder + "/data", "w").close()
print(os.path.dirname(os.path.dirname(folder)), flush=True)
sys.stdin.readline()
if sys.argv[1] == "die":
    os.kill(os.getpid(), signal.SIGKILL)
"""


def start(tmp_path: Path, how: str) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", IN_A_PROCESS, how],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_the_tables_of_a_memory_lake_end_with_their_process_however_it_ends(tmp_path: Path) -> None:
    leaving, left = start(tmp_path, "leave")
    assert str(leaving.pid) in left.name
    assert left.stat().st_mode & 0o077 == 0
    leaving.communicate("", timeout=30)
    assert os.listdir(tmp_path) == []

    dying, abandoned = start(tmp_path, "die")
    living, used = start(tmp_path, "leave")
    dying.communicate("", timeout=30)
    assert (abandoned / "lake" / "tables" / "data").exists()
    (tmp_path / f"tidelock-memory-{os.getuid()}-1-feed").symlink_to(used)

    third, _ = start(tmp_path, "leave")
    assert not abandoned.exists()
    assert (used / "lake" / "tables" / "data").exists()
    for process in (living, third):
        process.communicate("", timeout=30)
    assert os.listdir(tmp_path) == [f"tidelock-memory-{os.getuid()}-1-feed"]
