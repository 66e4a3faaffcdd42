"""What is asked of a merge: what a user says, and what the rooms above know of stream tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tidelock.errors import TableInUse
from tidelock.model.history.commit import Tables
from tidelock.model.history.merges import Granularity, Resolutions
from tidelock.store.merge.stream_plan import Describe, Units


def _no_units(tables: Tables) -> Iterable[Sequence[str]]:
    return [[name] for name in tables]


def _by_id(definition: str) -> dict[str, str]:
    return {"definition": definition}


Columns: TypeAlias = Mapping[str, Mapping[int, int]]
"""For tables of which columns of the source have other ids at the target: by table id, which."""
Renumber: TypeAlias = Callable[[Columns, str], str]
"""The definition of a stream table, by its id, with the ids that columns have at the target."""
Unmet: TypeAlias = Callable[[Tables, Tables], Iterable[TableInUse]]
"""What stream tables need of the tables after a merge and do not find; given those before."""


def _as_it_is(columns: Columns, definition: str) -> str:
    return definition


def _no_needs(before: Tables, after: Tables) -> Iterable[TableInUse]:
    return ()


@dataclass(frozen=True)
class Options:
    """What a user asks of a merge."""

    resolutions: Resolutions = field(default_factory=Resolutions)
    granularity: Granularity = "column"
    units: Units = _no_units
    describe: Describe = _by_id
    renumber: Renumber = _as_it_is
    unmet: Unmet = _no_needs
    refresh: bool = False
    """Whether stream tables are brought up to date in the commit of the merge."""
