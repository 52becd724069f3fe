"""How long a server asks to be left alone, in the ways in which servers say it."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from strandline.pipelines.models.openai.refusals import Rejection

MAX_RETRY_AFTER_SECONDS = 86_400.0

_DURATION = re.compile(
    r"(?:(?P<h>\d{1,9})\s?h\w{0,9})?\s?(?:(?P<m>\d{1,9})\s?m(?:in\w{0,9})?(?!s))?\s?(?:(?P<s>\d{1,9}(?:\.\d{1,9})?)\s?s\w{0,9})?\s?(?:(?P<ms>\d{1,9}(?:\.\d{1,9})?)\s?ms)?"
)
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_IN_WORDS = re.compile(r"(?:try again|retry)\s+(?:in|after)\s+([\d][\w. ]{0,30})", re.IGNORECASE)
# A number above it is a moment, in seconds or milliseconds of Unix time.
_MOMENTS_FROM = 1e9
_MILLISECONDS_FROM = 1e11


def seconds_to_wait(rejection: Rejection) -> float | None:
    """Seconds by the headers, else by the words; None if neither says."""
    asked = retry_after_seconds(rejection.headers)
    if asked is not None:
        return asked
    words = _IN_WORDS.search(rejection.message)
    return None if words is None else _bounded(_duration(words[1].strip(" .")))


def retry_after_seconds(headers: Mapping[str, str], *, now: float | None = None) -> float | None:
    """Seconds to wait by ``retry-after-ms``, ``Retry-After`` or ``x-ratelimit-reset-*``; None if unreadable.

    Between 0 and a day.  ``now`` is a Unix time, by default the present; only dates need it.
    """
    now = time.time() if now is None else now
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return _bounded(milliseconds / 1000.0)
    asked = headers.get("retry-after")
    for seconds in (_duration(asked), _until_date(asked, now)):
        if seconds is not None:
            return _bounded(seconds)
    resets = [_reset(value, now) for name, value in headers.items() if "ratelimit-reset" in name.lower()]
    return _bounded(max((seconds for seconds in resets if seconds is not None), default=None))


def _reset(text: str, now: float) -> float | None:
    number = _number(text)
    if number is None or number < _MOMENTS_FROM:
        return _duration(text)
    return (number / 1000.0 if number > _MILLISECONDS_FROM else number) - now


def _duration(text: str | None) -> float | None:
    """Seconds of a number, or of a duration such as ``1m30s``."""
    number = _number(text)
    if number is not None:
        return number
    parts = _DURATION.fullmatch((text or "").strip())
    parts_by_unit = {unit: value for unit, value in parts.groupdict().items() if value} if parts else {}
    return (
        sum(float(value) * _SECONDS[unit] for unit, value in parts_by_unit.items()) if parts_by_unit else None
    )


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _until_date(text: str | None, now: float) -> float | None:
    try:
        return parsedate_to_datetime(text or "").timestamp() - now
    except (ValueError, OverflowError):
        return None


def _bounded(seconds: float | None) -> float | None:
    return None if seconds is None else min(max(seconds, 0.0), MAX_RETRY_AFTER_SECONDS)
