"""Definitions in `.sql` files: what is read from them, and where their mistakes are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelock.derive.definitions.folder import read_definitions
from tidelock.derive.definitions.written import Defined
from tidelock.errors import InvalidDefinition
from tidelock.model.streams import Definition


def read(folder: Path, text: str | bytes, name: str = "a.sql") -> tuple[Defined, ...]:
    data = text.encode() if isinstance(text, str) else text
    (folder / name).write_bytes(data)
    return read_definitions(folder)


def one(folder: Path, text: str | bytes) -> Defined:
    (found,) = read(folder, text)
    return found


def refused(folder: Path, text: str | bytes) -> InvalidDefinition:
    with pytest.raises(InvalidDefinition) as raised:
        read(folder, text)
    assert raised.value.file == str(folder / "a.sql")
    assert raised.value.message.startswith(f"{folder / 'a.sql'}:{raised.value.line}: ")
    return raised.value


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop").mkdir()
    return tmp_path / "shop"


def test_a_materialized_view_becomes_a_definition_with_its_origin(folder: Path) -> None:
    found = one(folder, "\nCREATE MATERIALIZED VIEW totals AS\nSELECT sum(a) AS a FROM orders;\n")
    assert found.name == "totals"
    assert found.definition == Definition("SELECT sum(a) AS a FROM orders", origin="shop/a.sql:2")
    assert (found.file, found.line) == (folder / "a.sql", 2)
    assert found.tables == ("orders",)


def test_every_line_of_a_query_knows_its_line_in_the_file(folder: Path) -> None:
    text = (
        "CREATE TEMPORARY VIEW v AS -- one\nSELECT a,\n\n  'x\ny' AS b -- b\n  -- c\n  FROM t;\n"
        "CREATE STREAM TABLE w (c, d) AS /* two\n  */ WITH\n  o AS (SELECT 1 AS a)\n"
        "SELECT v.* -- all\n/* of\nit */ FROM v, o;\n"
    )
    found = one(folder, text)
    lines = text.splitlines()
    for number, line in enumerate(found.definition.query.splitlines()[1:-1], start=2):
        place = found.file_line(number)
        words = line.replace("`v` AS (", "").strip(" (),")
        assert words in lines[place.line - 1]
    assert len(found.file_lines) == found.definition.query.count("\n") + 1
    assert found.file_line(99).line == found.line


@pytest.mark.parametrize(
    "opening",
    [
        "create stream table",
        "CREATE OR REPLACE MATERIALIZED VIEW",
        "CREATE MATERIALIZED VIEW IF NOT EXISTS",
        "CREATE /* really */ OR REPLACE\nSTREAM -- so\nTABLE",
    ],
)
def test_every_way_to_open_a_definition_gives_the_same(folder: Path, opening: str) -> None:
    found = one(folder, f"{opening} t AS SELECT 1 AS a")
    assert (found.name, found.definition.query) == ("t", "SELECT 1 AS a")


def test_options_come_from_properties_with_or_without_the_prefix(folder: Path) -> None:
    found = one(
        folder,
        "CREATE STREAM TABLE t COMMENT 'it''s; AS SELECT' TBLPROPERTIES ('schedule' = '1m',"
        " tidelock.refresh_mode = 'full', 'tidelock.consistency' 'none',"
        " 'Schedule_Policy' = 'fastest') AS SELECT 1 AS a",
    )
    assert found.definition == Definition(
        "SELECT 1 AS a", "1m", "full", "none", "fastest", "shop/a.sql:1"
    )


@pytest.mark.parametrize(
    ("clause", "schedule"),
    [
        ("SCHEDULE '1h30m'", "1h30m"),
        ("SCHEDULE '*/5 * * * *'", "*/5 * * * *"),
        ("SCHEDULE EVERY 5 MINUTES", "5m"),
        ("SCHEDULE EVERY 1 day", "1d"),
        ("SCHEDULE 'manual'", None),
        ("SCHEDULE 'upstream'", "upstream"),
        ("", "upstream"),
    ],
)
def test_a_schedule_has_a_clause_of_its_own(
    folder: Path, clause: str, schedule: str | None
) -> None:
    found = one(folder, f"CREATE STREAM TABLE t {clause} AS SELECT 1 AS a")
    assert found.definition.schedule == schedule


def test_several_statements_come_in_their_order_with_their_lines(folder: Path) -> None:
    found = read(
        folder,
        "-- first; not a statement\nCREATE STREAM TABLE b AS SELECT ';' AS x;;\n/* ; */\n\n"
        "CREATE STREAM TABLE a AS SELECT 'CREATE STREAM TABLE q AS SELECT 1;' AS x\n;",
    )
    assert [(d.name, d.line, d.definition.query) for d in found] == [
        ("b", 2, "SELECT ';' AS x"),
        ("a", 5, "SELECT 'CREATE STREAM TABLE q AS SELECT 1;' AS x"),
    ]


def test_comments_are_not_kept_and_hints_and_strings_are(folder: Path) -> None:
    found = one(
        folder,
        "CREATE STREAM TABLE t AS -- one\n/* two */ SELECT /*+ BROADCAST(o) */ a, -- three; AS\n"
        "  '-- no comment' AS b/* four */FROM o -- five",
    )
    assert found.definition.query == (
        "SELECT /*+ BROADCAST(o) */ a,\n  '-- no comment' AS b FROM o"
    )


def test_a_byte_order_mark_and_carriage_returns_change_nothing(folder: Path) -> None:
    text = "-- x\nCREATE STREAM TABLE t AS\nSELECT a\nFROM o;\n"
    plain = one(folder, text)
    assert one(folder, b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()) == plain


@pytest.mark.parametrize("text", ["", "\n\n", "-- nothing", "/* ; */ ;;", b"\xef\xbb\xbf"])
def test_a_file_without_a_statement_defines_nothing(folder: Path, text: str | bytes) -> None:
    assert read(folder, text) == ()


def test_names_may_be_unicode_and_quoted(folder: Path) -> None:
    found = read(
        folder,
        "CREATE STREAM TABLE `daily totals; AS` AS SELECT 1 AS a;"
        "CREATE STREAM TABLE größe AS SELECT * FROM `daily totals; AS`;"
        "CREATE STREAM TABLE `a``b` AS SELECT 1 AS a",
    )
    assert [d.name for d in found] == ["daily totals; AS", "größe", "a`b"]
    assert found[1].tables == ("daily totals; AS",)


def test_a_column_list_renames_the_columns(folder: Path) -> None:
    found = one(folder, "CREATE STREAM TABLE t (x COMMENT 'the x', `y z`) AS SELECT a, b FROM o")
    assert found.definition.query == ("SELECT * FROM (\nSELECT a, b FROM o\n) AS `t`(`x`, `y z`)")


def test_the_tables_of_a_query_are_told_from_its_own_expressions(folder: Path) -> None:
    found = one(
        folder,
        "CREATE STREAM TABLE t AS WITH a AS (SELECT * FROM x), b AS (SELECT * FROM a JOIN b)\n"
        "SELECT * FROM b WHERE k IN (SELECT k FROM X) AND\n"
        "EXISTS (WITH y AS (SELECT 1) SELECT * FROM y, z)",
    )
    assert found.tables == ("x", "b", "z")
    assert [(use.table, use.line) for use in found.uses] == [
        ("x", 1), ("b", 1), ("X", 2), ("z", 3),
    ]  # fmt: skip


def test_an_alias_in_a_hint_or_a_lateral_view_is_no_table(folder: Path) -> None:
    found = one(
        folder,
        "CREATE STREAM TABLE t AS SELECT /*+ BROADCAST(p) */ p.a, i FROM parts p JOIN o\n"
        "LATERAL VIEW explode(items) e AS i",
    )
    assert found.tables == ("parts", "o")


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("\nCREATE STREAM TABLE t AS\nSELECT a,\nFROM (o\n", 4, "cannot be read"),
        ("CREATE STREAM TABLE t AS\nSELECT 1 2", 2, "near '2'"),
        ("CREATE STREAM TABLE t AS\n\nSELECT 'open;\n", 3, "' is opened here and never closed"),
        ("-- 'fine\nCREATE /* open\n", 2, "/* is opened here and never closed"),
        ("CREATE STREAM TABLE t AS\nINSERT INTO x SELECT 1", 2, "begins with SELECT or WITH"),
        ("CREATE STREAM TABLE t AS", 1, "a query after AS"),
        ("CREATE STREAM TABLE AS SELECT 1", 1, "name is missing"),
        ("CREATE STREAM TABLE daily-totals AS SELECT 1", 1, "stands in backticks"),
        ("CREATE STREAM TABLE 'x' AS SELECT 1", 1, "Expected a name"),
        ("CREATE STREAM TABLE ` ` AS SELECT 1", 1, "cannot be a table name"),
        ("CREATE STREAM TABLE t\n(a INT) AS SELECT 1", 2, "with CAST"),
        ("CREATE STREAM TABLE t\nPARTITIONED BY (a) AS SELECT 1", 2, "Remove it"),
        ("CREATE STREAM TABLE db.t AS SELECT 1", 1, "Write t alone"),
        ("CREATE STREAM TABLE t AS SELECT *\nFROM db.o", 2, "Write o alone"),
        ("CREATE STREAM TABLE t AS SELECT *\nFROM STREAM(o)", 2, "STREAM is not needed"),
        ("CREATE STREAM TABLE t AS SELECT *\nFROM STREAM o", 2, "STREAM is not needed"),
        ("CREATE STREAM TABLE t AS SELECT\n${spark.x.y}", 2, "${spark.x.y}"),
        ("CREATE STREAM TABLE t AS SELECT\n'in ${a} text'", 2, "${a}"),
        ("\nCREATE STREAMING TABLE t AS SELECT 1", 2, "CREATE MATERIALIZED VIEW"),
        ("CREATE OR REFRESH STREAMING TABLE t", 1, "CREATE OR REPLACE"),
        ("\n\nCREATE FLOW f AS INSERT INTO t BY NAME SELECT 1", 3, "UNION ALL"),
        ("CREATE VIEW v AS SELECT 1", 1, "CREATE TEMPORARY VIEW"),
        ("CREATE FUNCTION f AS 'x'", 1, "Only CREATE TABLE, CREATE MATERIALIZED VIEW"),
        ("SET x = 1; CREATE STREAM TABLE t AS SELECT 1", 1, "Only CREATE TABLE"),
        ("CREATE STREAM TABLE t\nTBLPROPERTIES (\n'shedule'='1m') AS SELECT 1", 3, "'schedule'?"),
        ("CREATE STREAM TABLE t\nTBLPROPERTIES ('refresh_mode'='x') AS SELECT 1", 2, "'auto'"),
        ("CREATE STREAM TABLE t SCHEDULE '1m'\nSCHEDULE '2m' AS SELECT 1", 2, "given twice"),
        (
            "\nCREATE STREAM TABLE t TBLPROPERTIES ('consistency'='none',\n"
            "'schedule_policy'='slowest') AS SELECT 1",
            2,
            "exclude each other",
        ),
        ("CREATE STREAM TABLE t SCHEDULE 'soon' AS SELECT 1", 1, "soon"),
        ("CREATE STREAM TABLE t SCHEDULE EVERY 5 MOONS AS SELECT 1", 1, "MINUTES"),
        ("CREATE TEMPORARY VIEW v\nSCHEDULE '1m' AS SELECT 1", 2, "AS and a query"),
        (b"-- fine\n-- \xff\n", 2, "UTF-8"),
        (b"--\n\0", 2, "NUL"),
    ],
)
def test_a_mistake_is_told_with_its_line(
    folder: Path, text: str | bytes, line: int, said: str
) -> None:
    error = refused(folder, text)
    assert (error.line, said in error.message) == (line, True), error.message


def test_a_query_that_is_nested_beyond_reason_is_refused(folder: Path) -> None:
    deep = "(" * 5000 + "1" + ")" * 5000
    error = refused(folder, f"CREATE STREAM TABLE t AS\nSELECT {deep} AS a")
    assert error.line == 2


def test_one_name_twice_is_refused_with_both_places(folder: Path) -> None:
    (folder / "0.sql").write_text("CREATE STREAM TABLE Totals AS SELECT 1 AS a")
    error = refused(folder, "\nCREATE STREAM TABLE totals AS SELECT 2 AS a")
    assert (error.line, error.other_line) == (2, 1)
    assert f"{folder / '0.sql'}:1" in error.message


def test_a_temporary_view_becomes_a_part_of_the_queries_that_use_it(folder: Path) -> None:
    (folder / "views.sql").write_text(
        "CREATE TEMPORARY VIEW big AS SELECT * FROM Paid WHERE a > 9;\n"
        "CREATE TEMP VIEW paid (a) AS\nSELECT amount FROM orders;"
    )
    plain, own, none = read(
        folder,
        "CREATE STREAM TABLE plain AS SELECT * FROM big, rates;\n"
        "CREATE STREAM TABLE own AS with x as (SELECT 1) SELECT * FROM x, paid;\n"
        "CREATE STREAM TABLE none AS WITH big AS (SELECT 1 AS a) SELECT * FROM big;",
    )
    assert plain.definition.query == (
        "WITH `paid`(`a`) AS (\nSELECT amount FROM orders\n),\n"
        "`big` AS (\nSELECT * FROM Paid WHERE a > 9\n)\nSELECT * FROM big, rates"
    )
    assert own.definition.query == (
        "with `paid`(`a`) AS (\nSELECT amount FROM orders\n),\n"
        "x as (SELECT 1) SELECT * FROM x, paid"
    )
    assert none.definition.query == "WITH big AS (SELECT 1 AS a) SELECT * FROM big"
    assert (plain.tables, own.tables, none.tables) == (("rates", "orders"), ("orders",), ())
    assert [(use.file.name, use.line) for use in own.uses] == [("views.sql", 3)]


def test_a_view_that_an_expression_of_the_query_hides_is_refused(folder: Path) -> None:
    error = refused(
        folder,
        "CREATE TEMPORARY VIEW v AS SELECT 1 AS a;\n"
        "CREATE STREAM TABLE t AS WITH v AS (SELECT * FROM v) SELECT * FROM v",
    )
    assert (error.line, "Rename" in error.message) == (2, True)


def test_temporary_views_in_a_circle_are_refused(folder: Path) -> None:
    error = refused(
        folder,
        "CREATE TEMPORARY VIEW v AS SELECT * FROM w;\nCREATE TEMPORARY VIEW w AS SELECT * FROM v;",
    )
    assert (error.line, "w → v → w" in error.message) == (1, True)
