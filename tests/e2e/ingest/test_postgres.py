"""A PostgreSQL database as a source, as its user meets it: real servers, from the first load on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.postgres import Server, installed

import tidelock
from tidelock import Lake
from tidelock.errors import (
    InvalidOption,
    SourceDenied,
    SourceExists,
    SourceStopped,
    SourceUnavailable,
)

VERSION = max(installed())
TABLES = """
CREATE TABLE customers (id BIGINT PRIMARY KEY, name TEXT NOT NULL, tier TEXT);
CREATE TABLE orders (
    id BIGINT PRIMARY KEY, customer BIGINT REFERENCES customers, amount NUMERIC(10,2)
);
CREATE TABLE notes (said TEXT);
ALTER TABLE notes REPLICA IDENTITY FULL;
INSERT INTO customers VALUES (1, 'Ada', 'gold'), (2, 'Grace', NULL);
INSERT INTO orders VALUES (10, 1, 9.99);
INSERT INTO notes VALUES ('same'), ('same');
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server(VERSION, {"logical_decoding_work_mem": "64kB"})
    yield server
    server.close()


@pytest.fixture
def lake(server: Server, tmp_path: Path) -> Iterator[Lake]:
    server.execute("DROP SCHEMA public CASCADE", "CREATE SCHEMA public", TABLES)
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        yield lake
        for source in lake.sources():
            lake.drop_source(source.name)


def follow(lake: Lake, server: Server, **options: Any) -> None:
    lake.create_source("shop", kind="postgres", dsn=server.dsn(), into="shop_{table}", **options)
    lake.ingest("shop")


def rows(lake: Lake, table: str) -> list[dict[str, Any]]:
    return sorted(lake.table(table).to_arrow().to_pylist(), key=repr)


def eventually(check: Callable[[], bool], seconds: float = 20.0) -> None:
    ends = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < ends, "it did not come to be so"
        time.sleep(0.05)


def test_the_first_load_shows_all_tables_at_once_and_leaves_no_branch(
    lake: Lake, server: Server
) -> None:
    follow(lake, server)
    assert [row["name"] for row in rows(lake, "shop_customers")] == ["Ada", "Grace"]
    assert lake.table("shop_notes").count() == 2
    (loaded,) = [one for one in lake.log() if "loaded" in one.properties.get("source", {})]
    assert {change.table for change in loaded.shown} == {
        "shop_customers",
        "shop_orders",
        "shop_notes",
    }
    assert [branch.name for branch in lake.branches()] == ["main"]


def test_a_transaction_over_several_tables_is_one_commit_with_its_position(
    lake: Lake, server: Server
) -> None:
    follow(lake, server)
    server.execute(
        "BEGIN; INSERT INTO customers VALUES (3, 'Edsger', NULL);"
        "INSERT INTO orders VALUES (11, 3, 5); SAVEPOINT a; DELETE FROM orders; ROLLBACK TO a;"
        "DELETE FROM notes WHERE ctid = (SELECT min(ctid) FROM notes); COMMIT"
    )
    report = lake.ingest("shop")
    assert (report.transactions, report.commits) == (1, 1)
    (commit,) = [one for one in lake.log() if one.version == report.version]
    assert {change.table: change.inserted - change.deleted for change in commit.shown} == {
        "shop_customers": 1,
        "shop_orders": 1,
        "shop_notes": -1,
    }
    told = commit.properties["source"]
    assert told["position"] == lake.source_status("shop").position
    assert told["xid"]
    assert told["time"]


def test_a_large_transaction_is_one_commit_and_goes_to_storage_on_the_way(
    lake: Lake, server: Server
) -> None:
    follow(lake, server, fragment_bytes=200_000)
    server.execute(
        "INSERT INTO orders SELECT i, 1, i FROM generate_series(100, 20099) i",
        "BEGIN; UPDATE orders SET amount = amount + 1; DELETE FROM orders WHERE id % 2 = 0; COMMIT",
        "BEGIN; INSERT INTO orders SELECT i, 1, i FROM generate_series(50000, 70000) i; ROLLBACK",
    )
    report = lake.ingest("shop")
    assert report.commits == 2
    found = rows(lake, "shop_orders")
    assert len(found) == 10_000
    assert sum(row["amount"] for row in found) == sum(i + 1 for i in range(101, 20100, 2))


def test_many_small_transactions_that_wait_share_commits_and_few_do_not(
    lake: Lake, server: Server
) -> None:
    follow(lake, server)
    with server.connect() as connection:
        for number in range(5):
            connection.execute("INSERT INTO notes VALUES (%s)", (str(number),))
    assert (lake.ingest("shop")).commits == 5
    with server.connect() as connection:
        for number in range(300):
            connection.execute("INSERT INTO orders VALUES (%s, 1, 1)", (1000 + number,))
    report = lake.ingest("shop")
    assert report.transactions == 300
    assert report.commits < 150
    assert lake.table("shop_orders").count() == 301


def test_a_column_that_is_added_comes_with_the_first_row_that_has_it(
    lake: Lake, server: Server
) -> None:
    follow(lake, server)
    server.execute("ALTER TABLE customers ADD COLUMN age INT DEFAULT 7")
    assert lake.ingest("shop").commits == 0
    server.execute("INSERT INTO customers VALUES (3, 'Edsger', NULL, 72)")
    report = lake.ingest("shop")
    assert report.commits == 1
    assert [row["age"] for row in rows(lake, "shop_customers")] == [None, None, 72]
    server.execute("ALTER TABLE customers DROP COLUMN tier", "UPDATE customers SET age = 1")
    lake.ingest("shop")
    assert {(row["tier"], row["age"]) for row in rows(lake, "shop_customers")} == {(None, 1)}


@pytest.mark.parametrize("fragment_bytes", [1 << 25, 4], ids=["in memory", "in storage"])
def test_a_column_may_come_between_deletions_of_a_table_without_a_key(
    lake: Lake, server: Server, fragment_bytes: int
) -> None:
    follow(lake, server, fragment_bytes=fragment_bytes)
    server.execute(
        "BEGIN; INSERT INTO notes SELECT 'many' FROM generate_series(1, 3000);"
        "DELETE FROM notes WHERE ctid = (SELECT min(ctid) FROM notes WHERE said = 'same');"
        "DELETE FROM notes WHERE said = 'many'; ALTER TABLE notes ADD COLUMN n INT;"
        "INSERT INTO notes VALUES ('new', 1), ('new', 1), ('new', 2);"
        "DELETE FROM notes WHERE n = 2;"
        "DELETE FROM notes WHERE ctid = (SELECT min(ctid) FROM notes WHERE said = 'new'); COMMIT"
    )
    assert lake.ingest("shop").commits == 1
    assert rows(lake, "shop_notes") == [{"said": "new", "n": 1}, {"said": "same", "n": None}]


def test_a_table_that_cannot_be_followed_stands_still_and_the_others_go_on(
    lake: Lake, server: Server
) -> None:
    follow(lake, server)
    server.execute(
        "ALTER TABLE customers ALTER COLUMN tier TYPE BYTEA USING tier::bytea",
        "INSERT INTO customers VALUES (3, 'Edsger', NULL)",
        "INSERT INTO notes VALUES ('goes on')",
    )
    lake.ingest("shop")
    assert lake.table("shop_customers").count() == 2
    assert lake.table("shop_notes").count() == 3
    server.execute("INSERT INTO notes VALUES ('and on')")
    lake.ingest("shop")
    standing = {one.table: one for one in lake.source_status("shop").tables}
    assert standing["shop_customers"].state == "suspended"
    assert "'tier'" in standing["shop_customers"].reason
    assert standing["shop_notes"].state == "streaming"


def test_what_a_lake_cannot_hold_keeps_its_text_beside(lake: Lake, server: Server) -> None:
    server.execute("CREATE TABLE odd (id INT PRIMARY KEY, n NUMERIC, d DATE)")
    follow(lake, server, tables=["public.odd"])
    server.execute("INSERT INTO odd VALUES (1, 'NaN', 'infinity'), (2, 1.50, '2024-02-29')")
    lake.ingest("shop")
    first, second = rows(lake, "shop_odd")
    assert (first["n"], first["d"]) == (None, None)
    assert str(second["n"]) == "1.500000000000000000"
    kept = lake._store.files.read(lake.snapshot().states()["shop_odd"]).to_table()
    texts = dict(zip(kept["id"].to_pylist(), kept["__tidelock_texts"].to_pylist(), strict=True))
    assert dict(texts[1]) == {"n": "NaN", "d": "infinity"}
    assert lake.sql("SELECT * FROM shop_odd").columns == ["id", "n", "d"]


def test_a_live_source_follows_within_moments_and_ends_when_asked(
    lake: Lake, server: Server
) -> None:
    follow(lake, server)
    stop = threading.Event()
    thread = threading.Thread(target=lambda: lake.serve_schedule(stop=stop))
    thread.start()
    try:
        eventually(lambda: lake.source_status("shop").state == "streaming")
        server.execute("INSERT INTO notes VALUES ('live')")
        eventually(lambda: lake.table("shop_notes").count() == 3)
        server.restart()
        server.execute("INSERT INTO notes VALUES ('after a restart')")
        eventually(lambda: lake.table("shop_notes").count() == 4, 30)
    finally:
        stop.set()
        thread.join(20)
    assert not thread.is_alive()


def test_a_log_in_which_nothing_is_ours_is_not_held_back(lake: Lake, server: Server) -> None:
    follow(lake, server, tables=["public.orders"])
    before = server.rows("SELECT confirmed_flush_lsn FROM pg_replication_slots")
    server.execute(
        "CREATE TABLE other (v TEXT)",
        "INSERT INTO other SELECT repeat('x', 1000) FROM generate_series(1, 2000)",
    )
    report = lake.ingest("shop")
    assert report.rows == 0
    assert server.rows("SELECT confirmed_flush_lsn FROM pg_replication_slots") > before


def test_a_slot_that_is_gone_stops_the_source_and_says_what_to_do(
    lake: Lake, server: Server
) -> None:
    follow(lake, server)
    (slot,) = server.rows("SELECT slot_name FROM pg_replication_slots")
    server.execute(f"SELECT pg_drop_replication_slot('{slot[0]}')")
    with pytest.raises(SourceStopped, match=r"replication slot .* is gone.*Drop the source"):
        lake.ingest("shop")
    status = lake.source_status("shop")
    assert status.state == "stopped"
    assert "is gone" in status.reason


def test_a_slot_that_somebody_else_has_read_stops_the_source(lake: Lake, server: Server) -> None:
    follow(lake, server)
    server.execute("INSERT INTO notes VALUES ('lost')")
    (slot,) = server.rows("SELECT slot_name FROM pg_replication_slots")
    server.execute(
        f"SELECT pg_replication_slot_advance('{slot[0]}', pg_current_wal_lsn())",
    )
    with pytest.raises(SourceStopped, match="somebody else read it"):
        lake.ingest("shop")


def test_passwords_are_kept_nowhere_and_shown_nowhere(
    lake: Lake, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn = server.dsn().replace("postgres@", "postgres:hunter2@")
    with pytest.raises(InvalidOption, match="password") as caught:
        lake.create_source("shop", kind="postgres", dsn=dsn)
    assert "hunter2" not in str(caught.value)
    monkeypatch.setenv("SHOP_DSN", dsn)
    lake.create_source("shop", kind="postgres", dsn="env:SHOP_DSN")
    lake.ingest("shop")
    assert "hunter2" not in repr(lake.source_status("shop"))
    assert "hunter2" not in str(lake.source_status("shop").options)
    with pytest.raises(SourceExists):
        lake.create_source("shop", kind="postgres", dsn="env:SHOP_DSN")
    lake.drop_source("shop")


@pytest.mark.parametrize(
    ("dsn", "error"),
    [
        ("postgresql://postgres@127.0.0.1:1/postgres", SourceUnavailable),
        ("postgresql://nobody_there@{where}/postgres", SourceDenied),
        ("postgresql://postgres@{where}/no_such_database", SourceDenied),
    ],
)
def test_a_database_that_cannot_be_reached_is_said_at_once(
    lake: Lake, server: Server, dsn: str, error: type[Exception]
) -> None:
    where = f"127.0.0.1:{server.port}"
    with pytest.raises(error):
        lake.create_source("shop", kind="postgres", dsn=dsn.format(where=where))
    assert not lake.sources()


def test_a_role_without_the_right_to_replicate_is_told_what_it_needs(
    lake: Lake, server: Server
) -> None:
    server.execute("DROP ROLE IF EXISTS reader", "CREATE ROLE reader LOGIN")
    server.execute(
        "GRANT ALL ON SCHEMA public TO reader",
        "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader",
    )
    lake.create_source("shop", kind="postgres", dsn=server.dsn(user="reader"))
    with pytest.raises(SourceDenied, match="REPLICATION"):
        lake.ingest("shop")
    server.execute("DROP OWNED BY reader", "ALTER ROLE reader SUPERUSER")
    lake.drop_source("shop")
    server.execute("DROP ROLE reader")


def test_a_dropped_source_leaves_nothing_in_the_database_and_its_tables_in_the_lake(
    lake: Lake, server: Server
) -> None:
    follow(lake, server)
    lake.drop_source("shop")
    assert server.rows("SELECT 1 FROM pg_replication_slots") == []
    assert server.rows("SELECT 1 FROM pg_publication") == []
    assert lake.table("shop_orders").count() == 1
    with pytest.raises(SourceStopped, match="shop_orders has some"):
        follow(lake, server, tables=["public.orders"])
    lake.run(lambda tx: tx.delete("shop_orders", "true"))
    assert lake.ingest("shop").action == "idle"
    assert [row["id"] for row in rows(lake, "shop_orders")] == [10]
