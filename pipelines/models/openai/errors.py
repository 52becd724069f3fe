"""Translates a model server's HTTP status into a decision: try again later, or give up on this input.

The decision separates faults of the setup from faults of one input.  A wrong key, a
model that does not exist or a wrong address fails every call alike: that is an outage, and no event
may become a dead letter for it.  Error messages name settings and statuses; they never contain keys, content
or the server's own message, which may quote both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from strandline.pipelines.models.openai.refusals import Rejection
from strandline.pipelines.models.openai.waits import seconds_to_wait
from strandline.schemas.errors import (
    ModelError,
    PermanentModelError,
    ProviderSetupError,
    RateLimitError,
    TransientModelError,
)
from strandline.schemas.model_roles import Role

_ABOUT_THE_INPUT = frozenset({HTTPStatus.BAD_REQUEST, 413, 422})
# What no waiting changes, and what servers of models do not say: something in between does.
_FROM_IN_BETWEEN = frozenset({405, 406, 407, 410, 411, 415, 418, 421, 426, 451, 511})
_HOST = re.compile(r"[A-Za-z0-9.:_-]{1,255}")
_KEY = re.compile(r"api[ _-]?key|authentication|unauthenticated", re.IGNORECASE)
_QUOTA = re.compile(
    r"insufficient.{0,20}(quota|credits?|balance|funds)|billing|payment required", re.IGNORECASE
)
_MODEL = re.compile(
    r"model\b.{0,200}?\b(not found|not exist|unknown|not supported|not available)"
    r"|(invalid|unknown|unsupported|no such) model|model_not_(found|supported)|DeploymentNotFound",
    re.IGNORECASE,
)
_MODERATED = re.compile(
    r"content.?(filter|policy)|content management policy|flagged|moderat|safety (system|filter|policy)",
    re.IGNORECASE,
)
# Prompts, and texts to embed, that are longer than the server takes.
_TOO_LONG = re.compile(
    r"context.{0,3}(length|window|size)|maximum (context|input|sequence)|too (long|large|many tokens)"
    r"|batch size|reduce the length|exceeds? .{0,60}(context|tokens|limit)|(fewer|less) than \d+ tokens"
    r"|n_ctx",
    re.IGNORECASE,
)

# OpenAI's words for a request that no waiting makes small enough.
_REQUEST_TOO_LARGE = re.compile(r"request too large", re.IGNORECASE)


def judge(rejection: Rejection, role: Role[Any]) -> ModelError:
    """The error that ``rejection`` amounts to, with the variables of ``role`` to look at."""
    error = _error_of(rejection, role)
    error.args = (f"{error}{_words(rejection, role)}",)
    return error


def _error_of(rejection: Rejection, role: Role[Any]) -> ModelError:
    answer = f"The model server answered {rejection.status}{rejection.shown_code}"
    wait = seconds_to_wait(rejection)
    if is_moderated(rejection):
        return PermanentModelError(f"{answer}: its moderation refuses this input.")
    if setup := _setup_problem(rejection, role):
        refused = ProviderSetupError(f"{answer}: {setup}.", retry_after_seconds=wait)
        refused.is_unpaid = True
        return refused
    is_over_rate = rejection.status == HTTPStatus.TOO_MANY_REQUESTS
    if is_over_rate and _REQUEST_TOO_LARGE.search(rejection.subject):
        return PermanentModelError(f"{answer}: this input alone is over the limit of tokens per minute.")
    if is_too_long(rejection):
        return PermanentModelError(
            f"{answer}: this input is longer than the server takes; lower STRANDLINE_BATCH_TOKEN_BUDGET, or"
            " the flush size of the policy."
        )
    if rejection.status in _ABOUT_THE_INPUT:
        return PermanentModelError(f"{answer}: it refuses this input, and will refuse it again.")
    kind = RateLimitError if is_over_rate else TransientModelError
    return kind(f"{answer}.", retry_after_seconds=wait)


def _words(rejection: Rejection, role: Role[Any]) -> str:
    return rejection.shown_words(role.secrets) if role.is_quoted else ""


def refuses_everything(rejection: Rejection, role: Role[Any]) -> ProviderSetupError:
    """The outage of a server that refuses even the smallest request, for a reason that is not recognised."""
    refused = ProviderSetupError(
        f"The model server answers every request with {rejection.status}{rejection.shown_code}; see its log,"
        f" and check {role.place('base_url')} and {role.place('body')}.{_words(rejection, role)}",
        retry_after_seconds=seconds_to_wait(rejection),
    )
    refused.is_unpaid = True
    return refused


def is_moderated(rejection: Rejection) -> bool:
    """Whether a moderation refuses what the request says."""
    return rejection.status in (400, 403, 422) and _MODERATED.search(rejection.subject) is not None


def is_too_long(rejection: Rejection) -> bool:
    """Whether the request holds more than the server takes."""
    return rejection.status in (400, 413, 422, 429, 500) and (
        rejection.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        or _TOO_LONG.search(rejection.subject) is not None
    )


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
    if status == HTTPStatus.PAYMENT_REQUIRED or (status in (403, 429) and _QUOTA.search(words)):
        return "the quota of the account is used up; check its plan and billing"
    if status in (400, 403, 404, 422) and _MODEL.search(words):
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
    """The host that a redirect names, without the rest of the address."""
    try:
        parts = urlsplit(headers.get("location") or "")
        host = f"{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}"
    except ValueError:
        host = ""
    return host if _HOST.fullmatch(host) else "another address"
