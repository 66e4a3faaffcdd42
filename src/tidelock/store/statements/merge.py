"""Running MERGE: the engine finds what becomes of every row, and the executors write it.

Rows that are updated keep their ids. Nothing but row addresses, as bitmaps, and the metadata of
fragments comes to this process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import pyarrow as pa
from pyroaring import BitMap

from tidelock.errors import InvalidExpression, MultipleMatches
from tidelock.model.sql.statements.definition import Merge, Rows
from tidelock.store.queries import Numbered
from tidelock.store.rows.refusals import OFFENDERS_MAX, tell_keys, tell_value
from tidelock.store.spark.assignment import arrow_types, check_storable, is_ansi
from tidelock.store.spark.differences import SIDE, WrittenDifference
from tidelock.store.spark.replacement import FrameReplacement, write_replacement
from tidelock.store.spark.scan import tasks_for
from tidelock.store.spark.stage import refuse_colliding
from tidelock.store.spark.write import CORES_UNKNOWN, TASKS_PER_CORE
from tidelock.store.statements.desk import Desk
from tidelock.store.statements.merge_plan import SOURCE, MergePlan, source_names
from tidelock.store.statements.needed_rows import lance_filter
from tidelock.store.statements.refusals import refused
from tidelock.store.statements.reports import StatementReport
from tidelock.store.table import Table

if TYPE_CHECKING:
    from tidelock.store.spark.types import DataFrame

LARGE_ROWS = 100_000
"""A target of more rows is not sent to every executor, whatever the engine takes its size for."""
SHOWN_COLUMNS_MAX = 4
"""Of a table without a key, so many columns tell which row is meant."""


def run_merge(desk: Desk, merge: Merge) -> StatementReport:
    staged = desk.stage(merge.table)
    view = desk.view(staged)
    desk.announce()
    given = desk.query(f"{merge.definitions}\n{merge.source}".strip(), refused(merge))
    plan = MergePlan(merge, view.schema, _source_columns(merge, given), desk.default)
    told = refused(merge, [*view.schema.names, *plan.source])
    target = Numbered(view, lance_filter(desk, merge, view))
    frames = {SOURCE: given.toDF(*source_names(plan.source))}
    ansi = is_ansi(given.sparkSession)
    types: dict[tuple[int, str], pa.DataType] = {}
    for rows in get_args(Rows):
        text = plan.types_sql(rows)
        if text is not None:
            found = arrow_types(desk.query(text, told, target=target, frames=frames))
            types |= plan.types_of(rows, found)
    for (number, name), type_ in types.items():
        column = view.schema.column(name)
        check_storable(type_, column, view.name, plan.told(number, name), ansi=ansi)
    text = plan.sql(types, ansi=ansi, shuffled=view.count() > LARGE_ROWS)
    frame = desk.query(text, told, target=target, frames=frames)
    tasks = TASKS_PER_CORE * tasks_for(frame.sparkSession, unknown=CORES_UNKNOWN)
    # Rows that take over an id come first, as fragments want it.
    ordered = frame.coalesce(tasks).sortWithinPartitions(SIDE)
    written = write_replacement(view, ordered)
    if written.repeated and not merge.allows_repeats:
        raise _matched_repeatedly(view, written)
    operation = FrameReplacement.of(view, written)
    keys = None
    if plan.sets_key and operation.added:
        keys = refuse_colliding(view, staged, operation.fragments, operation.addresses())
    if operation.fragments or operation.marks:
        # Rows that the transaction itself added have other ids on top of another base: then it
        # conflicts with whatever changes the table.
        staged.add(operation if staged.operations else operation.by_row(view, keys))
    return StatementReport(
        merge.kind,
        staged.name,
        inserted=operation.added - operation.replaced,
        updated=operation.replaced,
        deleted=operation.removed - operation.replaced,
    )


def _source_columns(merge: Merge, given: DataFrame) -> tuple[str, ...]:
    if merge.source_columns is None:
        return tuple(given.columns)
    if len(merge.source_columns) != len(given.columns):
        raise InvalidExpression(
            f"The alias of the source lists {len(merge.source_columns)} columns, and the source "
            f"has {len(given.columns)}. List all of them.",
            table=merge.table,
            expected=len(given.columns),
            actual=len(merge.source_columns),
        )
    return merge.source_columns


def _matched_repeatedly(view: Table, written: WrittenDifference) -> MultipleMatches:
    """The error, with the keys of rows that several source rows would change."""
    count = sum(len(BitMap.deserialize(marks)) for marks in written.repeated.values())
    names = list(view.key or view.schema.names[:SHOWN_COLUMNS_MAX])
    addresses = [
        (fragment << 32) + offset
        for fragment, marks in sorted(written.repeated.items())
        for offset in BitMap.deserialize(marks)
    ][:OFFENDERS_MAX]
    rows = view.dataset.scanner(
        columns=names, filter=f"_rowaddr IN ({', '.join(map(str, addresses))})"
    ).to_table()
    values = list(
        zip(*[[tell_value(value) for value in column] for column in rows.columns], strict=True)
    )
    what = "key" if view.key else "row"
    return MultipleMatches(
        f"Several rows of the source match the same row of table {view.name!r} and would change "
        f"it: {what} ({', '.join(names)}) {tell_keys(values, count)}. Keep one source row for each "
        "row, such as the newest. Nothing was written.",
        table=view.name,
        columns=names,
        values=values,
    )
