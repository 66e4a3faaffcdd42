"""Operators can be read as Spark SQL."""

from __future__ import annotations

from sqlglot import parse_one
from tests.unit.derive.sql.outlines import read, tree

from tidelock.derive.algebra.core import lower
from tidelock.derive.algebra.operators import Scan, Select
from tidelock.derive.algebra.spark_sql import render


def test_a_query_is_rendered_step_by_step_under_its_visible_names() -> None:
    view = read("SELECT name AS `Name`, id FROM customers WHERE country = 'DE'")
    assert view.root is not None
    assert render(view.root, view.columns).splitlines() == [
        "WITH step1 AS (",
        "  SELECT `id` AS `c1`, `name` AS `c2`, `country` AS `c3` FROM `customers`",
        "), step2 AS (",
        "  SELECT `c2`, `c1` FROM step1 WHERE `c3` = 'DE'",
        ")",
        "SELECT `c2` AS `Name`, `c1` AS `id` FROM step2",
    ]


def test_an_operator_that_is_read_twice_is_one_step() -> None:
    core = lower(tree("SELECT id FROM customers WHERE id NOT IN (SELECT id FROM orders)"))
    assert render(core).count("FROM `Orders`") == 1


def test_steps_have_no_name_of_a_table() -> None:
    root = Select(Scan("Step1", (("c1", "a"),)), ())
    assert "step_1 AS (" in render(root)


def test_rows_without_columns_can_be_counted() -> None:
    text = render(tree("SELECT count(*) AS n FROM customers"))
    assert "SELECT NULL AS `_` FROM `customers`" in text
    assert parse_one(text, dialect="spark") is not None
