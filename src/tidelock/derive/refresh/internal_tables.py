"""The internal tables of a stream table: those that keep its inner segments.

Owns: making and dropping them, together with the definition that needs them.
"""

from __future__ import annotations

from tidelock.derive.plan.view import ViewPlan, internal_name
from tidelock.model.history.commit import TableState
from tidelock.store.transaction import Transaction


def create_internal(transaction: Transaction, table_id: str, plan: ViewPlan) -> None:
    for kept in plan.internal:
        transaction.create_kept(internal_name(table_id, kept.segment.number), kept.schema, None)


def drop_internal(transaction: Transaction, table: TableState) -> None:
    prefix = internal_name(table.id, 0)[:-1]
    for other in transaction.tables():
        if other.startswith(prefix):
            transaction.drop_kept(other)


def restage_internal(transaction: Transaction, table: TableState, plan: ViewPlan) -> None:
    """Other segments in the place of those that were kept; they are empty."""
    drop_internal(transaction, table)
    create_internal(transaction, table.id, plan)
