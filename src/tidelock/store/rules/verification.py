"""Comparing changes with rules, and staging what follows from them.

Laws: given that all rules held before, they hold after if they do for the rows that come and leave
(`check_changes`); and given that they hold for two sets of changes on top of one head, each alone,
they hold for both together if they do for the rows of one of them (`check_deltas`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from tidelock.model.history.commit import TableChange, Tables
from tidelock.model.schema.rules import Rule
from tidelock.store.objects.parallel import in_parallel
from tidelock.store.rules.deltas import TableDelta
from tidelock.store.rules.foundations import has_new_key, new_rules
from tidelock.store.rules.kinds.kinds import KINDS, check_all
from tidelock.store.rules.kinds.unique import check_key
from tidelock.store.rules.prospect import Prospect, delta_of
from tidelock.store.rules.related import References, related_tables, rules_of
from tidelock.store.tables.datasets import TableFiles

SIDE_BY_SIDE_ROWS_MIN = 64
"""Fewer rows are compared before threads have begun."""


def winners(
    files: TableFiles,
    then: Tables,
    now: Tables,
    seen: dict[str, tuple[int, str] | None],
    changes: tuple[TableChange, ...],
) -> list[TableDelta] | None:
    """What changed between two heads in tables that the rules of some changes have to do with;
    None if that is not rows alone."""
    related = related_tables(files, now, changes)
    if related.keys() != seen.keys():
        return None
    before = {state.id: state for state in then.states()}
    after = {state.id: state for state in now.states()}
    found = []
    for table_id, told in related.items():
        known = seen[table_id]
        if told == known:
            continue
        if told is None or known is None or told[1] != known[1]:
            return None
        found.append(
            TableDelta(files, table_id, files.read(before[table_id]), files.read(after[table_id]))
        )
    return found


def check_changes(
    prospect: Prospect, changes: tuple[TableChange, ...], references: References
) -> None:
    """RuleBroken if a rule does not hold of tables as they would be, given that all rules held
    before the changes."""
    declarations = prospect.files.declarations
    new = {change.table_id: list(new_rules(prospect, change)) for change in changes}
    for change in changes:
        if has_new_key(prospect, change):
            check_key(prospect, change.table_id)
        for rule in new[change.table_id]:
            check_all(prospect, change.table_id, rule)
    checks: list[_Check] = []
    deltas = []
    for change in changes:
        delta = delta_of(prospect.files, change)
        rules = [
            rule
            for rule in rules_of(declarations, change.after)
            if rule not in new[change.table_id]
        ]
        _read_ahead(prospect, delta, rules)
        checks.extend(
            partial(KINDS[rule.kind].check, prospect, change.table_id, rule, delta)
            for rule in rules
        )
        checks.extend(_of_children(prospect, delta, references, new))
        deltas.append(delta)
    _run(prospect, checks, deltas)


def check_whole(prospect: Prospect, change: TableChange, references: References) -> None:
    """RuleBroken if a table whose rows are all others does not agree with its rules, or its
    children do not with it."""
    for rule in rules_of(prospect.files.declarations, change.after):
        check_all(prospect, change.table_id, rule)
    delta = replace(delta_of(prospect.files, change), alike=False)
    for check in _of_children(prospect, delta, references, {}):
        check()


def check_deltas(prospect: Prospect, deltas: list[TableDelta], references: References) -> None:
    """RuleBroken if what others changed does not agree with tables as they would be."""
    checks: list[_Check] = []
    for delta in deltas:
        rules = [rule for rule in prospect.schema(delta.table_id).rules if KINDS[rule.kind].waits]
        _read_ahead(prospect, delta, rules)
        checks.extend(
            partial(KINDS[rule.kind].check, prospect, delta.table_id, rule, delta) for rule in rules
        )
        checks.extend(_of_children(prospect, delta, references, {}))
    _run(prospect, checks, deltas)


_Check: TypeAlias = Callable[[], None]


def _of_children(
    prospect: Prospect,
    delta: TableDelta,
    references: References,
    known: Mapping[str, Collection[Rule]],
) -> Iterator[_Check]:
    """Whether rules hold of those that refer to a changed table, but for rules that were compared
    with everything already."""
    for child in dict.fromkeys(child for child, _ in references.to(delta.table_id)):
        for rule in prospect.schema(child).rules:
            check = KINDS[rule.kind].check_parents
            if check is None or rule in known.get(child, ()):
                continue
            if rule.kind != "reference" or rule.table == delta.table_id:
                yield partial(check, prospect, child, rule, delta)


def _read_ahead(prospect: Prospect, delta: TableDelta, rules: Collection[Rule]) -> None:
    """Read at once what several rules ask of the rows that come."""
    columns = {one for rule in rules if rule.kind != "check" for one in rule.columns}
    if columns and delta.came and not prospect.is_large(delta.came):
        with prospect.reading(delta.table_id):
            delta.read_ahead(prospect.labels(delta.table_id, sorted(columns)))


def _run(prospect: Prospect, checks: Sequence[_Check], deltas: Collection[TableDelta]) -> None:
    """Side by side: each waits for lookups of its own. Of several that fail, the first tells. What
    goes to Spark has all of it alone."""
    rows = [one.came + one.left for one in deltas]
    if sum(rows) < SIDE_BY_SIDE_ROWS_MIN or any(map(prospect.is_large, rows)):
        for check in checks:
            check()
    else:
        in_parallel(lambda check: check(), checks)
