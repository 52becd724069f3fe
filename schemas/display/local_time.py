"""Local time: a moment by the clock of whoever spoke then.

A moment with an offset from UTC says what that clock showed.  One in UTC says only when it was: there the
time zone of the session counts, and without one UTC.
"""

from __future__ import annotations

import logging
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

logger = logging.getLogger("strandline.policy")

_MINUTE = timedelta(minutes=1)


def offset_of(moment: datetime) -> int | None:
    """Its offset from UTC in whole minutes; None if it is in UTC."""
    return int((moment.utcoffset() or timedelta()) / _MINUTE) or None


def at_offset(moment: datetime, minutes: int) -> datetime:
    """The moment by a clock so many minutes ahead of UTC."""
    return moment.astimezone(timezone(minutes * _MINUTE))


def in_zone(moment: datetime, time_zone: str | None) -> datetime:
    """The moment as ``at_offset`` gave it, else by the clock of a time zone (None: UTC)."""
    # Drivers give UTC, or the zone of the server by its name: never a mere offset.
    if type(moment.tzinfo) is timezone and moment.tzinfo is not UTC:
        return moment
    there = moment.astimezone(_zone(time_zone))
    return there if time_zone is None else at_offset(moment, offset_of(there) or 0)


def today_in(time_zone: str | None) -> date:
    """The day that it is there; None: in UTC."""
    return datetime.now(_zone(time_zone)).date()


@cache
def time_zones() -> frozenset[str]:
    """The names of the IANA database of this machine."""
    return frozenset(available_timezones())


@cache
def _zone(name: str | None) -> tzinfo:
    try:
        return UTC if name is None else ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        logger.warning("unknown time zone: using UTC", extra={"action": "unknown_zone", "reason": name})
        return UTC
