"""What a table that was computed anew has in common with what it was, found by the engine.

Owns: the queries that compare the two, as multisets. Both sides are put on top of each other and
grouped by all columns: what occurs as often on both sides stays as it is. Of a row that occurs less
often now, a group knows the place of one copy. Where that shows that several copies of one row
leave, all copies are ranked instead, which takes a second pass and a sort.

Law: rows(after) = rows(before) - leaving + coming, as multisets, and no row is in both.
Nothing that grows with the table comes to this process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from tidelock.derive.spark.comparison import Compared, compare
from tidelock.model.names import HIDDEN, ROW_HASH, quote
from tidelock.store.spark.differences import COPIES, SIDE
from tidelock.store.spark.scan import ROW_ADDRESS, ROW_ID, scan_frame
from tidelock.store.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROWS = "\0"
"""Where a query says what it is over; no name holds it."""
_RANK, _OLD, _NEW, _FRESH, _ID, _ADDRESS = (
    f"{HIDDEN}{name}" for name in ("rank", "old", "new", "fresh", "id", "address")
)


def differing(table: Table, rows: DataFrame, *, keyed: bool, ranked: bool = False) -> DataFrame:
    """The rows of a table that leave, and the new rows that come in their place.

    Leaving rows have SIDE 0 and the address of one of COPIES; coming ones SIDE 1. With `keyed` the
    hash is that of a key, and a coming row has the id of the leaving one whose key it has. With
    `ranked` every leaving copy is a row of its own.
    """
    schema = table.dataset.schema
    compared = compare(schema)
    both = _both(table, rows, schema)
    if keyed:
        # One exchange then serves all: telling rows apart, and finding those of one key.
        both = both.repartition(quote(ROW_HASH))
    made = [f"{one.made} AS {one.alias}" for one in compared if one.made]
    sql = _ranks(compared) if ranked else _groups(compared)
    found = _sql(both.selectExpr("*", *made), sql)
    return _paired(found, schema) if keyed else found


def _both(table: Table, rows: DataFrame, schema: pa.Schema) -> DataFrame:
    columns = [quote(name) for name in schema.names]
    none = "CAST(NULL AS BIGINT) AS"
    old = scan_frame(rows.sparkSession, table.source(), with_row_ids=True)
    new = rows.selectExpr(*columns, f"1 AS {SIDE}", f"{none} {ROW_ID}", f"{none} {ROW_ADDRESS}")
    return old.selectExpr(*columns, f"0 AS {SIDE}", ROW_ID, ROW_ADDRESS).union(new)


def _groups(compared: list[Compared]) -> str:
    """SQL that groups equal rows, over _ROWS."""
    values = ", ".join(f"{one.value} AS {quote(one.name)}" for one in compared)
    # Names of their own: some engines take a name in a sum for what the same SELECT calls so.
    grouped = (
        f"SELECT {values}, sum({SIDE}) AS {_NEW}, sum(1 - {SIDE}) AS {_OLD}, "
        f"max({ROW_ID}) AS {_ID}, max({ROW_ADDRESS}) AS {_ADDRESS} "
        f"FROM {_ROWS} GROUP BY {_keys(compared)}"
    )
    columns = ", ".join(quote(one.name) for one in compared)
    return (
        f"SELECT {columns}, IF({_NEW} > {_OLD}, 1, 0) AS {SIDE}, "
        f"abs({_NEW} - {_OLD}) AS {COPIES}, {_ADDRESS} AS {ROW_ADDRESS}, "
        # Another copy of a row that stays is a row of its own.
        f"IF({_NEW} > {_OLD}, NULL, {_ID}) AS {ROW_ID} "
        f"FROM ({grouped}) WHERE {_NEW} <> {_OLD}"
    )


def _ranks(compared: list[Compared]) -> str:
    """SQL that ranks equal rows on each side, over _ROWS."""
    keys, columns = _keys(compared), ", ".join(quote(one.name) for one in compared)
    ranked = (
        f"SELECT {columns}, {SIDE}, {ROW_ID}, {ROW_ADDRESS}, "
        f"row_number() OVER (PARTITION BY {keys}, {SIDE} ORDER BY {ROW_ADDRESS}) AS {_RANK}, "
        f"sum({SIDE}) OVER (PARTITION BY {keys}) AS {_NEW}, "
        f"sum(1 - {SIDE}) OVER (PARTITION BY {keys}) AS {_OLD} FROM {_ROWS}"
    )
    return (
        f"SELECT {columns}, {SIDE}, 1L AS {COPIES}, {ROW_ID}, {ROW_ADDRESS} FROM ({ranked}) "
        f"WHERE {_RANK} > IF({SIDE} = 0, {_NEW}, {_OLD})"
    )


def _keys(compared: list[Compared]) -> str:
    """The hash first: where rows are sorted, it alone decides nearly every comparison."""
    keys = [key for one in compared for key in one.keys]
    return ", ".join(sorted(keys, key=lambda key: key != quote(ROW_HASH)))


def _paired(found: DataFrame, schema: pa.Schema) -> DataFrame:
    """Give a coming row the id of the leaving one of its key, where there is one of each; and let
    such rows come first."""
    columns = ", ".join(quote(name) for name in schema.names)
    same = f"OVER (PARTITION BY {quote(ROW_HASH)})"
    one_each = f"sum(IF({SIDE} = 1, {COPIES}, 0)) {same} = 1 AND sum({COPIES}) {same} = 2"
    replaced = f"IF({SIDE} = 1 AND {one_each}, max({ROW_ID}) {same}, NULL)"
    paired = f"SELECT {columns}, {SIDE}, {COPIES}, {replaced} AS {_ID}, {ROW_ADDRESS} FROM {_ROWS}"
    ordered = (
        f"SELECT {columns}, {SIDE}, {COPIES}, {_ID} AS {ROW_ID}, {ROW_ADDRESS}, "
        f"IF({_ID} IS NULL, 1, 0) AS {_FRESH} FROM ({paired})"
    )
    return _sql(found, ordered).sortWithinPartitions(SIDE, _FRESH).drop(_FRESH)


def _sql(rows: DataFrame, sql: str) -> DataFrame:
    text = sql.replace("{", "{{").replace("}", "}}").replace(_ROWS, "{rows}")
    return rows.sparkSession.sql(text, rows=rows)
