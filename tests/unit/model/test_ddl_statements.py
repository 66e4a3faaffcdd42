"""Statements that declare tables: read, refused, and written again."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.model.test_ddl import COLUMN_NAMES, SIMPLE

from tidelock.errors import InputError, InvalidSchema
from tidelock.model.ddl.alter import Action, RenameTable, parse_actions
from tidelock.model.ddl.statements import (
    AlterTable,
    CreateTable,
    DropTable,
    cut,
    read_create_table,
    read_statements,
)
from tidelock.model.ddl.text import alteration_ddl, same_expression, table_ddl
from tidelock.model.names import fold
from tidelock.model.schema.alterations import (
    AddColumn,
    AddRule,
    Alteration,
    ChangeType,
    DropColumn,
    DropRule,
    MoveColumn,
    RenameColumn,
    SetComment,
    SetDefault,
    SetKey,
    SetRequired,
)
from tidelock.model.schema.declared import DeclaredRule, DeclaredTable
from tidelock.model.schema.schema import Column, TableSchema, table_schema
from tidelock.model.types import is_list_like

SHOP = """
-- Customers and what they order.
CREATE TABLE customers (
  id BIGINT PRIMARY KEY, email STRING UNIQUE,
  tier STRING NOT NULL DEFAULT 'basic' CHECK (tier IN ('basic', 'gold')),
  since DATE DEFAULT current_date()) COMMENT 'who buys';
CREATE TABLE IF NOT EXISTS orders (
  id BIGINT PRIMARY KEY, /* the */
  customer_id BIGINT NOT NULL REFERENCES customers ON DELETE CASCADE,
  amount DECIMAL(12,2) DEFAULT 1 + /* two */ 2 CHECK (amount >= 0),
  CONSTRAINT one_open UNIQUE (customer_id) WHERE (status = 'open'), status STRING);
CREATE TABLE knows (src BIGINT REFERENCES people (id), dst BIGINT REFERENCES people, since DATE,
  PRIMARY KEY (src, dst), CONSTRAINT few CARDINALITY (src) BETWEEN 0 AND 150);
"""


def declared(text: str) -> DeclaredTable:
    (statement,) = read_statements(text)
    assert isinstance(statement, CreateTable)
    return statement.table


def test_tables_are_read_with_everything_that_is_said_of_them() -> None:
    customers, orders, knows = read_statements(SHOP)
    assert isinstance(customers, CreateTable)
    assert isinstance(orders, CreateTable)
    assert isinstance(knows, CreateTable)
    assert customers.table.schema.key == ("id",)
    assert customers.table.schema.comment == "who buys"
    assert [c.default for c in customers.table.schema.columns] == [
        None,
        None,
        "'basic'",
        "current_date()",
    ]
    assert customers.table.rules == (
        DeclaredRule("unique", None, ("email",)),
        DeclaredRule("check", None, (), "tier IN ('basic', 'gold')"),
    )
    assert orders.if_missing
    assert orders.table.schema.column("amount").default == "1 + 2"
    assert orders.table.rules == (
        DeclaredRule("reference", None, ("customer_id",), None, "customers", (), "cascade"),
        DeclaredRule("check", None, (), "amount >= 0"),
        DeclaredRule("unique", "one_open", ("customer_id",), "status = 'open'"),
    )
    assert knows.table.schema.key == ("src", "dst")
    assert knows.table.rules[0].target == ("id",)
    assert knows.table.rules[2] == DeclaredRule("cardinality", "few", ("src",), most=150)


@pytest.mark.parametrize(
    ("clause", "default"),
    [
        ("DEFAULT 5", "5"),
        ("DEFAULT -5 NOT NULL", "-5"),
        ("DEFAULT 10L COMMENT 'x'", "10L"),
        ("DEFAULT 1 IS NOT NULL", "1 IS NOT NULL"),
        ("DEFAULT NOT true", "NOT true"),
        ("DEFAULT 'a' NULL", "'a'"),
        ("DEFAULT (1 + 2) * 3 CHECK (a > 0)", "(1 + 2) * 3"),
        (
            "DEFAULT coalesce(NULL, 'check (x), unique') UNIQUE",
            "coalesce(NULL, 'check (x), unique')",
        ),
        (
            "DEFAULT CASE WHEN true THEN 1 ELSE 2 END PRIMARY KEY",
            "CASE WHEN true THEN 1 ELSE 2 END",
        ),
        ("DEFAULT first (1) REFERENCES b", "first (1)"),
        ("DEFAULT NULL", None),
        ("DEFAULT array(1, 2)[0] CONSTRAINT c CHECK (a > 0)", "array(1, 2)[0]"),
    ],
)
def test_a_default_ends_where_something_else_is_said(clause: str, default: str | None) -> None:
    table = declared(f"CREATE TABLE t (a STRING {clause}, b INT)")
    assert table.schema.column("a").default == default
    assert table.schema.names == ("a", "b")


def test_what_was_renamed_and_what_is_filled_in_are_stated() -> None:
    table = declared(
        "CREATE TABLE purchases RENAMED FROM orders (id INT, remark STRING RENAMED FROM note, "
        "full STRING NOT NULL BACKFILL AS (concat(a, ', ', b)) DEFAULT '')"
    )
    assert table.was == "orders"
    assert table.renamed == {"remark": "note"}
    assert table.backfills == {"full": "concat(a, ', ', b)"}
    assert table.schema.column("full").default == "''"


def test_what_has_no_effect_is_noted_and_what_would_mislead_is_refused() -> None:
    table = declared("CREATE TABLE t (a INT) USING delta TBLPROPERTIES ('a' = 'b') COMMENT 'c'")
    assert [note.split(" of ")[0] for note in table.notes] == ["USING delta", "TBLPROPERTIES"]
    assert declared("CREATE TABLE t (a INT) USING lance").notes == ()


BAD = {
    "CREATE TABLE t (a INT": "expected a comma, or ) at the end of the columns, found the end",
    "CREATE TABLE (a INT)": "expected the name of a table",
    "CREATE TABLE t": "expected ( and the columns",
    "CREATE TABLE t (a INT) nonsense": "expected COMMENT or the end of the statement",
    "CREATE TABLE s.t (a INT)": "a lake has none",
    "CREATE TABLE t (a INT) LOCATION 'x'": "which the lake decides",
    "CREATE TABLE t (a INT) PARTITIONED BY (a)": "which the lake decides",
    "CREATE TABLE t AS SELECT 1": "AS SELECT",
    "CREATE TABLE t (a INT) AS SELECT 1": "AS SELECT",
    "CREATE TABLE t LIKE u": "shows itself as CREATE TABLE",
    "CREATE OR REPLACE TABLE t (a INT)": "throw the rows",
    "CREATE EXTERNAL TABLE t (a INT)": "external",
    "CREATE TABLE t (a INT, a STRING)": "two columns named 'a'",
    "CREATE TABLE t (a INT, CONSTRAINT x CHEK (a > 0))": "expected CHECK",
    "CREATE TABLE t (a INT, UNIQUE (a)": "at the end of the columns",
    "CREATE TABLE t (a INT REFERENCES u ON DELETE SOMETHING)": "RESTRICT, NO ACTION, CASCADE",
    "CREATE TABLE t (a INT REFERENCES u ON UPDATE CASCADE)": "ON UPDATE",
    "CREATE TABLE t (a INT, FOREIGN KEY (a) REFERENCES u MATCH FULL)": "MATCH",
    "CREATE TABLE t (a INT CHECK (a > 0) NOT ENFORCED)": "not enforced",
    "CREATE TABLE t (a INT, CARDINALITY (a) UP TO 5)": "BETWEEN",
    "CREATE TABLE t (a INT, CARDINALITY (a) AT MOST many)": "the greatest number",
    "ALTER TABLE t": "expected ADD, DROP, RENAME or ALTER COLUMN, found the end",
    "ALTER TABLE t ADD": "a column name",
    "ALTER TABLE t ADD COLUMN b INT RENAMED FROM a": "RENAME COLUMN",
    "ALTER TABLE t ALTER COLUMN a TYPE INT USING a": "BACKFILL AS",
    "ALTER TABLE t ALTER COLUMN a SOMETHING": "SET NOT NULL",
    "ALTER TABLE t ALTER COLUMN s.x TYPE BIGINT": "inside of a column",
    "ALTER TABLE t SET TBLPROPERTIES ('x' = 'y')": "no properties",
    "ALTER TABLE t RENAME COLUMN a b": "expected TO",
    "DROP TABLE": "the name of a table",
    "DROP TABLE t NOW": "expected the end of the statement",
    "COMMENT ON SCHEMA s IS 'x'": "expected TABLE or COLUMN",
    "COMMENT ON COLUMN a IS 'x'": "a dot and the name of a column",
    "SELECT 1": "expected CREATE TABLE, ALTER TABLE, DROP TABLE or COMMENT ON",
    "SHOW TABLES": "expected CREATE TABLE",
    "CREATE TABLE t (a INT COMMENT 'x)": "never closed",
}


@pytest.mark.parametrize(("text", "says"), BAD.items())
def test_what_cannot_be_read_is_named_with_its_line_and_column(text: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        read_statements(f"DROP TABLE x;\n  {text}")
    assert says in str(caught.value)
    assert caught.value.line == 2
    assert str(caught.value).startswith(f"Line 2, column {caught.value.column_number}: ")
    assert caught.value.column_number > 2


def test_an_error_points_at_the_column_that_it_is_about() -> None:
    with pytest.raises(InputError) as caught:
        read_statements("CREATE TABLE t (\n  a INT,\n  b MONEY\n)")
    assert (caught.value.line, caught.value.column_number) == (3, 3)
    assert caught.value.statement == "CREATE TABLE"


def actions(text: str) -> list[object]:
    (statement,) = read_statements(f"ALTER TABLE t {text}")
    assert isinstance(statement, AlterTable)
    assert parse_actions(text) == statement.actions
    return [action.change for action in statement.actions]


def test_alterations_are_read_in_the_spellings_of_spark_delta_and_postgresql() -> None:
    (added,) = actions("ADD COLUMN note STRING DEFAULT 'x' AFTER b")
    assert isinstance(added, AddColumn)
    assert (added.column.name, added.column.default, added.after) == ("note", "'x'", "b")
    one, other, rule = actions("ADD COLUMNS (a INT FIRST, b INT BACKFILL AS (a + 1) UNIQUE)")
    assert isinstance(one, AddColumn)
    assert isinstance(other, AddColumn)
    assert one.first
    assert other.backfill == "a + 1"
    assert rule == AddRule(DeclaredRule("unique", None, ("b",)))
    assert actions("RENAME COLUMN a TO b, RENAME a TO c, RENAME TO u") == [
        RenameColumn("a", "b"),
        RenameColumn("a", "c"),
        RenameTable("u"),
    ]
    assert actions("DROP COLUMN a, DROP b CASCADE, DROP COLUMNS (c, d)") == [
        DropColumn("a"),
        DropColumn("b", cascade=True),
        DropColumn("c"),
        DropColumn("d"),
    ]
    assert actions("ALTER COLUMN a SET NOT NULL, ALTER a DROP NOT NULL, CHANGE COLUMN a FIRST") == [
        SetRequired("a", True),
        SetRequired("a", False),
        MoveColumn("a"),
    ]
    assert actions("ALTER COLUMN a SET DEFAULT 1 + 1, ALTER COLUMN a DROP DEFAULT") == [
        SetDefault("a", "1 + 1"),
        SetDefault("a", None),
    ]
    assert actions("ADD PRIMARY KEY (a, b), DROP PRIMARY KEY, DROP CONSTRAINT c") == [
        SetKey(("a", "b")),
        SetKey(()),
        DropRule("c"),
    ]
    assert actions("SET TBLPROPERTIES ('comment' = 'c'), ALTER COLUMN a COMMENT 'd'") == [
        SetComment(None, "c"),
        SetComment("a", "d"),
    ]


def test_what_need_not_be_there_is_marked() -> None:
    drop, add, rule = parse_actions(
        "DROP COLUMN IF EXISTS a, ADD COLUMN IF NOT EXISTS b INT, DROP CONSTRAINT IF EXISTS c"
    )
    assert drop == Action(DropColumn("a"), lenient=True)
    assert add.lenient
    assert rule.lenient
    (alter, gone) = read_statements(
        "ALTER TABLE IF EXISTS t DROP a; DROP TABLE IF EXISTS a, b CASCADE"
    )
    assert isinstance(alter, AlterTable)
    assert alter.if_there
    assert gone == DropTable(("a", "b"), if_there=True, cascade=True)


def test_comments_are_set_and_removed() -> None:
    assert [
        one.actions[0].change
        for one in read_statements(
            "COMMENT ON TABLE t IS 'it''s'; COMMENT ON TABLE t IS NULL; "
            "COMMENT ON COLUMN t.a IS 'x'"
        )
        if isinstance(one, AlterTable)
    ] == [SetComment(None, "it's"), SetComment(None, None), SetComment("a", "x")]


def test_a_schema_says_what_is_to_be_and_not_what_is_to_be_done() -> None:
    (written,) = cut("\nALTER TABLE t DROP COLUMN a")
    with pytest.raises(
        InvalidSchema, match=r"Line 2, column 1: ALTER TABLE says what is to be done"
    ):
        read_create_table(written)


def test_expressions_are_compared_by_what_they_say() -> None:
    assert same_expression("a >= 0 and b IN (1,2)", "`A`>=0 /* x */ AND b in (1, 2)")
    assert not same_expression("a >= 0", "a > 0")
    assert not same_expression("a = 'X'", "a = 'x'")
    assert same_expression(None, None)
    assert not same_expression(None, "1")


# Written and read again ------------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
DEFAULTS = st.sampled_from(["5", "'it''s, (x)'", "current_date()", "1 + 2", "coalesce('a', 'b')"])
COLUMNS = st.lists(
    st.builds(
        Column,
        COLUMN_NAMES,
        SIMPLE,
        st.booleans(),
        default=st.none() | DEFAULTS,
        comment=st.none() | TEXTS,
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda column: fold(column.name),
)
CONDITIONS = st.sampled_from(["a > 0", "`x y` = ')' OR b IS NOT NULL", "c IN ('a,b', \"d\")"])


def _keyable(column: Column) -> bool:
    return (
        not pa.types.is_floating(column.type)
        and not is_list_like(column.type)
        and ('"' not in column.name)
    )


@st.composite
def tables(draw: st.DrawFn) -> DeclaredTable:
    columns = draw(COLUMNS)
    keyable = [c.name for c in columns if _keyable(c)]
    key = draw(st.lists(st.sampled_from(keyable), unique=True, max_size=2)) if keyable else []
    schema = table_schema(columns, key, comment=draw(st.none() | TEXTS))
    names = st.lists(st.sampled_from(schema.names), min_size=1, max_size=2).map(tuple)
    name = st.none() | COLUMN_NAMES
    rules = st.one_of(
        st.builds(DeclaredRule, st.just("unique"), name, names, st.none() | CONDITIONS),
        st.builds(DeclaredRule, st.just("check"), name, st.just(()), CONDITIONS),
        st.builds(
            DeclaredRule,
            st.just("reference"),
            name,
            names,
            st.none(),
            COLUMN_NAMES,
            st.just(()) | st.lists(COLUMN_NAMES, min_size=1, max_size=2).map(tuple),
            st.sampled_from(["restrict", "cascade", "set null"]),
        ),
        st.builds(
            DeclaredRule,
            st.just("cardinality"),
            name,
            names,
            least=st.integers(0, 9),
            most=st.none() | st.integers(9, 99),
        ),
    )
    return DeclaredTable(draw(COLUMN_NAMES), schema, tuple(draw(st.lists(rules, max_size=3))))


def everything(schema: TableSchema) -> object:
    told = [(c.name, c.type, c.nullable, c.default, c.comment) for c in schema.columns]
    return told, schema.key, schema.comment


@settings(deadline=None, max_examples=150)
@given(tables())
def test_every_table_is_read_back_from_its_statement(table: DeclaredTable) -> None:
    back = declared(table_ddl(table))
    assert everything(back.schema) == everything(table.schema)
    assert back.rules == table.rules
    assert back.name == table.name


@settings(deadline=None, max_examples=150)
@given(tables(), COLUMN_NAMES, st.data())
def test_every_alteration_is_read_back_from_its_statement(
    table: DeclaredTable, other: str, data: st.DataObject
) -> None:
    column = data.draw(st.sampled_from(table.schema.columns))
    column = replace(column, nullable=True)
    name = column.name
    choices: list[Alteration] = [
        AddColumn(column, data.draw(st.none() | CONDITIONS), data.draw(st.none() | COLUMN_NAMES)),
        AddColumn(column, first=True),
        DropColumn(name, data.draw(st.booleans())),
        RenameColumn(name, other),
        MoveColumn(name, data.draw(st.none() | COLUMN_NAMES)),
        ChangeType(name, column.type),
        SetRequired(name, data.draw(st.booleans())),
        SetDefault(name, data.draw(st.none() | DEFAULTS)),
        SetComment(data.draw(st.none() | st.just(name)), data.draw(st.none() | TEXTS)),
        SetKey((name, other) if fold(name) != fold(other) else ()),
        *(AddRule(rule) for rule in table.rules),
        DropRule(other),
    ]
    one = data.draw(st.sampled_from(choices))
    (statement,) = read_statements(alteration_ddl(table.name, one))
    assert isinstance(statement, AlterTable)
    assert statement.table == table.name
    assert [action.change for action in statement.actions] == [one]
    read = statement.actions[0].change
    if isinstance(one, AddColumn) and isinstance(read, AddColumn):
        assert (read.column.default, read.column.comment) == (column.default, column.comment)
