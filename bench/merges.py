"""What merges of branches cost: by pin, by rows, in large tables and after many commits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import tidelock
from bench.lakes import DDL, equal_rows, filled_lake, new_lake
from bench.measure import Claim, folder, in_turns, middle

ROUNDS = 9
ADOPTIONS = 61


def adoptions() -> Iterator[Claim]:
    """A branch with a million changed rows: fast-forward, and adoption beside other changes. It is
    merged into many branches, since each time takes less than a millisecond."""
    with folder(steady=True) as path:
        lake = filled_lake(path / "lake", 1_000_000)
        lake.create_table("other", DDL)
        lake.create_branch("source")
        with lake.transaction(branch="source") as tx:
            tx.upsert("a", equal_rows(range(1_000_000), 2.5))
        for told in ("fast-forward", "adoption"):
            for number in range(ADOPTIONS):
                for name in (f"{told} {number}", f"beside {told} {number}"):
                    lake.create_branch(name)
                    if told == "adoption":
                        with lake.transaction(branch=name) as tx:
                            tx.append("other", equal_rows([1], 1.0))
        assert lake._store.chores.finish(120)

        for told in ("fast-forward", "adoption"):

            def empty(number: int, told: str = told) -> None:
                branch = f"beside {told} {number}"
                with lake.transaction(branch=branch, properties={"empty": number}):
                    pass

            merges, empties = in_turns(
                lambda n, told=told: _merged(lake, "source", f"{told} {n}"), empty, ADOPTIONS
            )
            yield Claim(
                f"{told} of a branch with 1 million changed rows against an empty commit (medians)",
                middle(merges) / middle(empties),
                3.0,
                detail=f"{middle(merges) * 1e3:.2f} ms against {middle(empties) * 1e3:.2f} ms",
            )
        lake.close()


def _merged(lake: tidelock.Lake, source: str, target: str) -> None:
    assert lake.merge(source, into=target).table("a").action == "adopted"


def three_way() -> Iterator[Claim]:
    """A thousand rows changed on each side, in 10 million and in 1 million."""
    with folder(steady=True) as path:
        lakes = {count: filled_lake(path / str(count), count) for count in (1_000_000, 10_000_000)}
        for count, lake in lakes.items():
            for number in range(ROUNDS + 1):
                _diverge(lake, number, count, 1_000)

        def merge(count: int, number: int) -> None:
            done = lakes[count].merge(f"s{number}", into=f"t{number}")
            assert done.table("a").updated == 1_000

        for count in lakes:
            merge(count, ROUNDS)
        longs, shorts = in_turns(
            lambda n: merge(10_000_000, n), lambda n: merge(1_000_000, n), ROUNDS
        )
        yield Claim(
            "merge with 1,000 changed rows on each side at 10 million rows against 1 million "
            "(medians)",
            middle(longs) / middle(shorts),
            1.3,
            detail=f"{middle(longs) * 1e3:.0f} ms against {middle(shorts) * 1e3:.0f} ms",
        )
        for lake in lakes.values():
            lake.close()


def _diverge(lake: tidelock.Lake, number: int, rows: int, changed: int) -> None:
    """Two branches that each changed other rows, together in one part of the table."""
    random = np.random.default_rng(number)
    begin = int(random.integers(0, rows - 4 * changed))
    for side, shift, value in (("s", 0, 2.5), ("t", 2 * changed, 3.5)):
        lake.create_branch(f"{side}{number}")
        with lake.transaction(branch=f"{side}{number}") as tx:
            ids = np.sort(begin + shift + random.permutation(2 * changed)[:changed])
            tx.upsert("a", equal_rows(ids, value))


def against_upsert() -> Iterator[Claim]:
    """Many rows on each side, against Lance's own upsert of the same rows."""
    count, changed, rounds = 1_000_000, 100_000, 5
    with folder(steady=True) as path:
        lake = filled_lake(path / "lake", count)
        random = np.random.default_rng(5)
        for number in range(rounds + 1):
            chosen = random.permutation(count)[: 2 * changed]
            for side, ids in (("s", chosen[:changed]), ("t", chosen[changed:])):
                lake.create_branch(f"{side}{number}")
                with lake.transaction(branch=f"{side}{number}") as tx:
                    tx.upsert("a", equal_rows(np.sort(ids), 2.5))
        source = lake.table("a", branch="s0")
        upserted = source.to_arrow(filter="v = 2.5")
        target = lake.table("a", branch="t0").dataset
        lake.merge(f"s{rounds}", into=f"t{rounds}")

        def merge(number: int) -> None:
            done = lake.merge(f"s{number}", into=f"t{number}")
            assert done.table("a").updated == changed

        def upsert(number: int) -> None:
            job = target.merge_insert("id").when_matched_update_all()
            job.when_not_matched_insert_all().execute_uncommitted(upserted)

        merges, upserts = in_turns(merge, upsert, rounds)
        yield Claim(
            "merge with 100,000 changed rows on each side against Lance's upsert of as many "
            "(medians)",
            middle(merges) / middle(upserts),
            4.0,
            detail=f"{middle(merges) * 1e3:.0f} ms against {middle(upserts) * 1e3:.0f} ms",
        )
        lake.close()


def after_commits() -> Iterator[Claim]:
    """The same merge with 1,000 commits since the base, and with 10."""
    with folder(steady=True) as path:
        lakes = {}
        for commits in (10, 1_000):
            lake = lakes[commits] = new_lake(path / str(commits), ["a", "b"], key="id")
            with lake.transaction() as tx:
                tx.append("a", equal_rows(range(10_000), 1.5))
                tx.append("b", equal_rows(range(10_000), 1.5))
            for number in range(ROUNDS + 1):
                lake.create_branch(f"s{number}")
            for number in range(commits // 2):
                for name in ("main", "s0"):
                    with lake.transaction(branch=name) as tx:
                        tx.upsert("a" if number % 2 else "b", equal_rows([number % 5_000], 2.5))
            for number in range(1, ROUNDS + 1):
                with lake.transaction(branch=f"s{number}") as tx:
                    tx.upsert("a", equal_rows(range(9_000, 9_100), 4.5))
            for number in range(ROUNDS + 1):
                lake.create_branch(f"t{number}")

        def merge(commits: int, number: int) -> None:
            done = lakes[commits].merge(f"s{number}", into=f"t{number}", on_conflict="target")
            assert done.outcome == "merged"

        for commits in lakes:
            merge(commits, 0)
        longs, shorts = in_turns(lambda n: merge(1_000, n + 1), lambda n: merge(10, n + 1), ROUNDS)
        yield Claim(
            "merge at 1,000 commits since the base against 10 (medians)",
            middle(longs) / middle(shorts),
            1.5,
            detail=f"{middle(longs) * 1e3:.1f} ms against {middle(shorts) * 1e3:.1f} ms",
        )
        for lake in lakes.values():
            lake.close()


CLAIMS = [adoptions, three_way, against_upsert, after_commits]
