"""Translates a model server's HTTP status into a decision: try again later, or give up on this input.

The decision separates faults of the setup from faults of one input.  A wrong key, a
model that does not exist or a wrong address fails every call alike: that is an outage, and no event
may become a dead letter for it.  Error messages name settings and statuses; they never contain keys, content
or the server's own message, which may quote both.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import (
    ModelError,
    PermanentModelError,
    ProviderSetupError,
    RateLimitError,
    TransientModelError,
)
from strandline.schemas.model_roles import Role

MAX_MESSAGE_CHARACTERS = 4_000
_MAX_LEVELS = 8
_MAX_BODY = 200_000
# Where servers put sentences about their objections.
_TOLD_IN = frozenset(
    "error errors message detail details msg error_msg status_msg raw metadata reason reasons status type"
    " title description error_description loc fault faultstring error_message errormessage exception"
    " innererror code __type body".split()
)
# Of these, where servers put codes.
_CODES_IN = frozenset("error errors details innererror code type status reason reasons __type".split())
# Where a body with status 200 holds an error.
_ERRORS = ("error", "errors", "base_resp")
_STATUSES = ("code", "status", "status_code", "statusCode", "http_status", "http_code")
_WAITS = frozenset({"retryDelay", "retry_after", "retry_after_seconds"})
# A quotation of several words, and an object: parts of the request, or of the model's answer.
_QUOTED = re.compile(
    r"\"[^\"\n]{0,400}\"|'[^'\n]{0,400}'(?!\w)|`[^`\n]{0,400}`|[\u201c\u00ab][^\u201d\u00bb\n]{0,400}[\u201d\u00bb]"
)
# A shorter one is in any word.
_MIN_SECRET_CHARACTERS = 4
# Also one of which all but its ends is hidden.
_LIKE_A_KEY = re.compile(
    r"(?<!\S)\S*[*\u2022]\S*|\b(sk|key|gsk)-\S+|(?<![\w+/=-])(?=[\w+/=-]*[\dA-Z])[\w+/=-]{20,}"
)
_CODE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_PAGE = re.compile(r"\A\s*<[A-Za-z!?]")


class RejectedError(Exception):
    """The server refused, by its HTTP status or in the body; its caller decides what that means."""

    def __init__(self, rejection: Rejection) -> None:
        super().__init__(f"the model server answered {rejection.status}")
        self.rejection = rejection


@dataclass(frozen=True, slots=True)
class Rejection:
    """A refusal.

    Attributes:
        status: the HTTP status, or the equivalent of an error within a 200.
        message: without quotations.
        code, param: as in OpenAI's error body.
        codes: all that the body has, without its sentences.
        certain_status: that of an error within a 200 by its codes alone.
    """

    status: int
    message: str = ""
    code: str | None = None
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    codes: str = ""
    certain_status: int | None = None

    @property
    def certain(self) -> Rejection:
        """The error without its sentences, which may quote the input."""
        return replace(self, status=self.certain_status or self.status, message=self.codes)

    @property
    def subject(self) -> str:
        """Everything that names its subject."""
        return f"{self.param or ''} {self.code or ''} {self.message}"

    @property
    def is_page(self) -> bool:
        """Whether an intermediary has answered in place of the server."""
        return _PAGE.match(self.message) is not None

    @property
    def shown_code(self) -> str:
        """The code in parentheses behind the status, if it can be shown."""
        is_plain = self.code and _CODE.fullmatch(self.code) and self.code != str(self.status)
        return f" ({self.code})" if is_plain else ""

    def shown_words(self, role: Role[Any]) -> str:
        """Its message in short, for a request of our own words alone; without keys and their ends."""
        words = self.message if role.is_quoted else ""
        for secret in role.secrets:
            words = words.replace(secret, "…") if len(secret) >= _MIN_SECRET_CHARACTERS else words
        words = " ".join(_LIKE_A_KEY.sub("…", words).split())
        return f" It says {quote(words)}." if words else ""


def read_rejection(status: int, body: bytes, headers: Mapping[str, str]) -> Rejection:
    """The refusal that an answer with an error status is."""
    text = body[:_MAX_BODY].decode("utf-8", "replace").lstrip("\ufeff")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return Rejection(status, _without_quotations(text), headers=headers)
    return _rejection(status, value, headers)


def error_within(value: object, headers: Mapping[str, str]) -> Rejection | None:
    """The refusal in a body with status 200, at its top or in its first choice; None: it has no refusal."""
    if not isinstance(value, dict):
        return None
    choices = value.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else {}
    holders = [holder for holder in (first, value) if isinstance(holder, dict)]
    errors = (holder[key] for holder in holders for key in _ERRORS if holder.get(key))
    error = next((one for one in errors if not _is_success(one)), None)
    if error is None and not choices and (_is_bare_error(value) or _own_status(value)):
        error = value
    if error is None:
        return None
    rejection = _rejection(502, error, headers)
    certain_status = _status_of(error, rejection.codes)
    return replace(rejection, status=_status_of(error, rejection.subject), certain_status=certain_status)


def _is_success(error: object) -> bool:
    if not isinstance(error, dict):
        return False
    return error.get("status_code", error.get("code")) in (0, "0", 200) or not any(error.values())


def _is_bare_error(value: Mapping[str, Any]) -> bool:
    """Whether an object has sentences alone, where an error, or an answer, would be an object."""
    has_sentence = any(isinstance(value.get(key), str) for key in ("message", "detail", "msg"))
    holds_more = any(isinstance(content, (dict, list)) for content in value.values())
    return has_sentence and not holds_more and not _is_success(value)


def _status_of(error: object, words: str) -> int:
    """The status that an error stands for; without one it is the server's own trouble, which passes."""
    if isinstance(error, dict) and (status := _own_status(error)):
        return status
    return next((status for pattern, status in _MEANING.items() if pattern.search(words)), 502)


def _own_status(error: Mapping[str, Any]) -> int:
    numbers = (str(error.get(key, "")) for key in _STATUSES)
    return next((int(one) for one in numbers if one.isdecimal() and len(one) == 3 and one[0] in "45"), 0)


def _rejection(status: int, value: Any, headers: Mapping[str, str]) -> Rejection:
    return Rejection(
        status,
        _without_quotations(" ".join(dict.fromkeys(_sentences(value, _TOLD_IN)))),
        _first_text(value, "code"),
        _first_text(value, "param"),
        headers,
        " ".join(filter(_CODE.fullmatch, _sentences(value, _CODES_IN))),
    )


def _sentences(value: Any, places: frozenset[str], levels: int = _MAX_LEVELS) -> Iterator[str]:
    if levels and isinstance(value, str) and value[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    if isinstance(value, str):
        yield value[:MAX_MESSAGE_CHARACTERS]
    elif levels and isinstance(value, list):
        for item in value[:20]:
            yield from _sentences(item, places, levels - 1)
    elif levels and isinstance(value, dict):
        for key, item in value.items():
            if key in _WAITS and isinstance(item, (str, int, float)):
                yield f"retry in {item}"
            elif key.lower() in places:
                yield from _sentences(item, places, levels - 1)


def _first_text(value: Any, key: str) -> str | None:
    for _ in range(_MAX_LEVELS):
        if isinstance(value, list) and value:
            value = value[0]
        elif isinstance(value, dict) and isinstance(value.get("error"), (dict, list)):
            value = value["error"]
        else:
            break
    content = value.get(key) if isinstance(value, dict) else None
    return str(content) if isinstance(content, (str, int)) and not isinstance(content, bool) else None


def _without_quotations(text: str) -> str:
    shown = text[:MAX_MESSAGE_CHARACTERS]
    while (begin := shown.find("{")) >= 0 and (end := shown.rfind("}")) > begin:
        shown = f"{shown[:begin]} {shown[end + 1 :]}"
    return _QUOTED.sub(lambda quoted: quoted[0] if len(quoted[0].split()) == 1 else " ", shown)


MAX_RETRY_AFTER_SECONDS = 86_400.0

_DURATION = re.compile(
    r"(?:(?P<d>\d{1,9}+)\s?d(?:ays?)?(?![a-z]))?\s?"
    r"(?:(?P<h>\d{1,9}+)\s?h(?:(?:ou)?rs?)?(?![a-z]))?\s?"
    r"(?:(?P<m>\d{1,9}+)\s?m(?:in(?:ute)?s?)?(?![a-z]))?\s?"
    r"(?:(?P<s>\d{1,9}+(?:\.\d{1,9}+)?)\s?(?:s(?:ec(?:ond)?s?)?(?![a-z])|(?![\w.]|\s?m)))?\s?"
    r"(?:(?P<ms>\d{1,9}+(?:\.\d{1,9}+)?)\s?(?:ms|milliseconds?))?",
    re.IGNORECASE,
)
_SECONDS = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
# Before a duration, not a date or a time of day.
_IN_WORDS = re.compile(
    r"(?:try again|retry|wait|resets?)(?:[\s_:]+(?!(?:at|on|until)\b)[a-z]+){0,4}[\s_:]+(?=\d+(?![\d:/-]))",
    re.IGNORECASE,
)
_IN_HEADER = re.compile(r"retry-?after(?P<ms>-ms)?$|rate-?limit.{0,40}reset|^ratelimit$")
# A number above it is a moment, in seconds or milliseconds of Unix time.
_MOMENTS_FROM = 1e9
_MILLISECONDS_FROM = 1e11


def seconds_to_wait(rejection: Rejection) -> float | None:
    """Seconds by the headers, else by the words; None if neither says."""
    asked = retry_after_seconds(rejection.headers)
    return _bounded(_seconds_in_words(rejection)) if asked is None else asked


def _seconds_in_words(rejection: Rejection) -> float | None:
    before = _IN_WORDS.search(rejection.message)
    return None if before is None else _parts_of(_DURATION.match(rejection.message, before.end()))


def retry_after_seconds(headers: Mapping[str, str], *, now: float | None = None) -> float | None:
    """Seconds to wait by ``retry-after-ms``, ``Retry-After`` or ``x-ratelimit-reset-*``; None if unreadable.

    Between 0 and a day.  ``now`` is a Unix time, by default the present; only dates need it.
    """
    now = time.time() if now is None else now
    waits: dict[str, list[float]] = {"ms": [], "retry": [], "reset": []}
    for name, text in headers.items():
        if (known := _IN_HEADER.search(name.lower())) and (seconds := _wait(text, now)) is not None:
            kind = "ms" if known["ms"] else "retry" if "retry" in known[0] else "reset"
            waits[kind].append(seconds / 1000.0 if known["ms"] else seconds)
    return _bounded(next((max(seconds) for seconds in waits.values() if seconds), None))


def _wait(text: str, now: float) -> float | None:
    """Seconds from a number, a moment of Unix time, a duration or a date."""
    plain = text.rpartition("reset=")[2].split(";")[0].strip().removeprefix("PT")
    number = _number(plain.split(",")[0])
    if number is not None:
        moment = number / 1000.0 if number > _MILLISECONDS_FROM else number
        return moment - now if number > _MOMENTS_FROM else number
    duration = _parts_of(_DURATION.fullmatch(plain))
    return _until_date(plain, now) if duration is None else duration


def _parts_of(duration: re.Match[str] | None) -> float | None:
    parts = {unit: value for unit, value in duration.groupdict().items() if value} if duration else {}
    return sum(float(value) * _SECONDS[unit] for unit, value in parts.items()) if parts else None


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _until_date(text: str, now: float) -> float | None:
    for read in (parsedate_to_datetime, datetime.fromisoformat):
        with suppress(ValueError, OverflowError):
            moment = read(text)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now
    return None


def _bounded(seconds: float | None) -> float | None:
    return None if seconds is None else min(max(seconds, 0.0), MAX_RETRY_AFTER_SECONDS)


_ABOUT_THE_INPUT = frozenset({HTTPStatus.BAD_REQUEST, 413, 422})
# Statuses that waiting does not change and that no model server sends: an intermediary does.
_FROM_IN_BETWEEN = frozenset({405, 406, 407, 410, 411, 415, 418, 421, 426, 451, 511})
_HOST = re.compile(r"[A-Za-z0-9.:_-]{1,255}")
_KEY = re.compile(r"api[ _-]?key|authentication|unauthenticated", re.IGNORECASE)
_NO_CREDIT = re.compile(
    r"insufficient_(quota|credits?|funds)|credit balance is too low|billing_hard_limit|budget_exceeded"
    r"|api usage limits",
    re.IGNORECASE,
)
_QUOTA = re.compile(
    r"insufficient.{0,20}(quota|credits?|balance|funds)|credit balance|billing|payment|trial .{0,20}expired",
    re.IGNORECASE,
)
_MODEL = re.compile(
    r"model\b.{0,200}?\b(not found|not exist|unknown|isn.t supported|not supported|not available"
    r"|identifier is invalid)|(invalid|unknown|unsupported|no such|not a valid) model|DeploymentNotFound"
    r"|model_not_(found|supported|available)|unable to access .{0,40}model|no endpoints found"
    r"|model\b.{0,80}\b(deprecated|retired|decommissioned|no longer)",
    re.IGNORECASE,
)
_MODERATED = re.compile(
    r"content.?(filter|policy)|content management policy|flagged|moderat|responsible.?ai"
    r"|(inappropriate|sensitive) content|new_sensitive|data_inspection|safety.(system|filter|policy|check)",
    re.IGNORECASE,
)
# Prompts, and texts to embed, that are longer than the server takes.
_TOO_LONG = re.compile(
    r"context.{0,3}(length|window|size)|maximum (context|input|prompt|sequence|length)|n_ctx"
    r"|(?<!took )(?<!taking )longer than(?! expected)"
    r"|too (long|large|many (input )?tokens)|batch size|reduce the length|(fewer|less) than \d+ tokens"
    r"|exceeds? .{0,60}(context|tokens|limit)|(inputs?|prompt)\W{1,2}(length|tokens)|token (limit|size)",
    re.IGNORECASE,
)
_RATE = re.compile(
    r"rate.?limit|too many requests|throttl|rate exceed|wait before|tokens per (minute|day)|concurren",
    re.IGNORECASE,
)
# In place of a quota that is used up.
_OF_A_MINUTE = re.compile(r"\b[RT]PM\b|per min")
_FORM = re.compile(
    r"not (yet )?(supported|allowed|permitted|implemented)|unsupported|unrecogni[sz]ed"
    r"|unknown (field|param|arg)",
    re.IGNORECASE,
)
# The status that other servers send with what the words say.
_MEANING = {_QUOTA: 402, _RATE: 429, _KEY: 401, _MODEL: 404}
_MEANING |= dict.fromkeys((_MODERATED, _TOO_LONG, _FORM), 400)

# OpenAI's words for a request that no waiting makes small enough.
_REQUEST_TOO_LARGE = re.compile(r"request too large", re.IGNORECASE)


def judge(rejection: Rejection, role: Role[Any]) -> ModelError:
    """The error that ``rejection`` amounts to, with the variables of ``role`` to look at."""
    error = _error_of(rejection, role)
    error.args = (f"{error}{rejection.shown_words(role)}",)
    return error


def confirmed(problem: ModelError, certain: ModelError, probe: Callable[[], None]) -> ModelError:
    """``problem``, which ``probe`` raises if it is one of all calls; else what is ``certain`` without it."""
    if isinstance(problem, PermanentModelError) or type(certain) is type(problem):
        return problem
    probe()
    return certain


def _error_of(rejection: Rejection, role: Role[Any]) -> ModelError:
    answer = f"The model server answered {rejection.status}{rejection.shown_code}"
    wait = seconds_to_wait(rejection)
    if is_moderated(rejection):
        return PermanentModelError(f"{answer}: its moderation refuses this input.")
    is_over_rate = is_rate_limit(rejection)
    if setup := _setup_problem(rejection, role):
        refused = ProviderSetupError(f"{answer}: {setup}.", retry_after_seconds=wait)
        refused.is_unpaid = True
        return refused
    if is_over_rate and _REQUEST_TOO_LARGE.search(rejection.subject):
        return PermanentModelError(f"{answer}: this input alone is over the limit of tokens per minute.")
    if is_too_long(rejection):
        return PermanentModelError(
            f"{answer}: this input is longer than the server takes; lower STRANDLINE_BATCH_TOKEN_BUDGET, or"
            " the flush size of the policy."
        )
    is_not_a_number = rejection.status == 500 and "unsupported value: NaN" in rejection.message
    if is_not_a_number or (rejection.status in _ABOUT_THE_INPUT and not is_over_rate):
        return PermanentModelError(f"{answer}: it refuses this input, and will refuse it again.")
    kind = RateLimitError if is_over_rate else TransientModelError
    return kind(f"{answer}.", retry_after_seconds=wait)


def refuses_everything(rejection: Rejection, role: Role[Any]) -> ProviderSetupError:
    """The outage of a server that refuses even the smallest request, for a reason that is not recognised."""
    refused = ProviderSetupError(
        f"The model server answers every request with {rejection.status}{rejection.shown_code}; see its log,"
        f" and check {role.place('base_url')} and {role.place('body')}.{rejection.shown_words(role)}",
        retry_after_seconds=seconds_to_wait(rejection),
    )
    refused.is_unpaid = True
    return refused


def is_rate_limit(rejection: Rejection) -> bool:
    """Whether the server wants fewer calls; some say so in words behind another status."""
    has_words = rejection.status == HTTPStatus.FORBIDDEN or rejection.status >= 500
    words = rejection.subject if has_words else rejection.codes
    return rejection.status == 429 or _RATE.search(words) is not None


def is_moderated(rejection: Rejection) -> bool:
    """Whether a moderation refuses the request's content."""
    is_known = rejection.status in (400, 403, 422) and not rejection.is_page
    return is_known and _MODERATED.search(rejection.subject) is not None


def is_too_long(rejection: Rejection) -> bool:
    """Whether the request holds more than the server takes."""
    subject, status = rejection.subject, rejection.status
    if _RATE.search(subject) or is_rate_limit(rejection):
        return _REQUEST_TOO_LARGE.search(subject) is not None
    is_known = status in (400, 422, 500) and not rejection.is_page
    return status == 413 or (is_known and _TOO_LONG.search(subject) is not None)


@contextmanager
def after_answers(*, some: bool) -> Iterator[None]:
    """Around one of several requests of a call: if others were answered before it, the call is paid for."""
    try:
        yield
    except TransientModelError as error:
        error.is_unpaid = error.is_unpaid and not some
        raise


def _setup_problem(rejection: Rejection, role: Role[Any]) -> str | None:
    """The fault that affects every call, with the setting to check; None if the input may be at fault."""
    status, words = rejection.status, rejection.subject
    address, key = role.place("base_url"), role.place("api_key")
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return f"it redirects to {_target(rejection.headers)}, which is not followed; check {address}"
    # A quota of a minute names the wait, as Gemini's does.
    used_up = {403: _QUOTA, 429: _QUOTA, 400: _NO_CREDIT}.get(status)
    is_passing = _seconds_in_words(rejection) is not None or _OF_A_MINUTE.search(words) is not None
    is_used_up = used_up and used_up.search(words) and not is_passing
    if status == HTTPStatus.PAYMENT_REQUIRED or is_used_up:
        return "the quota of the account is used up; check its plan and billing"
    if is_rate_limit(rejection):
        return None
    if status in (400, 403, 404, 410, 422) and _MODEL.search(words):
        return f"it does not have the model; check {role.place('model')}"
    if status == HTTPStatus.UNAUTHORIZED or (status in (400, 403) and _KEY.search(words)):
        return f"the key was refused ({status}); check {key}"
    if status == HTTPStatus.FORBIDDEN:
        return (
            f"access was refused (403): by the key, the region, or a firewall in between; check {key}"
            f" and {address}"
        )
    if status == HTTPStatus.NOT_FOUND:
        return f"no such address; check {address} (it often ends in /v1)"
    if status in _FROM_IN_BETWEEN:
        return f"a proxy or firewall in between may have answered; check {address} and the network"
    return None


def _target(headers: Mapping[str, str]) -> str:
    try:
        parts = urlsplit(headers.get("location") or "")
        host = f"{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}"
    except ValueError:
        host = ""
    return host if _HOST.fullmatch(host) else "another address"
