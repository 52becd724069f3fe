"""Refusals of the service as the exceptions that ``Memory`` raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

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
from strandline.schemas.wire.base import Problem, ProblemPlace

TYPES = "urn:strandline:problem:"

# By the last part of a problem's type.
ERRORS: dict[str, Callable[[str], StrandlineError]] = {
    "malformed": ServiceError,
    "unauthenticated": ServiceKeyError,
    "forbidden": ServiceKeyError,
    "refused": ActRefusedError,
    "not-found": NotFoundError,
    "method-not-allowed": ServiceError,
    "slow-body": ServiceUnavailableError,
    "conflict": ConflictError,
    "delivered": DeliveredError,
    "unknown-pipeline": UnknownPipelineError,
    "idempotency-key-reused": ConflictError,
    "erased": lambda _sentence: ErasedError(None),
    "other-revision": VersionError,
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


def problem_of(content: bytes, media_type: str | None) -> Problem | None:
    """The problem that an answer tells of; None if it is not one of Strandline's."""
    if not (media_type or "").startswith("application/problem+json"):
        return None
    try:
        problem = Problem.model_validate_json(content)
    except ValidationError:
        return None
    return problem if problem.type.startswith(TYPES) else None


def kind_of(problem: Problem | None) -> str | None:
    """The last part of a problem's type."""
    return None if problem is None else problem.type.removeprefix(TYPES)


def error_of(problem: Problem | None, status: int) -> StrandlineError:
    """The exception for a refusal."""
    if problem is None:
        return ServiceError(
            f"The answer has the status {status} and is not Strandline's; look at what stands between this"
            " process and the service, and at the service's URL."
        )
    kind = kind_of(problem)
    sentence = f"{problem.title}: {problem.detail}"
    places = problem.errors or []
    if kind == "invalid" and places:
        return _of_places(places)
    return ERRORS.get(kind or "", ServiceError)(sentence)


def _of_places(places: list[ProblemPlace]) -> StrandlineError:
    details = dict.fromkeys(place.detail.removesuffix(".") for place in places)
    return InvalidMessageError(_dotted(places[0].pointer), _lower_first("; ".join(details)))


def _lower_first(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def _dotted(pointer: str) -> str:
    """A JSON pointer into a request as the path of a field: ``messages[2].content``."""
    steps: list[str] = [step for step in pointer.split("/") if step]
    if len(steps) > 1 and steps[0] in ("body", "query", "path", "header"):
        steps = steps[1:]
    dotted = ""
    for step in steps:
        dotted += f"[{step}]" if step.isdigit() else f".{step}" if dotted else step
    return dotted or "body"


def unreadable(error: ValidationError) -> ServiceError:
    """For an answer that is not as the wire has it."""
    places: list[Any] = error.errors(include_url=False, include_context=False, include_input=False)
    where = ".".join(str(step) for step in places[0]["loc"]) or "the body"
    return ServiceError(
        f"The service's answer is not of a form that this release reads ({where}); use releases that go"
        " together."
    )
