"""TPC-H at scale 1: each query as a stream table kept by delta, against the same computed anew.

Every query has two stream tables, one for each way, so that both see the same changes. A change is
one commit of deletes, updates and inserts, of a thousandth of the orders and their lines in all.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.tpch.cycles import QUERIES, change, generate, load

import tidelock
from bench.measure import Claim, folder, middle, seconds

SCALE = 1
CHANGED = ("orders", "lineitem")
SHARE = 0.0002
"""Of the rows of a table that are deleted, updated and inserted each; with an order's line go its
other lines, four on average, so that this makes 0.1% of the rows."""
ROUNDS = 2
SLOWER_MAX = 1.15
MASTER = "local[2]"


@dataclass(frozen=True)
class Pair:
    """The seconds of one query's refreshes, both ways, and what the first way did."""

    query: str
    kept: float
    full: float
    actions: tuple[str, ...]

    @property
    def ratio(self) -> float:
        return self.full / self.kept


class Tpch:
    """A lake with TPC-H in it, and its queries in pairs of stream tables."""

    def __init__(self, lake: tidelock.Lake) -> None:
        self.lake = lake
        self.cycle = 0
        self.chance = random.Random(7)
        for query, text in QUERIES.items():
            lake.create_stream_table(query, text, schedule=None, refresh_mode="incremental")
            lake.create_stream_table(_anew(query), text, schedule=None, refresh_mode="full")
        took = seconds(lambda: self.refresh([*QUERIES, *map(_anew, QUERIES)]))
        _say(f"{len(QUERIES)} queries in pairs, filled in {took:.0f} s")
        reads = {stream.name: set(stream.inputs) for stream in lake.stream_tables()}
        touched = [query for query in QUERIES if reads[query] & set(CHANGED)]
        self.incremental = [query for query in touched if lake.explain(query).incremental]

    def refresh(self, names: Sequence[str]) -> list[str]:
        attempts = self.lake.refresh(names, parallel=False)
        failed = [attempt for attempt in attempts if attempt.action == "failed"]
        assert not failed, failed
        return [attempt.action for attempt in attempts]

    def change(self) -> None:
        self.cycle += 1
        change(self.lake, self.chance, self.cycle, CHANGED, SHARE)

    def measure(self, rounds: int) -> list[Pair]:
        """Each query both ways, after every one of so many changes."""
        kept: dict[str, list[float]] = {query: [] for query in self.incremental}
        full: dict[str, list[float]] = {query: [] for query in self.incremental}
        actions: dict[str, list[str]] = {query: [] for query in self.incremental}
        for _ in range(rounds):
            self.change()
            for query in self.incremental:
                kept[query].append(seconds(lambda q=query: actions[q].extend(self.refresh([q]))))
                full[query].append(seconds(lambda q=query: self.refresh([_anew(q)])))
        return [
            Pair(query, middle(kept[query]), middle(full[query]), tuple(actions[query]))
            for query in self.incremental
        ]


def _anew(query: str) -> str:
    return f"{query}_full"


def by_delta_against_anew() -> Iterator[Claim]:
    with folder() as path:
        generate(path / "files", SCALE)
        with tidelock.open(path / "lake", create=True, master=MASTER) as lake:
            load(lake, path / "files")
            lake.optimize()
            tpch = Tpch(lake)
            tpch.measure(1)
            pairs = tpch.measure(ROUNDS)
            _tell("by delta", pairs)
            mean = math.exp(sum(math.log(pair.ratio) for pair in pairs) / len(pairs))
            yield Claim(
                f"TPC-H at scale {SCALE}, 0.1% of orders and lines changed: full against delta",
                mean,
                3,
                at_least=True,
                detail=f"geometric mean over {len(pairs)} of {len(QUERIES)} queries; "
                f"{sum(p.full for p in pairs):.0f} s against {sum(p.kept for p in pairs):.0f} s",
            )
            for query in tpch.incremental:
                lake.alter_stream_table(query, refresh_mode="auto")
            tpch.measure(1)
            pairs = tpch.measure(ROUNDS)
            _tell("auto", pairs)
            slower = [pair.query for pair in pairs if pair.kept > SLOWER_MAX * pair.full]
            yield Claim(
                "queries of it that are more than 15% slower in auto than in full",
                len(slower),
                0,
                detail=", ".join(slower) or "none",
            )


def _tell(way: str, pairs: Sequence[Pair]) -> None:
    _say(f"query  {way:>9}      full     ratio")
    for pair in pairs:
        chosen = ", ".join(dict.fromkeys(pair.actions))
        _say(f"{pair.query:5}  {pair.kept:7.2f} s {pair.full:7.2f} s  {pair.ratio:7.2f}  {chosen}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


CLAIMS = [by_delta_against_anew]
