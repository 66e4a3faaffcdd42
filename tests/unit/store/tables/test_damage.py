"""Bits that change in the files of a lake: answers stay right, or what is damaged is named."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from tests.support.lakes import collect_all, copy_lake, numbers, rows_of, seed_of

import tidelock
from tidelock import Lake, errors

FLIPS_PER_KIND = 6

KINDS = {
    "data": "tables/*/data/*.lance",
    "deletions": "tables/*/_deletions/*",
    "indexes": "tables/*/_indices/*/*",
    "sums": "tables/*/_sums/*/*",
    "manifests": "tables/*/_versions/d*",
    "records": "_tidelock/log/*/*.json",
    "branches": "_tidelock/branches/*/*.json",
    "tags": "_tidelock/tags/*.json",
}
SUMMED = ("data", "deletions", "indexes", "sums", "records", "branches", "tags")
"""Of these, verify finds every bit; of a manifest those that Lance reads."""


def make(uri: Path) -> None:
    """A lake with every kind of file: indexes, deletions, updates, folds, a branch, a tag."""
    with tidelock.open(uri, create=True) as lake:
        lake.create_table("keyed", "id BIGINT NOT NULL, v BIGINT, s STRING", key=["id"])
        lake.create_table("plain", "id BIGINT, v BIGINT")
        rows = pa.table(
            {
                "id": range(2000),
                "v": [i * 7 % 1000 for i in range(2000)],
                "s": [f"row {i}" for i in range(2000)],
            }
        )
        lake.run(lambda tx: tx.append("keyed", rows))
        maintainer, branch = lake._store.maintainer, lake._store.branches.main()
        maintainer.index(branch, "keyed", rows_min=1)
        lake.run(lambda tx: tx.update("keyed", {"v": "v + 1"}, where="id < 40"))
        lake.run(lambda tx: tx.delete("keyed", where="id >= 1990"))
        for number in range(10):
            lake.run(lambda tx, n=number: tx.append("plain", numbers((n, n))))
        lake.run(lambda tx: tx.delete("plain", where="id = 3"))
        lake.create_branch("dev")
        lake.run(lambda tx: tx.append("plain", numbers((50, 50))), branch="dev")
        lake.tag("q1", version=3)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    uri = tmp_path_factory.mktemp("template") / "lake"
    make(uri)
    with tidelock.open(uri, read_only=True) as lake:
        assert lake.verify().ok
        assert not [one for one in lake.verify().findings if one.what == "unchecked"]
    return uri


def answers(lake: Lake) -> dict[str, Any]:
    """What readers of a lake are told, by every way of reading."""
    keyed = lake.table("keyed")
    return {
        "keyed": rows_of(keyed),
        "some": rows_of(keyed.to_arrow(filter="id IN (5, 77, 1500, 1995, 5000)")),
        "counted": keyed.count("v > 500"),
        "plain": rows_of(lake.table("plain")),
        "dev": rows_of(lake.table("plain", branch="dev")),
        "tagged": rows_of(lake.snapshot(tag="q1").table("keyed").to_batches().read_all()),
        "changes": rows_of(lake.changes("plain", since=2).read_all()),
    }


def ask(uri: Path) -> dict[str, Any]:
    """All answers, or an error in their place that is of Tidelock's, and no other."""
    with tidelock.open(uri, read_only=True) as lake:
        try:
            return answers(lake)
        except errors.TidelockError as error:
            return {"error": error}


def test_a_bit_that_changes_is_found_or_makes_no_difference(template: Path, tmp_path: Path) -> None:
    uri = Path(copy_lake(template, tmp_path / "lake"))
    expected = ask(uri)
    assert "error" not in expected
    with seed_of() as seed:
        chance = random.Random(seed)
        for kind, pattern in KINDS.items():
            files = sorted(uri.glob(pattern))
            assert files, kind
            for _ in range(FLIPS_PER_KIND):
                path = chance.choice(files)
                whole = path.read_bytes()
                place = chance.randrange(len(whole) * 8)
                flipped = bytearray(whole)
                flipped[place // 8] ^= 1 << place % 8
                path.write_bytes(flipped)
                told = f"bit {place} of {path.relative_to(uri)}"
                found = ask(uri)
                with tidelock.open(uri, read_only=True) as lake:
                    report = lake.verify()
                named = [one for one in report.damaged if path.name.split(".")[0] in one.key]
                if found != expected or kind in SUMMED:
                    assert named, f"{told}: {found.get('error', 'wrong rows')}, {report.findings}"
                path.write_bytes(whole)
        assert ask(uri) == expected


@pytest.mark.parametrize("kind", ["data", "deletions", "indexes", "manifests", "sums"])
@pytest.mark.parametrize("damage", ["empty", "cut", "foreign", "gone"])
def test_files_of_a_table_that_are_damaged_are_named_by_verify(
    template: Path, tmp_path: Path, kind: str, damage: str
) -> None:
    uri = Path(copy_lake(template, tmp_path / "lake"))
    for path in uri.glob(KINDS[kind]):
        spoil(path, damage)
    error = ask(uri).get("error")
    assert isinstance(error, errors.CorruptObject | errors.SnapshotExpired | None)
    with tidelock.open(uri, read_only=True) as lake:
        report = lake.verify()
    if kind == "sums" and damage == "gone":
        assert {one.what for one in report.findings} == {"unchecked"}
    else:
        assert not report.ok
        assert all(one.advice and one.why and one.table for one in report.damaged)


def spoil(path: Path, damage: str) -> None:
    data = path.read_bytes()
    content = {"empty": b"", "cut": data[: len(data) // 2], "foreign": b"\x00\x05\x16\x07Mac OS X"}
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(content[damage])


USES: dict[str, Callable[[Lake], Any]] = {
    "read": lambda lake: lake.table("plain").to_arrow(),
    "stream": lambda lake: lake.table("plain").to_batches().read_all(),
    "filter": lambda lake: lake.table("plain").count("v > 2"),
    "changes": lambda lake: lake.changes("plain", 2).read_all(),
    "read in a transaction": lambda lake: lake.run(lambda tx: tx.table("plain").to_arrow()),
    "update": lambda lake: lake.run(lambda tx: tx.update("plain", {"v": "v + 1"}, "id > 0")),
    "delete": lambda lake: lake.run(lambda tx: tx.delete("plain", "v > 0")),
    "compact": lambda lake: lake._store.maintainer.compact(lake._store.branches.main(), "plain"),
    "index": lambda lake: lake._store.maintainer.index(
        lake._store.branches.main(), "keyed", rows_min=1
    ),
    "since": lambda lake: lake.read_since("plain"),
    "optimize": lambda lake: lake.optimize(),
    "collect": lambda lake: collect_all(lake),
}


@pytest.mark.parametrize("use", USES)
def test_damage_is_said_in_errors_of_tidelock_alone(
    template: Path, tmp_path: Path, use: str
) -> None:
    with seed_of() as seed:
        chance = random.Random(seed)
        for number in range(3):
            uri = Path(copy_lake(template, tmp_path / str(number)))
            for pattern in (KINDS["data"], KINDS["deletions"]):
                for path in uri.glob(pattern):
                    data = bytearray(path.read_bytes())
                    for _ in range(4):
                        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
                    path.write_bytes(data)
            with tidelock.open(uri) as lake:
                try:
                    USES[use](lake)
                except errors.CorruptObject as error:
                    assert "damaged" in error.message  # noqa: PT017
            shutil.rmtree(uri)


def test_fragments_that_are_damaged_are_not_rewritten(template: Path, tmp_path: Path) -> None:
    uri = Path(copy_lake(template, tmp_path / "lake"))
    with tidelock.open(uri) as lake:
        plain = lake.table("plain")
        folder = Path(plain.path)
        path = folder / "data" / plain.dataset.get_fragments()[0].metadata.files[0]._path
        data = bytearray(path.read_bytes())
        data[len(data) // 3] ^= 1
        path.write_bytes(data)
        with pytest.raises(errors.CorruptObject, match=path.name):
            lake.optimize("plain")
        assert [one.key for one in lake.verify("plain").damaged] == [
            str(path.relative_to(uri)).replace("\\", "/")
        ]


def test_collecting_garbage_looks_at_some_files_by_chance(template: Path, tmp_path: Path) -> None:
    uri = Path(copy_lake(template, tmp_path / "lake"))
    with tidelock.open(uri) as lake:
        assert not lake.collect_garbage().damaged
        for path in uri.glob("tables/*/data/*"):
            path.write_bytes(b"x" * path.stat().st_size)
        assert lake.collect_garbage().damaged


@pytest.fixture
def lake(template: Path, tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(copy_lake(template, tmp_path / "lake")) as lake:
        yield lake


def test_what_is_verified_can_be_chosen(lake: Lake) -> None:
    everything, plain = lake.verify(), lake.verify("plain")
    assert plain.files < everything.files
    assert plain.objects == 0 < everything.objects
    assert lake.verify(sample=3).files == 3
    seen: list[tuple[int, int]] = []
    lake.verify(["plain", "keyed"], progress=lambda *step: seen.append(step))
    assert seen[-1] == (len(seen), len(seen))


@pytest.mark.parametrize("damage", ["empty", "cut", "gone"])
def test_a_damaged_head_of_lances_is_named_and_stops_no_repair(
    template: Path, tmp_path: Path, damage: str
) -> None:
    uri = Path(copy_lake(template, tmp_path / "lake"))
    with tidelock.open(uri) as lake:
        lake.mirror("keyed")
        lake.mirror("plain")
        states = lake.snapshot().states()
    (head, *others) = sorted(
        (uri / "tables" / states["keyed"].id / "_versions").glob("1*.manifest")
    )
    if damage == "gone":
        for path in (head, *others):
            path.unlink()
    else:
        head.write_bytes(head.read_bytes()[:50] if damage == "cut" else b"")
    # Somebody else commits to the other one.
    lance.write_dataset(
        pa.table({"id": [77], "v": [77]}), uri / "tables" / states["plain"].id, mode="append"
    )
    with tidelock.open(uri) as lake:
        with pytest.raises(errors.CorruptObject, match=r"keyed.*_versions"):
            lake.mirror("keyed")
        assert [one.table for one in lake.foreign_commits()] == ["plain"]
        assert [one.table for one in lake.repair().foreign] == ["plain"]
        assert rows_of(lake.table("keyed")).total() == 1990
