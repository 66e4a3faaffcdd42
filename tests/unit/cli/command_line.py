"""What a call of the command line gives, and a look at a table through it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

ORDERS = "id BIGINT NOT NULL, customer STRING, amount DECIMAL(12,2), at TIMESTAMP"


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, Any]:
        return json.loads(self.err)  # type: ignore[no-any-return]


Cli = Callable[..., Result]


def rows_of(cli: Cli, table: str) -> list[dict[str, Any]]:
    """All rows of a table, in the order of their first column."""
    shown = cli("table", "show", table, "--rows", 1000, "--json").document["sample"]
    return sorted(shown, key=lambda row: next(iter(row.values())))
