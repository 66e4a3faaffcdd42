"""Units of one level may be refreshed at once: what comes of it is what came one by one."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tests.support.histories import check_groups, walk
from tests.support.lakes import seed_of
from tests.support.streams import check, multiset

import tidelock
from tidelock import Lake

# Two diamonds and two single tables on the first level, a diamond and a table over what they give,
# and one that fails when its source holds a zero. Modes are fixed: `auto` goes by measured time.
STREAMS = {
    "l1": ("SELECT id, v + 1 AS v FROM a", "incremental"),
    "r1": ("SELECT v, COUNT(*) AS n FROM a GROUP BY v", "incremental"),
    "t1": ("SELECT l1.id, r1.n FROM l1 LEFT JOIN r1 ON l1.v = r1.v", "incremental"),
    "l2": ("SELECT id, v FROM o WHERE v > 2", "full"),
    "r2": ("SELECT DISTINCT v FROM o", "incremental"),
    "t2": ("SELECT r2.v, COUNT(id) AS n FROM r2 LEFT JOIN l2 ON r2.v = l2.v GROUP BY r2.v", "full"),
    "alone": ("SELECT COUNT(*) AS n, SUM(v) AS v FROM a", "incremental"),
    "fails": ("SELECT id, 100 / v AS part FROM o", "incremental"),
    "l3": ("SELECT id, n FROM t1 WHERE n > 1", "incremental"),
    "r3": ("SELECT n, COUNT(*) AS times FROM t1 GROUP BY n", "incremental"),
    "t3": ("SELECT l3.id, r3.times FROM l3 JOIN r3 ON l3.n = r3.n", "incremental"),
    "both": ("SELECT t1.id, t2.n FROM t1 JOIN t2 ON t1.n = t2.v", "incremental"),
}
ROUNDS = 5


def live(uri: Path, seed: int, parallel: bool) -> dict[str, Any]:
    """The same life of a lake, refreshed in one way or the other; all that can be compared."""
    chance = random.Random(seed)
    reports: list[Any] = []
    with tidelock.open(uri, create=True, engine="sail") as lake:
        for table in ("a", "o"):
            lake.create_table(table, "id INT NOT NULL, v BIGINT", key="id")
        for name, (query, mode) in STREAMS.items():
            lake.create_stream_table(name, query, refresh_mode=mode)  # type: ignore[arg-type]
        for number in range(ROUNDS):
            change(lake, chance, zero=number == 3)
            report = lake.refresh(parallel=parallel)
            reports.append([(one.table, one.action, one.epoch) for one in report])
            if number == 3:
                lake.run(lambda tx: tx.delete("o", where="v = 0"))
                lake.resume("fails")
        check(lake)
        return {
            "reports": reports,
            "epochs": check_groups(lake),
            "history": {name: history(lake, name) for name in STREAMS},
            "states": states(lake),
            "commits": commits(lake),
        }


def change(lake: Lake, chance: random.Random, zero: bool) -> None:
    with lake.transaction("change") as tx:
        for table in ("a", "o"):
            ids = chance.sample(range(12), 4)
            tx.upsert(table, [{"id": one, "v": chance.randint(1, 4)} for one in ids])
            tx.delete(table, where=f"id = {chance.randrange(12)}")
        if zero:
            tx.upsert("o", [{"id": 99, "v": 0}])


def history(lake: Lake, name: str) -> list[tuple[Any, ...]]:
    """Apart from when, how long, and in which order commits of one level came."""
    return [
        (
            one.action,
            one.reason,
            one.rows_in,
            one.rows_out,
            one.epoch,
            one.condition,
        )
        for one in lake.history(name, limit=None)
    ]


def states(lake: Lake) -> dict[tuple[str, int], tuple[Any, ...]]:
    """By table and epoch: its rows, and those of all that it was computed from."""
    found = walk(lake)
    shown = {}
    for here in found.heads.values():
        for name, (changed, state) in here.items():
            if state is not None and state.epoch:
                read = [(one.table, one.changed) for one in state.frontier]
                rows = [found.rows[one] for one in ((name, changed), *read)]
                told = tuple(multiset([dict(enumerate(row)) for row in one]) for one in rows)
                assert shown.setdefault((name, state.epoch), told) == told
    return shown


def commits(lake: Lake) -> dict[tuple[str, ...], int]:
    """How often which tables were published together."""
    found: dict[tuple[str, ...], int] = {}
    for commit in lake.log(limit=None):
        tables = tuple(sorted(told["table"] for told in commit.properties.get("refresh", ())))
        found[tables] = found.get(tables, 0) + bool(tables)
    return found


def test_refreshing_in_parallel_gives_the_results_and_the_history_of_refreshing_in_turn(
    tmp_path: Path,
) -> None:
    with seed_of() as seed:
        in_turn = live(tmp_path / "in turn", seed, parallel=False)
        at_once = live(tmp_path / "at once", seed, parallel=True)
        for what, found in in_turn.items():
            assert at_once[what] == found, what
        assert ("failed", 3) in {(action, epoch) for _, action, epoch in in_turn["reports"][3]}
        assert in_turn["epochs"] == dict.fromkeys(("t1", "t2", "t3"), ROUNDS)
