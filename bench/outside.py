"""Figures of other systems, printed beside ours: they bind nobody, and nothing depends on them.

They live in a virtual environment of their own, made on demand beside the project's, since they
need other versions of what we use. Where it cannot be made, the reason is printed in the place of
the figures.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import tidelock
from bench.measure import middle
from bench.shop import CHANGED, QUERY

ENVIRONMENT = Path(__file__).parents[1] / ".venv-outside"
PYTHON = ENVIRONMENT / "bin" / "python"
PACKAGES = ("duckdb>=1.4", "pathway>=0.33", "dlt[filesystem,parquet]>=1.20")
SCRIPTS = Path(__file__).parent / "outside_scripts"
INSTALL_SECONDS_MAX = 600
DUCKDB_SECONDS_MAX = 300
PATHWAY_SECONDS_MAX = 600
DLT_SECONDS_MAX = 300
PATHWAY_CHANGES = 7


class NotAvailable(Exception):
    """Another system cannot be measured here; the message says why."""


def measure_outside(lake: tidelock.Lake, path: Path, rows: int) -> str:
    """What DuckDB takes to compute the query anew, and Pathway to bring it up to date."""
    try:
        _make_environment()
        hand_over(lake, path)
    except NotAvailable as reason:
        return f"DuckDB and Pathway: not available ({reason})"
    return f"{_duckdb(path)}; {_pathway(path, rows)}"


def measure_export(file: Path, path: Path) -> str:
    """What dlt takes to export the rows of a Parquet file."""
    try:
        _make_environment()
        took = _run_script("dlt_export", DLT_SECONDS_MAX, file, path, 3)
    except NotAvailable as reason:
        return f"dlt: not available ({reason})"
    return f"dlt {middle(took):.2f} s"


def hand_over(lake: tidelock.Lake, path: Path) -> None:
    """The tables of the shop as folders of Parquet files."""
    for name in ("orders", "customers"):
        (path / name).mkdir(parents=True)
        dataset = lake.snapshot().table(name).dataset
        with pq.ParquetWriter(path / name / "rows.parquet", dataset.schema) as writer:
            for batch in dataset.to_batches():
                writer.write_batch(batch)


def _duckdb(path: Path) -> str:
    try:
        took = _run_script("duckdb_recompute", DUCKDB_SECONDS_MAX, path, QUERY, 3)
    except NotAvailable as reason:
        return f"DuckDB: not available ({reason})"
    return f"DuckDB anew {middle(took):.2f} s"


def _pathway(path: Path, rows: int) -> str:
    try:
        arguments = (path, rows, PATHWAY_CHANGES, CHANGED)
        told = _run_script("pathway_update", PATHWAY_SECONDS_MAX, *arguments)
    except NotAvailable as reason:
        return f"Pathway: not available ({reason})"
    took, loaded = middle(told["took"]), told["loaded"]
    return f"Pathway incrementally {took:.2f} s, its state in memory, loaded in {loaded:.0f} s"


def _make_environment() -> None:
    imports = [PYTHON, "-c", "import duckdb, pathway, dlt"]
    if PYTHON.exists() and subprocess.run(imports, capture_output=True).returncode == 0:
        return
    print(f"Making {ENVIRONMENT.name} with {', '.join(PACKAGES)}", file=sys.stderr)
    _run([sys.executable, "-m", "venv", ENVIRONMENT], INSTALL_SECONDS_MAX)
    _run([PYTHON, "-m", "pip", "install", "--quiet", *PACKAGES], INSTALL_SECONDS_MAX)
    _run(imports, INSTALL_SECONDS_MAX)


def _run_script(name: str, seconds_max: float, *arguments: Any) -> Any:
    printed = _run([PYTHON, SCRIPTS / f"{name}.py", *map(str, arguments)], seconds_max)
    return json.loads(printed.splitlines()[-1])


def _run(command: list[Any], seconds_max: float) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=seconds_max
        )
    except subprocess.TimeoutExpired:
        raise NotAvailable(f"not done after {seconds_max:.0f} s") from None
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines()
        raise NotAvailable(lines[-1] if lines else f"exit code {error.returncode}") from None
    except OSError as error:
        raise NotAvailable(str(error)) from None
    return done.stdout
