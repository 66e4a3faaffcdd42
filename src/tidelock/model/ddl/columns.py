"""Lists of columns and rules, as CREATE TABLE and `create_table` have them.

    list     item ("," item)*
    item     column | rule
    column   name [":"] type clause*
    clause   "NOT" "NULL" | "NULL" | "DEFAULT" expression | "COMMENT" string
             | "RENAMED" "FROM" name | "BACKFILL" "AS" "(" expression ")"
             | ["CONSTRAINT" name] ("PRIMARY" "KEY" | "UNIQUE" | "CHECK" "(" condition ")"
                                    | references)
    rule     ["CONSTRAINT" name] ("PRIMARY" "KEY" names | "UNIQUE" names ["WHERE" "(" condition ")"]
                                  | "CHECK" "(" condition ")" | "FOREIGN" "KEY" names references
                                  | "CARDINALITY" names bounds)
    references  "REFERENCES" table [names] ["ON" "DELETE" what]
    bounds   "BETWEEN" number "AND" number | "AT" "LEAST" number | "AT" "MOST" number

Spellings are those of PostgreSQL, of which Spark and Delta have a part; CARDINALITY, RENAMED FROM
and BACKFILL AS are our own. Expressions are kept as they were written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tidelock.errors import InvalidSchema
from tidelock.model.ddl.types import KNOWN, read_type
from tidelock.model.schema.declared import DeclaredRule
from tidelock.model.schema.rules import OnDelete
from tidelock.model.schema.schema import Column
from tidelock.model.sql.cursor import Cursor

_REFUSED = {
    "GENERATED": "A generated column cannot be kept. Compute it in a stream table, or give it a "
    "DEFAULT",
    "COLLATE": "A collation cannot be kept: compare with lower() or collate() in queries instead",
    "MASK": "A mask cannot be kept",
}
_ON_DELETE: dict[str, OnDelete] = {
    "RESTRICT": "restrict",
    "NO ACTION": "restrict",
    "CASCADE": "cascade",
    "SET NULL": "set null",
}


@dataclass
class ColumnList:
    """What a list declares, in its order."""

    columns: list[Column] = field(default_factory=list)
    key: tuple[str, ...] | None = None
    rules: list[DeclaredRule] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)
    backfills: dict[str, str] = field(default_factory=dict)

    def set_key(self, cursor: Cursor, names: tuple[str, ...]) -> None:
        if self.key is not None:
            cursor.refuse("A table has one PRIMARY KEY, and here is a second. Name all its columns "
                          "in one: PRIMARY KEY (a, b).")  # fmt: skip
        self.key = names


def read_list(cursor: Cursor) -> ColumnList:
    """Columns and rules, separated by commas."""
    found = ColumnList()
    while True:
        with cursor.placing():
            if not read_rule(cursor, found):
                read_column(cursor, found)
        if not cursor.take(","):
            return found


# Columns ---------------------------------------------------------------------------------------


def read_column(cursor: Cursor, into: ColumnList) -> Column:
    """A column and whatever is said of it."""
    name = cursor.name("a column name")
    if cursor.word == ".":
        cursor.refuse(
            f"A field of a STRUCT cannot be declared by itself ({name}.…). Declare the whole "
            "column.",
            column=name,
        )
    cursor.take(":")
    column = Column(name, read_type(cursor, name))
    said: set[str] = set()
    while (changed := _clause(cursor, column, into, said)) is not None:
        column = changed
    into.columns.append(column)
    return column


def _clause(cursor: Cursor, column: Column, into: ColumnList, said: set[str]) -> Column | None:
    """The column after one more clause; None if there is none."""
    for words, read in _CLAUSES.items():
        if not cursor.sees(*words.split()):
            continue
        if words in said:
            cursor.refuse(f"{words} is said twice of column {column.name!r}. Say it once.")
        said.add(words)
        cursor.take(*words.split())
        return read(cursor, column, into)
    if cursor.word == "NOT":
        cursor.take("NOT")
        cursor.fail("NULL after NOT")
    if cursor.word in _REFUSED:
        cursor.refuse(
            f"{_REFUSED[cursor.word]} (column {column.name!r}).",
            column=column.name,
            clause=cursor.word,
        )
    named = cursor.word == "CONSTRAINT"
    read_rule_of = _COLUMN_RULES.get(cursor.peek(2) if named else cursor.word)
    if read_rule_of is None:
        return None
    name = _rule_name(cursor)
    read_rule_of(cursor, name, column, into)
    return column


def _not_null(cursor: Cursor, column: Column, into: ColumnList) -> Column:
    return replace(column, nullable=False)


def _null(cursor: Cursor, column: Column, into: ColumnList) -> Column:
    return column


def _default(cursor: Cursor, column: Column, into: ColumnList) -> Column:
    return replace(column, default=read_default(cursor))


def _comment(cursor: Cursor, column: Column, into: ColumnList) -> Column:
    return replace(column, comment=cursor.string("the comment"))


def _renamed(cursor: Cursor, column: Column, into: ColumnList) -> Column:
    into.renamed[column.name] = cursor.name("what the column was called")
    return column


def _backfill(cursor: Cursor, column: Column, into: ColumnList) -> Column:
    into.backfills[column.name] = cursor.enclosed("an expression over the rows that are there")
    return column


_CLAUSES: dict[str, Callable[[Cursor, Column, ColumnList], Column]] = {
    "NOT NULL": _not_null,
    "NULL": _null,
    "DEFAULT": _default,
    "COMMENT": _comment,
    "RENAMED FROM": _renamed,
    "BACKFILL AS": _backfill,
}


def read_default(cursor: Cursor) -> str | None:
    """The expression behind DEFAULT; None for NULL, which is what there is without one."""
    text = cursor.expression("an expression after DEFAULT", _ends_default)
    return None if text.upper() == "NULL" else text


_AFTER_DEFAULT: dict[str, Callable[[Cursor], bool]] = {
    "COMMENT": lambda cursor: cursor.kind(1) == "text",
    "CHECK": lambda cursor: cursor.peek(1) == "(",
    "UNIQUE": lambda cursor: True,
    "PRIMARY": lambda cursor: cursor.peek(1) == "KEY",
    "REFERENCES": lambda cursor: cursor.kind(1) in ("word", "name"),
    "CONSTRAINT": lambda cursor: cursor.kind(1) in ("word", "name"),
    "RENAMED": lambda cursor: cursor.peek(1) == "FROM",
    "BACKFILL": lambda cursor: cursor.peek(1) == "AS",
    "DEFAULT": lambda cursor: True,
    "GENERATED": lambda cursor: True,
    "FIRST": lambda cursor: cursor.peek(1) != "(",
    "AFTER": lambda cursor: cursor.kind(1) in ("word", "name"),
    "NOT": lambda cursor: cursor.peek(1) == "NULL" and cursor.peek(-1) != "IS",
    "NULL": lambda cursor: cursor.kind(-1) in ("text", "number") or cursor.peek(-1) == ")",
}


def _ends_default(cursor: Cursor) -> bool:
    """Whether what comes next is said of the column, and no part of its default."""
    ends = _AFTER_DEFAULT.get(cursor.word)
    return ends is not None and ends(cursor)


# Rules -----------------------------------------------------------------------------------------


def read_rule(cursor: Cursor, into: ColumnList) -> bool:
    """A rule that stands by itself, if one comes next. A column may well be called `check`: its
    type follows, and no parenthesis."""
    named = cursor.word == "CONSTRAINT"
    first = 2 if named else 0
    found = next(
        (read for words, read in _RULES.items() if cursor.sees(*words.split(), "(", after=first)),
        None,
    )
    if found is None or (named and cursor.kind(1) not in ("word", "name")):
        if named and cursor.kind(2) == "word" and cursor.peek(1) not in KNOWN:
            _rule_name(cursor)
            cursor.fail(
                "CHECK (…), UNIQUE (…), PRIMARY KEY (…), FOREIGN KEY (…) or CARDINALITY (…)"
            )
        return False
    found(cursor, _rule_name(cursor), into)
    return True


def _rule_name(cursor: Cursor) -> str | None:
    return cursor.name("the name of the rule") if cursor.take("CONSTRAINT") else None


def _key(cursor: Cursor, name: str | None, into: ColumnList) -> None:
    cursor.need("PRIMARY", "KEY")
    into.set_key(cursor, cursor.listed("a column of the key"))
    _enforcement(cursor)


def _unique(cursor: Cursor, name: str | None, into: ColumnList) -> None:
    cursor.need("UNIQUE")
    columns = cursor.listed("a column that is unique")
    condition = cursor.enclosed("a condition") if cursor.take("WHERE") else None
    into.rules.append(DeclaredRule("unique", name, columns, condition))
    _enforcement(cursor)


def _check(cursor: Cursor, name: str | None, into: ColumnList) -> None:
    cursor.need("CHECK")
    into.rules.append(DeclaredRule("check", name, (), cursor.enclosed("a condition")))
    _enforcement(cursor)


def _foreign_key(cursor: Cursor, name: str | None, into: ColumnList) -> None:
    cursor.need("FOREIGN", "KEY")
    columns = cursor.listed("a column that refers to another table")
    cursor.need("REFERENCES")
    _references(cursor, name, columns, into)


def _cardinality(cursor: Cursor, name: str | None, into: ColumnList) -> None:
    cursor.need("CARDINALITY")
    columns = cursor.listed("a column by which rows are counted")
    least, most = 0, None
    if cursor.take("BETWEEN"):
        least = cursor.whole_number("the least number of rows")
        cursor.need("AND")
        most = cursor.whole_number("the greatest number of rows")
    elif cursor.take("AT", "LEAST"):
        least = cursor.whole_number("the least number of rows")
    elif cursor.take("AT", "MOST"):
        most = cursor.whole_number("the greatest number of rows")
    else:
        cursor.fail("BETWEEN … AND …, AT LEAST … or AT MOST …")
    into.rules.append(DeclaredRule("cardinality", name, columns, least=least, most=most))


_RULES: dict[str, Callable[[Cursor, str | None, ColumnList], None]] = {
    "PRIMARY KEY": _key,
    "UNIQUE": _unique,
    "CHECK": _check,
    "FOREIGN KEY": _foreign_key,
    "CARDINALITY": _cardinality,
}


def _column_key(cursor: Cursor, name: str | None, column: Column, into: ColumnList) -> None:
    cursor.need("PRIMARY", "KEY")
    into.set_key(cursor, (column.name,))
    _enforcement(cursor)


def _column_unique(cursor: Cursor, name: str | None, column: Column, into: ColumnList) -> None:
    cursor.need("UNIQUE")
    into.rules.append(DeclaredRule("unique", name, (column.name,)))
    _enforcement(cursor)


def _column_check(cursor: Cursor, name: str | None, column: Column, into: ColumnList) -> None:
    _check(cursor, name, into)


def _column_references(cursor: Cursor, name: str | None, column: Column, into: ColumnList) -> None:
    cursor.need("REFERENCES")
    _references(cursor, name, (column.name,), into)


_COLUMN_RULES: dict[str, Callable[[Cursor, str | None, Column, ColumnList], None]] = {
    "PRIMARY": _column_key,
    "UNIQUE": _column_unique,
    "CHECK": _column_check,
    "REFERENCES": _column_references,
}


def _references(
    cursor: Cursor, name: str | None, columns: tuple[str, ...], into: ColumnList
) -> None:
    table = read_table_name(cursor)
    target = cursor.listed("a column of the other table") if cursor.word == "(" else ()
    on_delete: OnDelete = "restrict"
    while True:
        if cursor.take("ON", "DELETE"):
            found = cursor.take_any(*_ON_DELETE)
            if found is None:
                cursor.fail("RESTRICT, NO ACTION, CASCADE or SET NULL")
            on_delete = _ON_DELETE[found]
        elif cursor.take("ON", "UPDATE"):
            if cursor.take_any("RESTRICT", "NO ACTION") is None:
                cursor.refuse(
                    "ON UPDATE can only be NO ACTION: what rows refer to keeps its value. Insert "
                    "the new row, update those that refer to it, and delete the old one."
                )
        elif cursor.take("MATCH"):
            if not cursor.take("SIMPLE"):
                cursor.refuse("MATCH can only be SIMPLE: a row with a NULL among the columns that "
                              "refer agrees with the rule.")  # fmt: skip
        else:
            break
    into.rules.append(DeclaredRule("reference", name, columns, None, table, target, on_delete))
    _enforcement(cursor)


def read_table_name(cursor: Cursor) -> str:
    """The name of a table. A lake has no databases."""
    name = cursor.name("the name of a table")
    if cursor.word == ".":
        cursor.refuse(
            f"{name}.… names a database, and a lake has none. Name the table alone.", table=name
        )
    return name


def _enforcement(cursor: Cursor) -> None:
    """What Spark and PostgreSQL say of when a rule holds. Here it does, at every commit."""
    while True:
        if cursor.sees("NOT", "ENFORCED") or cursor.sees("NOT", "VALID"):
            cursor.refuse(
                "A rule that is not enforced cannot be declared: rules hold for every row. Leave "
                "the rule out."
            )
        if (
            cursor.take_any("ENFORCED", "NOT DEFERRABLE", "DEFERRABLE", "INITIALLY DEFERRED")
            is None
        ):
            return


def only_columns(found: ColumnList) -> list[Column]:
    """The columns of a list that declares nothing else, or InvalidSchema."""
    if found.rules:
        raise InvalidSchema(
            f"A rule of the kind {found.rules[0].kind} cannot be declared here, where columns "
            "alone are wanted. Create the table with it.",
            kind=found.rules[0].kind,
        )
    return found.columns
