"""Local times and instants: what times without a zone mean in a session's time zone.

Owns: the conversion of whole arrays with Spark's rules: a local time that occurs twice is the
earlier one, one that a clock change skips is moved forward by what was skipped. Both are what
Python gives for `fold=0`.

Arrow has such a conversion of its own, which is wrong after 2037; so offsets come from Python's
zones, and are asked for once a day of the data, not once a value.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelock.model.time.zones import UTC, zone_of

_EPOCH = dt.datetime(1970, 1, 1)
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
# The calendar, weekdays included, repeats itself after 400 years.
_CYCLE = 146_097 * _DAY
# So close to the ends of 64 bits, a shifted time would come out at the other end.
_ROOM = 2**63 - 1 - 2 * _DAY
_FIRST = (dt.datetime(1, 1, 3) - _EPOCH) // dt.timedelta(microseconds=1)
_LAST = (dt.datetime(9990, 1, 1) - _EPOCH) // dt.timedelta(microseconds=1)

Micros = npt.NDArray[np.int64]
OffsetAt = Callable[[dt.datetime], dt.timedelta | None]


def instants_of(local: pa.Array, zone: str) -> pa.Array:
    """Local times, `timestamp[us]`, as instants, `timestamp[us, UTC]`."""
    found = zone_of(zone)
    moved = local
    if found is not dt.UTC:
        moved = _shifted(local, -1, lambda moment: moment.replace(tzinfo=found).utcoffset())
    return moved.cast(pa.timestamp("us", UTC))


def local_times_of(instants: pa.Array, zone: str) -> pa.Array:
    """Instants, `timestamp[us, UTC]`, as the local times of a zone, `timestamp[us]`."""
    found = zone_of(zone)
    plain = instants.cast(pa.int64()).cast(pa.timestamp("us"))
    if found is dt.UTC:
        return plain
    return _shifted(
        plain, 1, lambda moment: moment.replace(tzinfo=dt.UTC).astimezone(found).utcoffset()
    )


def _shifted(array: pa.Array, sign: int, offset_at: OffsetAt) -> pa.Array:
    valid = array.is_valid()
    micros: Micros = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    if ((micros > _ROOM) | (micros < -_ROOM)).any():
        raise ValueError("out of range")
    moved = micros + sign * _offsets(micros, offset_at)
    return pa.array(moved, pa.timestamp("us"), mask=~valid.to_numpy(zero_copy_only=False))


def _offsets(micros: Micros, offset_at: OffsetAt) -> Micros:
    """The offset at each time, in microseconds."""
    days, which = np.unique(micros // _DAY, return_inverse=True)
    first = _each(days * _DAY, offset_at)
    last = _each(days * _DAY + _DAY - 1, offset_at)
    offsets: Micros = first[which]
    changing = np.flatnonzero((first != last)[which])
    if len(changing):
        times, place = np.unique(micros[changing], return_inverse=True)
        offsets[changing] = _each(times, offset_at)[place]
    return offsets


def _each(micros: Micros, offset_at: OffsetAt) -> Micros:
    found = (offset_at(_EPOCH + dt.timedelta(microseconds=_held(one))) for one in micros.tolist())
    return np.array([(o or dt.timedelta()) // dt.timedelta(microseconds=1) for o in found], "int64")


def _held(micros: int) -> int:
    """The time, or one with the same offset that Python can hold."""
    if micros > _LAST:
        return micros - ((micros - _LAST) // _CYCLE + 1) * _CYCLE
    return max(micros, _FIRST)
