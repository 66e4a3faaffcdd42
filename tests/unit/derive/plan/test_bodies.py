"""The terms of a body's change: what stands in the place of each operator, and with which sign."""

from __future__ import annotations

from tests.unit.derive.sql.outlines import outline, tree

from tidelock.derive.algebra.core import lower
from tidelock.derive.algebra.operators import Left, Operator, Select, walk
from tidelock.derive.plan.bodies import numbered, state_body, term_body, without_empty
from tidelock.derive.plan.segments import cut

LEFT = "SELECT c.id, o.amount FROM customers c LEFT JOIN orders o ON c.id = o.customer"
ANTI = "SELECT c.id FROM customers c LEFT ANTI JOIN orders o ON c.id = o.customer"
UNION = "SELECT id FROM customers UNION ALL SELECT customer FROM orders"


def body(query: str) -> Operator:
    last = cut(lower(tree(query)))[-1].body
    typed = [one for one in walk(last) if isinstance(one, Left)]
    if not typed:
        return last
    assert isinstance(last, Select)
    assert isinstance(last.input, Left)
    from dataclasses import replace

    return replace(last, input=replace(last.input, types=("int", "decimal(10,2)")))


def test_a_state_reads_no_partners_of_a_left_join() -> None:
    assert outline(state_body(body(LEFT))) == [
        "select",
        "  left join on 1",
        "    leaf 0",
        "    leaf 1",
    ]


def test_a_change_of_the_left_is_joined_as_the_left_is() -> None:
    term = term_body(body(LEFT), 0)
    assert term.sign == 1
    assert outline(term.operator)[1] == "  left join on 1"


def test_a_change_of_the_right_meets_only_its_partners() -> None:
    term = term_body(body(LEFT), 1)
    assert term.sign == 1
    assert outline(term.operator)[1:] == ["  inner join on 1", "    leaf 0", "    leaf 1"]


def test_a_new_partner_takes_away_the_row_that_stood_alone() -> None:
    term = term_body(body(LEFT), 2)
    assert term.sign == -1
    assert "leaf 1" not in " ".join(outline(term.operator))
    padded = term.operator.input  # type: ignore[union-attr]
    assert isinstance(padded, Select)
    assert [one.sql for one in padded.columns][1:] == [
        "CAST(NULL AS int)",
        "CAST(NULL AS decimal(10,2))",
    ]


def test_an_anti_join_changes_with_its_left_and_against_its_partners() -> None:
    assert outline(term_body(body(ANTI), 0).operator)[0] == "anti join on 1"
    against = term_body(body(ANTI), 1)
    assert against.sign == -1
    assert outline(against.operator)[:2] == ["select", "  inner join on 1"]


def test_of_a_merge_a_term_has_the_input_of_its_leaf() -> None:
    assert outline(term_body(body(UNION), 1).operator) == ["merge of 1", "  leaf 1"]


def test_a_join_with_nothing_is_nothing() -> None:
    joined = state_body(body("SELECT c.id FROM customers c JOIN orders o ON c.id = o.customer"))
    assert without_empty(joined, {1}) is None
    assert without_empty(joined, {7}) == joined


def test_nothing_on_the_right_of_an_outer_join_leaves_the_left() -> None:
    left, anti = state_body(body(LEFT)), state_body(body(ANTI))
    assert without_empty(left, {1}) == left
    assert without_empty(anti, {1}) == numbered(body(ANTI)).left  # type: ignore[union-attr]
    assert without_empty(left, {0}) is None


def test_of_a_merge_what_has_no_rows_is_left_out() -> None:
    both = state_body(body(UNION))
    kept = without_empty(both, {0})
    assert kept is not None
    assert outline(kept) == ["merge of 1", "  leaf 1"]
    assert without_empty(both, {0, 1}) is None
