"""A small shop, end to end: commits, rules, a query, views, a branch, a crash, deliveries.

Run it with `make demo`. Everything it prints was read back from the lake, which stays where the
last lines say, until the demo is run again or `make clean`.
"""

from __future__ import annotations

import datetime as dt
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.table import Table

import tidelock
from tidelock.errors import CommitConflict, JavaMissing, MergeConflict, RuleBroken, TidelockError

console = Console(width=min(Console().width, 80), highlight=False)
FOLDER = Path(__file__).resolve().parents[1] / "build" / "demo"
LEASE_SECONDS = "2"


def title(number: int, text: str) -> None:
    console.print(f"\n[bold cyan]{number}. {text}[/]")


def show(rows: pa.Table, caption: str) -> None:
    table = Table(title=caption, title_justify="left", title_style="dim")
    for name in rows.column_names:
        table.add_column(name)
    for row in rows.to_pylist():
        table.add_row(*[str(value) for value in row.values()])
    console.print(table)


def show_log(lake: tidelock.Lake, limit: int) -> None:
    table = Table(title="lake.log()", title_justify="left", title_style="dim")
    for name in ("version", "actor", "message", "tables"):
        table.add_column(name)
    for commit in lake.log(limit=limit):
        counts = [f"{c.table} +{c.inserted} ~{c.updated} -{c.deleted}" for c in commit.shown]
        # Why a table was suspended may be long; commit.message has all of it.
        message = textwrap.shorten(commit.message, 60, placeholder=" …")
        table.add_row(str(commit.version), commit.actor, message, ", ".join(counts))
    console.print(table)


def show_refresh(lake: tidelock.Lake) -> None:
    table = Table(title="lake.refresh()", title_justify="left", title_style="dim")
    for name in ("table", "action", "rows in", "rows out", "epoch", "commit"):
        table.add_column(name)
    attempts = lake.refresh()
    for a in attempts:
        cells = (a.table, a.action, a.rows_in, a.rows_out, a.epoch, a.commit or "")
        table.add_row(*map(str, cells))
    console.print(table)
    for a in attempts:
        if a.action in ("failed", "skipped"):
            # Long reasons are shortened here; lake.history(name) has all of them.
            told = textwrap.shorten(f"{a.table}: {a.reason}", 78, placeholder=" …")
            console.print(told, style="yellow", markup=False)


def load(lake: tidelock.Lake) -> None:
    title(1, "Two tables, one commit")
    lake.create_table("customers", "id BIGINT NOT NULL, name STRING, region STRING", key=["id"])
    lake.create_table(
        "orders",
        "id BIGINT NOT NULL, customer_id BIGINT, amount DECIMAL(12,2), at TIMESTAMP",
        key=["id"],
    )
    moment = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
    with lake.transaction(message="first load") as tx:
        tx.append(
            "customers",
            [
                {"id": 1, "name": "Ada", "region": "north"},
                {"id": 2, "name": "Grace", "region": "south"},
                {"id": 3, "name": "Edsger", "region": "north"},
            ],
        )
        tx.append(
            "orders",
            [
                {
                    "id": n,
                    "customer_id": 1 + n % 3,
                    "amount": Decimal(n * 10) + Decimal("0.50"),
                    "at": moment + dt.timedelta(hours=n),
                }
                for n in range(1, 10)
            ],
        )
    console.print(tx.commit)


def change(lake: tidelock.Lake) -> None:
    title(2, "Any mix of changes over both tables, still one commit")
    with lake.transaction(message="spring prices") as tx:
        tx.update("orders", {"amount": "amount * 1.1"}, where="customer_id = 1")
        tx.delete("orders", where="amount < 15")
        tx.upsert("customers", [{"id": 3, "name": "Edsger W.", "region": "west"}])
        console.print("the transaction sees its own writes:", tx.table("orders").count(), "orders")
    show(lake.changes("customers", since=3).read_all(), 'lake.changes("customers", since=3)')


def conflict(lake: tidelock.Lake) -> None:
    title(3, "Two writers on one table: the second is told, nothing is lost")
    first, second = lake.transaction("mine"), lake.transaction("yours")
    first.update("orders", {"amount": "amount + 1"}, where="id = 5")
    second.update("orders", {"amount": "amount + 2"}, where="id = 5")
    first.publish()
    try:
        second.publish()
    except CommitConflict as error:
        console.print(f"[yellow]{error.condition}[/]: {error}")
    lake.run(lambda tx: tx.update("orders", {"amount": "amount + 2"}, where="id = 5"), retries=5)
    console.print("lake.run(...) retried it on the newest snapshot.")


def rules(lake: tidelock.Lake) -> None:
    title(4, "Rules: what must hold of rows, whoever writes them")
    lake.alter_table(
        "orders", "ADD FOREIGN KEY (customer_id) REFERENCES customers", "ADD CHECK (amount >= 0)"
    )
    console.print(str(lake.schema("orders")), markup=False)
    for row in ({"id": 50, "customer_id": 99}, {"id": 50, "customer_id": 1, "amount": -5}):
        try:
            lake.run(lambda tx, row=row: tx.append("orders", [row]))
        except RuleBroken as error:
            console.print(f"[yellow]{error.condition}[/]: {error}")
    then = lake.snapshot(version=3)
    console.print("Version 3 still shows", then.table("orders").count(), "orders, without rules.")


def query(lake: tidelock.Lake) -> None:
    title(5, "Spark reads one snapshot, fragment by fragment, on its executors")
    try:
        frame = lake.snapshot().sql(
            """
            SELECT c.region, COUNT(*) AS orders, SUM(o.amount) AS revenue
            FROM orders o JOIN customers c ON o.customer_id = c.id
            GROUP BY c.region ORDER BY c.region
            """
        )
        show(frame.toArrow(), "revenue by region")
    except JavaMissing as error:
        console.print(f"[yellow]{error.message}[/]\nEverything else works without it.")


def streams(lake: tidelock.Lake) -> None:
    title(6, "Stream tables: a diamond that moves in one commit")
    lake.create_stream_table(
        "revenue",
        "SELECT customer_id, SUM(amount) AS revenue, COUNT(*) AS orders FROM orders "
        "GROUP BY customer_id",
    )
    lake.create_stream_table(
        "shares", "SELECT id, customer_id, 100 / amount AS share FROM orders WHERE amount < 1000"
    )
    lake.create_stream_table(
        "overview",
        "SELECT r.customer_id, r.revenue, r.orders, MAX(s.share) AS largest FROM revenue r "
        "JOIN shares s ON r.customer_id = s.customer_id "
        "GROUP BY r.customer_id, r.revenue, r.orders",
    )
    console.print(str(lake.graph()), markup=False)
    try:
        show_refresh(lake)
    except JavaMissing as error:
        console.print(f"[yellow]{error.message}[/]")
        return
    console.print("a live change, followed by delta:")
    lake.run(lambda tx: tx.append("orders", [{"id": 100, "customer_id": 2, "amount": Decimal(7)}]))
    show_refresh(lake)
    show(lake.sql("SELECT * FROM overview ORDER BY customer_id").toArrow(), "overview")

    console.print("an order of 0 breaks one branch of the diamond; nothing of it moves:")
    lake.run(lambda tx: tx.append("orders", [{"id": 101, "customer_id": 2, "amount": Decimal(0)}]))
    show_refresh(lake)
    for group in lake.groups():
        told = textwrap.shorten(str(group.not_due_because), 50, placeholder=" …")
        console.print(f"epoch {group.epoch}, not due because {told}", style="yellow", markup=False)
    console.print("the order is corrected, the table resumed, and all advance together:")
    lake.run(lambda tx: tx.delete("orders", where="amount = 0"))
    lake.resume("shares")
    show_refresh(lake)


def new_column(lake: tidelock.Lake) -> None:
    title(7, "A column that comes under live views")
    lake.alter_table("orders", "ADD COLUMN channel STRING DEFAULT 'shop'")
    web = {"id": 102, "customer_id": 3, "amount": Decimal(25), "channel": "web"}
    lake.run(lambda tx: tx.append("orders", [web]))
    try:
        show_refresh(lake)
    except JavaMissing:
        console.print("Without Java the views stay as they are.")
    show(
        lake.table("orders").to_arrow(columns=["id", "amount", "channel"], filter="id >= 9"),
        "orders",
    )


def branch(lake: tidelock.Lake) -> None:
    title(8, "A branch of the whole pipeline: changed, compared, merged")
    lake.create_branch("discount")
    with lake.transaction("a tenth off", branch="discount") as tx:
        tx.update("orders", {"amount": "amount * 0.9"}, where="customer_id = 1")
    with_spark = lake.table("shares").count() > 0
    if with_spark:
        lake.refresh(branch="discount")
    console.print(lake.diff("main", "discount").to_text(), markup=False)

    console.print("Meanwhile, on main, order 3 gets another price:")
    lake.run(lambda tx: tx.update("orders", {"amount": "1"}, where="id = 3"))
    try:
        lake.merge("discount")
    except MergeConflict as error:
        console.print(f"[yellow]{error.condition}[/]: {error}")
    console.print("The branch is to win, and the views move in the same commit:")
    done = lake.merge(
        "discount", on_conflict={"orders": "source"}, refresh=with_spark, delete_branch=True
    )
    console.print(done.to_text(), markup=False)


CRASHING_WRITER = """
import sys, pyarrow as pa, tidelock
lake = tidelock.open(sys.argv[1], actor="night-job")
def orders():
    for start in range(1000, 4000, 1000):
        ids = list(range(start, start + 1000))
        yield pa.RecordBatch.from_pydict({"id": ids, "customer_id": [1] * 1000})
schema = pa.schema([("id", pa.int64()), ("customer_id", pa.int64())])
with lake.transaction(message="nightly load") as tx:
    tx.append("orders", pa.RecordBatchReader.from_batches(schema, orders()))
"""


def crash(lake: tidelock.Lake, path: Path) -> tidelock.Lake:
    title(9, "kill -9 in the middle of a load")
    before = lake.snapshot().table("orders").count()
    for moment, failpoint, loaded in (
        ("while it stages rows", "table.before_commit", 0),
        ("when all is staged, just before the publishing put", "publish.before_put", 3000),
    ):
        dead = subprocess.run(
            [sys.executable, "-c", CRASHING_WRITER, str(path)],
            env={**os.environ, "TIDELOCK_FAILPOINTS": f"{failpoint}=kill"},
            check=False,
        )
        assert dead.returncode == -signal.SIGKILL
        console.print(f"killed {moment}: {lake.snapshot().table('orders').count()} orders visible")
        assert lake.snapshot().table("orders").count() == before
        lake.close()
        time.sleep(float(LEASE_SECONDS) + 0.5)
        lake = tidelock.open(path, actor="demo")
        orders = lake.snapshot().table("orders").count()
        became = "the sealed load was published" if loaded else "what it had begun was discarded"
        console.print(f"opened again, after its lease ran out: {orders} orders, {became}")
        assert orders == before + loaded
    for settled in lake.recoveries():
        as_version = f" as version {settled.version}" if settled.version else ""
        told = f"{settled.outcome}: {settled.message} of {settled.actor}{as_version}"
        console.print(told, style="green", markup=False)
    return lake


def sinks(lake: tidelock.Lake, folder: Path) -> None:
    title(10, "Sinks: views delivered once, to files and to a receiver that dies")
    with_spark = lake.table("shares").count() > 0
    # Without Java the views are empty, and the table that they read does as well.
    files, posted = ("overview", "shares") if with_spark else ("customers", "orders")
    lake.create_sink(
        "archive", table=files, kind="parquet", to=str(folder / "archive"), feed="changes"
    )
    console.print("archive:", deliver(lake, "archive"), "to files; then again:", end=" ")
    console.print(deliver(lake, "archive"))

    database = folder / "received.db"
    receiver, port = start_receiver(database, 0, die_after=2)
    address = f"http://127.0.0.1:{port}/"
    lake.create_sink("hook", table=posted, kind="http", to=address, rows_per_chunk=2)
    console.print("hook:", deliver(lake, "hook"), "- the receiver took a chunk and died")
    receiver.wait()
    lake.run(lambda tx: tx.append("orders", [{"id": 9000, "customer_id": 2, "amount": Decimal(3)}]))
    if with_spark:
        show_refresh(lake)
    receiver, _ = start_receiver(database, port)
    try:
        console.print("the receiver is back, and there are new rows:", deliver(lake, "hook"))
    finally:
        receiver.terminate()
        receiver.wait()
    with closing(sqlite3.connect(database)) as received:
        (rows,) = received.execute("SELECT COUNT(*) FROM rows").fetchone()
        (chunks,) = received.execute("SELECT COUNT(*) FROM chunks").fetchone()
    inside = lake.snapshot().table(posted).count()
    console.print(f"it holds {rows} rows from {chunks} chunks; {posted} has {inside}")
    assert rows == inside
    console.print("archive:", deliver(lake, "archive"), "of changes to the view")
    show_sinks(lake)


def deliver(lake: tidelock.Lake, sink: str) -> str:
    report = lake.deliver(sink)
    return f"{report.action} {report.rows} rows" if report.rows else report.action


def start_receiver(
    database: Path, port: int, die_after: int = 0
) -> tuple[subprocess.Popen[str], int]:
    program = Path(__file__).parent / "receiver.py"
    receiver = subprocess.Popen(
        [sys.executable, program, database, f"--port={port}", f"--die-after={die_after}"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert receiver.stdout is not None
    return receiver, int(receiver.stdout.readline())


def show_sinks(lake: tidelock.Lake) -> None:
    table = Table("sink", "kind", "state", "watermark", title="sinks")
    for sink in lake.sinks():
        table.add_row(sink.name, sink.kind, sink.state, str(sink.watermark))
    console.print(table)


def say_goodbye(path: Path, with_spark: bool) -> None:
    """Where everything is, and what to try with it."""
    here = Path(os.path.relpath(path))
    title(12, "Your turn")
    console.print(f"The lake is {here}. Look around in it:", soft_wrap=True, markup=False)
    program = Path(os.path.relpath(Path(sys.executable).parent / "tidelock"))
    rows = 'sql "SELECT * FROM overview"' if with_spark else "table show orders --rows 5"
    for command in ("status", "log --limit 5", rows):
        line = f"  {program} --lake {here} {command}"
        console.print(line, style="bold", soft_wrap=True, markup=False)


def main() -> int:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    os.environ["TIDELOCK_LEASE_SECONDS"] = LEASE_SECONDS
    path = FOLDER / "shop.lake"
    try:
        lake = tidelock.open(path, create=True, actor="demo")
        for step in (load, change, conflict, rules, query, streams, new_column, branch):
            step(lake)
        lake = crash(lake, path)
        sinks(lake, FOLDER)
        title(11, "What happened")
        show_log(lake, limit=8)
        swept = lake.collect_garbage(older_than=0, dry_run=True)
        console.print(f"garbage collection would remove {swept.files} files")
        with_spark = lake.table("shares").count() > 0
        lake.close()
    except TidelockError as error:
        console.print(f"[red]{error.condition}[/]: {error}")
        return 1
    say_goodbye(path, with_spark)
    return 0


if __name__ == "__main__":
    sys.exit(main())
