"""Refusals of the service as the exceptions that ``Memory`` raises."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from strandline.client.retrying import Failure, failure_of, retry_after_of
from strandline.schemas.display.field_paths import below
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.errors import (
    ActRefusedError,
    ConfigurationError,
    ConflictError,
    DatabaseTimeoutError,
    DatabaseUnavailableError,
    DeliveredError,
    ErasedError,
    InvalidMessageError,
    ModelError,
    NamespaceFullError,
    NotFoundError,
    OutcomeUnknownError,
    RedactionError,
    SealedContentError,
    ServiceError,
    ServiceKeyError,
    ServiceUnavailableError,
    StrandlineError,
    UnknownPipelineError,
    VersionError,
)
from strandline.schemas.wire.base import PROBLEM_MEDIA_TYPE, PROBLEM_TYPES, Problem, ProblemPlace

# Of the service's sentence of an error.
MAX_SENTENCE = 2_000
_PLACE = re.compile("0|[1-9][0-9]{0,8}")

# By the last part of a problem's type.
ERRORS: dict[str, Callable[[str], StrandlineError]] = {
    "malformed": ServiceError,
    "unauthenticated": ServiceKeyError,
    "forbidden": ServiceKeyError,
    "refused": ActRefusedError,
    "not-found": NotFoundError,
    "no-route": ServiceError,
    "method-not-allowed": ServiceError,
    "slow-body": ServiceUnavailableError,
    "slow-head": ServiceUnavailableError,
    "head-too-large": ServiceError,
    "conflict": ConflictError,
    "delivered": DeliveredError,
    "unknown-pipeline": UnknownPipelineError,
    "idempotency-key-reused": ConflictError,
    "erased": lambda _sentence: ErasedError(None),
    "namespace-full": NamespaceFullError,
    "other-revision": VersionError,
    "unsupported-encoding": ServiceError,
    "too-large": lambda sentence: InvalidMessageError("body", sentence),
    "invalid": ConfigurationError,
    "model-failed": ModelError,
    "too-many-requests": ServiceUnavailableError,
    "busy": ServiceUnavailableError,
    "stopping": ServiceUnavailableError,
    "unavailable": DatabaseUnavailableError,
    "sealed": SealedContentError,
    "redaction-failed": RedactionError,
    "timed-out": DatabaseTimeoutError,
    "outcome-unknown": OutcomeUnknownError,
    "internal": ServiceError,
}


# Arguments that are numbers and choices; `Memory` raises ConfigurationError for these.
_CHOICES = frozenset(
    "among chat_history_token_ratio deliver from_seq idle_seconds initial_token_count insert_method kinds"
    " last_n limit max_tokens max_window_bytes max_window_messages message_flush_size offset roles runs scope"
    " seq since skip_roles skip_statuses status through_seq time_zone token_flush_size token_limit until"
    " wait_for".split()
)


def problem_of(content: bytes, media_type: str | None) -> Problem | None:
    """The problem that an answer tells of; None if it is not one of Strandline's."""
    if not (media_type or "").startswith(PROBLEM_MEDIA_TYPE):
        return None
    try:
        problem = Problem.model_validate_json(content)
    except ValidationError:
        return None
    return problem if problem.type.startswith(PROBLEM_TYPES) else None


def kind_of(problem: Problem | None) -> str | None:
    """The last part of a problem's type."""
    return None if problem is None else problem.type.removeprefix(PROBLEM_TYPES)


def error_of(
    problem: Problem | None, status: int, retry_after: float | None = None, body: object = None
) -> StrandlineError:
    """The exception for a refusal.

    Args:
        retry_after: after how many seconds it asks to come again; None: it does not ask.
        body: as it was sent, in which its pointers lead to a place; None: there was none.
    """
    if problem is None:
        return ServiceError(
            f"The answer has the status {status} and is not Strandline's; look at what stands between this"
            " process and the service, and at the service's URL."
        )
    kind = kind_of(problem)
    sentence = _shown(f"{problem.title}: {problem.detail}")
    if retry_after:
        sentence += f" (It asks for {quantity(round(retry_after), 'second')}.)"
    places = problem.errors or []
    if kind == "invalid":
        return _of_places(places, body) if places else ConfigurationError(_shown(problem.detail))
    return ERRORS.get(kind or "", ServiceError)(sentence)


def _of_places(places: list[ProblemPlace], body: object) -> StrandlineError:
    field = _path(places[0].pointer[:MAX_SENTENCE], body)
    details = dict.fromkeys(place.detail.removesuffix(".") for place in places)
    problem = _shown(_lower_first("; ".join(details)))
    if field in _CHOICES:
        return ConfigurationError(f"{field}: {problem}")
    return InvalidMessageError(field, problem)


def _lower_first(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def _path(pointer: str, body: object) -> str:
    """The path of a JSON pointer (RFC 6901); a number is a key where the body has an object."""
    steps = [step.replace("~1", "/").replace("~0", "~") for step in pointer.removeprefix("/").split("/")]
    if len(steps) > 1 and steps[0] in ("body", "query", "path", "header"):
        steps = steps[1:]
    first, *others = steps
    path, value = _shown(first) or "body", _value_at(body, first)
    for step in others:
        is_place = _PLACE.fullmatch(step) and not isinstance(value, Mapping)
        key = int(step) if is_place else step
        path, value = below(path, key), _value_at(value, key)
    return path


def _value_at(value: object, key: str | int) -> object:
    try:
        return value[key]  # type: ignore[index]
    except (LookupError, TypeError):
        return None


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer other than success.

    Attributes:
        kind: the last part of the problem's type; None: the answer is not Strandline's.
        failure: None: a final answer, which repeating does not change.
        retry_after: the seconds after which the service asks to come again.
        error: for the caller, if the request is not sent again.
    """

    kind: str | None
    failure: Failure | None
    retry_after: float | None
    error: StrandlineError


def refusal_of(status: int, headers: Mapping[str, str], content: bytes, body: object = None) -> Refusal:
    """Read an answer other than success, to a request with this body."""
    problem = problem_of(content, headers.get("content-type"))
    kind = kind_of(problem)
    retry_after = retry_after_of(headers.get("retry-after"))
    return Refusal(kind, failure_of(kind, status), retry_after, error_of(problem, status, retry_after, body))


def _shown(text: str) -> str:
    printable = "".join(one if one.isprintable() else " " for one in text[:MAX_SENTENCE])
    return printable + "…" * (len(text) > MAX_SENTENCE)


def unusable(error: ValidationError) -> ConfigurationError:
    """For arguments of a call that the wire does not take."""
    places: list[Any] = error.errors(include_url=False, include_context=False, include_input=False)
    where = ".".join(str(step) for step in places[0]["loc"]) or "an argument"
    return ConfigurationError(f"{where}: {_lower_first(places[0]['msg'])}")


def unreadable(error: ValidationError) -> ServiceError:
    """For an answer that is not as the wire has it."""
    places: list[Any] = error.errors(include_url=False, include_context=False, include_input=False)
    where = ".".join(str(step) for step in places[0]["loc"]) or "the body"
    return ServiceError(
        f"The service's answer is not of a form that this release reads ({where}); use releases that go"
        " together."
    )
