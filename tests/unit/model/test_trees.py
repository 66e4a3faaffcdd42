"""Queries keep their words on the way through trees, and what their operators are said of."""

from __future__ import annotations

import pytest

from tidelock.model.sql.text import QueryText
from tidelock.model.sql.trees import read_query, text_of


@pytest.mark.parametrize(
    "written",
    [
        "a | b << 1",
        "a >> 1 & b",
        "a <=> b = c",
        "a = b < c",
        "a = b IN (TRUE)",
        "a = b BETWEEN FALSE AND TRUE",
        "a = b RLIKE c",
        "t - INTERVAL 1 DAY 2 HOURS",
        "t - INTERVAL '1' day -'2' hour",
        "-INTERVAL 1 DAY '2' hours * 2",
        "t + INTERVAL '60 DAYS'",
        "t + INTERVAL '1 day 2 hours'",
        "t + INTERVAL '1 2:3' DAY TO MINUTE",
        "INTERVAL '-1-2' YEAR TO MONTH",
        "d + INTERVAL -1 DAY + 2",
        "INTERVAL +1.5 SECONDS",
        "interval + 1",
    ],
)
def test_an_expression_keeps_its_words_and_their_order(written: str) -> None:
    (found,) = read_query(QueryText(f"SELECT {written} AS x FROM t")).expressions
    assert text_of(found.unalias()).replace(" ", "") == written.replace(" ", "")


@pytest.mark.parametrize(
    ("written", "outermost"),
    [("a = b IN (c)", "In"), ("a < b = c", "EQ"), ("a = b < c", "LT"), ("a <=> b IS NULL", "Is")],
)
def test_predicates_are_said_of_comparisons_and_these_bind_alike(
    written: str, outermost: str
) -> None:
    (found,) = read_query(QueryText(f"SELECT {written} AS x FROM t")).expressions
    assert type(found.unalias()).__name__ == outermost
