"""TPC-H under test: its tables in a lake, its queries as stream tables, and cycles of changes."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tidelock.run.lake import Lake
from tidelock.store.transaction import Transaction

QUERIES = {
    path.stem: path.read_text()
    for path in sorted((Path(__file__).parent / "queries").glob("q*.sql"))
}
KEYS: dict[str, tuple[str, ...]] = {
    "region": ("r_regionkey",),
    "nation": ("n_nationkey",),
    "supplier": ("s_suppkey",),
    "customer": ("c_custkey",),
    "part": ("p_partkey",),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "orders": ("o_orderkey",),
    "lineitem": ("l_orderkey", "l_linenumber"),
}
CHANGED = ("orders", "lineitem", "customer", "part", "supplier")
NEW_KEYS = 100_000_000


def generate(folder: Path, scale: float) -> None:
    program = Path(sys.executable).parent / "tpchgen-cli"
    command = [program, "parquet", "-s", str(scale), "--output-dir", folder]
    subprocess.run(command, check=True, capture_output=True)


def load(lake: Lake, folder: Path) -> None:
    """Create the eight tables with their keys and fill them, in one commit."""
    with lake.transaction("load TPC-H") as tx:
        for table, key in KEYS.items():
            rows = _plain(pq.read_table(folder / f"{table}.parquet"))
            tx.create_table(table, rows.schema, key=list(key))
            tx.append(table, rows)


def _plain(rows: pa.Table) -> pa.Table:
    """Strings as strings, however the file has them."""
    columns = {
        field.name: rows.column(field.name).cast(pa.string())
        if pa.types.is_string_view(field.type) or pa.types.is_dictionary(field.type)
        else rows.column(field.name)
        for field in rows.schema
    }
    return pa.table(columns)


def change(
    lake: Lake,
    chance: random.Random,
    cycle: int,
    tables: tuple[str, ...] = CHANGED,
    share: float = 0.001,
) -> None:
    """One commit that deletes, updates and inserts this share of the rows of every table.

    A chosen line is deleted with all lines of its order.
    """
    with lake.transaction(f"cycle {cycle}") as tx:
        for table in tables:
            _change(tx, table, chance, cycle, share)


def _change(tx: Transaction, table: str, chance: random.Random, cycle: int, share: float) -> None:
    rows = tx.table(table).to_arrow()
    key = KEYS[table]
    count = max(2, int(rows.num_rows * share))
    chosen = chance.sample(range(rows.num_rows), 3 * count)
    gone = set(rows.column(key[0]).take(pa.array(chosen[:count])).to_pylist())
    tx.delete(table, where=f"{key[0]} IN ({', '.join(map(str, gone))})")
    updated, others = rows.take(chosen[count : 2 * count]), rows.take(chosen[2 * count :])
    kept = pa.array([value not in gone for value in updated.column(key[0]).to_pylist()])
    mixed = {
        name: (updated if name in key else others).column(name).filter(kept)
        for name in rows.column_names
    }
    tx.upsert(table, pa.table(mixed, schema=rows.schema))
    position = rows.column_names.index(key[0])
    first = NEW_KEYS + cycle * 1_000_000
    fresh = pa.array(range(first, first + count), rows.schema.field(position).type)
    tx.append(table, others.set_column(position, rows.schema.field(position), fresh))
