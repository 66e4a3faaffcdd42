"""The SQL that a MERGE becomes: one join, and for every pair of rows what becomes of it.

A clause's text is evaluated where it may see what SQL lets it see, and nowhere else:

    WHEN MATCHED                 both tables, in the SELECT over their join
    WHEN NOT MATCHED             the source alone, in a SELECT around it that names its columns
    WHEN NOT MATCHED BY SOURCE   the target alone, in another one

Each of these SELECTs gives one struct: what is done, and the values of all columns; NULL where none
of its clauses applies. At most one of the three is not NULL, and pairs of which all are NULL stay
as they are. So conditions and values are evaluated once for a pair, only where they apply, and
source and target are read once.

Law: the rows that come out have the table's columns, SIDE, COPIES, ROW_ID and ROW_ADDRESS, as
spark/differences.py wants them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from tidelock.errors import ColumnNotFound
from tidelock.model.names import HIDDEN, fold, quote, suggest
from tidelock.model.schema.schema import Column, TableSchema
from tidelock.model.sql.statements.definition import Merge, Rows, When
from tidelock.model.sql.store_assignment import stored
from tidelock.model.sql.text import read_tokens
from tidelock.model.types import spell_type
from tidelock.store.spark.differences import COMES, COPIES, LEAVES, REPLACES, SIDE
from tidelock.store.spark.scan import ROW_ADDRESS, ROW_ID
from tidelock.store.statements.defaults import DefaultOf, default_of, value_of
from tidelock.store.statements.desk import TARGET
from tidelock.store.statements.refusals import column_named, required_unlisted

SOURCE = f"{HIDDEN}source"
"""By this name a query reads the source, whose columns are called as `source_names` says."""
_ID, _ADDRESS, _GIVEN, _DONE = (f"{HIDDEN}{one}" for one in ("id", "address", "given", "done"))
_RESULT: dict[Rows, str] = {
    "matched": f"{HIDDEN}matched",
    "not matched": f"{HIDDEN}unmatched",
    "not matched by source": f"{HIDDEN}left",
}
_SIDES = {"update": REPLACES, "delete": LEAVES, "insert": COMES}
_BOTH = f"{_ID} IS NOT NULL AND {_GIVEN} IS NOT NULL"
_APPLIES: dict[Rows, str] = {
    "matched": _BOTH,
    "not matched": f"{_ID} IS NULL",
    "not matched by source": f"{_GIVEN} IS NULL",
}

Values = dict[str, str]
"""What a clause stores in each column, as SQL."""


@dataclass(frozen=True)
class MergePlan:
    """A MERGE, read against the columns of its target and its source."""

    merge: Merge
    schema: TableSchema
    source: tuple[str, ...]
    """The names of the source's columns, as clauses call them."""
    default: DefaultOf = default_of

    # What clauses store

    @cached_property
    def values(self) -> tuple[Values, ...]:
        """For each clause, the columns that it sets and the text of their values."""
        return tuple(self._values(clause) for clause in self.merge.clauses)

    def _values(self, clause: When) -> Values:
        if clause.assignments is None:
            return {column.name: self._of_source(column) for column in self.schema.columns}
        found: Values = {}
        for one in clause.assignments:
            column = column_named(one.column, self.schema, self.merge.table)
            found[column.name] = value_of(one.value, column, self.default)
        if clause.action == "insert":
            for column in self.schema.columns:
                if column.name not in found:
                    found[column.name] = self._default(column)
        return found

    def _default(self, column: Column) -> str:
        if column.default is None and not column.nullable:
            raise required_unlisted(self.merge.table, column)
        return self.default(column)

    def _of_source(self, column: Column) -> str:
        """For `*`: the source's column of that name."""
        for number, name in enumerate(self.source):
            if fold(name) == fold(column.name):
                return source_names(self.source)[number]
        raise ColumnNotFound(
            f"The source of the MERGE into {self.merge.table!r} has no column {column.name!r}, "
            f"which * needs. {suggest(column.name, self.source)} Or name the columns that are set.",
            table=self.merge.table,
            column=column.name,
        )

    def told(self, number: int, column: str) -> str:
        """What a clause stores in a column, as its author would write it."""
        if self.merge.clauses[number].assignments is None:
            return f"{self.merge.source_alias or 'source'}.{column}"
        return self.values[number][column]

    @property
    def sets_key(self) -> bool:
        """Whether rows may come out of it with a key that they had not before."""
        key = set(self.schema.key)
        return bool(key) and any(
            clause.action == "insert" or key & set(values)
            for clause, values in zip(self.merge.clauses, self.values, strict=True)
        )

    # What is read

    @cached_property
    def read(self) -> tuple[str, ...]:
        """The columns of the target that are needed: all, if rows of it are written anew; else
        those that the text can mean."""
        if self.merge.updates:
            return self.schema.names
        texts = [self.merge.on, *(clause.condition or "" for clause in self.merge.clauses)]
        words = {fold(token.text) for text in texts for token in read_tokens(text)}
        return tuple(name for name in self.schema.names if fold(name) in words)

    def _target_scope(self, inner: str, *kept: str) -> str:
        """The target's columns under their names, behind its alias, with what else is kept."""
        named = [f"{_kept(n)} AS {quote(name)}" for n, name in enumerate(self.read)]
        return self._scope(inner, [*named, *kept], self.merge.alias)

    def _source_scope(self, inner: str, *kept: str) -> str:
        hidden = source_names(self.source)
        named = [f"{one} AS {quote(name)}" for one, name in zip(hidden, self.source, strict=True)]
        return self._scope(inner, [*named, *kept], self.merge.source_alias or SOURCE)

    def _scope(self, inner: str, columns: Sequence[str], alias: str) -> str:
        return f"(SELECT {', '.join(columns)} FROM {inner}) AS {quote(alias)}"

    @property
    def _kept_target(self) -> list[str]:
        return [*(_kept(n) for n in range(len(self.read))), _ID, _ADDRESS]

    def _joined(self) -> str:
        """FROM: both tables, as ON and WHEN MATCHED see them."""
        kept = [f"{quote(name)} AS {_kept(n)}" for n, name in enumerate(self.read)]
        numbers = [f"{ROW_ID} AS {_ID}", f"{ROW_ADDRESS} AS {_ADDRESS}"]
        target = f"(SELECT {', '.join([*kept, *numbers])} FROM {quote(TARGET)})"
        source = f"(SELECT *, true AS {_GIVEN} FROM {quote(SOURCE)})"
        return (
            f"{self._target_scope(target, *self._kept_target)}\n"
            f"{self._join} {self._source_scope(source, *source_names(self.source), _GIVEN)}\n"
            f"ON {self.merge.on}"
        )

    @property
    def _join(self) -> str:
        """Which rows without a match are needed."""
        of_source = bool(self.merge.about("not matched"))
        of_target = bool(self.merge.about("not matched by source"))
        if of_source and of_target:
            return "FULL OUTER JOIN"
        if of_source:
            return "RIGHT OUTER JOIN"
        return "LEFT OUTER JOIN" if of_target else "INNER JOIN"

    # What is asked

    def types_sql(self, rows: Rows) -> str | None:
        """A query over empty hands: its columns have the types of what clauses of a kind store."""
        texts = [value for _, value in self._expressions(rows)]
        if not texts:
            return None
        selected = ", ".join(f"({text}) AS c{n}" for n, text in enumerate(texts))
        return self._with_definitions(f"SELECT {selected} FROM {self._seen_by(rows)}")

    def types_of(
        self, rows: Rows, types: Sequence[pa.DataType]
    ) -> dict[tuple[int, str], pa.DataType]:
        """The types of what each clause stores in each column, as `types_sql` gave them."""
        places = [place for place, _ in self._expressions(rows)]
        return dict(zip(places, types, strict=True))

    def _expressions(self, rows: Rows) -> list[tuple[tuple[int, str], str]]:
        """What clauses of a kind store: (clause, column), and the text of the value."""
        return [
            ((number, column), value)
            for number, clause in enumerate(self.merge.clauses)
            if clause.rows == rows
            for column, value in self.values[number].items()
        ]

    def _seen_by(self, rows: Rows) -> str:
        if rows == "matched":
            return self._joined()
        if rows == "not matched":
            return self._source_scope(quote(SOURCE), *source_names(self.source))
        kept = [f"{quote(name)} AS {_kept(n)}" for n, name in enumerate(self.read)]
        return self._target_scope(f"(SELECT {', '.join(kept) or ROW_ID} FROM {quote(TARGET)})")

    def sql(
        self, types: Mapping[tuple[int, str], pa.DataType], *, ansi: bool, shuffled: bool = False
    ) -> str:
        """The query that gives the rows that leave and come. `shuffled`: the target is large, and
        must not be sent to every executor."""
        kept = [*self._kept_target, *source_names(self.source), _GIVEN]
        hint = f"/*+ SHUFFLE_MERGE({quote(self.merge.alias)}) */ " if shuffled else ""
        done = [_RESULT["matched"]] if self.merge.about("matched") else []
        case = [f"{self._case('matched', types, ansi)} AS {one}" for one in done]
        query = f"SELECT {hint}{', '.join([*kept, *case])}\nFROM {self._joined()}"
        around: tuple[tuple[Rows, Callable[..., str]], ...] = (
            ("not matched", self._source_scope),
            ("not matched by source", self._target_scope),
        )
        for rows, scope in around:
            if self.merge.about(rows):
                case = [f"{self._case(rows, types, ansi)} AS {_RESULT[rows]}"]
                inner = scope(f"(\n{query}\n)", *kept, *done)
                query = f"SELECT {', '.join([*kept, *done, *case])}\nFROM {inner}"
                done.append(_RESULT[rows])
        return self._with_definitions(self._result(query, done))

    def _case(self, rows: Rows, types: Mapping[tuple[int, str], pa.DataType], ansi: bool) -> str:
        """What the first clause of a kind that applies makes of a pair; NULL if none does."""
        cases = []
        for number, clause in enumerate(self.merge.clauses):
            if clause.rows != rows:
                continue
            condition = "" if clause.condition is None else f" AND ({clause.condition})"
            cases.append(
                f"WHEN {_APPLIES[rows]}{condition} THEN {self._struct(number, clause, types, ansi)}"
            )
        return f"CASE {' '.join(cases)} END"

    def _struct(
        self, number: int, clause: When, types: Mapping[tuple[int, str], pa.DataType], ansi: bool
    ) -> str:
        fields = [f"'side', {_SIDES[clause.action]}"]
        for n, column in enumerate(self.schema.columns):
            value = self.values[number].get(column.name)
            if value is not None:
                given = types[number, column.name]
                value = stored(f"({value})", given, column.type, ansi=ansi)
            elif clause.action == "update":
                value = _kept(self.read.index(column.name))
            else:
                value = "NULL"
            type_ = spell_type(column.type, for_spark=True)
            # Structs of all clauses must have one type, also where a value is NULL alone.
            fields.append(f"'c{n}', CAST({value} AS {type_})")
        return f"named_struct({', '.join(fields)})"

    def _result(self, inner: str, done: Sequence[str]) -> str:
        chosen = done[0] if len(done) == 1 else f"coalesce({', '.join(done)})"
        columns = [
            f"{_DONE}.c{n} AS {quote(column.name)}" for n, column in enumerate(self.schema.columns)
        ]
        numbers = [
            f"{_DONE}.side AS {SIDE}",
            f"1L AS {COPIES}",
            f"{_ID} AS {ROW_ID}",
            f"{_ADDRESS} AS {ROW_ADDRESS}",
        ]
        return (
            f"SELECT {', '.join([*columns, *numbers])} FROM (\n"
            f"SELECT {chosen} AS {_DONE}, {_ID}, {_ADDRESS} FROM (\n{inner}\n)\n"
            f") WHERE {_DONE} IS NOT NULL"
        )

    def _with_definitions(self, query: str) -> str:
        return f"{self.merge.definitions}\n{query}".lstrip()


def _kept(number: int) -> str:
    """A column of the target under a name that no scope hides."""
    return f"{HIDDEN}t{number}"


def source_names(columns: Sequence[str]) -> list[str]:
    """The same for the columns of the source: those of SOURCE are called so."""
    return [f"{HIDDEN}s{number}" for number in range(len(columns))]
