"""What the store asks of the rooms above it, which it does not know."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from tidelock.model.history.commit import BranchRef, Commit, Tables

if TYPE_CHECKING:
    from tidelock.store.tables.datasets import TableFiles
    from tidelock.store.transaction import Transaction

CheckTables: TypeAlias = Callable[[Tables, Tables, "TableFiles"], None]
"""Given the tables before and after a commit, raises if they cannot stand together."""
CarryAlong: TypeAlias = Callable[["Transaction", bool], None]
"""Stages what follows for others from what a transaction has staged. Asked at its end, if it drops
tables; and at once, with True, by whoever takes away what others need, and carries them along."""
AfterCommits: TypeAlias = Callable[[BranchRef, list[Commit]], None]
"""Told of what was published from here, once it is."""
