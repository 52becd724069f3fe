"""The client of model servers: one request, one reply or one error.  Only this module imports ``openai``."""

from __future__ import annotations

import ssl
import weakref
from collections.abc import Mapping
from functools import cache
from typing import Any

import httpx2
import openai

from strandline.pipelines.models.openai.errors import Rejection
from strandline.pipelines.models.openai.response_bounds import (
    UNCOMPRESSED,
    UnboundedAnswerError,
    start_clock,
    watch_body,
)
from strandline.pipelines.models.openai.url_log import hide_secrets_of
from strandline.schemas.errors import ConfigurationError, TransientModelError
from strandline.schemas.forking import ProcessKey, this_process
from strandline.schemas.settings import Settings

OPENAI_URL = "https://api.openai.com/v1"
# Self-hosted servers rarely check a key, but the SDK insists on one.
PLACEHOLDER_KEY = "no-key-configured"
MAX_MESSAGE_CHARACTERS = 4_000
# Four times the longest answer that a model gives (some 128,000 tokens, as JSON).
MAX_COMPLETION_BYTES = 4_000_000


class RejectedError(Exception):
    """The server answered with an HTTP status of 3xx, 4xx or 5xx; its caller decides what that means."""

    def __init__(self, rejection: Rejection) -> None:
        super().__init__(f"the model server answered {rejection.status}")
        self.rejection = rejection


class ModelClient:
    """Asks a server that speaks OpenAI's protocol; never retries; safe to call from many threads.

    Requests end: connecting, each read, and the body as a whole are bounded, and so is the size of the body,
    by ``max_answer_bytes``.  Redirects are not followed: a request holds messages, and a key.

    Raises:
        ConfigurationError: neither key nor base URL is set, or one of them cannot be used.
    """

    def __init__(self, settings: Settings, *, max_answer_bytes: int = MAX_COMPLETION_BYTES) -> None:
        if not settings.has_openai:
            raise ConfigurationError(
                "A model server is chosen but none is configured; set OPENAI_API_KEY or OPENAI_BASE_URL."
            )
        url = settings.openai_base_url or OPENAI_URL
        hide_secrets_of(url)
        total = settings.model_timeout_seconds
        timeout = openai.Timeout(total, connect=min(settings.connect_timeout_seconds, total))
        http = openai.DefaultHttpxClient(
            timeout=timeout,
            follow_redirects=False,
            headers=UNCOMPRESSED,
            verify=_trusted_authorities(),
            event_hooks={"request": [start_clock], "response": [watch_body(max_answer_bytes)]},
        )
        self._client = openai.OpenAI(
            api_key=_key(settings),
            # Given even where it is the default: otherwise the SDK would read the environment itself.
            base_url=url,
            max_retries=0,
            timeout=timeout,
            http_client=http,
        )
        # A client that is dropped without close() leaves no sockets behind.
        weakref.finalize(self, _close_own, http, this_process())

    def post(self, path: str, request: Mapping[str, Any], *, timeout_seconds: float | None = None) -> bytes:
        """The body of the reply; ``timeout_seconds``: default that of the settings.

        The SDK's methods for each endpoint go through a request once more, part by part by its types, and
        through the reply, which is read elsewhere; that takes half as long again.

        Raises:
            RejectedError: the server refused.
            TransientModelError: time-out, connection failure, or a reply that cannot be read.
        """
        options: openai.RequestOptions = {} if timeout_seconds is None else {"timeout": timeout_seconds}
        try:
            return self._client.post(path, cast_to=httpx2.Response, body=request, options=options).content
        except openai.APIStatusError as error:
            raise RejectedError(_rejection(error)) from None
        except openai.OpenAIError as error:
            raise _unreachable(error) from None

    def close(self) -> None:
        """Close the connections; requests after this fail."""
        self._client.close()


@cache
def _trusted_authorities() -> ssl.SSLContext:
    """Whom servers' certificates have to come from, for all clients of this process.

    A worker makes a client per stage and generation, and reading the list takes 30 ms of a processor.
    """
    return httpx2.create_ssl_context()


def _close_own(http: openai.DefaultHttpxClient, process: ProcessKey) -> None:
    # The connections that a forked child finds are its parent's.
    if process == this_process():
        http.close()


def _key(settings: Settings) -> str:
    secret = settings.openai_api_key
    key = "" if secret is None else secret.get_secret_value().strip()
    if not key.isascii() or not key.isprintable():
        raise ConfigurationError("OPENAI_API_KEY holds characters that a key cannot have; copy it again.")
    return key or PLACEHOLDER_KEY


def _rejection(error: openai.APIStatusError) -> Rejection:
    # FastAPI servers put what they object to into "detail", where the SDK does not look.
    detail = error.body.get("detail", "") if isinstance(error.body, dict) else ""
    message = f"{error.message} {detail}"[:MAX_MESSAGE_CHARACTERS]
    return Rejection(error.status_code, message, error.code, error.param, error.response.headers)


def _unreachable(error: openai.OpenAIError) -> TransientModelError:
    if isinstance(error, openai.APITimeoutError):
        return TransientModelError(
            "The model server did not answer in time; see STRANDLINE_MODEL_TIMEOUT_SECONDS."
        )
    if isinstance(error.__cause__, UnboundedAnswerError):
        return TransientModelError(f"The model server's answer could not be read: {error.__cause__}.")
    if isinstance(error, openai.APIConnectionError):
        return TransientModelError(
            "The model server cannot be reached; check OPENAI_BASE_URL and the network."
        )
    return TransientModelError(f"The model client failed ({type(error).__name__}); it will be tried again.")
