"""The tables of TPC-H, as DDL, with their keys."""

from __future__ import annotations

from tidelock.model.ddl import parse_schema
from tidelock.model.schema.schema import TableSchema

MONEY = "DECIMAL(12,2)"

TABLES = {
    "region": ("r_regionkey INT NOT NULL, r_name STRING, r_comment STRING", "r_regionkey"),
    "nation": (
        "n_nationkey INT NOT NULL, n_name STRING, n_regionkey INT NOT NULL, n_comment STRING",
        "n_nationkey",
    ),
    "supplier": (
        "s_suppkey INT NOT NULL, s_name STRING, s_address STRING, s_nationkey INT NOT NULL, "
        f"s_phone STRING, s_acctbal {MONEY}, s_comment STRING",
        "s_suppkey",
    ),
    "customer": (
        "c_custkey INT NOT NULL, c_name STRING, c_address STRING, c_nationkey INT NOT NULL, "
        f"c_phone STRING, c_acctbal {MONEY}, c_mktsegment STRING, c_comment STRING",
        "c_custkey",
    ),
    "part": (
        "p_partkey INT NOT NULL, p_name STRING, p_mfgr STRING, p_brand STRING, p_type STRING, "
        f"p_size INT, p_container STRING, p_retailprice {MONEY}, p_comment STRING",
        "p_partkey",
    ),
    "partsupp": (
        "ps_partkey INT NOT NULL, ps_suppkey INT NOT NULL, ps_availqty INT, "
        f"ps_supplycost {MONEY}, ps_comment STRING",
        ("ps_partkey", "ps_suppkey"),
    ),
    "orders": (
        f"o_orderkey BIGINT NOT NULL, o_custkey INT NOT NULL, o_orderstatus STRING, "
        f"o_totalprice {MONEY}, o_orderdate DATE, o_orderpriority STRING, o_clerk STRING, "
        "o_shippriority INT, o_comment STRING",
        "o_orderkey",
    ),
    "lineitem": (
        "l_orderkey BIGINT NOT NULL, l_partkey INT NOT NULL, l_suppkey INT NOT NULL, "
        f"l_linenumber INT NOT NULL, l_quantity {MONEY}, l_extendedprice {MONEY}, "
        f"l_discount {MONEY}, l_tax {MONEY}, l_returnflag STRING, l_linestatus STRING, "
        "l_shipdate DATE, l_commitdate DATE, l_receiptdate DATE, l_shipinstruct STRING, "
        "l_shipmode STRING, l_comment STRING",
        ("l_orderkey", "l_linenumber"),
    ),
}


def schemas() -> dict[str, TableSchema]:
    return {name: parse_schema(columns, key) for name, (columns, key) in TABLES.items()}
