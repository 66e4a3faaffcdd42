"""Compute the query of the first row anew in DuckDB: `duckdb_recompute.py folder query times`.

Prints the seconds of each run as a JSON list. The files become native tables first.
"""

import json
import sys
import time
from pathlib import Path

import duckdb

folder, query, times = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
connection = duckdb.connect(str(folder / "outside.duckdb"))
for table in ("orders", "customers"):
    files = folder / table / "*.parquet"
    connection.execute(f"CREATE TABLE {table} AS SELECT * FROM read_parquet('{files}')")
connection.execute(query).fetchall()
took = []
for _ in range(times):
    began = time.perf_counter()
    connection.execute(query).fetchall()
    took.append(time.perf_counter() - began)
print(json.dumps(took))
