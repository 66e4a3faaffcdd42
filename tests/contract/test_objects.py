"""One suite, every object store: what the rest of the store may rely on.

Runs over files (in a path with spaces and Unicode), files with fsync, memory, S3, the S3 server of
the tests that counts requests, and a FaultyStore that injects nothing. What only one of them can do
wrong is in test_objects_by_store.py.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.s3_server import S3Server

from tidelock.errors import (
    InvalidName,
    ObjectExists,
    ObjectMissing,
    StoreError,
)
from tidelock.store.objects.kinds.local import LocalObjects
from tidelock.store.objects.kinds.location import Location, locate
from tidelock.store.objects.protocol import Objects
from tidelock.testing.faulty_store import FaultyStore

Open = Callable[[], Objects]
AWKWARD = "with space/Größe 100% #3a/日本語"
KINDS = ("local", "local-fsync", "memory", "s3", "counted-s3", "faulty")
OPERATIONS: dict[str, Callable[[Objects, str], object]] = {
    "get": lambda objects, key: objects.get(key),
    "info": lambda objects, key: objects.info(key),
    "put_new": lambda objects, key: objects.put_new(key, b""),
    "put": lambda objects, key: objects.put(key, b""),
    "delete": lambda objects, key: objects.delete(key),
    "keys": lambda objects, key: objects.keys(key),
    "list": lambda objects, key: objects.list(key),
    "list_folders": lambda objects, key: objects.list_folders(key),
}


_bucket_numbers = itertools.count(1)


@pytest.fixture(params=KINDS)
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Gives a new handle to one and the same empty store at every call."""
    kind = request.param
    if kind in ("s3", "counted-s3"):
        counted = kind == "counted-s3"
        server: S3Server = request.getfixturevalue("counted_s3" if counted else "s3_server")
        bucket = f"bucket-{next(_bucket_numbers)}"
        server.create_bucket(bucket)
        return locate(f"s3://{bucket}/{AWKWARD}", server.storage_options).objects
    if kind == "memory":
        return locate(f"memory://{tmp_path.name} {time.time_ns()}").objects
    location = locate(tmp_path / AWKWARD)
    if kind == "local-fsync":
        return lambda: location.objects("fsync")
    if kind == "faulty":
        return lambda: FaultyStore(location.objects(), seed=7)
    return location.objects


@pytest.fixture
def objects(reopen: Open) -> Objects:
    return reopen()


def keys(objects: Objects, folder: str) -> list[str]:
    return [info.key for info in objects.list(folder)]


def in_threads(count: int, work: Callable[[int], None]) -> None:
    barrier = threading.Barrier(count)

    def run(number: int) -> None:
        barrier.wait()
        work(number)

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(run, range(count)))


@pytest.mark.parametrize("size_bytes", [0, 1, 10_000_000])
def test_an_object_reads_back_as_it_was_put(objects: Objects, size_bytes: int) -> None:
    data = os.urandom(size_bytes)
    objects.put_new("a/new", data)
    objects.put("a/any", data)
    assert objects.get("a/new") == data
    assert objects.get("a/any") == data
    assert [info.size_bytes for info in objects.list("a")] == [size_bytes, size_bytes]


def test_a_missing_object_is_an_error_to_get_and_nothing_to_info(objects: Objects) -> None:
    objects.put_new("a/b", b"")
    for key in ("nothing", "a/c", "a", "d/e/f"):
        with pytest.raises(ObjectMissing) as caught:
            objects.get(key)
        assert caught.value.key == key
        assert caught.value.operation == "get"
        assert caught.value.uri in str(caught.value)
        assert objects.info(key) is None


def test_creating_an_object_that_exists_fails_and_keeps_it(objects: Objects) -> None:
    objects.put_new("a", b"first")
    with pytest.raises(ObjectExists) as caught:
        objects.put_new("a", b"second")
    assert caught.value.key == "a"
    assert pickle.loads(pickle.dumps(caught.value)).to_dict() == caught.value.to_dict()
    assert objects.get("a") == b"first"


def test_of_32_creators_of_one_key_exactly_one_wins(reopen: Open) -> None:
    handles = [reopen() for _ in range(4)]
    for contest in range(5):
        won: list[int] = []
        lost: list[int] = []

        def create(number: int, contest: int = contest, won=won, lost=lost) -> None:
            try:
                handles[number % 4].put_new(f"log/{contest}", b"%d" % number)
                won.append(number)
            except ObjectExists:
                lost.append(number)

        in_threads(32, create)
        assert len(won) == 1
        assert len(lost) == 31
        assert handles[0].get(f"log/{contest}") == b"%d" % won[0]


def test_an_acknowledged_object_is_complete_for_every_other_handle(reopen: Open) -> None:
    writer, reader = reopen(), reopen()
    for number in range(20):
        data = b"%d" % number * 1000
        writer.put_new(f"log/{number:03d}", data)
        info = reader.info(f"log/{number:03d}")
        assert info is not None
        assert info.size_bytes == len(data)
        assert reader.get(info.key) == data
        assert reader.list("log")[-1] == info
        assert len(reader.list("log")) == number + 1


def test_no_reader_ever_sees_a_part_of_an_object(reopen: Open) -> None:
    size_bytes = 2_000_000
    done = threading.Event()
    torn: list[str] = []

    def watch(reader: Objects) -> None:
        while not done.is_set():
            torn.extend(info.key for info in reader.list("big") if info.size_bytes != size_bytes)
            for key in ("big/replaced", "big/new-0", "big/new-5"):
                with contextlib.suppress(ObjectMissing):
                    data = reader.get(key)
                    if data != data[:1] * size_bytes:
                        torn.append(key)

    with ThreadPoolExecutor(2) as pool:
        watchers = [pool.submit(watch, reopen()) for _ in range(2)]
        writer = reopen()
        for number in range(10):
            writer.put("big/replaced", b"%d" % number * size_bytes)
            writer.put_new(f"big/new-{number}", b"%d" % number * size_bytes)
        done.set()
        for watcher in watchers:
            watcher.result()
    assert torn == []


def test_put_replaces(objects: Objects) -> None:
    objects.put("a", b"a long first version")
    objects.put("a", b"short")
    assert objects.get("a") == b"short"
    assert keys(objects, "") == ["a"]


def test_delete_is_idempotent_and_frees_the_key(objects: Objects) -> None:
    objects.put_new("a/b", b"1")
    for _ in range(2):
        objects.delete("a/b")
        assert objects.info("a/b") is None
    objects.delete("never/was")
    objects.put_new("a/b", b"2")
    assert objects.get("a/b") == b"2"


def test_deleting_a_folders_name_leaves_what_is_in_it(objects: Objects) -> None:
    objects.put_new("a/b", b"")
    objects.delete("a")
    assert keys(objects, "") == ["a/b"]


def test_a_list_is_everything_below_the_folder_by_key_and_nothing_beside_it(
    objects: Objects,
) -> None:
    for key in ("a/b/2", "a/b/1", "a/b/deep/er/3", "a/bc/4", "a/b.5", "ab/6", "é/7", "Z/8"):
        objects.put_new(key, b"")
    assert keys(objects, "a/b") == ["a/b/1", "a/b/2", "a/b/deep/er/3"]
    assert keys(objects, "a") == ["a/b.5", "a/b/1", "a/b/2", "a/b/deep/er/3", "a/bc/4"]
    assert keys(objects, "") == sorted(keys(objects, ""))
    assert len(keys(objects, "")) == 8
    assert keys(objects, "nothing") == []


def test_keys_are_those_directly_in_a_folder_after_one_in_order(objects: Objects) -> None:
    for key in ("log/main/3", "log/main/1", "log/main/2", "log/main/2/x", "log/main2/0", "log/9"):
        if key != "log/main/2/x" or not isinstance(objects, LocalObjects | FaultyStore):
            objects.put_new(key, b"")
    assert objects.keys("log/main") == ["log/main/1", "log/main/2", "log/main/3"]
    assert objects.keys("log/main", "log/main/1") == ["log/main/2", "log/main/3"]
    assert objects.keys("log/main", "log/main/15") == ["log/main/2", "log/main/3"]
    assert objects.keys("log/main", "log/main/3") == []
    assert objects.keys("log") == ["log/9"]
    assert objects.keys("nothing") == []


def test_many_are_deleted_and_those_that_are_gone_do_not_matter(objects: Objects) -> None:
    names = [f"many/{number:04d}" for number in range(1200)]
    for key in names[:30]:
        objects.put_new(key, b"")
    objects.put_new("kept/0000", b"")
    objects.delete_many(names)
    assert objects.list("many") == []
    objects.delete_many([])
    assert keys(objects, "") == ["kept/0000"]


def test_folders_are_named_once_and_only_when_they_hold_something(objects: Objects) -> None:
    assert objects.list_folders("") == []
    for key in ("t/b/1", "t/b/2", "t/a/deep/1", "t/file", "tb/1", "t/größe 1/x"):
        objects.put_new(key, b"")
    assert objects.list_folders("t") == ["a", "b", "größe 1"]
    assert objects.list_folders("") == ["t", "tb"]
    assert objects.list_folders("t/nothing") == []
    objects.delete("t/a/deep/1")
    assert objects.list_folders("t") == ["b", "größe 1"]


@pytest.mark.parametrize(
    "key",
    [
        "with space/ and around ",
        "ünïcödé/日本語/😀",
        "n/\u00e9",
        "n/e\u0301",
        "percent/100%",
        "percent/%25%2F%e4",
        "quote/'\"`",
        "url/a?b=c&d#e+f;g:h@i,j$k!",
        "shell/*[x]{y}<z>|~^\\",
        ".hidden/.dots...",
        "hash/x#y#1z",
        "xml/<&amp;>",
        "long/" + "x" * 255,
        "long/" + "日" * 85,
        "a/" * 100 + "deep",
    ],
)
def test_any_key_comes_out_of_a_list_as_it_went_in(objects: Objects, key: str) -> None:
    folder, _, _ = key.rpartition("/")
    objects.put_new(key, b"1")
    with pytest.raises(ObjectExists):
        objects.put_new(key, b"2")
    objects.put(key, b"3")
    assert objects.get(key) == b"3"
    assert keys(objects, "") == [key]
    assert keys(objects, folder) == [key]
    assert objects.list_folders("") == [key.split("/")[0]]
    info = objects.info(key)
    assert info is not None
    assert info.key == key
    objects.delete(key)
    assert keys(objects, "") == []


def test_keys_that_differ_only_in_their_encoding_are_different_keys(objects: Objects) -> None:
    pairs = ["a/é", "a/e\u0301", "a/%20", "a/ ", "a/+", "a/A", "a/a"]
    for key in pairs:
        objects.put_new(key, key.encode())
    assert keys(objects, "a") == sorted(pairs)
    assert [objects.get(key) for key in pairs] == [key.encode() for key in pairs]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(
    "key",
    [
        *("/a", "a/", "a//b", "../a", "a/..", "a/./b", ".", "a\nb", "a\x7f", "a\x00", "\ud800"),
        *("x#1", "x#12/y", "#7", "y" * 256, "z/" * 600 + "z"),
    ],
)
def test_what_cannot_be_a_key_is_refused_before_anything_happens(
    objects: Objects, operation: str, key: str
) -> None:
    with pytest.raises(InvalidName) as caught:
        OPERATIONS[operation](objects, key)
    assert caught.value.reason in str(caught.value)


def test_a_list_of_2500_objects_is_complete(objects: Objects) -> None:
    expected = [f"many/{number:05d}" for number in range(2500)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: objects.put_new(key, b""), expected))
    assert keys(objects, "many") == expected
    assert objects.list_folders("") == ["many"]


def test_the_time_of_an_object_is_aware_and_by_the_stores_clock(objects: Objects) -> None:
    objects.put_new("a", b"")
    info = objects.info("a")
    assert info is not None
    assert info.modified.utcoffset() == timedelta(0)
    assert abs(info.modified - datetime.now(UTC)) < timedelta(seconds=10)
    assert objects.list("") == [info]


def test_an_error_carries_its_evidence(objects: Objects) -> None:
    with pytest.raises(StoreError) as caught:
        objects.get("nothing")
    assert set(caught.value.evidence) == {"operation", "key", "uri", "cause"}


# --------------------------------------------------------------------------------------------------
# Several processes
# --------------------------------------------------------------------------------------------------

PRELUDE = """
import os, sys, time
from tidelock.errors import ObjectExists
from tidelock.store.objects.kinds.location import locate
uri, options, arguments = sys.argv[1], eval(sys.argv[2]), sys.argv[3:]
objects = locate(uri, options).objects()
"""


def start(location: Location, script: str, *arguments: object) -> subprocess.Popen[str]:
    options = repr(dict(location.storage_options))
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + script, location.uri, options, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(params=["local", "s3"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    if request.param == "local":
        return locate(tmp_path / AWKWARD)
    server: S3Server = request.getfixturevalue("s3_server")
    bucket: str = request.getfixturevalue("s3_bucket")
    return locate(f"s3://{bucket}/{AWKWARD}", server.storage_options)


def test_of_several_processes_exactly_one_creates_each_key(shared: Location) -> None:
    script = """
while time.time() < float(arguments[1]): pass
for number in range(100):
    try:
        objects.put_new(f"log/{number}", arguments[0].encode())
        print(number, flush=True)
    except ObjectExists:
        pass
"""
    begin = time.time() + 2
    processes = [start(shared, script, name, begin) for name in range(4)]
    won = [process.communicate(timeout=120)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    assert sorted(int(number) for numbers in won for number in numbers) == list(range(100))
    objects = shared.objects()
    for name, numbers in enumerate(won):
        for number in numbers:
            assert objects.get(f"log/{number}") == b"%d" % name


def test_another_process_sees_an_acknowledged_object(shared: Location) -> None:
    shared.objects().put_new("a/é", b"done")
    script = "print([info.key for info in objects.list('')], objects.get('a/é'), flush=True)"
    answer, _ = start(shared, script).communicate(timeout=60)
    assert answer.strip() == "['a/é'] b'done'"


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_writer_leaves_whole_objects_or_nothing(shared: Location, seed: int) -> None:
    script = """
print("ready", flush=True)
for number in range(10_000):
    objects.put_new(f"big/{number:05d}", b"x" * 4_000_000)
    objects.put("big/replaced", b"%d" % (number % 10) * 4_000_000)
"""
    process = start(shared, script)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.05 + 0.037 * seed)
    process.kill()
    process.communicate(timeout=60)
    objects = shared.objects()
    for info in objects.list(""):
        data = objects.get(info.key)
        assert info.size_bytes == 4_000_000
        assert data == data[:1] * 4_000_000
    objects.put("big/replaced", b"the key is still usable")
    assert objects.get("big/replaced") == b"the key is still usable"
