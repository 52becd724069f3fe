"""Errors as RFC 9457 has them: one form for Strandline's errors and pydantic's refusals.

A problem never quotes the request: its sentence is its kind's, or an error's sentence for clients, and places
are JSON pointers made of our own names and of keys in a content. (Other sentences of errors quote values, for
people at a terminal.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_json
from starlette.responses import Response

from strandline.schemas.errors import (
    ActRefusedError,
    ConfigurationError,
    ConflictError,
    DatabaseRightsError,
    DatabaseUnavailableError,
    DeliveredError,
    ErasedError,
    InvalidMessageError,
    ModelError,
    NamespaceFullError,
    NotFoundError,
    OutcomeUnknownError,
    OwnerError,
    RedactionError,
    RefusalError,
    ReplayError,
    SchemaError,
    SealedContentError,
    StrandlineError,
    UnknownPipelineError,
    UnknownReplayError,
    VersionError,
)
from strandline.schemas.wire.base import PROBLEM_MEDIA_TYPE, PROBLEM_TYPES, Problem, ProblemPlace
from strandline.service.gate.places import place_of_invalid, places_of_validation

RETRY_SECONDS = 1


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of problem: the last part of its ``type``, its status, its title, and what to do about it."""

    name: str
    status: int
    title: str
    detail: str
    retry_after_seconds: int | None = None


MALFORMED = Kind("malformed", 400, "The request cannot be read", "Send a body in JSON, encoded as UTF-8.")
UNAUTHENTICATED = Kind(
    "unauthenticated",
    401,
    "No valid key",
    "Send a key of this service: `Authorization: Bearer sl_…`. It is unknown, has ended, or is missing.",
)
FORBIDDEN = Kind(
    "forbidden",
    403,
    "The key may not do this",
    "The key has not the scope, or is not of the kind, that the route needs.",
)
REFUSED = Kind(
    "refused", 403, "It is not allowed here", "A rule of this installation refuses it; nothing was changed."
)
NOT_FOUND = Kind("not-found", 404, "Not found", "There is nothing here that this key opens.")
NO_ROUTE = Kind("no-route", 404, "No such route", "Look at the URL, and at the release of the service.")
NO_METHOD = Kind("method-not-allowed", 405, "Method not allowed", "The header Allow names the methods.")
CONFLICT = Kind(
    "conflict",
    409,
    "Conflict",
    "The request contradicts stored data, or another one of this moment; nothing was changed.",
)
DELIVERED = Kind(
    "delivered", 409, "Already delivered", "Delivered messages stand in the way; nothing was changed."
)
UNKNOWN_PIPELINE = Kind(
    "unknown-pipeline",
    409,
    "No worker for a pipeline",
    "No worker has registered a pipeline that is needed; start one. Nothing was stored.",
)
ERASED = Kind(
    "erased", 410, "It was erased", "The user, or the session, was erased for good; nothing is stored for it."
)
OTHER_REVISION = Kind(
    "other-revision", 412, "It was changed in between", "Get it again, and repeat with its new ETag."
)
TOO_LARGE = Kind(
    "too-large", 413, "The body is too large", "A body has at most 1,048,576 bytes here; send less at once."
)
UNSUPPORTED = Kind(
    "unsupported-encoding", 415, "The body is encoded", "Send it plain, without Content-Encoding."
)
INVALID = Kind("invalid", 422, "A value cannot be used", "`errors` says where.")
NO_PLACE = "A value of the request does not go with the others, or with stored values; nothing was changed."
KEY_REUSED = Kind(
    "idempotency-key-reused",
    409,
    "The Idempotency-Key was used for another request",
    "Use a new key for a new request.",
)
MODEL_FAILED = Kind(
    "model-failed", 502, "The model failed", "It gave no answer that can be used; try later.", 10
)
TOO_MANY = Kind(
    "too-many-requests",
    429,
    "This key has too many requests waiting",
    "Wait for the seconds in Retry-After, and send fewer at once.",
    RETRY_SECONDS,
)
BUSY = Kind(
    "busy",
    503,
    "The service is busy",
    "Nothing was done. Repeat after the seconds in Retry-After.",
    RETRY_SECONDS,
)
SEALED = Kind(
    "sealed",
    503,
    "The key of this content is not available",
    "Nothing was done. An operator has to give the service the key.",
    60,
)
UNREDACTED = Kind(
    "redaction-failed",
    503,
    "The redaction of this installation failed",
    "Nothing was stored. Repeat after the seconds in Retry-After.",
    10,
)
STOPPING = Kind(
    "stopping",
    503,
    "The service is stopping",
    "Nothing was done. Repeat; another process answers.",
    RETRY_SECONDS,
)
UNAVAILABLE = Kind(
    "unavailable",
    503,
    "The database is not available",
    "Nothing was half-done. Repeat after the seconds in Retry-After.",
    RETRY_SECONDS,
)
TIMED_OUT = Kind(
    "timed-out",
    504,
    "It took too long",
    "It was ended, and a change may have taken effect in the same moment. A read, or a write with an"
    " Idempotency-Key, may be repeated; check others.",
)
READ_ENDED = "Its statement was ended. It may be repeated."
STILL_AT_WORK = "It has not come to its end yet, and may take effect. A read may be repeated; check others."
OUTCOME_UNKNOWN = Kind(
    "outcome-unknown",
    504,
    "The answer of the database did not come",
    "It may have taken effect. A read, or a write with an Idempotency-Key, may be repeated.",
)
SLOW_BODY = Kind("slow-body", 408, "The body did not arrive in time", "Send it at once.")
SLOW_HEAD = Kind("slow-head", 408, "The head of the request did not arrive in time", "Send it at once.")
HEAD_TOO_LARGE = Kind(
    "head-too-large", 431, "The head of the request is too large", "Send fewer headers, or shorter ones."
)
FULL = Kind("namespace-full", 507, "The namespace is full", str(NamespaceFullError.for_clients))
INTERNAL = Kind(
    "internal",
    500,
    "Internal error",
    "This is a defect; the log of the service has it, and names `instance`.",
)

KINDS = (
    MALFORMED, UNAUTHENTICATED, FORBIDDEN, REFUSED, NOT_FOUND, NO_ROUTE, NO_METHOD, SLOW_HEAD, SLOW_BODY,
    CONFLICT, DELIVERED, ERASED, UNSUPPORTED, HEAD_TOO_LARGE,
    FULL,
    UNKNOWN_PIPELINE, KEY_REUSED, OTHER_REVISION, TOO_LARGE, INVALID, TOO_MANY, INTERNAL, MODEL_FAILED, BUSY,
    SEALED,
    UNREDACTED,
    STOPPING, UNAVAILABLE, TIMED_OUT, OUTCOME_UNKNOWN,
)  # fmt: skip

# In this order: the first that an error is.
_MEANINGS: tuple[tuple[type[StrandlineError], Kind], ...] = (
    (ActRefusedError, REFUSED),
    (RefusalError, REFUSED),
    (RedactionError, UNREDACTED),
    (NotFoundError, NOT_FOUND),
    (UnknownReplayError, NOT_FOUND),
    (OwnerError, NOT_FOUND),
    (InvalidMessageError, INVALID),
    (ConfigurationError, INVALID),
    (DeliveredError, DELIVERED),
    (ErasedError, ERASED),
    (NamespaceFullError, FULL),
    (VersionError, OTHER_REVISION),
    (ConflictError, CONFLICT),
    (ReplayError, CONFLICT),
    (UnknownPipelineError, UNKNOWN_PIPELINE),
    (OutcomeUnknownError, OUTCOME_UNKNOWN),
    (DatabaseUnavailableError, UNAVAILABLE),
    (SchemaError, UNAVAILABLE),
    (DatabaseRightsError, UNAVAILABLE),
    (ModelError, MODEL_FAILED),
    (SealedContentError, SEALED),
)


class ProblemError(Exception):
    """Ends a request with a problem."""

    def __init__(
        self,
        kind: Kind,
        *,
        detail: str | None = None,
        places: Iterable[ProblemPlace] = (),
        headers: Mapping[str, str] | None = None,
        instance: str | None = None,
    ) -> None:
        """Make one; ``detail`` quotes nothing of the request, ``instance`` names it in the log."""
        super().__init__(kind.name)
        self.kind = kind
        self.detail = detail
        self.places = list(places)
        self.headers = headers or {}
        self.instance = instance

    def response(self) -> Response:
        is_plain = not self.places and not self.headers and self.detail is None and self.instance is None
        if is_plain and (response := _PLAIN.get(self.kind)):
            return response
        kind, detail = self.kind, self.detail
        if kind is INVALID and not self.places and detail is None:
            detail = NO_PLACE
        problem = Problem(
            type=PROBLEM_TYPES + kind.name,
            title=kind.title,
            status=kind.status,
            detail=kind.detail if detail is None else detail,
            errors=self.places or None,
            instance=self.instance,
        )
        headers = dict(self.headers)
        if kind.retry_after_seconds is not None:
            headers.setdefault("Retry-After", str(kind.retry_after_seconds))
        if kind is UNAUTHENTICATED:
            headers["WWW-Authenticate"] = "Bearer"
        body = to_json(problem.model_dump(exclude_none=True))
        response = Response(body, kind.status, media_type=PROBLEM_MEDIA_TYPE, headers=headers)
        if is_plain:
            _PLAIN[kind] = response
        return response


# Made once: a process that has too much to do refuses a thousand requests a second.
_PLAIN: dict[Kind, Response] = {}


def refusal_of(error: Exception, body: type[BaseModel] | None = None) -> ProblemError | None:
    """The problem that an error is, of a request with this body; None for a defect."""
    if isinstance(error, ProblemError):
        return error
    if not isinstance(error, StrandlineError):
        return None
    for meaning, kind in _MEANINGS:
        if isinstance(error, meaning):
            if isinstance(error, InvalidMessageError):
                place = place_of_invalid(error, body)
                return ProblemError(kind, places=[] if place is None else [place])
            return ProblemError(kind, detail=error.for_clients)
    return None


def invalid(pointer: str, detail: str) -> ProblemError:
    """A value at one place of the request cannot be used; ``detail`` must not quote it."""
    return ProblemError(INVALID, places=[ProblemPlace(pointer=pointer, detail=detail)])


def of_validation(errors: Iterable[Mapping[str, Any]], body: type[BaseModel] | None = None) -> ProblemError:
    """The problem of a request that pydantic refused."""
    return ProblemError(INVALID, places=places_of_validation(errors, body))
