"""Ancestries: which commits come before a commit, as one vector."""

from __future__ import annotations

from datetime import UTC, datetime

from tidelock.model.history.ancestry import Ancestry, Place, in_common, joined, line_of, newest_of
from tidelock.model.history.commit import BranchRef


def branch(name: str, *lineage: tuple[str, int]) -> BranchRef:
    return BranchRef(name, name, 1, lineage, datetime(2026, 1, 1, tzinfo=UTC), "")


def test_a_line_goes_back_through_its_forks() -> None:
    exp = branch("exp", ("main", 5), ("dev", 9))
    assert line_of(exp, 12) == {"main": 5, "dev": 9, "exp": 12}
    assert line_of(exp, 9) == {"main": 5, "dev": 9}
    assert line_of(exp, 7) == {"main": 5, "dev": 7}
    assert line_of(exp, 3) == {"main": 3}


def test_a_merge_has_the_ancestors_of_both() -> None:
    assert joined({"main": 5, "dev": 2}, {"main": 3, "exp": 7}) == {"main": 5, "dev": 2, "exp": 7}


def test_what_two_have_in_common_is_the_lesser_of_both() -> None:
    shared = in_common({"main": 9, "dev": 12}, {"main": 5, "dev": 15, "exp": 3})
    assert shared == [Place("dev", 12), Place("main", 5)]


def test_a_base_that_another_descends_from_is_none() -> None:
    known: dict[Place, Ancestry] = {
        Place("main", 5): {"main": 5},
        Place("dev", 12): {"main": 5, "dev": 12},
    }
    assert newest_of(known, known.__getitem__) == [Place("dev", 12)]


def test_histories_that_crossed_have_several_bases() -> None:
    known: dict[Place, Ancestry] = {
        Place("main", 8): {"main": 8, "dev": 6},
        Place("dev", 9): {"main": 5, "dev": 9},
    }
    assert newest_of(known, known.__getitem__) == [Place("dev", 9), Place("main", 8)]


def test_a_place_is_named_by_its_commit() -> None:
    place = Place("dev-3f9a1c0b22d1", 57)
    assert Place.named(place.commit) == place
    assert place.is_among({"dev-3f9a1c0b22d1": 57})
    assert not place.is_among({"dev-3f9a1c0b22d1": 56})


def test_a_place_is_on_the_line_of_those_that_forked_after_it() -> None:
    exp = branch("exp", ("main", 5))
    assert Place("main", 5).is_on(exp, 9)
    assert not Place("main", 6).is_on(exp, 9)
    assert not Place("exp", 9).is_on(exp, 8)
