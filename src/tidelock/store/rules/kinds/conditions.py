"""Conditions of rules: of CHECK, and of UNIQUE for some rows only.

Owns: the choice between Lance and Spark, which is that of every filter (model/sql/expressions), and
what was found of the text of a condition, for as long as a table's declaration is the same.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelock.model.sql.expressions import Filter, parse_filter
from tidelock.model.time.zones import UTC
from tidelock.store.rules.prospect import Prospect
from tidelock.store.spark.conditions import are_true
from tidelock.store.tables.fragments import Addresses

KNOWN_MAX = 1024
_known: OrderedDict[tuple[str, str, str], Filter] = OrderedDict()


def condition_of(prospect: Prospect, table_id: str, sql: str) -> Filter:
    """A condition on the rows of a table."""
    schema = prospect.schema(table_id)
    # Asked only where it matters: a session on a server answers over the network.
    zone = prospect.engine.zone if schema.temporal else UTC
    place = (prospect.state(table_id).schema, sql, zone)
    found = _known.get(place)
    if found is None:
        found = _known[place] = parse_filter(sql, schema, zone=zone)
        if len(_known) > KNOWN_MAX:
            _known.popitem(last=False)
    return found


def negated(sql: str) -> str:
    """True where a condition is false: not where it is NULL."""
    return f"NOT (\n{sql}\n)"


def true_for(
    prospect: Prospect, table_id: str, rows: pa.Table, condition: Filter
) -> npt.NDArray[np.bool_]:
    """For each of some rows of a table whether a condition of Spark's is true."""
    needed = rows.select(list(condition.columns))
    if not condition.columns:
        # It says the same of every row, of which some column tells how many there are.
        needed = pa.table({"row": pa.nulls(rows.num_rows, pa.bool_())})
    return are_true(prospect.engine, needed, condition.sql, prospect.name(table_id))


def true_at(
    prospect: Prospect, table_id: str, addresses: Addresses, condition: Filter
) -> npt.NDArray[np.bool_]:
    """The same for the rows at some addresses."""
    columns = list(condition.columns) or [prospect.schema(table_id).names[0]]
    rows = prospect.rows_at(table_id, addresses, columns)
    return true_for(prospect, table_id, rows, condition)
