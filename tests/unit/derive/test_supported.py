"""The page about supported SQL says what the parser says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelock.derive.supported.document import document, support_of, support_of_call
from tidelock.derive.supported.examples import CALLS, FORMS
from tidelock.model.sql import functions

PAGE = Path(__file__).parents[3] / "docs" / "supported-sql.md"


def test_the_page_is_what_the_code_says_now() -> None:
    assert PAGE.read_text("utf-8") == document(), (
        "run python -m tidelock.derive.supported.document > docs/supported-sql.md"
    )


def test_every_form_is_told_once() -> None:
    assert len({example.form for example in FORMS}) == len(FORMS)
    assert CALLS.keys() <= functions.AGGREGATES


@pytest.mark.parametrize("name", sorted(functions.REFUSED))
def test_a_function_that_is_told_to_make_a_query_full_does(name: str) -> None:
    found = support_of(f"SELECT id, {name}() AS v FROM orders")
    assert found.how == "anew"
    assert found.reason == functions.why_refused(name, 0)


@pytest.mark.parametrize("name", sorted(functions.GENERATORS))
def test_a_function_that_gives_rows_is_kept_by_changes(name: str) -> None:
    query = f"SELECT id, v FROM orders LATERAL VIEW {name}(tags) t AS v"
    assert support_of(query).how == "rows"


@pytest.mark.parametrize("name", sorted(functions.RANKING))
def test_a_window_function_is_kept_by_partition(name: str) -> None:
    given = {"nth_value": "id, 2", "ntile": "4", "lag": "id", "lead": "id"}.get(name, "")
    query = f"SELECT id, {name}({given}) OVER (PARTITION BY status ORDER BY id) AS v FROM orders"
    assert support_of(query).how == "touched"


def test_functions_of_one_row_are_kept_with_their_query() -> None:
    given = {"overlay": "status, 'x', 1", "position": "'x', status"}
    for name in functions.SCALARS:
        call = f"{name}({given.get(name, 'status')})"
        assert support_of(f"SELECT id, {call} AS v FROM orders").how == "rows", name


def test_sums_are_kept_only_where_they_are_exact() -> None:
    assert support_of_call("sum(amount)").how == "sums"
    assert support_of_call("sum(quantity) FILTER (WHERE paid)").how == "sums"
    assert support_of_call("sum(weight)").how == "touched"
    assert support_of_call("sum(DISTINCT quantity)").how == "touched"
