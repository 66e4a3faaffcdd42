"""What the store asks of the rooms above it, which it does not know. `CarryAlong`, which is asked
about a transaction, stands beside that."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from tidelock.model.history.commit import BranchRef, Commit, Tables

if TYPE_CHECKING:
    from tidelock.store.tables.datasets import TableFiles

CheckTables: TypeAlias = Callable[[Tables, Tables, "TableFiles"], None]
"""Given the tables before and after a commit, raises if they cannot stand together."""
AfterCommits: TypeAlias = Callable[[BranchRef, list[Commit]], None]
"""Told of what was published from here, once it is."""
