"""Renumberings: which id a row has on one branch, by the id that it has on another."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.support.lakes import seed_of

from tidelock.model.history.renumbering import (
    ABSENT,
    IDENTITY,
    Renumbering,
    ranges_of,
    read_renumbering,
    renumbering,
)

LARGEST = 60


def pairs(one: Renumbering) -> dict[int, int]:
    ids = np.arange(LARGEST)
    return {
        here: there
        for here, there in zip(ids.tolist(), one.there(ids).tolist(), strict=True)
        if there != ABSENT
    }


def some(chance: random.Random) -> Renumbering:
    """Some rows before the branches parted, and some that were brought from one to the other."""
    shared = chance.randrange(12)
    here = sorted(chance.sample(range(shared, LARGEST), 12))
    there = chance.sample(range(shared, LARGEST), 12)
    ranges = ranges_of(np.array(here), np.array(there))
    return renumbering([(0, 0, shared), *ranges])


def test_before_the_branches_parted_ids_are_the_same() -> None:
    one = Renumbering(6, ((6, 9, 2), (10, 6, 1)))
    assert one.there(np.array([0, 5, 6, 7, 8, 10, 11])).tolist() == [
        *(0, 5, 9, 10),
        *(ABSENT, 6, ABSENT),
    ]


def test_nothing_is_renumbered_by_the_identity() -> None:
    assert IDENTITY.there(np.array([3, 10**12])).tolist() == [3, 10**12]
    assert IDENTITY.is_identity
    assert IDENTITY.below(5) == Renumbering(5)
    assert Renumbering(0).there(np.array([0, 1])).tolist() == [-1, -1]


@pytest.mark.parametrize("attempt", range(20))
def test_it_is_a_partial_function_that_can_be_inverted_and_composed(attempt: int) -> None:
    with seed_of() as seed:
        chance = random.Random(seed + attempt)
        one, other = some(chance), some(chance)
        told, following = pairs(one), pairs(other)
        assert pairs(one.inverse()) == {there: here for here, there in told.items()}
        expected = {here: following[there] for here, there in told.items() if there in following}
        assert pairs(one.then(other)) == expected
        assert pairs(one.then(IDENTITY)) == told
        assert pairs(IDENTITY.then(one)) == told
        bound = chance.randrange(LARGEST)
        assert pairs(one.below(bound)) == {here: t for here, t in told.items() if here < bound}
        assert read_renumbering(one.plain()) == one


def test_more_rows_are_added_where_nothing_is_known() -> None:
    one = Renumbering(4, ((6, 20, 2),))
    found = pairs(one.union([(0, 0, 5), (5, 30, 4)]))
    assert found == {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 30, 6: 20, 7: 21, 8: 33}


def test_rows_that_follow_each_other_are_one_range() -> None:
    assert ranges_of(np.array([9, 5, 6, 7]), np.array([40, 10, 11, 12])) == [(5, 10, 3), (9, 40, 1)]
    assert ranges_of(np.array([], dtype=np.int64), np.array([], dtype=np.int64)) == []
