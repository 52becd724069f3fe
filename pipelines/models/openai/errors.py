"""Translates a model server's HTTP status into a decision: try again later, or give up on this input.

The decision separates faults of the setup from faults of one input.  A wrong key, a
model that does not exist or a wrong address fails every call alike: that is an outage, and no event
may become a dead letter for it.  Error messages name settings and statuses; they never contain keys, content
or the server's own message, which may quote both.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from urllib.parse import urlsplit

from strandline.schemas.errors import (
    ModelError,
    PermanentModelError,
    ProviderSetupError,
    RateLimitError,
    TransientModelError,
)

MAX_RETRY_AFTER_SECONDS = 86_400.0

_ABOUT_THE_INPUT = frozenset({HTTPStatus.BAD_REQUEST, 413, 422})
_ABOUT_THE_KEY = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_CODE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_HOST = re.compile(r"[A-Za-z0-9.:_-]{1,255}")
_KEY = re.compile(r"api[ _-]?key", re.IGNORECASE)
_MODEL = re.compile(r"model\b.{0,200}?\b(not found|not exist|unknown)|invalid model", re.IGNORECASE)
_FORMAT = re.compile(
    r"response.?format|json.?schema|json.?object|structured.?output|guided|grammar|unsupported|not.supported",
    re.IGNORECASE,
)
# OpenAI's words for a request that no waiting makes small enough.
_TOO_LARGE = re.compile(r"request too large", re.IGNORECASE)
_REFUSING = frozenset({400, 404, 422, 501})


@dataclass(frozen=True, slots=True)
class Rejection:
    """An HTTP answer of 3xx, 4xx or 5xx; ``message``, ``code`` and ``param`` as in OpenAI's error body."""

    status: int
    message: str
    code: str | None
    param: str | None
    headers: Mapping[str, str]


def judge(rejection: Rejection, *, model_setting: str) -> ModelError:
    """The error that ``rejection`` amounts to; ``model_setting`` is the variable that chose the model."""
    answer = f"The model server answered {rejection.status}{_code_suffix(rejection.code)}"
    if setup := _setup_problem(rejection, model_setting):
        refused = ProviderSetupError(
            f"{answer}: {setup}.", retry_after_seconds=retry_after_seconds(rejection.headers)
        )
        refused.is_unpaid = True
        return refused
    if rejection.status in _ABOUT_THE_INPUT:
        return PermanentModelError(f"{answer}: it refuses this input, and will refuse it again.")
    if rejection.status == HTTPStatus.TOO_MANY_REQUESTS and _TOO_LARGE.search(rejection.message):
        return PermanentModelError(f"{answer}: this input alone is over the limit of tokens per minute.")
    kind = RateLimitError if rejection.status == HTTPStatus.TOO_MANY_REQUESTS else TransientModelError
    return kind(
        f"{answer}; the call will be tried again later.",
        retry_after_seconds=retry_after_seconds(rejection.headers),
    )


@contextmanager
def after_answers(*, some: bool) -> Iterator[None]:
    """Around one of several requests of a call: if others were answered before it, the call is paid for."""
    try:
        yield
    except TransientModelError as error:
        error.is_unpaid = error.is_unpaid and not some
        raise


def _setup_problem(rejection: Rejection, model_setting: str) -> str | None:
    """The fault that affects every call, with the setting to check; None if the input may be at fault."""
    status = rejection.status
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return f"it redirects to {_target(rejection.headers)}, which is not followed; check OPENAI_BASE_URL"
    if status in _ABOUT_THE_KEY or (status == HTTPStatus.BAD_REQUEST and _KEY.search(rejection.message)):
        return f"the key was refused ({status}); check OPENAI_API_KEY"
    if status == HTTPStatus.PAYMENT_REQUIRED or rejection.code == "insufficient_quota":
        return "the quota of the account is used up; check its plan and billing"
    if _model_missing(rejection):
        return f"it does not have the model; check {model_setting}"
    if status == HTTPStatus.NOT_FOUND:
        return "no such address; check OPENAI_BASE_URL (it often ends in /v1)"
    return None


def _target(headers: Mapping[str, str]) -> str:
    """The host that a redirect names, without the rest of the address."""
    try:
        parts = urlsplit(headers.get("location") or "")
        host = f"{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}"
    except ValueError:
        host = ""
    return host if _HOST.fullmatch(host) else "another address"


def refuses_answer_format(rejection: Rejection) -> bool:
    """True if the server does not seem to support the structured output of this request."""
    named = f"{rejection.param or ''} {rejection.code or ''} {rejection.message}"
    return rejection.status in _REFUSING and _FORMAT.search(named) is not None


def refuses_temperature(rejection: Rejection) -> bool:
    """True if the model does not take a temperature, as with reasoning models."""
    named = f"{rejection.param or ''} {rejection.message}".lower()
    return rejection.status in _REFUSING and "temperature" in named


def retry_after_seconds(headers: Mapping[str, str], *, now: float | None = None) -> float | None:
    """Seconds to wait by ``retry-after-ms`` or ``Retry-After`` (seconds or an HTTP date); None if unreadable.

    Between 0 and a day.  ``now`` is a Unix time, by default the present; only dates need it.
    """
    for name, per_second in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        seconds = _number(headers.get(name))
        if seconds is not None:
            return _bounded(seconds / per_second)
    moment = _http_date(headers.get("retry-after"))
    return None if moment is None else _bounded(moment - (time.time() if now is None else now))


def _model_missing(rejection: Rejection) -> bool:
    if rejection.code in ("model_not_found", "DeploymentNotFound"):
        return True
    return rejection.status in (400, 404) and _MODEL.search(rejection.message) is not None


def _code_suffix(code: str | None) -> str:
    return f" ({code})" if code and _CODE.fullmatch(code) else ""


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _http_date(text: str | None) -> float | None:
    try:
        return parsedate_to_datetime(text or "").timestamp()
    except (ValueError, OverflowError):
        return None


def _bounded(seconds: float) -> float:
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_SECONDS)
