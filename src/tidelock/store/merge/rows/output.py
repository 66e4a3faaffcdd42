"""What follows from a merge of rows, as it is handed on: rows that come to the target and leave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from tidelock.model.history.renumbering import Ids
from tidelock.store.changes.alike import Mask
from tidelock.store.merge.rows.located import Located


@dataclass(frozen=True)
class RowIds:
    """The ids that rows have, or once had, at each side; ABSENT where they never were."""

    source: Ids
    target: Ids

    def where(self, mask: Mask) -> RowIds:
        return RowIds(self.source[mask], self.target[mask])


@dataclass(frozen=True)
class Written:
    """Rows that the target gets."""

    rows: pa.Table
    keys: pa.Table
    located: Located
    """Where the rows are that they replace; ABSENT for rows that come anew."""
    ids: RowIds | None = None
    """Where rows are known by ids."""


class Output(Protocol):
    """What is done with what follows from a merge of rows."""

    def write(self, written: Written) -> None: ...

    def delete(self, keys: pa.Table, located: Located) -> None: ...

    def doubt(self, keys: pa.Table, located: Located, ids: RowIds | None) -> None:
        """Rows that are in conflict."""
