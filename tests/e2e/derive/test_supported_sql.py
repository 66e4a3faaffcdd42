"""The page about supported SQL says what a lake does with each of its queries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidelock
from tidelock.derive.plan.segments import Bag, Groups
from tidelock.derive.supported.document import support_of
from tidelock.derive.supported.examples import FORMS, TABLES, UNNAMED, UNTYPED, Example
from tidelock.errors import InvalidExpression, UnsupportedType
from tidelock.model.streams import Definition
from tidelock.run.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    folder: Path = tmp_path_factory.mktemp("supported")
    with tidelock.open(folder / "lake", create=True, spark=spark) as lake:
        for name, (ddl, key) in TABLES.items():
            lake.create_table(name, ddl, key=key)
        yield lake


@pytest.mark.parametrize("example", FORMS, ids=lambda example: example.form)
def test_a_lake_keeps_each_form_as_the_page_says(lake: Lake, example: Example) -> None:
    with lake.transaction() as transaction:
        plan = lake._catalog.plan(transaction.tables(), transaction, Definition(example.query))
        transaction.rollback()
    how = support_of(example.query).how
    contents = [kept.segment.content for kept in plan.kept]
    if not contents:
        assert how == "anew"
    elif all(isinstance(content, Bag) for content in contents):
        assert how == "rows"
    else:
        assert how == ("sums" if all(isinstance(h, Bag | Groups) for h in contents) else "touched")


@pytest.mark.parametrize("query", [*(one.query for one in UNNAMED), *UNTYPED.values()])
def test_columns_that_no_table_has_are_refused(lake: Lake, query: str) -> None:
    with pytest.raises((InvalidExpression, UnsupportedType)):
        lake.create_stream_table("refused", query)
