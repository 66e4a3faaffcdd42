"""Garbage collection: what must stay stays, whole; the rest goes; once more changes nothing."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from tests.support.lakes import (
    NUMBERS_DDL,
    age,
    check_log,
    collect_all,
    contents,
    files_of,
    numbers,
    rows_of,
    seed_of,
    streamed,
)

import tidelock
from tidelock import Lake, errors
from tidelock.store.objects.checksums import signed
from tidelock.store.objects.failpoints import armed
from tidelock.store.objects.protocol import Objects
from tidelock.testing.faulty_store import FaultyStore


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        yield lake


def add(lake: Lake, number: int, branch: str = "main", table: str = "t") -> tidelock.Commit:
    with lake.transaction(branch=branch) as tx:
        tx.append(table, numbers((number, number)))
    assert tx.commit is not None
    return tx.commit


class History:
    """A lake with a random past, and what must be readable in it."""

    def __init__(self, lake: Lake, seed: int) -> None:
        self.lake = lake
        self.chance = random.Random(seed)
        self.branches = ["main"]
        self.kept: list[tuple[dict[str, Any], dict[str, Counter[tuple[int, ...]]]]] = []
        self.snapshots: list[tuple[tidelock.Snapshot, dict[str, Counter[tuple[int, ...]]]]] = []
        self.names = 0

    def grow(self, steps: int) -> None:
        for _ in range(steps):
            branch = self.chance.choice(self.branches)
            self.chance.choices(
                [self.write, self.fork, self.delete, self.tag, self.hold, self.look, self.tidy],
                [12, 2, 1, 1, 1, 2, 2],
            )[0](branch)

    def name(self) -> str:
        self.names += 1
        return f"n{self.names}"

    def write(self, branch: str) -> None:
        chance = self.chance
        with self.lake.transaction(branch=branch) as tx:
            tables = [state.name for state in tx.tables().states()]
            if len(tables) < 3 or chance.random() < 0.1:
                name = self.name()
                tx.create_table(name, NUMBERS_DDL, key="id" if chance.random() < 0.5 else None)
                tables.append(name)
            for table in chance.sample(tables, min(2, len(tables))):
                rows = {chance.randrange(30): chance.randrange(100) for _ in range(4)}
                choice = chance.random()
                if choice < 0.4 and tx.table(table).key:
                    tx.upsert(table, numbers(*rows.items()))
                elif choice < 0.5:
                    tx.overwrite(table, numbers(*rows.items()))
                elif choice < 0.7:
                    tx.delete(table, where=f"id < {chance.randrange(15)}")
                elif choice < 0.8:
                    tx.update(table, {"v": "v + 1"}, where=f"id > {chance.randrange(30)}")
                elif choice < 0.85 and len(tables) > 3:
                    tx.drop_table(table)
                elif not tx.table(table).key:
                    tx.append(table, streamed(numbers(*rows.items())))

    def fork(self, branch: str) -> None:
        head = self.lake.snapshot(branch).version
        name = self.name()
        at = self.chance.randint(max(0, head - 2), head)
        try:
            self.lake.create_branch(name, at=at, branch=branch)
        except errors.SnapshotExpired:
            assert at < head
            return
        self.branches.append(name)

    def delete(self, branch: str) -> None:
        if branch != "main":
            self.lake.delete_branch(branch)
            self.branches.remove(branch)

    def tag(self, branch: str) -> None:
        if self.lake.snapshot(branch).version:
            name = self.name()
            self.lake.tag(name, branch=branch)
            self.kept.append(({"tag": name}, contents(self.lake, tag=name)))

    def hold(self, branch: str) -> None:
        version = self.lake.snapshot(branch).version
        self.lake.hold(self.name(), version, branch=branch)
        commit = self.lake.snapshot(branch).commit
        if commit is not None:
            self.kept.append(({"commit": commit}, contents(self.lake, commit=commit)))

    def look(self, branch: str) -> None:
        snapshot = self.lake.snapshot(branch)
        self.snapshots.append((snapshot, contents(snapshot)))

    def tidy(self, branch: str) -> None:
        self.lake.optimize(branch=branch)

    def expected(self, versions: int) -> list[tuple[dict[str, Any], Any]]:
        """Selectors of everything that must stay readable, with what they show now."""
        found = list(self.kept)
        for branch in self.branches:
            log = [commit for commit in self.lake.log(branch, limit=None) if commit.tables]
            for number, commit in enumerate(log[:versions]):
                selector = {"branch": branch, "version": commit.version}
                try:
                    found.append((selector, contents(self.lake, **selector)))
                except errors.SnapshotExpired:
                    # A collection that kept fewer versions came before.
                    assert number > 0
        return found


@pytest.mark.parametrize("round", range(4))
def test_whatever_the_past_was_what_must_stay_is_whole(lake: Lake, round: int) -> None:
    with seed_of() as seed:
        history = History(lake, seed + round)
        history.grow(40)
        for _ in range(3):
            history.grow(10)
            versions = history.chance.randint(0, 4)
            expected = history.expected(max(versions, 1))
            before = files_of(lake.uri)
            time.sleep(0.03)
            plan = collect_all(lake, versions=versions, dry_run=True)
            assert files_of(lake.uri) == before
            done = collect_all(lake, versions=versions)
            assert not done.errors
            assert (done.files, done.size_bytes) == (plan.files, plan.size_bytes)
            assert len(before) - len(files_of(lake.uri)) == done.files
            assert collect_all(lake, versions=versions).files == 0
            for selector, rows in expected:
                assert contents(lake, **selector) == rows, selector
            for snapshot, rows in history.snapshots:
                assert contents(snapshot) == rows
            with tidelock.open(lake.uri, read_only=True) as other:
                for selector, rows in expected:
                    assert contents(other, **selector) == rows, selector
            for branch in history.branches:
                check_log(lake, branch)


def test_a_version_that_was_collected_says_so(lake: Lake) -> None:
    lake.create_table("t", NUMBERS_DDL)
    for number in range(3):
        with lake.transaction() as tx:
            tx.overwrite("t", numbers((number, number)))
    collect_all(lake)
    for version in (2, 3):
        with pytest.raises(errors.SnapshotExpired):
            lake.snapshot(version=version).table("t")
        with pytest.raises(errors.SnapshotExpired):
            lake.create_branch("late", at=version)
        with pytest.raises(errors.SnapshotExpired):
            lake.tag("late", version=version)
        with pytest.raises(errors.SnapshotExpired):
            lake.hold("late", version)
    assert [branch.name for branch in lake.branches()] == ["main"]
    assert not lake.tags()
    assert rows_of(lake.table("t")) == Counter([(2, 2)])
    assert len(check_log(lake)) == 4
    assert not collect_all(lake).errors


def test_keeping_more_after_keeping_less_is_no_error(lake: Lake) -> None:
    lake.create_table("t", NUMBERS_DDL)
    for number in range(5):
        with lake.transaction() as tx:
            tx.overwrite("t", numbers((number, number)))
    collect_all(lake)
    snapshot = lake.snapshot(version=3)
    for options in ({"older_than": "7d"}, {"older_than": 0, "versions": 4}):
        report = lake.collect_garbage(**options)  # type: ignore[arg-type]
        assert (report.errors, report.files) == ((), 0)
    assert snapshot.version == 3


def test_what_is_young_is_kept(lake: Lake) -> None:
    lake.create_table("t", NUMBERS_DDL)
    for number in range(3):
        add(lake, number)
    assert lake.collect_garbage().files == 0
    assert lake.collect_garbage(older_than=60).files == 0
    assert contents(lake, version=2)["t"] == Counter([(0, 0)])
    assert collect_all(lake).files > 0


def test_a_dropped_table_goes_when_nothing_shows_it(lake: Lake) -> None:
    lake.create_table("t", NUMBERS_DDL, key="id")
    add(lake, 1)
    lake.tag("kept")
    lake.drop_table("t")
    collect_all(lake)
    assert contents(lake, tag="kept")["t"] == Counter([(1, 1)])
    lake.delete_tag("kept")
    collect_all(lake)
    assert files_of(lake.uri) == set()


def test_a_hold_keeps_a_version_until_it_moves(lake: Lake) -> None:
    lake.create_table("t", NUMBERS_DDL)
    for number in range(4):
        with lake.transaction() as tx:
            tx.overwrite("t", numbers((number, number)))
    lake.hold("sink", 2)
    lake.hold("other", 3)
    collect_all(lake)
    assert contents(lake, version=2)["t"] == Counter([(0, 0)])
    lake.hold("sink", 3)
    collect_all(lake)
    with pytest.raises(errors.SnapshotExpired):
        contents(lake, version=2)
    assert contents(lake, version=3)["t"] == Counter([(1, 1)])
    lake.release("sink")
    lake.release("other")
    collect_all(lake)
    with pytest.raises(errors.SnapshotExpired):
        contents(lake, version=3)


def test_a_table_that_fails_does_not_stop_the_others(lake: Lake) -> None:
    for table in ("a", "b", "c"):
        lake.create_table(table, NUMBERS_DDL)
        add(lake, 1, table=table)
        add(lake, 2, table=table)
    broken = lake.table("b").dataset.version
    (manifest,) = Path(lake.table("b").path).glob(f"_versions/*{broken}.manifest")
    saved = manifest.read_bytes()
    manifest.unlink()
    with tidelock.open(lake.uri) as other:
        lake.close()
        report = collect_all(other)
        assert len(report.errors) == 1
        assert report.errors[0].startswith("b-")
        assert {table.table_id[0] for table in report.tables if table.files} == {"a", "c"}
        manifest.write_bytes(saved)
        other._store.files.forget(next(t.id for t in other.tables() if t.name == "b"))
        again = collect_all(other)
        assert not again.errors
        assert {table.table_id[0] for table in again.tables} == {"b"}
        assert {name: rows.total() for name, rows in contents(other).items()} == {
            "a": 2,
            "b": 2,
            "c": 2,
        }


def test_a_collection_that_was_killed_does_not_hold_up_anybody(lake: Lake) -> None:
    lake.create_table("t", NUMBERS_DDL)
    folder = Path(lake.uri, "_tidelock", "collections")
    with armed("garbage.before_sweep", "error"):
        collect_all(lake)
    assert not list(folder.glob("*"))
    with tidelock.open(lake.uri, lease_seconds=0.2) as other:
        held = other._store.objects
        dead = signed(b'{"lease_seconds": 0.2, "format": 1}')
        held.put("_tidelock/collections/dead.json", dead)
        began = time.monotonic()
        lake.tag("q1")
        lake.create_branch("dev")
        assert 0.1 < time.monotonic() - began < 5


def test_a_tag_made_while_a_collection_runs_is_readable_or_refused(
    lake: Lake, tmp_path: Path
) -> None:
    lake.create_table("t", NUMBERS_DDL)
    for number in range(3):
        with lake.transaction() as tx:
            tx.overwrite("t", numbers((number, number)))
    other = tidelock.open(lake.uri)
    gate = tmp_path / "gate"
    outcome: list[object] = []

    def tag() -> None:
        try:
            outcome.append(other.tag("late", version=2))
        except errors.SnapshotExpired as error:
            outcome.append(error)

    with armed("garbage.before_sweep", f"pause:{gate}@1"):
        collector = threading.Thread(target=collect_all, args=(lake,))
        collector.start()
        while not Path(f"{gate}.reached").exists():
            time.sleep(0.005)
        tagger = threading.Thread(target=tag)
        tagger.start()
        time.sleep(0.2)
        assert not outcome, "the tag does not wait for the collection"
        gate.touch()
        collector.join()
        tagger.join()
    assert isinstance(outcome[0], errors.SnapshotExpired)
    assert not other.tags()
    other.close()


def test_intents_and_what_they_staged_are_kept(lake: Lake) -> None:
    lake.create_table("t", NUMBERS_DDL)
    add(lake, 0)
    with lake.transaction() as tx:
        tx.append("t", streamed(numbers((1, 1))))
        tx.create_table("fresh", NUMBERS_DDL)
        tx.append("fresh", numbers((1, 1)))
        assert tx.table("fresh").count() == 1
        for number in range(2, 5):
            add(lake, number)
            collect_all(lake)
    assert contents(lake) == {
        "t": Counter((n, n) for n in range(5)),
        "fresh": Counter([(1, 1)]),
    }


def test_a_sealed_intent_is_published_after_any_number_of_collections(lake: Lake) -> None:
    lake.create_table("t", NUMBERS_DDL)

    def wrap(inner: Objects) -> Objects:
        store = FaultyStore(inner, 1)
        store.fail_next("put_new", key_contains="/log/", times=100)
        store.fail_next("delete", key_contains="/intents/")
        return store

    with tidelock.open(lake.uri, objects=wrap) as dying:
        tx = dying.transaction()
        tx.append("t", streamed(numbers((1, 1))))
        with pytest.raises(errors.OutcomeUnknown):
            tx.publish()
    for _ in range(3):
        collect_all(lake)
    age(lake.uri)
    assert [row.outcome for row in lake.repair().recovered] == ["rolled_forward"]
    assert contents(lake) == {"t": Counter([(1, 1)])}


def test_the_lance_head_of_a_mirrored_table_stays_readable(lake: Lake) -> None:
    lake.create_table("t", NUMBERS_DDL, key="id")
    add(lake, 1)
    lake.mirror("t")
    path = lake.table("t").path
    for number in range(2, 6):
        add(lake, number)
        collect_all(lake)
    assert lance.dataset(path).to_table().to_pydict() == {"id": [1], "v": [1]}
    lake.mirror("t")
    collect_all(lake)
    assert sorted(lance.dataset(path).to_table()["id"].to_pylist()) == [1, 2, 3, 4, 5]
    assert rows_of(lake.table("t")) == Counter((n, n) for n in range(1, 6))


def test_changes_that_are_no_longer_kept_say_which_are(lake: Lake) -> None:
    lake.create_table("t", NUMBERS_DDL, key="id")
    for number in range(1, 7):
        add(lake, number)
    with lake.transaction() as tx:
        tx.delete("t", "id = 2")
    newest = lake.snapshot().version
    collect_all(lake, versions=3)
    with pytest.raises(errors.SnapshotExpired, match="are kept after version") as caught:
        lake.changes("t", since=1).read_all()
    kept = caught.value.version
    assert newest - 3 <= kept < newest
    assert lake.changes("t", since=kept).read_all().num_rows == newest - kept
    with pytest.raises(errors.SnapshotExpired):
        lake.changes("t", since=kept - 1).read_all()
    assert lake.snapshot(version=kept).table("t").count() > 0


def write_foreign(lake: Lake, *pairs: tuple[int, int]) -> None:
    table = lake.table("t")
    rows = pa.Table.from_pylist(numbers(*pairs), schema=table.dataset.schema)
    lance.write_dataset(rows, table.path, mode="append")


@pytest.fixture
def foreign(lake: Lake) -> Lake:
    """A lake with a commit that somebody else made on a mirrored table."""
    lake.create_table("t", NUMBERS_DDL, key="id")
    add(lake, 1)
    lake.mirror("t")
    write_foreign(lake, (7, 7))
    return lake


def test_a_foreign_commit_is_shown_and_nothing_else_happens(foreign: Lake) -> None:
    (found,) = foreign.repair().foreign
    assert (found.table, found.rows, found.actual) == ("t", 2, found.expected + 1)
    with pytest.raises(errors.ForeignCommit) as caught:
        foreign.mirror("t")
    assert caught.value.table == "t"
    add(foreign, 2)
    collect_all(foreign)
    assert rows_of(foreign.table("t")) == Counter([(1, 1), (2, 2)])
    assert sorted(lance.dataset(foreign.table("t").path).to_table()["id"].to_pylist()) == [1, 7]
    assert foreign.repair().foreign == (found,)


def test_a_foreign_commit_is_adopted_on_an_explicit_word(foreign: Lake) -> None:
    before = foreign.snapshot().version
    report = foreign.repair("t", adopt=True)
    assert report.adopted is not None
    assert report.adopted.version == before + 1
    assert rows_of(foreign.table("t")) == Counter([(1, 1), (7, 7)])
    assert not foreign.repair().foreign
    changes = foreign.changes("t", since=before).read_all()
    assert rows_of(changes.select(["id", "v"])) == Counter([(7, 7)])
    add(foreign, 8)
    collect_all(foreign)
    assert rows_of(foreign.table("t")) == Counter([(1, 1), (7, 7), (8, 8)])
    foreign.mirror("t")
    assert lance.dataset(foreign.table("t").path).count_rows() == 3


def test_a_foreign_commit_is_discarded_on_an_explicit_word(foreign: Lake) -> None:
    assert foreign.repair("t", discard=True).discarded == "t"
    assert not foreign.repair().foreign
    assert lance.dataset(foreign.table("t").path).to_table().to_pydict() == {"id": [1], "v": [1]}
    assert rows_of(foreign.table("t")) == Counter([(1, 1)])


def test_a_foreign_commit_that_breaks_the_rules_is_not_adopted(foreign: Lake) -> None:
    write_foreign(foreign, (1, 2))
    with pytest.raises(errors.DuplicateKey):
        foreign.repair("t", adopt=True)
    foreign.repair("t", discard=True)
    path = foreign.table("t").path
    lance.dataset(path).add_columns({"extra": "id + 1"})
    with pytest.raises(errors.InvalidSchema):
        foreign.repair("t", adopt=True)
    assert rows_of(foreign.table("t")) == Counter([(1, 1)])


@pytest.mark.parametrize("what", ["nullable", "renumbered"])
def test_a_foreign_version_with_columns_that_only_look_alike_is_not_adopted(
    foreign: Lake, what: str
) -> None:
    table = foreign.table("t")
    if what == "nullable":
        schema = pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.int64())])
        assert not table.dataset.schema.field("id").nullable
        rows = pa.Table.from_pylist(numbers((1, 1)), schema=schema)
        lance.write_dataset(rows, table.path, mode="overwrite")
    else:
        dataset = lance.dataset(table.path)
        dataset.drop_columns(["v"])
        dataset.add_columns(pa.field("v", pa.int64()))
    with pytest.raises(errors.InvalidSchema):
        foreign.repair("t", adopt=True)
    add(foreign, 2)
    assert rows_of(foreign.table("t")) == Counter([(1, 1), (2, 2)])


def test_words_that_do_not_go_together_are_refused(foreign: Lake) -> None:
    with pytest.raises(errors.InvalidOption):
        foreign.repair("t", adopt=True, discard=True)
    with pytest.raises(errors.InvalidOption):
        foreign.repair(adopt=True)
    with pytest.raises(errors.InvalidOption):
        foreign.collect_garbage(versions=-1)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_folder_that_cannot_be_read_does_not_stop_the_others(lake: Lake) -> None:
    for table in ("a", "b"):
        lake.create_table(table, NUMBERS_DDL)
        add(lake, 1, table=table)
        add(lake, 2, table=table)
    folder = Path(lake.table("a").path, "_versions")
    folder.chmod(0)
    try:
        report = collect_all(lake)
    finally:
        folder.chmod(0o755)
    assert [error[:2] for error in report.errors] == ["a-"]
    assert [table.table_id[:2] for table in report.tables if table.files] == ["b-"]
