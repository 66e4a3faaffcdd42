"""What a commit costs: against its floor, with history, with many tables, on opening."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import lance
from lance.fragment import write_fragments

import tidelock
from bench.lakes import SCHEMA, commit_row, new_lake, rows
from bench.measure import Claim, folder, in_turns, middle, seconds
from tidelock.store.objects.kinds.local import LocalObjects

TIMES = 200


def floor(path: Path, keyed: bool) -> Callable[[int], None]:
    """Two raw Lance write-and-detached-commits and one create-only put; with keys, two lookups.

    The lookups run against 10,000 indexed rows, and the rows are appended to the same base each
    time, so that the floor does not grow.
    """
    bases = []
    for name in ("a", "b"):
        base = lance.write_dataset(SCHEMA.empty_table(), path / name, enable_stable_row_ids=True)
        if keyed:
            base = lance.write_dataset(rows(0, 10_000), path / name, mode="append")
            base.create_scalar_index("id", "BTREE")
            base = lance.dataset(path / name)
        bases.append(base)
    objects = LocalObjects(str(path / "objects"))
    record = b"x" * 900

    def run(number: int) -> None:
        for base in bases:
            if keyed:
                base.scanner(
                    columns=["id"], filter=f"id = {20_000 + number}", with_row_id=True
                ).to_table()
            fragments = write_fragments(rows(number, number + 1), base)
            operation = lance.LanceOperation.Append(fragments)
            lance.LanceDataset.commit(base, operation, read_version=base.version, detached=True)
        objects.put_new(f"log/{number:020d}.json", record)

    return run


def against_floor() -> Iterator[Claim]:
    for keyed in (False, True):
        with folder(steady=True) as path:
            lake = new_lake(path / "lake", ["a", "b"], key="id" if keyed else None)
            bare = floor(path / "raw", keyed)
            for number in range(20):
                commit_row(lake, ["a", "b"], number)
            ours, bares = in_turns(
                lambda n, lake=lake: commit_row(lake, ["a", "b"], 1000 + n), bare, TIMES
            )
            lake.close()
            name = "with keys" if keyed else "without a key"
            yield Claim(
                f"one-row transaction over two tables {name}, against its floor (means)",
                statistics.mean(ours) / statistics.mean(bares),
                2.5,
                detail=f"{statistics.mean(ours) * 1e3:.2f} ms, folds included; "
                f"floor {statistics.mean(bares) * 1e3:.2f} ms; "
                f"medians {middle(ours) / middle(bares):.2f} times",
            )


def with_history() -> Iterator[Claim]:
    for keyed in (False, True):
        with folder(steady=True) as path:
            lakes = []
            for name, commits in (("short", 10), ("long", 1000)):
                lake = new_lake(path / name, ["a", "b"], key="id" if keyed else None)
                for number in range(commits):
                    commit_row(lake, ["a", "b"], number)
                lakes.append(lake)
            # 96 commits are twelve turns of folding; both lakes fold equally often in them.
            longs, shorts = in_turns(
                lambda n, lake=lakes[1]: commit_row(lake, ["a", "b"], 10_000 + n),
                lambda n, lake=lakes[0]: commit_row(lake, ["a", "b"], 10_000 + n),
                96,
            )
            for lake in lakes:
                lake.close()
            name = "with keys" if keyed else "without a key"
            yield Claim(
                f"the same {name}, at 1,000 commits of history against 10 (medians)",
                middle(longs) / middle(shorts),
                1.1,
                detail=f"{middle(longs) * 1e3:.2f} ms against {middle(shorts) * 1e3:.2f} ms; "
                f"means {statistics.mean(longs) / statistics.mean(shorts):.2f} times",
            )


def many_tables() -> Iterator[Claim]:
    with folder(steady=True) as path:
        few = new_lake(path / "few", [f"t{n}" for n in range(10)])
        many = new_lake(path / "many", [f"t{n}" for n in range(1000)])
        for lake in (few, many):
            for number in range(10):
                commit_row(lake, ["t0", "t1"], number)
        ours, bares = in_turns(
            lambda n: commit_row(many, ["t0", "t1"], 1000 + n),
            lambda n: commit_row(few, ["t0", "t1"], 1000 + n),
            TIMES,
        )
        few.close()
        many.close()
        yield Claim(
            "the same in a lake of 1,000 tables against 10 (medians)",
            middle(ours) / middle(bares),
            2.0,
            detail=f"{middle(ours) * 1e3:.2f} ms against {middle(bares) * 1e3:.2f} ms",
        )


def opening() -> Iterator[Claim]:
    with folder(steady=True) as path:
        for name, commits in (("short", 10), ("long", 10_000)):
            lake = new_lake(path / name, ["a"])
            for number in range(commits - 1):
                with lake.transaction(properties={"n": number}):
                    pass
            lake.close()

        def open_lake(name: str) -> None:
            with tidelock.open(path / name, actor="bench") as lake:
                assert lake.snapshot().version >= 10

        seconds(lambda: open_lake("long"))
        longs, shorts = in_turns(lambda _: open_lake("long"), lambda _: open_lake("short"), 100)
        yield Claim(
            "opening a lake with 10,000 commits against 10 (medians)",
            middle(longs) / middle(shorts),
            1.2,
            detail=f"{middle(longs) * 1e3:.2f} ms against {middle(shorts) * 1e3:.2f} ms",
        )


CLAIMS = [against_floor, with_history, many_tables, opening]
