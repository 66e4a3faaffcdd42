"""Changes of many rows, compared by joins on the executors. Nothing but what breaks a rule comes to
the driver, and of that the first few and a count.

Columns go by numbers in here (`c0`, `c1`, …), whatever users call them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidelock.model.names import quote
from tidelock.model.sql.expressions import Filter
from tidelock.store.rules.deltas import TableDelta
from tidelock.store.rules.kinds.offenders import ROWS_MAX
from tidelock.store.rules.prospect import Prospect
from tidelock.store.spark.scan import ROW_ADDRESS, ROW_ID, FrameSource, scan_frame
from tidelock.store.spark.stage import query_failures
from tidelock.store.tables.fragments import Addresses, Dataset, numbers

BROADCAST_ROWS_MAX = 2_000_000
"""The values of so many rows are sent to every executor; of more, both sides are divided."""


@dataclass(frozen=True)
class Found:
    """What breaks a rule: the first of it, and how much there is."""

    first: pa.Table
    count: int
    rows: int


def repeated_values(
    prospect: Prospect, table_id: str, columns: Sequence[str], condition: Filter | None
) -> Found | None:
    """Values that several rows of a table have, each with how many (`n`)."""
    frame = _table(prospect, table_id, columns, condition).groupBy(*_numbers(columns)).count()
    return _counted(prospect, table_id, frame.withColumnRenamed("count", "n").where("n > 1"))


def unfit_groups(
    prospect: Prospect, table_id: str, columns: Sequence[str], least: int, most: int | None
) -> Found | None:
    """Values that too few or too many rows of a table have, each with how many (`n`)."""
    frame = _table(prospect, table_id, columns).groupBy(*_numbers(columns)).count()
    too_many = "" if most is None else f" OR n > {most}"
    frame = frame.withColumnRenamed("count", "n").where(f"n < {least}{too_many}")
    return _counted(prospect, table_id, frame)


def without_partner(
    prospect: Prospect,
    table_id: str,
    columns: Sequence[str],
    other_id: str,
    others: Sequence[str],
    delta: TableDelta | None = None,
) -> Found | None:
    """Values of a table, or of the rows that come to it, that no row of another table has."""
    if delta is None:
        frame = _table(prospect, table_id, columns)
    else:
        fragments = [id for _, id in delta.added]
        assert delta.after is not None
        scan = _scan(prospect, table_id, delta.after, fragments, columns)
        frame = _numbered(scan, columns)
    there = _table(prospect, other_id, others)
    if prospect.state(other_id).rows <= BROADCAST_ROWS_MAX:
        there = there.hint("broadcast")
    gone = frame.join(there, on=_numbers(columns), how="left_anti")
    return _listed(prospect, table_id, gone)


def orphans(
    prospect: Prospect,
    table_id: str,
    columns: Sequence[str],
    parent_id: str,
    target: Sequence[str],
    delta: TableDelta,
) -> Found | None:
    """Values of a table that rows had which leave another, and that none has there any more."""
    names = _numbers(columns)
    there = _table(prospect, parent_id, target)
    gone = _left(prospect, delta, target).distinct().join(there, on=names, how="left_anti")
    found = _table(prospect, table_id, columns).join(gone, on=names, how="left_semi")
    return _listed(prospect, table_id, found)


def rows_where(
    prospect: Prospect, table_id: str, delta: TableDelta, files: Sequence[str], condition: Filter
) -> tuple[Addresses, int]:
    """The addresses of the first rows that come for which a condition is true, and how many there
    are."""
    fragments = [id for file, id in delta.added if file in files]
    columns = [] if condition.lance is not None else list(condition.columns)
    assert delta.after is not None
    frame = _scan(
        prospect, table_id, delta.after, fragments, columns, condition.lance, with_row_ids=True
    )
    name = prospect.name(table_id)
    with query_failures(frame.sparkSession, name):
        if condition.lance is None:
            frame = frame.alias(name).where(condition.sql)
        frame = frame.select(ROW_ADDRESS)
        first = numbers(frame.limit(ROWS_MAX).toArrow().column(0)).astype("uint64")
        return first, frame.count() if len(first) else 0


def _listed(prospect: Prospect, table_id: str, values: Any) -> Found | None:
    """Values of rows, several of which may have the same."""
    with query_failures(values.sparkSession, prospect.name(table_id)):
        first = values.limit(1).toArrow()
        if not first.num_rows:
            return None
        counted = values.groupBy(*values.columns).count().withColumnRenamed("count", "n")
        return _total(counted)


def _counted(prospect: Prospect, table_id: str, counted: Any) -> Found | None:
    """Values, each with how many rows have it (`n`)."""
    with query_failures(counted.sparkSession, prospect.name(table_id)):
        first = counted.limit(1).toArrow()
        return _total(counted) if first.num_rows else None


def _total(counted: Any) -> Found:
    names = [name for name in counted.columns if name != "n"]
    first = counted.orderBy(*names).limit(ROWS_MAX).toArrow()
    totals = counted.selectExpr("count(*) AS groups", "sum(n) AS n").toArrow().to_pylist()[0]
    return Found(first, totals["groups"], totals["n"])


def _table(
    prospect: Prospect, table_id: str, columns: Sequence[str], condition: Filter | None = None
) -> Any:
    """Some columns of a table as it would be."""
    dataset = prospect.dataset(table_id)
    ids = [fragment.fragment_id for fragment in dataset.get_fragments()]
    lance = None if condition is None else condition.lance
    needed = list(columns)
    if condition is not None and lance is None:
        needed = list(dict.fromkeys([*columns, *condition.columns]))
    frame = _scan(prospect, table_id, dataset, ids, needed, lance)
    if condition is not None and lance is None:
        name = prospect.name(table_id)
        with query_failures(frame.sparkSession, name):
            frame = frame.alias(name).where(condition.sql)
    return _numbered(frame, columns)


def _left(prospect: Prospect, delta: TableDelta, columns: Sequence[str]) -> Any:
    """Some columns of the rows that leave a table."""
    before, after, table_id = delta.before, delta.after, delta.table_id
    assert before is not None
    frame = _numbered(_scan(prospect, table_id, before, delta.removed, columns), columns)
    if not delta.worn:
        return frame
    assert after is not None
    then = _scan(prospect, table_id, before, delta.worn, columns, with_row_ids=True).drop(ROW_ID)
    now = _scan(prospect, table_id, after, delta.worn, [], with_row_ids=True).select(ROW_ADDRESS)
    return frame.union(_numbered(then.join(now, on=ROW_ADDRESS, how="left_anti"), columns))


def _numbers(columns: Sequence[str]) -> list[str]:
    return [f"c{number}" for number in range(len(columns))]


def _numbered(frame: Any, columns: Sequence[str]) -> Any:
    """The columns by numbers, without rows that have a NULL in one of them."""
    named = frame.selectExpr(
        *[f"{quote(name)} AS c{number}" for number, name in enumerate(columns)]
    )
    return named.where(" AND ".join(f"{name} IS NOT NULL" for name in _numbers(columns)))


def _scan(
    prospect: Prospect,
    table_id: str,
    dataset: Dataset,
    fragments: Iterable[int],
    columns: Sequence[str],
    filter: str | None = None,
    *,
    with_row_ids: bool = False,
) -> Any:
    files = prospect.files
    source = FrameSource(
        uri=files.uri(table_id),
        version=dataset.version,
        storage_options=files.location.lance_options,
        fragments=tuple((one, dataset.get_fragment(one).count_rows()) for one in fragments),
        schema=files.arrow_schema(table_id, dataset),
        checksum=files.checksum(table_id, dataset),
    )
    return scan_frame(
        prospect.engine.get(),
        source,
        columns=list(columns),
        filter=filter,
        with_row_ids=with_row_ids,
    )
