"""What only one kind of object store can do wrong: files, S3, and Lance in the same place."""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_objects import AWKWARD, OPERATIONS, keys
from tests.support.s3_server import LossyS3, S3Server, free_port

from tidelock.errors import ObjectExists, ObjectMissing, StoreDenied, StoreUnavailable
from tidelock.store.objects.kinds.location import locate

# --------------------------------------------------------------------------------------------------
# Files
# --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def without_privileges() -> Iterator[None]:
    """Permissions mean nothing to root."""
    if os.getuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_directory_without_permission_is_denied_and_not_missing(
    tmp_path: Path, operation: str
) -> None:
    closed = tmp_path / "closed"
    objects = locate(closed).objects()
    objects.put_new("log/1", b"")
    closed.chmod(0)
    try:
        with without_privileges(), pytest.raises(StoreDenied) as caught:
            OPERATIONS[operation](objects, "log/1" if "list" not in operation else "log")
    finally:
        closed.chmod(stat.S_IRWXU)
    assert caught.value.operation == operation
    assert "Permission denied" in str(caught.value)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_file_in_place_of_a_directory_is_a_failure_and_not_missing(
    tmp_path: Path, operation: str
) -> None:
    (tmp_path / "log").write_bytes(b"")
    with pytest.raises(StoreUnavailable) as caught:
        OPERATIONS[operation](locate(tmp_path).objects(), "log/1")
    assert caught.value.cause == "Not a directory"


@pytest.mark.parametrize("operation", ["put", "put_new"])
def test_a_directory_in_place_of_an_object_is_a_failure(tmp_path: Path, operation: str) -> None:
    (tmp_path / "log" / "1").mkdir(parents=True)
    objects = locate(tmp_path).objects()
    with pytest.raises(StoreUnavailable, match="Is a directory"):
        OPERATIONS[operation](objects, "log/1")
    assert os.listdir(tmp_path / "log") == ["1"]


def test_a_lake_that_is_not_there_yet_is_empty_and_stays_away(tmp_path: Path) -> None:
    objects = locate(tmp_path / "none").objects()
    assert objects.list("") == []
    assert objects.list_folders("") == []
    assert objects.info("a") is None
    with pytest.raises(ObjectMissing):
        objects.get("a")
    objects.delete("a")
    assert not (tmp_path / "none").exists()


def test_files_that_are_being_written_are_never_listed(tmp_path: Path) -> None:
    objects = locate(tmp_path).objects()
    objects.put_new("log/1", b"")
    for left_behind in ("log/#1234", "log/2#1", "log/x.lance#17"):
        (tmp_path / left_behind).write_bytes(b"half")
    (tmp_path / "dead").mkdir()
    (tmp_path / "dead" / "#1").write_bytes(b"")
    os.mkfifo(tmp_path / "log" / "pipe")
    os.symlink(tmp_path / "nowhere", tmp_path / "log" / "broken")
    assert keys(objects, "") == ["log/1"]
    assert objects.list_folders("") == ["log"]
    with pytest.raises(ObjectMissing):
        objects.get("log/pipe")


def test_a_put_leaves_no_other_file_behind(tmp_path: Path) -> None:
    for durability in ("process", "fsync"):
        objects = locate(tmp_path).objects(durability)
        objects.put(f"{durability}/1", b"1")
        objects.put_new(f"{durability}/2", b"2")
        with pytest.raises(ObjectExists):
            objects.put_new(f"{durability}/2", b"3")
        assert sorted(os.listdir(tmp_path / durability)) == ["1", "2"]


FORKING = """
import os, signal, sys
from tidelock.store.objects.kinds.location import locate
objects = locate(sys.argv[1]).objects()
objects.put_new("a/1", b"parent")
child = os.fork()
if child == 0:
    signal.alarm(20)
    seen = objects.get("a/1") == b"parent"
    objects.put_new("a/2", b"child")
    os._exit(0 if seen and len(objects.list("a")) == 2 else 1)
sys.exit(os.waitpid(child, 0)[1] or objects.get("a/2") != b"child")
"""


def test_a_forked_process_goes_on_using_a_handle(tmp_path: Path) -> None:
    # In a process of its own: whoever has Lance loaded is warned not to fork.
    done = subprocess.run([sys.executable, "-c", FORKING, str(tmp_path)], check=False, timeout=60)
    assert done.returncode == 0


@pytest.mark.parametrize("operation", ["put", "put_new"])
def test_fsync_reaches_the_file_its_directory_and_every_directory_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    flushed: list[str] = []
    fsync = os.fsync

    def watch(descriptor: int) -> None:
        flushed.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watch)
    lake = tmp_path / "new" / "lake"
    objects = locate(lake).objects("fsync")
    OPERATIONS[operation](objects, "log/main/1")
    assert flushed[0].startswith(f"{lake}/log/main/#")
    above = [str(path) for path in (lake / "log/main", lake / "log", lake, tmp_path / "new")]
    assert flushed[1:5] == above
    flushed.clear()
    OPERATIONS[operation](objects, "log/main/2")
    assert len(flushed) == 2
    assert flushed[1] == above[0]


# --------------------------------------------------------------------------------------------------
# S3
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_missing_bucket_is_a_failure_and_not_a_missing_object(
    s3_server: S3Server, operation: str
) -> None:
    objects = locate("s3://no-such-bucket/lake", s3_server.storage_options).objects()
    with pytest.raises(StoreUnavailable, match="no such bucket") as caught:
        OPERATIONS[operation](objects, "a/b")
    assert caught.value.to_dict()["uri"] == "s3://no-such-bucket/lake"


@pytest.mark.parametrize("operation", OPERATIONS)
def test_credentials_that_are_not_accepted_are_denied(
    s3_server: S3Server, s3_bucket: str, operation: str
) -> None:
    objects = locate(f"s3://{s3_bucket}", s3_server.storage_options).objects()
    s3_server.require_permission(True)
    try:
        with pytest.raises(StoreDenied):
            OPERATIONS[operation](objects, "a/b")
    finally:
        s3_server.require_permission(False)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_server_that_is_not_there_is_unavailable(operation: str) -> None:
    options = {
        **S3Server(f"http://127.0.0.1:{free_port()}").storage_options,
        "client_max_retries": "0",
    }
    with pytest.raises(StoreUnavailable) as caught:
        OPERATIONS[operation](locate("s3://bucket/lake", options).objects(), "a/b")
    assert caught.value.action.value == "back_off"


@pytest.mark.parametrize("operation", ["get", "put_new"])
def test_a_server_that_does_not_answer_is_unavailable(operation: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = {
            **S3Server(f"http://127.0.0.1:{silent.getsockname()[1]}").storage_options,
            "timeout": "200ms",
            "client_max_retries": "0",
        }
        with pytest.raises(StoreUnavailable):
            OPERATIONS[operation](locate("s3://bucket/lake", options).objects(), "a/b")


def test_a_lost_answer_to_a_create_is_never_taken_for_somebody_elses_object(
    s3_server: S3Server, s3_bucket: str
) -> None:
    lossy = LossyS3(s3_server)
    with lossy as proxy:
        objects = locate(f"s3://{s3_bucket}", proxy.storage_options).objects()
        lossy.faults += ["lost"]
        with pytest.raises(StoreUnavailable, match="may or may not have been applied"):
            objects.put_new("log/1", b"mine")
        assert objects.get("log/1") == b"mine"
        lossy.faults += ["lost"]
        objects.put("log/2", b"replacing is repeated")
        assert objects.get("log/2") == b"replacing is repeated"


def test_a_conflict_that_wrote_nothing_is_not_an_existing_object(
    s3_server: S3Server, s3_bucket: str
) -> None:
    lossy = LossyS3(s3_server)
    with lossy as proxy:
        objects = locate(f"s3://{s3_bucket}", proxy.storage_options).objects()
        lossy.faults += ["conflict"] * 2
        objects.put_new("log/1", b"mine")
        assert objects.get("log/1") == b"mine"
        lossy.faults += ["conflict"] * 6
        with pytest.raises(StoreUnavailable):
            objects.put_new("log/2", b"")
        assert objects.info("log/2") is None


def test_a_lake_may_be_a_whole_bucket(s3_server: S3Server, s3_bucket: str) -> None:
    objects = locate(f"s3://{s3_bucket}/", s3_server.storage_options).objects()
    objects.put_new("a/b", b"")
    assert keys(objects, "") == ["a/b"]
    assert objects.list_folders("") == ["a"]


# --------------------------------------------------------------------------------------------------
# Lance at the same place
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["file", "s3", "memory"])
def test_lance_writes_where_the_objects_are(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    import lance
    import pyarrow as pa

    if kind == "s3":
        server: S3Server = request.getfixturevalue("s3_server")
        bucket: str = request.getfixturevalue("s3_bucket")
        location = locate(f"s3://{bucket}/{AWKWARD}?%20", server.storage_options)
    else:
        location = locate(tmp_path / AWKWARD if kind == "file" else f"memory://{AWKWARD}")
    uri = location.lance_uri("tables/Größe %20#")
    lance.write_dataset(pa.table({"a": [1, 2]}), uri, storage_options=location.lance_options)
    files = keys(location.table_objects(), "tables/Größe %20#")
    assert {key.split("/")[2] for key in files} == {"_transactions", "_versions", "data"}
    again = pickle.loads(pickle.dumps(location))
    dataset = lance.dataset(
        again.lance_uri("tables/Größe %20#"), storage_options=again.lance_options
    )
    assert dataset.count_rows() == 2
    for key in files:
        location.table_objects().delete(key)
    assert location.table_objects().list_folders("") == []


def test_the_environment_configures_objects_and_lance(s3_server: S3Server, s3_bucket: str) -> None:
    script = """
import sys, lance, pyarrow
from tidelock.store.objects.kinds.location import locate
location = locate(sys.argv[1])
location.objects().put_new("a", b"")
lance.write_dataset(pyarrow.table({"a": [1]}), location.lance_uri("t"))
print(sorted({info.key.split("/")[0] for info in location.objects().list("")}))
"""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    for endpoint, region in (
        ("AWS_ENDPOINT_URL", "AWS_REGION"),
        ("AWS_ENDPOINT", "AWS_DEFAULT_REGION"),
    ):
        answer = subprocess.run(
            [sys.executable, "-c", script, f"s3://{s3_bucket}/{endpoint}"],
            env={
                **environment,
                endpoint: s3_server.endpoint,
                region: "us-east-1",
                "AWS_ACCESS_KEY_ID": "test",
                "AWS_SECRET_ACCESS_KEY": "test",
                "AWS_ALLOW_HTTP": "true",
            },
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert answer.stdout.strip() == "['a', 't']", answer.stderr


def test_options_win_over_the_environment(
    s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    objects = locate(f"s3://{s3_bucket}", s3_server.storage_options).objects()
    objects.put_new("a", b"")
    assert keys(objects, "") == ["a"]
