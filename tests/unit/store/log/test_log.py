"""The commit log: heads, records of several commits, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from tidelock import errors
from tidelock.model.history.commit import BranchRef, Commit, TableChange, TableState, commit_id
from tidelock.store.log.log import GROUP_MAX, Head, Log
from tidelock.store.objects import layout
from tidelock.store.objects.kinds.location import locate
from tidelock.store.objects.protocol import Objects
from tidelock.store.objects.records import decode, encode
from tidelock.testing.faulty_store import FaultyStore

MAIN = BranchRef("main", "main", 1, (), datetime.fromtimestamp(0, UTC), "")


@pytest.fixture
def objects(request: pytest.FixtureRequest) -> Iterator[FaultyStore]:
    inner = locate(f"memory://{request.node.name}").objects()
    yield FaultyStore(inner, 1)
    for info in inner.list(""):
        inner.delete(info.key)


def state(rows: int, version: int) -> TableState:
    return TableState("t", "t-1", version, rows, version)


def commits_on(head: Head, count: int) -> tuple[Commit, ...]:
    made = []
    before = head.tables.find("t")
    for version in range(head.version + 1, head.version + 1 + count):
        home = head.branch.home_of(version - 1) if version - 1 <= head.version else head.branch.id
        after = state(version, version)
        made.append(
            Commit(
                version=version,
                id=commit_id(head.branch.id, version),
                parents=(commit_id(home, version - 1),) if version > 1 else (),
                branch=head.branch.name,
                actor="ada",
                operation_id=f"{head.branch.id} {version}",
                kind="data",
                message="",
                time=datetime.fromtimestamp(version, UTC),
                tables=(TableChange(before, after, inserted=1),),
            )
        )
        before = after
    return tuple(made)


def fill(log: Log, branch: BranchRef, *groups: int) -> Head:
    head = log.head(branch)
    for count in groups:
        head = log.append(head, commits_on(head, count))
    return head


def test_an_empty_branch_has_version_zero(objects: Objects) -> None:
    log = Log(objects)
    assert log.head(MAIN).version == 0
    assert list(log.walk(MAIN, 0)) == []
    with pytest.raises(errors.VersionNotFound):
        log.commit_at(MAIN, 1)


@pytest.mark.parametrize(
    "groups", [(1,) * 20, (3, 1, 7, 2), (GROUP_MAX, 1, GROUP_MAX, GROUP_MAX), (5,) * 40]
)
def test_every_version_is_found_whatever_records_hold_it(
    objects: Objects, groups: tuple[int, ...]
) -> None:
    total = sum(groups)
    fill(Log(objects), MAIN, *groups)
    log = Log(objects)
    assert log.head(MAIN).version == total
    assert [c.version for c in log.walk(MAIN, total)] == list(range(total, 0, -1))
    for version in range(1, total + 1):
        assert log.commit_at(MAIN, version).version == version
        assert log.tables_at(MAIN, version)["t"].rows == version
    assert [c.version for c in log.walk(MAIN, total - 1, total - 3)] == [
        version for version in range(total - 1, total - 4, -1) if version > 0
    ]
    with pytest.raises(errors.VersionNotFound):
        log.commit_at(MAIN, total + 1)


def test_a_head_is_found_by_one_list_and_one_get(objects: FaultyStore) -> None:
    log = Log(objects)
    for total in (20, 500):
        head = log.head(MAIN)
        fill(log, MAIN, *(1,) * (total - head.version))
        objects.forget()
        assert Log(objects).head(MAIN).version == total
        assert [call.operation for call in objects.calls] == ["keys", "get"]
    objects.forget()
    assert log.head(MAIN).version == 500
    assert [call.operation for call in objects.calls] == ["get"]


def test_what_one_other_published_is_found_by_three_requests(objects: FaultyStore) -> None:
    writer, reader = Log(objects), Log(objects)
    for more in (1, 2, 50):
        assert reader.head(MAIN).version == fill(writer, MAIN).version
        total = fill(writer, MAIN, *(1,) * more).version
        objects.forget()
        assert reader.head(MAIN).version == total
        assert objects.count() <= 3


def test_names_that_are_no_records_are_passed_over(objects: Objects) -> None:
    fill(Log(objects), MAIN, 1, 1)
    for name in ("zzz.json", "readme.txt", "99999.json", "99999999999999999999.txt"):
        objects.put(f"{layout.LOG}/main/{name}", b"")
    assert Log(objects).head(MAIN).version == 2


@pytest.mark.parametrize("told", [0, 1, 20, 45, 50, 51, 9999])
def test_what_others_published_is_found_whatever_they_tell_of_it(
    objects: FaultyStore, told: int
) -> None:
    writer, reader = Log(objects), Log(objects, lambda branch_id: told)
    fill(writer, MAIN, *(1,) * 20)
    assert reader.head(MAIN).version == 20
    fill(writer, MAIN, *(1,) * 30)
    objects.forget()
    assert reader.head(MAIN, told).version == 50
    if told == 50:
        assert objects.count() == 2
    assert [commit.version for commit in reader.walk(MAIN, 50)] == list(range(50, 0, -1))


def test_of_two_that_append_one_wins(objects: Objects) -> None:
    one, other = Log(objects), Log(objects)
    head = one.head(MAIN)
    one.append(head, commits_on(head, 3))
    with pytest.raises(errors.ObjectExists):
        other.append(head, commits_on(head, 1))
    assert other.head(MAIN).version == 3


def test_a_record_is_ours_when_it_holds_our_commits(objects: Objects) -> None:
    one, other = Log(objects), Log(objects)
    head = one.head(MAIN)
    ours = commits_on(head, 2)
    assert other.record_if_ours(head, ours) is None
    one.append(head, ours)
    found = other.record_if_ours(head, ours)
    assert found is not None
    assert found[0].version == 2
    assert found[1] == ours
    alone = other.record_if_ours(head, commits_on(head, 1))
    assert alone is not None
    assert (alone[0].version, alone[0].tables["t"].rows, alone[1]) == (1, 1, ours[:1])
    assert other.record_if_ours(head, commits_on(head, 3)) is None


def test_a_fork_reads_its_origin_and_then_itself(objects: Objects) -> None:
    log = Log(objects)
    fill(log, MAIN, 5, 1, 4)
    created = datetime.now(UTC)
    child = BranchRef("dev", "dev-1", 1, (("main", 3),), created, "ada")
    grandchild = BranchRef("deep", "deep-1", 1, (("main", 3), ("dev-1", 6)), created, "ada")
    for branch in (child, grandchild):
        objects.put_new(layout.branch(branch.name, 1), encode(branch))
    fill(log, child, 2, 3)
    fill(log, grandchild, 1)
    fresh = Log(objects)
    homes = [commit.id.rpartition("-")[0] for commit in fresh.walk(grandchild, 7)]
    assert homes == ["deep-1"] + ["dev-1"] * 3 + ["main"] * 3
    assert fresh.head(grandchild).version == 7
    assert fresh.head(child).version == 8
    assert fresh.tables_at(grandchild, 5)["t"].changed == 5
    assert fresh.commit_at(grandchild, 4).parents == ("main-3",)
    assert fresh.commit_at(grandchild, 7).parents == ("dev-1-6",)


def test_a_closed_branch_has_no_head_and_takes_no_more(objects: Objects) -> None:
    log, late = Log(objects), Log(objects)
    head = fill(log, MAIN, 2)
    assert late.head(MAIN).version == 2
    closing = commits_on(head, 1)[0]
    closed = Commit(
        **{
            **{name: getattr(closing, name) for name in closing.__dataclass_fields__},
            "kind": "closed",
            "tables": (),
        }
    )
    log.append(head, (closed,))
    for one in (log, late, Log(objects)):
        assert one.is_closed(MAIN)
        with pytest.raises(errors.BranchDeleted):
            one.head(MAIN)
    with pytest.raises(errors.ObjectExists):
        late.append(head, commits_on(head, 1))


def test_a_head_is_told_under_the_name_it_is_asked_for(objects: Objects) -> None:
    log = Log(objects)
    fill(Log(objects), MAIN, 3)
    tag = BranchRef("q1", "main", 0, (), datetime.now(UTC), "ada")
    assert log.head(tag).branch.name == "q1"
    assert log.head(MAIN).branch.name == "main"


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", errors.CorruptObject),
        (b"{", errors.CorruptObject),
        (b'{"format": 1}', errors.CorruptObject),
        (b"\x28\xb5\x2f\xfd nonsense", errors.CorruptObject),
        (b'{"format": 9, "what": "ever"}', errors.NewerFormat),
    ],
)
def test_a_record_that_cannot_be_trusted_is_named(
    objects: FaultyStore, data: bytes, error: type[errors.TidelockError]
) -> None:
    fill(Log(objects), MAIN, 1, 1)
    key = layout.record("main", 2)
    objects.put(key, data)
    with pytest.raises(error) as caught:
        Log(objects).head(MAIN)
    assert caught.value.key == key
    assert objects.get(key) == data


def test_large_records_are_compressed_and_read_back(objects: FaultyStore) -> None:
    many = tuple(TableState(f"table {n}", f"t-{n}", n, n, n, ("id",)) for n in range(1000))
    data = encode({"tables": many})
    assert data[:1] != b"{"
    assert len(data) < 100_000
    assert len(decode(data, dict, "key")["tables"]) == 1000
