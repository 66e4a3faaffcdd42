"""What commits cost where every request takes 30 ms, as those to a remote store do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.counted_s3 import CountedServer, counted_server

import tidelock
from bench.lakes import DDL, commit_row
from bench.measure import Claim, in_turns, middle, seconds

DELAY_SECONDS = 0.03
TABLES = [f"t{number}" for number in range(50)]


@contextmanager
def far_lake() -> Iterator[tuple[CountedServer, tidelock.Lake]]:
    """A lake of 50 tables on a server that takes a while for every answer."""
    with counted_server() as server:
        server.create_bucket("bench")
        uri, options = "s3://bench/lake", server.storage_options
        with tidelock.open(uri, create=True, actor="bench", storage_options=options) as lake:
            with lake.transaction("create") as tx:
                for name in TABLES:
                    tx.create_table(name, DDL)
            commit_row(lake, TABLES, 0)
            server.delay(DELAY_SECONDS)
            yield server, lake
            server.delay(0)


def many_tables() -> Iterator[Claim]:
    with far_lake() as (_, lake):
        for number in range(2):
            commit_row(lake, TABLES, 1 + number)
        many, one = in_turns(
            lambda n: commit_row(lake, TABLES, 100 + n), lambda n: commit_row(lake, ["t0"], n), 12
        )
        yield Claim(
            "one-row transaction over 50 tables against one, at 30 ms per request (medians)",
            middle(many) / middle(one),
            1.6,
            detail=f"{middle(many) * 1e3:.0f} ms against {middle(one) * 1e3:.0f} ms",
        )


def folds() -> Iterator[Claim]:
    with far_lake() as (_, lake):
        times = [seconds(lambda n=n: commit_row(lake, ["t0"], n)) for n in range(64)]
        folded = [took for number, took in enumerate(times) if number % 8 == 6]
        yield Claim(
            "a commit that leaves a fold to be done against all others, at 30 ms (medians)",
            middle(folded) / middle(times),
            1.2,
            detail=f"{middle(folded) * 1e3:.0f} ms against {middle(times) * 1e3:.0f} ms",
        )


def beside_folds() -> Iterator[Claim]:
    with far_lake() as (_, lake):
        quiet = [seconds(lambda n=n: commit_row(lake, ["t0"], n)) for n in range(6)]
        for number in range(7):
            # The last fills a tier of every table but t0.
            commit_row(lake, TABLES[1:], 100 + number)
        beside = [seconds(lambda n=n: commit_row(lake, ["t0"], n)) for n in range(6)]
        yield Claim(
            "a commit while 49 other tables are folded against one while nothing is, at 30 ms",
            max(beside) / middle(quiet),
            3.0,
            detail=f"{max(beside) * 1e3:.0f} ms at most against {middle(quiet) * 1e3:.0f} ms",
        )


CLAIMS = [many_tables, folds, beside_folds]
