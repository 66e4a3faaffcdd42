"""The operators that are composed: each a template of SQL, those of one law in one family.

Answers are never left open: what is limited is ordered by all of its columns, lists are sorted, and
means are cut to numbers that every engine agrees on. The words are those of `compositions`.
"""

from __future__ import annotations

from dataclasses import replace

from tests.property.models.compositions import FIRST, SECOND, Operator

ALL = "{ik} AS {k}, {iv} AS {v}, {is} AS {s}{ix}"
OTHERS = "{ok} AS {k}, {ov} AS {v}, {os} AS {s}"
MIXED = "{ik} AS {k}, {ov} AS {v}, {is} AS {s}{ix}"
MIXED_BACK = "{ok} AS {k}, {iv} AS {v}, {os} AS {s}{ix}"
EITHER = "coalesce({ik}, {ok}) AS {k}, {iv} - {ov} AS {v}, coalesce({os}, {is}) AS {s}{ix}"
WITH_OTHER = "SELECT " + OTHERS + "{ox} FROM {other}"
STRUCT = f"struct({FIRST} AS {{ik_}}, {SECOND} AS {{iv_}})"
LISTED = f"array({FIRST}, {SECOND})"
ZIPPED = f"array(struct({FIRST} AS {{k}}, {SECOND} AS {{v}}))"
KEPT: dict[str, dict[str, str]] = {
    "rows": {
        "filter": f"SELECT {ALL} FROM {{inner}} WHERE {{iv}} > 0 OR {{is}} = 'a'",
        "filter all": "SELECT * FROM {inner} WHERE {iv} IS NULL OR {ik} <> 2",
        "project": (
            "SELECT coalesce({iv}, {ik}) AS {k}, {ik} + 1 AS {v}, "
            "CASE WHEN {iv} > 0 THEN {is} ELSE 'b' END AS {s}{ix} FROM {inner}"
        ),
    },
    "explode": {
        "lateral view": (
            "SELECT {ik} AS {k}, {n}.{m} AS {v}, {is} AS {s}{ix} FROM {inner} "
            "LATERAL VIEW explode(array({iv}, {ik})) {n} AS {m}"
        ),
        "outer explode": (
            "SELECT {n}.{m} AS {k}, {iv} AS {v}, {is} AS {s}{ix} FROM {inner} "
            "LATERAL VIEW OUTER explode(filter(array({ik}, {iv}), e -> e > 0)) {n} AS {m}"
        ),
        "explode": (
            "SELECT explode(array({ik}, 1L)) AS {k}, {iv} AS {v}, {is} AS {s}{ix} FROM {inner}"
        ),
    },
    "inner": {
        "join": f"SELECT {MIXED} FROM {{inner}} JOIN {{other}} ON {{ik}} = {{ok}}",
        "join backward": f"SELECT {MIXED_BACK} FROM {{other}} JOIN {{inner}} ON {{iv}} = {{ok}}",
        "join more": (
            f"SELECT {MIXED} FROM {{inner}} JOIN {{other}} ON {{ik}} <=> {{ok}} AND {{iv}} < {{ov}}"
        ),
        "cross": f"SELECT {MIXED_BACK} FROM {{inner}} CROSS JOIN {{other}} WHERE {{ov}} = 1",
        "theta": f"SELECT {MIXED} FROM {{inner}} JOIN {{other}} ON {{iv}} < {{ok}}",
        "comma": (
            f"SELECT {MIXED} FROM {{inner}}, {{other}} WHERE {{ik}} = {{ok}} AND {{is}} = {{os}}"
        ),
        "using": (
            "SELECT {ik_} AS {k}, {n}.{m} AS {v}, {is} AS {s}{ix} FROM {inner} "
            "JOIN (SELECT {ok} AS {ik_}, {ov} AS {m} FROM {other}) AS {n} USING ({ik_})"
        ),
    },
    "left": {
        "left": f"SELECT {MIXED} FROM {{inner}} LEFT JOIN {{other}} ON {{ik}} = {{ok}}",
        "left more": (
            f"SELECT {MIXED} FROM {{inner}} LEFT JOIN {{other}} "
            "ON {ik} = {ok} AND {iv} < {ov} AND {os} <> 'b'"
        ),
        "left theta": f"SELECT {MIXED} FROM {{inner}} LEFT JOIN {{other}} ON {{iv}} < {{ov}}",
        "left is null": (
            f"SELECT {ALL} FROM {{inner}} LEFT JOIN {{other}} ON {{ik}} = {{ok}} "
            "WHERE {ok} IS NULL"
        ),
    },
    "right": {
        "right": f"SELECT {MIXED_BACK} FROM {{inner}} RIGHT JOIN {{other}} ON {{ik}} = {{ok}}",
        "left backward": (
            f"SELECT {MIXED_BACK} FROM {{other}} LEFT JOIN {{inner}} ON {{ok}} = {{ik}} "
            "AND {iv} > 0"
        ),
        "right theta": (
            f"SELECT {MIXED_BACK} FROM {{inner}} RIGHT JOIN {{other}} ON {{iv}} > {{ov}}"
        ),
    },
    "full": {
        "full": f"SELECT {MIXED} FROM {{inner}} FULL JOIN {{other}} ON {{ik}} = {{ok}}",
        "full more": (
            f"SELECT {EITHER} FROM {{inner}} FULL JOIN {{other}} ON {{ik}} = {{ok}} "
            "AND {iv} <> {ov}"
        ),
        "full using": (
            "SELECT {ik_} AS {k}, {n}.{m} AS {v}, {is} AS {s}{ix} FROM {inner} "
            "FULL JOIN (SELECT {ok} AS {ik_}, {ov} AS {m} FROM {other}) AS {n} USING ({ik_})"
        ),
    },
    "semi": {
        "semi": f"SELECT {ALL} FROM {{inner}} LEFT SEMI JOIN {{other}} ON {{ik}} = {{ok}}",
        "exists": (
            f"SELECT {ALL} FROM {{inner}} WHERE EXISTS "
            "(SELECT 1 FROM {other} WHERE {ok} = {ik} AND {ov} > 0)"
        ),
        "exists less": (
            f"SELECT {ALL} FROM {{inner}} WHERE EXISTS (SELECT 1 FROM {{other}} "
            "WHERE {ov} < {iv})"
        ),
        "exists any": (
            f"SELECT {ALL} FROM {{inner}} WHERE EXISTS (SELECT * FROM {{other}} WHERE {{ov}} = 2)"
        ),
        "in": f"SELECT {ALL} FROM {{inner}} WHERE {{ik}} IN (SELECT {{ov}} FROM {{other}})",
        "in pairs": (
            f"SELECT {ALL} FROM {{inner}} WHERE ({{ik}}, {{is}}) IN "
            "(SELECT {ok}, {os} FROM {other})"
        ),
        "in or": (
            f"SELECT {ALL} FROM {{inner}} WHERE {{ik}} IN (SELECT {{ok}} FROM {{other}}) "
            "OR {iv} = 1"
        ),
    },
    "anti": {
        "anti": f"SELECT {ALL} FROM {{inner}} LEFT ANTI JOIN {{other}} ON {{ik}} = {{ok}}",
        "not exists": (
            f"SELECT {ALL} FROM {{inner}} WHERE NOT EXISTS "
            "(SELECT 1 FROM {other} WHERE {ok} = {ik} AND {ov} > 0)"
        ),
        "not exists less": (
            f"SELECT {ALL} FROM {{inner}} WHERE NOT EXISTS "
            "(SELECT 1 FROM {other} WHERE {ov} < {iv} AND {ok} = {ik})"
        ),
        "not exists any": (
            f"SELECT {ALL} FROM {{inner}} WHERE NOT EXISTS "
            "(SELECT 1 FROM {other} WHERE {ov} = 2)"
        ),
    },
    "not in": {
        "not in": f"SELECT {ALL} FROM {{inner}} WHERE {{ik}} NOT IN (SELECT {{ok}} FROM {{other}})",
        "not in some": (
            f"SELECT {ALL} FROM {{inner}} WHERE {{ik}} NOT IN "
            "(SELECT {ok} FROM {other} WHERE {ov} > 0)"
        ),
        "not in correlated": (
            f"SELECT {ALL} FROM {{inner}} WHERE {{iv}} NOT IN "
            "(SELECT {ov} FROM {other} WHERE {ok} = {ik})"
        ),
        "not in pairs": (
            f"SELECT {ALL} FROM {{inner}} WHERE ({{ik}}, {{iv}}) NOT IN "
            "(SELECT {ok}, {ov} FROM {other} WHERE {os} = 'a')"
        ),
        "not in or": (
            f"SELECT {ALL} FROM {{inner}} WHERE {{iv}} = 1 OR NOT ({{ik}} IN "
            "(SELECT {ok} FROM {other} WHERE {ov} > 0))"
        ),
    },
    "scalar": {
        "scalar": (
            "SELECT {ik} AS {k}, {iv} + (SELECT max({ov}) FROM {other}) AS {v}, {is} AS {s}{ix} "
            "FROM {inner}"
        ),
        "scalar where": (
            f"SELECT {ALL} FROM {{inner}} WHERE {{iv}} < (SELECT max({{ov}}) FROM {{other}})"
        ),
        "scalar correlated": (
            "SELECT {ik} AS {k}, (SELECT sum({ov}) FROM {other} WHERE {ok} = {ik}) AS {v}, "
            "{is} AS {s}{ix} FROM {inner}"
        ),
        "scalar count": (
            f"SELECT {ALL} FROM {{inner}} WHERE {{iv}} >= "
            "(SELECT count(*) FROM {other} WHERE {ok} = {ik} AND {ov} > 0)"
        ),
        "lookup": (
            "SELECT {ik} AS {k}, (SELECT {qv} FROM {lookup} WHERE {qk} = {iv}) AS {v}, "
            "{is} AS {s}{ix} FROM {inner}"
        ),
        "exists value": (
            "SELECT {ik} AS {k}, CASE WHEN EXISTS (SELECT 1 FROM {other} WHERE {ok} = {ik}) "
            "THEN 1L ELSE {iv} END AS {v}, {is} AS {s}{ix} FROM {inner}"
        ),
        "in value": (
            "SELECT CASE WHEN {ik} IN (SELECT {ok} FROM {other}) THEN 1L WHEN NOT ({ik} IN "
            "(SELECT {ok} FROM {other})) THEN 0L END AS {k}, {iv} AS {v}, {is} AS {s}{ix} "
            "FROM {inner}"
        ),
    },
    "group keys": {
        "group keys": f"SELECT {ALL} FROM {{inner}} GROUP BY {{ik}}, {{iv}}, {{is}}{{ig}}",
        "distinct": f"SELECT DISTINCT {ALL} FROM {{inner}}",
    },
    "union all": {
        "union all": f"SELECT {ALL} FROM {{inner}} UNION ALL {WITH_OTHER}",
        "union all backward": f"{WITH_OTHER} UNION ALL SELECT {ALL} FROM {{inner}}",
    },
    "set": {
        "union": f"SELECT {ALL} FROM {{inner}} UNION {WITH_OTHER}",
        "intersect": f"SELECT {ALL} FROM {{inner}} INTERSECT {WITH_OTHER}",
        "except": f"SELECT {ALL} FROM {{inner}} EXCEPT {WITH_OTHER}",
        "except backward": f"{WITH_OTHER} EXCEPT SELECT {ALL} FROM {{inner}}",
    },
    "set all": {
        "intersect all": f"SELECT {ALL} FROM {{inner}} INTERSECT ALL {WITH_OTHER}",
        "except all": f"SELECT {ALL} FROM {{inner}} EXCEPT ALL {WITH_OTHER}",
        "except all backward": f"{WITH_OTHER} EXCEPT ALL SELECT {ALL} FROM {{inner}}",
    },
    "window": {
        "rank": (
            "SELECT {ik} AS {k}, CAST(rank() OVER (PARTITION BY {ik} ORDER BY {iv}) AS BIGINT) "
            "AS {v}, {is} AS {s}{ix} FROM {inner}"
        ),
        "sum over": (
            "SELECT {ik} AS {k}, sum({iv}) OVER (PARTITION BY {ik}, {is}) AS {v}, {is} AS {s}{ix} "
            "FROM {inner}"
        ),
        "lag": (
            "SELECT {ik} AS {k}, lag({iv}) OVER (PARTITION BY {is} ORDER BY {ik}, {iv}{ig}) "
            "AS {v}, {is} AS {s}{ix} FROM {inner}"
        ),
        "first of each": (
            "SELECT {n}.{k}, {n}.{v}, {n}.{s}{nx} FROM "
            f"(SELECT {ALL}, row_number() OVER (PARTITION BY {{ik}} ORDER BY {{iv}} DESC, "
            "{is}{ig}) AS {m} FROM {inner}) AS {n} WHERE {n}.{m} <= 2"
        ),
        "qualify": (
            f"SELECT {ALL} FROM {{inner}} QUALIFY row_number() OVER "
            "(PARTITION BY {is} ORDER BY {ik}, {iv}{ig}) = 1"
        ),
    },
    "top": {
        "top": f"SELECT {ALL} FROM {{inner}} ORDER BY {{k}}, {{v}} DESC, {{s}}{{xg}} LIMIT 4",
        "top after": (
            f"SELECT {ALL} FROM {{inner}} ORDER BY {{v}} DESC NULLS LAST, {{s}}, {{k}}{{xg}} "
            "LIMIT 3 OFFSET 1"
        ),
    },
    "twice": {
        "twice": (
            "WITH {n} AS (SELECT * FROM {inner}) SELECT {jn}.{ik_} AS {k}, {on}.{iv_} AS {v}, "
            "{jn}.{is_} AS {s}{jx} FROM {n} AS {jn} JOIN {n} AS {on} ON {jn}.{ik_} = {on}.{iv_}"
        ),
        "twice less": (
            "WITH {n} AS (SELECT * FROM {inner}) SELECT {jn}.{ik_} AS {k}, {jn}.{iv_} AS {v}, "
            "{jn}.{is_} AS {s}{jx} FROM {n} AS {jn} WHERE {jn}.{iv_} >= (SELECT max({on}.{iv_}) "
            "FROM {n} AS {on} WHERE {on}.{ik_} = {jn}.{ik_})"
        ),
        "self": "SELECT {ik} AS {k}, {jv} AS {v}, {is} AS {s}{ix} FROM {inner} JOIN {twin} "
        "ON {ik} = {jk} AND {is} = {js}",
        "self left": "SELECT {ik} AS {k}, {jv} AS {v}, {is} AS {s}{ix} FROM {inner} "
        "LEFT JOIN {twin} ON {iv} = {jk}",
    },
}
DROPPED: dict[str, dict[str, str]] = {
    "semi below": {
        "semi below": f"SELECT {OTHERS} FROM {{other}} LEFT SEMI JOIN {{inner}} ON {{ik}} = {{ok}}",
        "exists below": (
            f"SELECT {OTHERS} FROM {{other}} WHERE EXISTS (SELECT 1 FROM {{inner}} "
            "WHERE {ik} = {ok} AND {iv} <> {ov})"
        ),
        "in below": (
            f"SELECT {OTHERS} FROM {{other}} WHERE {{ov}} IN (SELECT {{ik}} FROM {{inner}})"
        ),
        "in or below": (
            f"SELECT {OTHERS} FROM {{other}} WHERE {{ok}} = 1 OR {{ov}} IN "
            "(SELECT {iv} FROM {inner})"
        ),
    },
    "anti below": {
        "anti below": f"SELECT {OTHERS} FROM {{other}} LEFT ANTI JOIN {{inner}} ON {{ik}} = {{ok}}",
        "not exists below": (
            f"SELECT {OTHERS} FROM {{other}} WHERE NOT EXISTS (SELECT 1 FROM {{inner}} "
            "WHERE {ik} = {ok} AND {iv} <> {ov})"
        ),
        "is null below": (
            f"SELECT {OTHERS} FROM {{other}} LEFT JOIN {{inner}} ON {{ik}} = {{ok}} "
            "WHERE {ik} IS NULL"
        ),
    },
    "not in below": {
        "not in below": (
            f"SELECT {OTHERS} FROM {{other}} WHERE {{ok}} NOT IN (SELECT {{ik}} FROM {{inner}})"
        ),
        "not in some below": (
            f"SELECT {OTHERS} FROM {{other}} WHERE {{ov}} NOT IN "
            "(SELECT {iv} FROM {inner} WHERE {ik} = {ok})"
        ),
    },
    "scalar below": {
        "scalar below": (
            "SELECT {ok} AS {k}, {ov} - (SELECT max({iv}) FROM {inner}) AS {v}, {os} AS {s} "
            "FROM {other}"
        ),
        "scalar correlated below": (
            "SELECT {ok} AS {k}, (SELECT sum({iv}) FROM {inner} WHERE {ik} = {ok}) AS {v}, "
            "{os} AS {s} FROM {other}"
        ),
        "scalar count below": (
            "SELECT {ok} AS {k}, (SELECT count({iv}) FROM {inner} WHERE {ik} = {ok}) AS {v}, "
            "{os} AS {s} FROM {other}"
        ),
    },
    "global": {
        "global": "SELECT count({ik}) AS {k}, sum({iv}) AS {v}, max({is}) AS {s} FROM {inner}",
        "global sums": (
            "SELECT count(*) AS {k}, sum({iv}) AS {v}, CAST(count({is}) AS STRING) AS {s} "
            "FROM {inner}"
        ),
        "global having": (
            "SELECT sum({ik}) AS {k}, count({iv}) AS {v}, CAST(count(*) AS STRING) AS {s} "
            "FROM {inner} HAVING count(*) > 2"
        ),
    },
}
# Groups by the nested column, too, if there is one: {ig} behind what is grouped by.
GROUPED: dict[str, dict[str, str]] = {
    "group": {
        "group": (
            "SELECT {ik} AS {k}, sum({iv}) AS {v}, CAST(count(*) AS STRING) AS {s}{ix} "
            "FROM {inner} GROUP BY {ik}{ig}"
        ),
        "extremes": (
            "SELECT min({iv}) AS {k}, max({ik}) AS {v}, {is} AS {s}{ix} FROM {inner} "
            "GROUP BY {is}{ig}"
        ),
        "having": (
            "SELECT {ik} AS {k}, count({iv}) AS {v}, {is} AS {s}{ix} FROM {inner} "
            "GROUP BY {ik}, {is}{ig} HAVING count(*) > 1 OR sum({iv}) = 0"
        ),
        "count pairs": (
            "SELECT {ik} AS {k}, count({iv}, {is}) AS {v}, min({is}) AS {s}{ix} FROM {inner} "
            "GROUP BY {ik}{ig}"
        ),
        "filtered": (
            "SELECT {ik} AS {k}, sum({iv}) FILTER (WHERE {is} = 'a') AS {v}, "
            "CAST(count_if({iv} > 0) AS STRING) AS {s}{ix} FROM {inner} GROUP BY {ik}{ig}"
        ),
        "booleans": (
            "SELECT CASE WHEN bool_and({iv} > 0) THEN 1L ELSE 0L END AS {k}, "
            "CAST(avg({iv}) * 60 AS BIGINT) AS {v}, {is} AS {s}{ix} FROM {inner} GROUP BY {is}{ig}"
        ),
        "by expression": (
            "SELECT {ik} % 2 AS {k}, count(*) + sum({iv}) AS {v}, max({is}) AS {s}{ix} "
            "FROM {inner} GROUP BY {ik} % 2{ig}"
        ),
    },
    "group again": {
        "count distinct": (
            "SELECT {ik} AS {k}, count(DISTINCT {iv}) AS {v}, max({is}) AS {s}{ix} FROM {inner} "
            "GROUP BY {ik}{ig}"
        ),
        "greatest struct": (
            "SELECT {n}.{m}.{iv_} AS {k}, {n}.{k} AS {v}, {n}.{m}.{is_} AS {s}{nx} FROM "
            "(SELECT {ik} AS {k}, max(struct({iv}, {is})) AS {m}{ix} FROM {inner} "
            "GROUP BY {ik}{ig}) AS {n}"
        ),
    },
    "grouping sets": {
        "rollup": (
            "SELECT {ik} AS {k}, sum({iv}) AS {v}, {is} AS {s}{ix} FROM {inner} "
            "GROUP BY ROLLUP ({ik}, {is}{ig})"
        ),
        "cube": (
            "SELECT {ik} AS {k}, count(*) AS {v}, {is} AS {s}{ix} FROM {inner} "
            "GROUP BY CUBE ({ik}, {is}{ig}) HAVING count(*) > 0"
        ),
        "sets": (
            "SELECT {ik} AS {k}, CAST(grouping({ik}) AS BIGINT) + count({iv}) AS {v}, {is} AS {s} "
            "FROM {inner} GROUP BY GROUPING SETS (({ik}), ({is}))"
        ),
    },
}
NESTED: dict[str, tuple[str, str, str]] = {
    "struct": (
        "nested",
        "SELECT {ik} AS {k}, {iv} AS {v}, {is} AS {s}, struct({ik}, {iv}) AS {x} FROM {inner}",
        STRUCT,
    ),
    "zip": (
        "nested",
        "SELECT {n}.{m} AS {k}, {n}.{x} AS {v}, {n}.{s}, arrays_zip({n}.{k}, {n}.{v}) AS {x} "
        "FROM (SELECT array({ik}) AS {k}, array({iv}) AS {v}, {ik} AS {m}, {iv} AS {x}, "
        "{is} AS {s} FROM {inner}) AS {n}",
        ZIPPED,
    ),
    "collect": (
        "group again",
        "SELECT {ik} AS {k}, count(*) AS {v}, max({is}) AS {s}, "
        "sort_array(collect_list({iv})) AS {x} FROM {inner} GROUP BY {ik}",
        LISTED,
    ),
    "collect structs": (
        "group again",
        "SELECT {ik} AS {k}, sum({iv}) AS {v}, max({is}) AS {s}, "
        "sort_array(collect_list(struct({ik}, {iv}))) AS {x} FROM {inner} GROUP BY {ik}",
        f"array({STRUCT})",
    ),
}
TOLD = {
    "to json": (
        "nested",
        "SELECT {ik} AS {k}, {iv} AS {v}, to_json(struct({ik}, {is})) AS {s} FROM {inner}",
    ),
    "access": (
        "nested",
        "SELECT {n}.{m}.{iv_} AS {k}, {n}.{m}.{ik_} AS {v}, get({n}.{x}, 1) AS {s} FROM "
        "(SELECT struct({ik}, {iv}) AS {m}, array('b', {is}) AS {x} FROM {inner}) AS {n}",
    ),
    "element": (
        "nested",
        "SELECT {n}.{x}[0] AS {k}, {n}.{x}[1] AS {v}, {n}.{m}['s'] AS {s} FROM "
        "(SELECT array({ik}, {iv}) AS {x}, map('s', {is}) AS {m} FROM {inner}) AS {n}",
    ),
}
# Where Sail 0.7.2 is no oracle: it cannot plan the query, or answers otherwise than Spark.
ONLY_SPARK = {
    "element": "a place that may not be there cannot be planned",
    "qualify": "not in its grammar",
    "lookup": "a scalar subquery must be aggregated",
    "in value": "IN as a value cannot be planned",
    "not in correlated": "NOT IN by two columns cannot be planned",
    "not in some below": "NOT IN by two columns cannot be planned",
    "not in pairs": "NULLs in pairs are compared otherwise",
    "rollup": "a total of no rows is there",
    "intersect all": "copies are counted otherwise",
    "except all": "copies are counted otherwise",
    "except all backward": "copies are counted otherwise",
}


def _catalogue() -> tuple[Operator, ...]:
    found = []
    for nested, families in (("keep", KEPT), ("drop", DROPPED), ("keep", GROUPED)):
        for family, operators in families.items():
            found += [Operator(name, family, sql, nested) for name, sql in operators.items()]
    found += [Operator(name, family, sql, "drop") for name, (family, sql) in TOLD.items()]
    found += [Operator(name, family, sql, made) for name, (family, sql, made) in NESTED.items()]
    return tuple(replace(one, only_spark=ONLY_SPARK.get(one.name)) for one in found)


OPERATORS = _catalogue()
