"""The kinds of rules. Adding one is a file with these functions, and an entry here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tidelock.model.schema.rules import Rule, RuleKind
from tidelock.store.rules.deltas import TableDelta
from tidelock.store.rules.kinds import cardinality, check, reference, unique
from tidelock.store.rules.prospect import Prospect

Check: TypeAlias = Callable[[Prospect, str, Rule, TableDelta], None]
"""Raises RuleBroken; is given the table that has the rule, and what comes and leaves."""
CheckAll: TypeAlias = Callable[[Prospect, str, Rule], None]


@dataclass(frozen=True)
class Kind:
    check: Check
    """For what changes in the table that has the rule."""
    check_parents: Check | None = None
    """For what changes in the table that the rule refers to."""
    check_all: CheckAll | None = None
    """For all rows that are there, if that is more than as if all of them came."""
    waits: bool = True
    """Whether it depends on other rows, so that what others commit may break it."""


KINDS: dict[RuleKind, Kind] = {
    "unique": Kind(unique.check),
    "check": Kind(check.check, waits=False),
    "reference": Kind(reference.check, reference.check_parents),
    "cardinality": Kind(
        cardinality.check, cardinality.check_parents, check_all=cardinality.check_all
    ),
}


def check_all(prospect: Prospect, table_id: str, rule: Rule) -> None:
    """RuleBroken if a rule does not hold for all rows that are there."""
    kind = KINDS[rule.kind]
    if kind.check_all is not None:
        kind.check_all(prospect, table_id, rule)
    else:
        kind.check(prospect, table_id, rule, prospect.whole(table_id))
