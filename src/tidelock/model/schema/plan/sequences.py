"""Sequences of numbers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


def longest_rising(values: Sequence[int]) -> list[int]:
    """The places of a longest part of a sequence that rises; of several, always the same one."""
    ends: list[int] = []
    places: list[int] = []
    before: list[int | None] = []
    for place, value in enumerate(values):
        length = bisect_left(ends, value)
        before.append(places[length - 1] if length else None)
        if length == len(ends):
            ends.append(value)
            places.append(place)
        else:
            ends[length], places[length] = value, place
    found: list[int] = []
    place_or_none = places[-1] if places else None
    while place_or_none is not None:
        found.append(place_or_none)
        place_or_none = before[place_or_none]
    return found[::-1]
