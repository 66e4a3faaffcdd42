"""What is in use, in short: everything that is held is covered, in few entries."""

from __future__ import annotations

import gc

from hypothesis import given
from hypothesis import strategies as st

from tidelock.store.leases.uses import Use, Uses, cover

SPANS = st.tuples(st.integers(1, 60), st.integers(0, 5)).map(lambda one: (one[0], sum(one)))
USED = st.builds(
    lambda branch, span, table: Use(branch, *span, table),
    st.sampled_from(["main", "dev"]),
    SPANS,
    st.sampled_from([None, None, "t1", "t2"]),
)


def versions(uses: list[Use] | tuple[Use, ...]) -> set[tuple[str, str | None, int]]:
    return {
        (use.branch_id, use.table_id, version)
        for use in uses
        for version in range(use.first, use.last + 1)
    }


@given(st.lists(USED, max_size=40), st.integers(1, 6))
def test_what_is_held_is_covered_by_a_few_entries(held: list[Use], most: int) -> None:
    found = cover(held, most)
    assert versions(held) <= versions(found)
    groups = {(use.branch_id, use.table_id) for use in held}
    assert len(found) <= most * len(groups)
    ends = {(use.branch_id, use.table_id, use.last) for use in held}
    assert {(use.branch_id, use.table_id, use.last) for use in found} <= ends


@given(st.lists(USED, max_size=40))
def test_nothing_else_is_covered_while_there_is_room(held: list[Use]) -> None:
    assert versions(cover(held, 1000)) == versions(held)


def test_what_lies_closest_together_is_joined_first() -> None:
    held = [Use("main", version, version) for version in (1, 2, 3, 10, 12, 40, 41, 90)]
    assert cover(held, 3) == (Use("main", 1, 12), Use("main", 40, 41), Use("main", 90, 90))


def test_a_use_ends_with_its_holder() -> None:
    class Holder:
        pass

    uses = Uses()
    one, other = Holder(), Holder()
    uses.hold(one, [Use("main", 1, 4)])
    uses.hold(other, [Use("main", 8, 8)])
    uses.hold(other, [Use("main", 9, 9)])
    uses.hold_pin(other, "t", 7)
    assert uses.listed() == (Use("main", 1, 4), Use("main", 9, 9))
    assert uses.pins() == (("t", 7),)
    del other
    gc.collect()
    assert uses.listed() == (Use("main", 1, 4),)
    assert uses.pins() == ()
