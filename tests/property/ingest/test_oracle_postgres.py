"""Oracle: a lake that follows a PostgreSQL database equals it, at each of its commits.

Several connections work at random, with savepoints, rollbacks, key changes, truncations and values
that updates do not send; large transactions are streamed while they are open. The process that
reads is killed at every step.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import lakes
from tests.support.lakes import fault_seconds, seed_of
from tests.support.pg_work import SCHEMA, Work, check_lake
from tests.support.postgres import Server, installed

import tidelock

VERSIONS = sorted(installed())
INTO = "pg_{table}"
FAILPOINTS = [
    "ingest.before_publish",
    "ingest.after_fragment",
    "ingest.after_publish",
    "ingest.after_acknowledge",
    "publish.before_put",
    "intent.after_seal",
    "stage.after_table",
    "load.after_piece",
    "load.after_commit",
    "load.after_adoption",
]


@pytest.fixture(scope="module", params=VERSIONS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    # Every row is streamed by itself where the server can be told so, and else a few hundred.
    settings = {"logical_decoding_work_mem": "64kB"}
    if request.param >= 16:
        settings["debug_logical_replication_streaming"] = "immediate"
    server = Server(request.param, settings)
    yield server
    server.close()


def ingest(uri: str, name: str) -> None:
    with tidelock.open(uri) as lake:
        lake.ingest(name)


def create(uri: str, server: Server, name: str, fragment_bytes: int) -> None:
    with tidelock.open(uri, create=True) as lake:
        lake.create_source(
            name,
            kind="postgres",
            dsn=server.dsn(),
            into=INTO,
            tables=["public.keyed", "public.pairs", "public.whole", "public.bag"],
            fragment_bytes=fragment_bytes,
        )


def begin(server: Server, chance: random.Random) -> Work:
    server.execute("DROP SCHEMA public CASCADE", "CREATE SCHEMA public", SCHEMA)
    return Work(server, chance)


def walk(server: Server, uri: str, chance: random.Random, name: str, *, kills: bool) -> int:
    work = begin(server, chance)
    work.steps(chance.randrange(60))
    work.finish()
    create(uri, server, name, chance.choice([100, 2_000, 100_000, 32 << 20]))
    loaded = False
    try:
        for _ in range(chance.randrange(2, 5)):
            work.steps(chance.randrange(5, 120), ddl=True)
            if chance.random() < 0.5 or not loaded:
                # A slot is made when what was writing has ended.
                work.finish()
            if kills:
                armed = f"{chance.choice(FAILPOINTS)}=kill@{chance.randrange(1, 6)}"
                lakes.run(ingest, uri, name, failpoints=armed, lease_seconds=0.5)
            elif chance.random() < 0.7:
                ingest(uri, name)
                loaded = True
        work.finish()
        ingest(uri, name)
        with tidelock.open(uri) as lake:
            compared = check_lake(lake, work, INTO)
            assert ingest_nothing(lake, name)
            lake.drop_source(name)
        assert server.rows("SELECT slot_name FROM pg_replication_slots") == []
        return compared
    finally:
        work.close()


def ingest_nothing(lake: Any, name: str) -> bool:
    return bool(lake.ingest(name).action == "idle")


@pytest.mark.timeout(0)
def test_a_lake_equals_the_database_at_each_of_its_commits(server: Server, tmp_path: Path) -> None:
    with seed_of() as seed:
        ends = time.monotonic() + fault_seconds(8)
        done = compared = 0
        while done < 2 or time.monotonic() < ends:
            chance = random.Random(seed + done)
            compared += walk(server, f"{tmp_path}/{done}", chance, f"s{done}", kills=False)
            done += 1
        assert compared > done


@pytest.mark.timeout(0)
def test_a_reader_killed_at_any_step_loses_and_doubles_nothing(
    server: Server, tmp_path: Path
) -> None:
    with seed_of() as seed:
        ends = time.monotonic() + fault_seconds(12)
        done = 0
        while done < 2 or time.monotonic() < ends:
            chance = random.Random(seed + done)
            walk(server, f"{tmp_path}/{done}", chance, f"k{done}", kills=True)
            done += 1
