"""The schema of a table: typed columns, an optional key, and rules.

Invariants: there is a column; column names are unique without regard to case, are not reserved and
can be stored; types are normal (`model/types.py`); key columns exist, are required (NOT NULL) and
have a type that can be compared exactly. `table_schema` is the door that holds them.

A column has an id from birth, by which pins, rules and views know it; its name is a label. Two
schemas are equal when the same rows fit into both: ids, defaults, comments and rules are not asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa

from tidelock.errors import ColumnNotFound, InvalidName, InvalidSchema
from tidelock.model.names import check_name, fold, is_hidden, suggest
from tidelock.model.schema.rules import Rule
from tidelock.model.types import inner_fields, normal_type, type_name

# Columns that Tidelock adds to changes, and columns that Lance keeps for itself.
RESERVED_NAMES = frozenset(
    {
        "_weight",
        "_version",
        "_op",
        "_sequence",
        "_rowid",
        "_rowaddr",
        "_rowoffset",
        "_row_created_at_version",
        "_row_last_updated_at_version",
    }
)

NEW = -1
"""The id of a column that has none yet."""


@dataclass(frozen=True)
class Column:
    name: str
    type: pa.DataType
    nullable: bool = True
    id: int = field(default=NEW, compare=False)
    default: str | None = field(default=None, compare=False)
    """What a row gets that does not name the column, as SQL; None is NULL."""
    comment: str | None = field(default=None, compare=False)


@dataclass(frozen=True)
class TableSchema:
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = field(default=(), compare=False)
    comment: str | None = field(default=None, compare=False)
    next_id: int = field(default=0, compare=False)
    """Below this, ids of columns were given, also to columns that are gone."""

    @cached_property
    def arrow(self) -> pa.Schema:
        return pa.schema([pa.field(c.name, c.type, c.nullable) for c in self.columns])

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @cached_property
    def shown(self) -> TableSchema:
        """The schema without the columns that Tidelock keeps for itself."""
        columns = tuple(column for column in self.columns if not is_hidden(column.name))
        return self if len(columns) == len(self.columns) else replace(self, columns=columns)

    @cached_property
    def required(self) -> tuple[int, ...]:
        """The positions of the columns that are NOT NULL."""
        return tuple(i for i, column in enumerate(self.columns) if not column.nullable)

    @cached_property
    def required_inside(self) -> tuple[int, ...]:
        """The positions of the columns that hold a NOT NULL field; a map's key is one."""
        return tuple(i for i, column in enumerate(self.columns) if holds_required(column.type))

    @cached_property
    def nested(self) -> tuple[int, ...]:
        """The positions of the columns that are an ARRAY, a MAP or a STRUCT."""
        return tuple(i for i, c in enumerate(self.columns) if pa.types.is_nested(c.type))

    @cached_property
    def temporal(self) -> bool:
        """Whether a column, or a field inside one, is a DATE or a TIMESTAMP."""
        return any(_holds_times(column.type) for column in self.columns)

    @cached_property
    def textual(self) -> tuple[int, ...]:
        """The positions of the columns that are a STRING or hold one."""
        return tuple(i for i, column in enumerate(self.columns) if _holds_text(column.type))

    @cached_property
    def defaulted(self) -> tuple[Column, ...]:
        """The columns that have a default other than NULL."""
        return tuple(column for column in self.columns if column.default is not None)

    @cached_property
    def _by_fold(self) -> Mapping[str, Column]:
        return {fold(column.name): column for column in self.columns}

    @cached_property
    def _by_id(self) -> Mapping[int, Column]:
        return {column.id: column for column in self.columns}

    def find(self, name: str) -> Column | None:
        return self._by_fold.get(fold(name))

    def with_id(self, column_id: int) -> Column | None:
        return self._by_id.get(column_id)

    def labels(self, column_ids: Iterable[int]) -> tuple[str, ...]:
        """What columns are called here."""
        return tuple(self._by_id[one].name for one in column_ids)

    @cached_property
    def key_ids(self) -> tuple[int, ...]:
        return tuple(self.column(name).id for name in self.key)

    def rule(self, name: str) -> Rule | None:
        return next((one for one in self.rules if fold(one.name) == fold(name)), None)

    def column(self, name: str) -> Column:
        found = self.find(name)
        if found is None:
            raise ColumnNotFound(
                f"There is no column {name!r}. {suggest(name, self.names)}", column=name
            )
        return found


def holds_required(type_: pa.DataType) -> bool:
    """Whether a field somewhere inside the type is NOT NULL."""
    return any(not f.nullable or holds_required(f.type) for f in inner_fields(type_))


def _holds_times(type_: pa.DataType) -> bool:
    return pa.types.is_temporal(type_) or any(_holds_times(f.type) for f in inner_fields(type_))


def _holds_text(type_: pa.DataType) -> bool:
    return pa.types.is_string(type_) or any(_holds_text(f.type) for f in inner_fields(type_))


def table_schema(
    columns: Iterable[Column],
    key: str | Sequence[str] | None = None,
    rules: tuple[Rule, ...] = (),
    comment: str | None = None,
) -> TableSchema:
    """A schema that keeps the invariants, its types normalized, or an error that says why not."""
    normal = tuple(_normal_column(column) for column in columns)
    if not normal:
        raise InvalidSchema("A table needs at least one column.")
    counts = Counter(fold(column.name) for column in normal)
    for column in normal:
        if counts[fold(column.name)] > 1:
            raise InvalidSchema(
                f"There are two columns named {column.name!r}; names are compared without regard "
                "to case. Rename one.",
                column=column.name,
            )
    names = _key_names(key, normal)
    required = {fold(name) for name in names}
    # As in SQL, a key column is NOT NULL whether or not that was written.
    columns = (replace(c, nullable=False) if fold(c.name) in required else c for c in normal)
    return TableSchema(tuple(columns), names, rules, comment)


def _normal_column(column: Column) -> Column:
    # Hidden ones are Tidelock's own, and had an id when they came.
    own = column.id != NEW and is_hidden(column.name)
    name = column.name if own else _column_name(column.name)
    type_ = normal_type(column.type, name)
    return replace(column, name=name, type=type_, nullable=bool(column.nullable))


def _column_name(given: object) -> str:
    try:
        name = check_name(given, "column")
    except InvalidName as error:
        raise InvalidSchema(error.message, column=str(given)) from error
    if fold(name) in RESERVED_NAMES or is_hidden(name):
        raise InvalidSchema(
            f"{name!r} cannot be a column name: it is reserved. Choose another.", column=name
        )
    if name == "*":
        raise InvalidSchema(
            "'*' cannot be a column name: Lance takes it for all columns. Choose another.",
            column=name,
        )
    for character in ".`":
        if character in name:
            raise InvalidSchema(
                f"{name!r} cannot be a column name: Lance cannot hold {character!r} in the name "
                "of a column. Choose another (inside a STRUCT it may be used).",
                column=name,
            )
    return name


def _key_names(key: str | Sequence[str] | None, columns: tuple[Column, ...]) -> tuple[str, ...]:
    if key is None:
        return ()
    by_fold = {fold(column.name): column for column in columns}
    names: list[str] = []
    if not isinstance(key, Iterable):
        raise InvalidSchema(
            f"A key is the name of a column or a list of names, not {key!r}.", actual=repr(key)
        )
    for given in [key] if isinstance(key, str) else key:
        found = by_fold.get(fold(given)) if isinstance(given, str) else None
        if found is None:
            known = [column.name for column in columns]
            raise InvalidSchema(
                f"The key names a column {given!r} that there is not. {suggest(str(given), known)}",
                column=str(given),
            )
        if found.name in names:
            raise InvalidSchema(f"The key names {found.name!r} twice.", column=found.name)
        check_comparable(found, "the key")
        names.append(found.name)
    return tuple(names)


def check_comparable(column: Column, what: str) -> None:
    """InvalidSchema if rows cannot be found by the values of a column exactly."""
    if pa.types.is_floating(column.type) or pa.types.is_nested(column.type):
        raise InvalidSchema(
            f"Column {column.name!r} cannot be in {what}: {type_name(column.type)} values cannot "
            "be compared exactly. Use an integer, DECIMAL, STRING, BINARY, BOOLEAN, DATE or "
            "TIMESTAMP column.",
            column=column.name,
            type=type_name(column.type),
        )
    # Lance takes these names for expressions, and this one it cannot read back.
    if '"' in column.name:
        raise InvalidSchema(
            f"Column {column.name!r} cannot be in {what}: Lance cannot look up a column of this "
            "name. Choose another.",
            column=column.name,
        )


def check_rule(rule: Rule, columns: Iterable[Column | None]) -> None:
    """InvalidSchema if a rule cannot be about what its columns are."""
    for column in columns:
        if rule.kind == "check" or column is None:
            continue
        check_comparable(column, f"rule {rule.name!r}")
        if rule.on_delete == "set null" and not column.nullable:
            raise InvalidSchema(
                f"Rule {rule.name!r} says ON DELETE SET NULL, which needs column {column.name!r} "
                "to be nullable.",
                column=column.name,
                rule=rule.name,
            )
