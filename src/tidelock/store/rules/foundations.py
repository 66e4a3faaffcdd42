"""Whether tables can stand together: what a rule refers to is there, and is what it has to be."""

from __future__ import annotations

from collections.abc import Iterator

from tidelock.errors import Advice, InvalidSchema, TableInUse
from tidelock.model.history.commit import TableChange
from tidelock.model.schema.rules import Rule
from tidelock.model.schema.schema import TableSchema
from tidelock.model.sql.trees import rename_column
from tidelock.store.rules.prospect import Prospect
from tidelock.store.rules.related import References, schema_of_state

_ADVICE = Advice(
    "Drop the rule first, or what refers to it in the same transaction.",
    "Drop the rule first, or what refers to it in the same transaction.",
)


def refuse_unfounded(
    prospect: Prospect, changes: tuple[TableChange, ...], references: References
) -> None:
    """TableInUse if a table is dropped that others refer to, or no longer has what they do."""
    for change in changes:
        if change.after is None:
            _refuse_dropped(prospect, change, references.to(change.table_id))
        elif change.before is None or is_altered(change):
            for child, rule in references.to(change.table_id):
                _refuse_unfit(prospect, child, rule)
            for rule in prospect.schema(change.table_id).rules:
                if rule.kind == "reference":
                    _refuse_unfit(prospect, change.table_id, rule)


def is_altered(change: TableChange) -> bool:
    before, after = change.before, change.after
    if before is None or after is None:
        return False
    return (before.schema, before.key) != (after.schema, after.key)


def _refuse_dropped(
    prospect: Prospect, change: TableChange, users: tuple[tuple[str, Rule], ...]
) -> None:
    if not users:
        return
    named = [f"{prospect.name(child)!r} ({rule.name})" for child, rule in users]
    raise TableInUse(
        f"Table {change.table!r} is referred to by {', '.join(named)}, so that it cannot be "
        "dropped. Nothing was written.",
        _ADVICE,
        table=change.table,
        dependents=sorted({prospect.name(child) for child, _ in users}),
        rules=[rule.name for _, rule in users],
    )


def _refuse_unfit(prospect: Prospect, child: str, rule: Rule) -> None:
    name = prospect.name(child)
    parent = prospect.find_state(rule.table)
    if parent is None:
        raise InvalidSchema(
            f"Rule {rule.name!r} of table {name!r} refers to a table that was dropped. Nothing was "
            "written.",
            table=name,
            rule=rule.name,
        )
    mine, theirs = prospect.schema(child), prospect.schema(rule.table)
    if not fits(rule, mine, theirs):
        columns = ", ".join(c.name for one in rule.target if (c := theirs.with_id(one)) is not None)
        raise TableInUse(
            f"Table {parent.name!r} is referred to by {name!r} ({rule.name}), which needs columns "
            f"of it ({columns}) as they are: its key or unique, and of the same types. Nothing was "
            "written.",
            _ADVICE,
            table=parent.name,
            dependents=[name],
            rules=[rule.name],
        )


def fits(rule: Rule, mine: TableSchema, theirs: TableSchema) -> bool:
    """Whether a reference can be between two tables."""
    unique = [
        set(one.columns) for one in theirs.rules if one.kind == "unique" and one.condition is None
    ]
    if set(rule.target) not in [set(theirs.key_ids), *unique]:
        return False
    for one, other in zip(rule.columns, rule.target, strict=True):
        column, wanted = mine.with_id(one), theirs.with_id(other)
        if column is None or wanted is None or column.type != wanted.type:
            return False
    return True


def new_rules(prospect: Prospect, change: TableChange) -> Iterator[Rule]:
    """The rules that come to a table by a change, and that its rows were never compared with."""
    after = change.after
    if after is None or not after.schema:
        return
    now = prospect.schema(change.table_id)
    known: set[Rule] = set()
    if change.before is not None:
        if not is_altered(change):
            return
        then = schema_of_state(prospect.files, change.before)
        known = {_bare(_renamed(rule, then, now)) for rule in then.rules}
    new = [rule for rule in now.rules if _bare(rule) not in known]
    # With a reference, a cardinality is about every row that can be referred to.
    bound = [set(rule.columns) for rule in new if rule.kind == "reference"]
    for rule in now.rules:
        if rule in new or (rule.kind == "cardinality" and set(rule.columns) in bound):
            yield rule


def has_new_key(prospect: Prospect, change: TableChange) -> bool:
    """Whether a table that was there gets another key."""
    before, after = change.before, change.after
    if before is None or after is None or before.key == after.key:
        return False
    then = schema_of_state(prospect.files, before)
    now = prospect.schema(change.table_id)
    return bool(now.key) and set(now.key_ids) != set(then.key_ids)


def _renamed(rule: Rule, then: TableSchema, now: TableSchema) -> Rule:
    """A rule with the names that columns have now."""
    if rule.condition is None:
        return rule
    condition = rule.condition
    for column in then.columns:
        found = now.with_id(column.id)
        if found is not None and found.name != column.name:
            condition = rename_column(condition, column.name, found.name)
    return Rule(rule.kind, rule.name, rule.columns, condition, least=rule.least, most=rule.most)


def _bare(rule: Rule) -> Rule:
    """What a rule says of the rows that are there, whatever it is called."""
    return Rule(
        rule.kind,
        "",
        rule.columns,
        rule.condition,
        rule.table,
        rule.target,
        least=rule.least,
        most=rule.most,
    )
