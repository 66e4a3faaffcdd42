"""Objects that are damaged and things that are foreign, in every folder of a lake.

One of them must not stop a lake: whatever does not depend on it goes on, what does says its name,
and `repair` deals with it, by itself or on an explicit word.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.lakes import NUMBERS_DDL, collect_all, copy_lake, numbers, rows_of

import tidelock
from tidelock import Lake, errors
from tidelock.store.objects.records import content

LEASE_SECONDS = 1
DAMAGES = {
    "empty": b"",
    "cut": None,
    "foreign": b"\x00\x05\x16\x07 not of Tidelock",
    "other json": b'{"some": "thing else", "format": 1}',
}

OBJECTS = {
    "lake": "lake.json",
    "checkpoint": "past/main/00000000000000000032-32.json",
    "index": "published/main/00000000000000001024-000000.json",
    "newest record": "log/main/00000000000000000006.json",
    "old record": "log/main/00000000000000000003.json",
    "branch": "branches/dev/00000001.json",
    "branch without commits": "branches/bare/00000001.json",
    "tag": "tags/q1.json",
    "hold": "holds/h.json",
    "operation": "operations/main/once.json",
    "intent": "intents/gone.1a2b3c4d.json",
    "recovery": "recoveries/main/gone.json",
    "lease": "leases/host-1-abcd.json",
    "collection": "collections/0123456789abcdef.json",
    "mirror": "mirrors/{events}.json",
    "definition": "definitions/0123.json",
    "attempt": "attempts/main/{events}/20260101T000000000000-ab.json",
    "post": "posts/scheduler=20of=20main/00000000000000000001.json",
    "sink": "sinks/archive-0d3b/state.json",
}

MAIN = {"open", "read", "write", "log", "old version", "snapshots", "repeat", "collect", "fork"}
STOPPED: dict[str, set[str]] = {
    # Nobody knows what the newest commit was.
    "newest record": MAIN | {"branches", "foreign", "tagged"},
    "old record": {"log", "old version", "collect"},
    "checkpoint": {"log", "old version", "collect"},
    "branch": {"dev", "collect"},
    "branch without commits": {"collect"},
    "tag": {"tagged", "collect"},
    "hold": {"collect"},
    "intent": {"open", "write", "repeat", "collect"},
}
"""What may say that an object is damaged, in the place of working. Anything else works."""

MENDED_ON_A_WORD = {"newest record", "branch without commits", "tag", "hold", "intent"}
NOT_MENDED = {"old record", "definition", "sink"}


def uses(lake: Lake) -> dict[str, Callable[[], Any]]:
    return {
        "read": lambda: rows_of(lake.table("events")),
        "write": lambda: lake.run(lambda tx: tx.append("events", numbers((9, 9)))),
        "log": lambda: lake.log(limit=None),
        "old version": lambda: rows_of(lake.snapshot(version=3).table("events")),
        "snapshots": lambda: lake.snapshot(at="2100-01-01T00:00:00Z"),
        "repeat": lambda: append_once(lake),
        "fork": lambda: lake.create_branch("fork"),
        "dev": lambda: rows_of(lake.table("events", branch="dev")),
        "tagged": lambda: rows_of(lake.snapshot(tag="q1").table("events")),
        "branches": lambda: lake.branches(),
        "tags": lambda: lake.tags(),
        "recoveries": lambda: lake.recoveries(),
        "intents": lambda: (lake.intents(), lake.unreadable_intents()),
        "foreign": lambda: lake.foreign_commits(),
        "sinks": lambda: lake.sinks(),
        "verify": lambda: lake.verify(),
        "collect": lambda: collect_all(lake),
    }


def append_once(lake: Lake) -> int:
    with lake.transaction(operation_id="once") as tx:
        tx.append("events", numbers((1, 1)))
    assert tx.commit is not None
    return tx.commit.version


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    uri = tmp_path_factory.mktemp("template") / "lake"
    with tidelock.open(uri, create=True) as lake:
        lake.create_table("events", NUMBERS_DDL)
        append_once(lake)
        for value in range(3):
            lake.run(lambda tx, v=value: tx.append("events", numbers((v, v))))
        lake.create_branch("dev")
        lake.create_branch("bare")
        lake.run(lambda tx: tx.append("events", numbers((5, 5))), branch="dev")
        lake.run(lambda tx: tx.append("events", numbers((6, 6))))
        lake.tag("q1")
        lake.hold("h")
        lake.mirror("events")
    return uri


def damage(uri: Path, kind: str, how: str) -> Path:
    (folder,) = (uri / "tables").iterdir()
    path = uri / "_tidelock" / OBJECTS[kind].format(events=folder.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = path.read_bytes() if path.exists() else b'{"format": 1}'
    data = DAMAGES[how]
    path.write_bytes(whole[: len(whole) * 2 // 3] if data is None else data)
    return path


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("kind", OBJECTS)
def test_a_damaged_object_stops_what_depends_on_it_and_nothing_else(
    template: Path, tmp_path: Path, kind: str, how: str
) -> None:
    uri = Path(copy_lake(template, tmp_path / "lake"))
    path = damage(uri, kind, how)
    stopped = STOPPED.get(kind, set())
    key = str(path.relative_to(uri))
    with tidelock.open(uri, read_only=True) as reader:
        assert kind == "newest record" or rows_of(reader.table("events")).total() == 5
    lake = opened(uri, "open" in stopped, key)
    failed = {name: error for name, use in uses(lake).items() if (error := outcome(use))}
    assert set(failed) <= stopped, f"stopped without need: {failed}"
    assert all(key in error.message for error in failed.values()), f"not named: {failed}"
    lake.close()


def outcome(use: Callable[[], Any]) -> errors.FormatError | None:
    try:
        use()
    except errors.FormatError as error:
        return error
    return None


def opened(uri: Path, may_stop: bool, key: str) -> Lake:
    try:
        return tidelock.open(uri, lease_seconds=LEASE_SECONDS)
    except errors.FormatError as error:
        assert may_stop and key in error.message  # noqa: PT017, PT018
        return tidelock.open(uri, heal=False, lease_seconds=LEASE_SECONDS)


@pytest.mark.parametrize("kind", OBJECTS)
def test_repair_deals_with_a_damaged_object(template: Path, tmp_path: Path, kind: str) -> None:
    uri = Path(copy_lake(template, tmp_path / "lake"))
    path = damage(uri, kind, "empty")
    key = str(path.relative_to(uri))
    with tidelock.open(uri, heal=False) as lake:
        report = lake.repair()
        told = [one.key for one in (*report.mended, *report.damaged)]
        assert told == ([] if kind == "lake" else [key])
        if kind in MENDED_ON_A_WORD:
            assert [one.key for one in report.damaged] == [key]
            assert key in report.damaged[0].advice
            assert lake.repair(discard_object=key).discarded == key
        elif kind == "mirror":
            assert [one.table for one in report.foreign] == ["events"]
            assert lake.repair("events", discard=True).discarded == "events"
        elif kind not in NOT_MENDED:
            assert not report.damaged
    with tidelock.open(uri, lease_seconds=LEASE_SECONDS) as lake:
        gone = {"newest record"} if kind == "newest record" else set()
        for name, use in uses(lake).items():
            if kind in NOT_MENDED or (kind == "tag" and name == "tagged"):
                continue
            use()
        if kind not in NOT_MENDED:
            assert lake.verify().ok
        assert rows_of(lake.table("events", branch="dev")).total() == 5
        if kind not in {"operation", *gone}:
            assert append_once(lake) == 2


FOREIGN = [
    ".DS_Store",
    "._main.json",
    "main.json~",
    "main.json.bak",
    ".main.json.swp",
    "#main.json#",
    "main (copy).json",
    "Thumbs.db",
    "desktop.ini",
]
FOLDERS = sorted({path.rsplit("/", 1)[0] for path in OBJECTS.values() if "/" in path} | {"."})


UNLISTED = ("turns", "discarded")
"""Folders in which no objects are kept."""
TABLE_FOLDERS = [
    f"../tables/{{events}}{folder}"
    for folder in ("", "/data", "/_versions", "/_transactions", "/_deletions", "/_indices")
]


@pytest.mark.parametrize(
    "folder",
    [
        *FOLDERS,
        "turns",
        "discarded",
        "../tables",
        "..",
        *TABLE_FOLDERS,
    ],
)
def test_foreign_things_in_a_folder_do_no_harm_and_are_left_alone(
    template: Path, tmp_path: Path, folder: str
) -> None:
    uri = Path(copy_lake(template, tmp_path / "lake"))
    (table,) = (uri / "tables").iterdir()
    place = (uri / "_tidelock" / folder.format(events=table.name)).resolve()
    place.mkdir(parents=True, exist_ok=True)
    foreign = [place / name for name in FOREIGN]
    for path in foreign:
        path.write_bytes(b"\x00\x00\x00\x01Bud1")
    nested = place / "some folder" / "with.json"
    nested.parent.mkdir()
    nested.write_text("{}")
    (place / "empty folder").mkdir()
    with tidelock.open(uri) as lake:
        for use in uses(lake).values():
            use()
        report = lake.verify()
        assert report.ok
        assert not lake.repair().damaged
    assert all(path.exists() for path in (*foreign, nested))
    if "_tidelock" in str(place.relative_to(uri)) and not folder.startswith(UNLISTED):
        named = {uri / one.key for one in report.findings if one.what == "foreign"}
        assert {place / ".DS_Store", place / "main (copy).json"} <= named


@pytest.mark.parametrize("kind", ["old record", "checkpoint", "index", "branch", "lake"])
def test_json_of_others_does_no_harm_beside_objects_with_names_of_another_form(
    template: Path, tmp_path: Path, kind: str
) -> None:
    uri = Path(copy_lake(template, tmp_path / "lake"))
    foreign = (uri / "_tidelock" / OBJECTS[kind]).parent / "notes.json"
    foreign.parent.mkdir(parents=True, exist_ok=True)
    foreign.write_text('{"what": "notes of somebody"}')
    with tidelock.open(uri) as lake:
        for use in uses(lake).values():
            use()
        assert [(uri / one.key, one.what) for one in lake.verify().findings] == [
            (foreign, "foreign")
        ]
        assert not lake.repair().damaged
    assert foreign.exists()


def test_a_folder_in_the_place_of_an_object_is_said_so(template: Path, tmp_path: Path) -> None:
    for number, kind in enumerate(("index", "lease", "collection", "operation", "tag")):
        uri = Path(copy_lake(template, tmp_path / str(number)))
        path = uri / "_tidelock" / OBJECTS[kind]
        path.unlink(missing_ok=True)
        path.mkdir(parents=True)
        with tidelock.open(uri) as lake:
            assert rows_of(lake.table("events")).total() == 5
            lake.run(lambda tx: tx.append("events", numbers((9, 9))))
            collect_all(lake)


@pytest.mark.parametrize("kind", ["tag", "hold", "branch", "newest record"])
def test_what_is_whole_is_not_given_up(template: Path, tmp_path: Path, kind: str) -> None:
    uri = Path(copy_lake(template, tmp_path / "lake"))
    with tidelock.open(uri) as lake:
        with pytest.raises(errors.InvalidOption, match="is whole"):
            lake.repair(discard_object=OBJECTS[kind])
        for name in ("nowhere.json", "../tables", "log/main/.DS_Store", "lake.json"):
            with pytest.raises(errors.InputError):
                lake.repair(discard_object=name)


def test_an_older_record_is_not_given_up(template: Path, tmp_path: Path) -> None:
    uri = Path(copy_lake(template, tmp_path / "lake"))
    damage(uri, "old record", "empty")
    with (
        tidelock.open(uri) as lake,
        pytest.raises(errors.InvalidOption, match="not the newest record"),
    ):
        lake.repair(discard_object=OBJECTS["old record"])


def test_what_was_given_up_is_kept_aside(template: Path, tmp_path: Path) -> None:
    uri = Path(copy_lake(template, tmp_path / "lake"))
    damage(uri, "tag", "foreign")
    with tidelock.open(uri) as lake:
        lake.repair(discard_object="tags/q1.json")
        with pytest.raises(errors.TagNotFound):
            lake.snapshot(tag="q1")
    (kept,) = (uri / "_tidelock" / "discarded").iterdir()
    assert kept.read_bytes() == DAMAGES["foreign"]


def test_a_branch_is_made_anew_from_its_own_commits(template: Path, tmp_path: Path) -> None:
    uri = Path(copy_lake(template, tmp_path / "lake"))
    with tidelock.open(uri) as lake:
        lake.create_branch("deeper", branch="dev")
        lake.run(lambda tx: tx.append("events", numbers((7, 7))), branch="deeper")
        before = {name: lake.log(name, limit=None) for name in ("dev", "deeper")}
    path = uri / "_tidelock" / "branches" / "deeper" / "00000001.json"
    whole = path.read_bytes()
    path.write_bytes(b"")
    with tidelock.open(uri) as lake:
        assert [one.key for one in lake.repair().mended] == [str(path.relative_to(uri))]
        assert {name: lake.log(name, limit=None) for name in before} == before
    assert b'"lineage":' in content(path.read_bytes(), "key")
    assert whole.split(b'"lineage":')[1].split(b'"created"')[0] in path.read_bytes()


def test_an_object_of_a_newer_format_stops_only_what_it_would_endanger(
    template: Path, tmp_path: Path
) -> None:
    uri = Path(copy_lake(template, tmp_path / "lake"))
    for kind in ("lease", "tag", "recovery"):
        path = uri / "_tidelock" / OBJECTS[kind]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b'{"format": 9, "shape": "unheard of"}')
    with tidelock.open(uri) as lake:
        assert rows_of(lake.table("events")).total() == 5
        lake.run(lambda tx: tx.append("events", numbers((9, 9))))
        with pytest.raises(errors.NewerFormat):
            collect_all(lake)
        assert {one.what for one in lake.verify().damaged} == {"newer"}
