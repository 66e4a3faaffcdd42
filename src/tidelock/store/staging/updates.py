"""How rows that a condition names are deleted, pruned or updated.

Owns: where the condition and the new values are computed: by Lance and on Arrow data where that has
Spark's meaning, else on Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from tidelock.errors import InvalidOption, RequiredColumnNull
from tidelock.model.sql.expressions import Assignment, Filter, parse_assignment
from tidelock.store.lookup.wanted_keys import StagedKeys
from tidelock.store.operations.operations import Mutation, added_fragments, refuse_taken
from tidelock.store.operations.upserts import without_ids
from tidelock.store.spark.stage import find_rows, update_on_spark
from tidelock.store.staging.staged_table import StagedTable
from tidelock.store.staging.unique_keys import refuse_repeated
from tidelock.store.staging.writes import few_or_stream, write_stream
from tidelock.store.table import Table
from tidelock.store.tables.fragments import Addresses, numbers, with_row_ids


def delete(view: Table, staged: StagedTable, where: str) -> int:
    """Stage the removal of rows; returns how many."""
    return stage_delete(view, staged, *_find(view, where))


def delete_here(view: Table, staged: StagedTable, condition: Filter) -> int:
    """Stage the removal of the rows that Lance finds; returns how many."""
    return stage_delete(view, staged, *_find_here(view, condition))


def stage_delete(view: Table, staged: StagedTable, row_ids: Addresses, addresses: Addresses) -> int:
    """Stage the removal of rows that were found; returns how many."""
    if len(row_ids):
        staged.add(Mutation(row_ids, addresses, (), view.dataset.version))
    return len(row_ids)


def prune(view: Table, staged: StagedTable, where: str, until: int | None) -> Addresses:
    """Stage the removal of rows by retention, up to a sequence; returns their sequences."""
    row_ids, addresses = _find(view, where)
    if until is not None:
        chosen = row_ids.astype(np.int64) <= until
        row_ids, addresses = row_ids[chosen], addresses[chosen]
    if len(row_ids):
        staged.add(Mutation(row_ids, addresses, (), view.dataset.version))
        staged.pruned = max(staged.pruned, int(row_ids.max()))
    return row_ids


def _find(view: Table, where: str) -> tuple[Addresses, Addresses]:
    """The ids and addresses of the rows for which a condition is true."""
    condition = view.condition(where)
    if condition.lance is None:
        view.note(condition)
        return find_rows(view, where)
    return _find_here(view, condition)


def _find_here(view: Table, condition: Filter) -> tuple[Addresses, Addresses]:
    view.note(condition)
    scanner = view.dataset.scanner(
        columns=[], filter=condition.lance, with_row_id=True, with_row_address=True
    )
    with view.files.reading(view.state):
        found = scanner.to_table()
    return numbers(found.column("_rowid")), numbers(found.column("_rowaddr"))


def update(
    view: Table, staged: StagedTable, assignments: Mapping[str, object], where: str | None
) -> int:
    """Stage new values for rows; returns how many."""
    if not isinstance(assignments, Mapping) or not assignments:
        raise InvalidOption(
            "update needs a mapping of columns to expressions, such as {'amount': 'amount * 1.1'}.",
            table=view.name,
        )
    condition = None if where is None else view.condition(where)
    parsed = [
        parse_assignment(column, value, view.schema, table_name=view.name, zone=view.engine.zone)
        for column, value in assignments.items()
    ]
    native = all(one.native is not None for one in parsed)
    if native and (condition is None or condition.lance is not None):
        return update_here(view, staged, parsed, condition)
    view.note(condition)
    mutation = update_on_spark(view, parsed, where)
    return stage_update(view, staged, mutation, [one.column.name for one in parsed])


def update_here(
    view: Table, staged: StagedTable, assignments: Sequence[Assignment], condition: Filter | None
) -> int:
    """Stage new values, computed here, for the rows that Lance finds; returns how many."""
    view.note(condition)
    with view.files.reading(view.state):
        lance_filter = None if condition is None else condition.lance
        mutation = _update_here(view, staged, assignments, lance_filter)
    return stage_update(view, staged, mutation, [one.column.name for one in assignments])


def stage_update(
    view: Table, staged: StagedTable, mutation: Mutation | None, assigned: Iterable[str]
) -> int:
    """Stage rows that were written with new values in some columns; returns how many."""
    if mutation is None:
        return 0
    if set(assigned) & set(staged.schema.key):
        _refuse_colliding_keys(view, staged, mutation)
    staged.add(mutation)
    return len(mutation.row_ids)


def _update_here(
    view: Table, staged: StagedTable, assignments: Sequence[Assignment], lance_filter: str | None
) -> Mutation | None:
    row_ids: list[Addresses] = []
    addresses: list[Addresses] = []
    scanner = view.dataset.scanner(filter=lance_filter, with_row_id=True, with_row_address=True)

    def new_rows() -> Iterator[pa.RecordBatch]:
        for batch in scanner.to_batches():
            if not batch.num_rows:
                continue
            row_ids.append(batch.column("_rowid").to_numpy())
            addresses.append(batch.column("_rowaddr").to_numpy())
            rows = pa.Table.from_batches([batch]).drop_columns(["_rowid", "_rowaddr"])
            yield from _assigned(rows, assignments, view).to_batches()

    rows = few_or_stream(new_rows())
    if not row_ids:
        return None
    if isinstance(rows, pa.Table):
        fragments = staged.files.write(view.dataset, rows)
    else:
        fragments = write_stream(staged.files, view.dataset, staged.target, rows)
    ids = np.concatenate(row_ids)
    return Mutation(
        ids, np.concatenate(addresses), with_row_ids(fragments, ids), view.dataset.version
    )


def _assigned(rows: pa.Table, assignments: Sequence[Assignment], view: Table) -> pa.Table:
    changed = rows
    for one in assignments:
        # Every expression reads the row as it was, also columns that another one assigns.
        values = one.evaluate(rows)
        if not one.column.nullable and values.null_count:
            raise required_null(view, one.column.name, one.sql)
        position = rows.column_names.index(one.column.name)
        changed = changed.set_column(position, view.schema.arrow.field(position), values)
    return changed


def required_null(view: Table, column: str, expression: str) -> RequiredColumnNull:
    return RequiredColumnNull(
        f"Table {view.name!r}: {expression!r} gives NULL for the required column {column!r}. "
        "Nothing was written.",
        table=view.name,
        column=column,
        expression=expression,
    )


def _refuse_colliding_keys(view: Table, staged: StagedTable, mutation: Mutation) -> None:
    """An update of key columns must leave every key unique, also on top of what others publish."""
    files, target = staged.files, staged.target
    scratch = files.append(target.id, view.dataset, without_ids(mutation.fragments))
    own = added_fragments(view.dataset, scratch)
    keys = StagedKeys(scratch, tuple(own), target.key)
    refuse_repeated(target, keys)
    refuse_taken(target, view.dataset, keys, mutation.row_ids)
    mutation.keys = keys
