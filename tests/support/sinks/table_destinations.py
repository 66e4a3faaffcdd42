"""Iceberg and Delta tables as their readers find them, and whether that is what the lake says."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import Catalog, load_catalog

from tidelock import Lake


@dataclass
class Tables:
    """The tables of one format below a folder, each named as the sink that fills it."""

    kind: str
    folder: Path

    def attach(self, lake: Lake, name: str = "w", **options: Any) -> None:
        given = {"table": "o", "kind": self.kind, "rows_per_commit": 4} | options
        lake.create_sink(name, to=self.place(name), **given)

    def place(self, name: str = "w") -> str:
        return str(self.folder / name)

    def rows(self, name: str = "w") -> list[dict[str, Any]]:
        return self.read(name).to_pylist()

    def read(self, name: str = "w") -> pa.Table:
        if self.kind == "delta":
            return pa.table(DeltaTable(self.place(name)).to_pyarrow_table())
        with iceberg(self.place(name)) as catalog:
            return catalog.load_table(f"tidelock.{name}").scan().to_arrow()

    def polars(self, name: str = "w") -> pa.Table:
        if self.kind == "delta":
            return pl.scan_delta(self.place(name)).collect().to_arrow()
        with iceberg(self.place(name)) as catalog:
            return pl.scan_iceberg(catalog.load_table(f"tidelock.{name}")).collect().to_arrow()

    def commits(self, name: str = "w") -> int:
        if self.kind == "delta":
            return DeltaTable(self.place(name)).version()
        with iceberg(self.place(name)) as catalog:
            return len(catalog.load_table(f"tidelock.{name}").snapshots())

    def append(self, rows: pa.Table, name: str = "w") -> None:
        """Write to a table as somebody else does, who makes it if it is not there."""
        if self.kind == "delta":
            write_deltalake(self.place(name), rows, mode="append")
            return
        Path(self.place(name)).mkdir(parents=True, exist_ok=True)
        with iceberg(self.place(name)) as catalog:
            catalog.create_namespace_if_not_exists("tidelock")
            table = catalog.create_table_if_not_exists(f"tidelock.{name}", rows.schema)
            table.append(rows)

    def drop(self, name: str = "w") -> None:
        if self.kind == "delta":
            for path in Path(self.place(name), "_delta_log").iterdir():
                path.unlink()
            return
        with iceberg(self.place(name)) as catalog:
            catalog.drop_table(f"tidelock.{name}")


class iceberg:
    """The catalog of a folder."""

    def __init__(self, folder: str) -> None:
        self._catalog = load_catalog(
            "tidelock",
            type="sql",
            uri=f"sqlite:///{folder}/catalog.db",
            warehouse=Path(folder).as_uri(),
        )

    def __enter__(self) -> Catalog:
        return self._catalog

    def __exit__(self, *_: object) -> None:
        self._catalog.close()


@pytest.fixture(params=["iceberg", "delta"])
def tables(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Tables:
    # Polars would rather plan with a package of its own, and says so.
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    return Tables(request.param, tmp_path / "tables")


def as_multiset(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(sorted(row.items(), key=lambda item: item[0])) for row in rows)


def check(lake: Lake, tables: Tables, name: str = "w") -> None:
    """The destination holds the rows of the lake, each once."""
    wanted = lake.read_since("o", limit=1_000_000).rows.to_pylist()
    assert as_multiset(tables.rows(name)) == as_multiset(wanted)
    assert lake.sink_status(name).state == "current"
