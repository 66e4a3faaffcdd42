"""Time zones: Spark's names for them, and what one local time means in one.

Owns: the reading of these names. Whole arrays are converted by zoned_arrays.py.
"""

from __future__ import annotations

import datetime as dt
import re
import zoneinfo
from functools import lru_cache

from tidelock.errors import InvalidOption

UTC = "UTC"
ZONE_SETTING = "spark.sql.session.timeZone"
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2})(?::?(\d{2}))?)?")


@lru_cache(maxsize=64)
def zone_of(name: str) -> dt.tzinfo:
    """The zone that Spark knows under this name."""
    if name in (UTC, "Z", "GMT", "UT", "Etc/UTC"):
        return dt.UTC
    offset = _OFFSET.fullmatch(name)
    try:
        if offset is None:
            return zoneinfo.ZoneInfo(name)
        hours, minutes, seconds = (int(part or 0) for part in offset.groups()[1:])
        shift = dt.timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return dt.timezone(shift if offset[1] == "+" else -shift)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError) as error:
        raise InvalidOption(
            f"The session's time zone {name!r} is not known here, so that times without a zone "
            "cannot be read. Set spark.sql.session.timeZone to a zone such as 'Europe/Berlin', or "
            "install Python's tzdata package.",
            zone=name,
        ) from error


def instant_of(local: dt.datetime, zone: str) -> dt.datetime:
    """The instant of one local time, in UTC."""
    return local.replace(tzinfo=zone_of(zone), fold=0).astimezone(dt.UTC)
