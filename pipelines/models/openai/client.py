"""The client of model servers: one request, one reply or one error.  Only this module imports ``openai``."""

from __future__ import annotations

import ssl
import weakref
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import parse_qsl

import httpx2
import openai

from strandline.pipelines.models.openai.refusals import RejectedError, read_rejection
from strandline.pipelines.models.openai.replies import Body
from strandline.pipelines.models.openai.response_bounds import (
    UNCOMPRESSED,
    EndlessAnswerError,
    UnboundedAnswerError,
    start_clock,
    watch_body,
)
from strandline.pipelines.models.openai.url_log import hide_secrets_of
from strandline.schemas.errors import (
    ConfigurationError,
    ModelError,
    TransientModelError,
    UnusableAnswerError,
)
from strandline.schemas.forking import ProcessKey, this_process
from strandline.schemas.settings import Settings

OPENAI_URL = "https://api.openai.com/v1"
# Self-hosted servers rarely check a key, but the SDK insists on one.
PLACEHOLDER_KEY = "no-key-configured"
# How long a probe may take, at most as long as a call: a slow server is asked for little.
PROBE_SECONDS = 60.0
# Four times the longest answer that a model gives (some 128,000 tokens, as JSON).
MAX_COMPLETION_BYTES = 4_000_000


class ModelClient:
    """Asks a server that speaks OpenAI's protocol; never retries; safe to call from many threads.

    Requests end: connecting, the silence between two parts of a body, and the answer as a whole are bounded,
    and so is the size of the body, by ``max_answer_bytes``.
    Redirects are not followed: a request holds messages, and a key.

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
        # The paths of requests are behind the address, and its query behind them.
        address, _, query = url.partition("?")
        total = settings.model_timeout_seconds
        timeout = openai.Timeout(total, connect=min(settings.connect_timeout_seconds, total))
        http = openai.DefaultHttpxClient(
            timeout=timeout,
            follow_redirects=False,
            headers=UNCOMPRESSED,
            verify=_trusted_authorities(),
            event_hooks={
                "request": [start_clock(settings.model_silence_seconds)],
                "response": [watch_body(max_answer_bytes)],
            },
        )
        self._client = openai.OpenAI(
            api_key=_key(settings),
            # Given even where it is the default: otherwise the SDK would read the environment itself.
            base_url=address,
            default_query=dict(parse_qsl(query, keep_blank_values=True)),
            max_retries=0,
            timeout=timeout,
            http_client=http,
        )
        # A client that is dropped without close() leaves no sockets behind.
        weakref.finalize(self, _close_own, http, this_process())

    def post(self, path: str, request: Mapping[str, Any], *, timeout_seconds: float | None = None) -> Body:
        """The reply; ``timeout_seconds``: for all of it, default that of the settings.

        The SDK's methods for each endpoint go through a request once more, part by part by its types, and
        through the reply, which is read elsewhere; that takes half as long again.

        Raises:
            RejectedError: the server refused.
            TransientModelError: time-out, connection failure, or a reply that cannot be read.
            UnusableAnswerError: the answer went on until its time was over.
        """
        options: openai.RequestOptions = {} if timeout_seconds is None else {"timeout": timeout_seconds}
        try:
            response = self._client.post(path, cast_to=httpx2.Response, body=request, options=options)
        except openai.APIStatusError as error:
            answer = error.response
            raise RejectedError(read_rejection(error.status_code, answer.content, answer.headers)) from None
        except openai.OpenAIError as error:
            raise _unreachable(error) from None
        return Body(response.content, response.headers)

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


def _unreachable(error: openai.OpenAIError) -> ModelError:
    cause = error.__cause__
    if isinstance(cause, EndlessAnswerError):
        return UnusableAnswerError(f"The model's answer did not end: {cause}.")
    if isinstance(error, openai.APITimeoutError):
        late = TransientModelError(
            "The model server did not answer in time; see STRANDLINE_MODEL_TIMEOUT_SECONDS and"
            " STRANDLINE_MODEL_SILENCE_SECONDS."
        )
        late.is_slow = True
        return late
    if isinstance(cause, UnboundedAnswerError):
        return TransientModelError(f"The model server's answer could not be read: {cause}.")
    if isinstance(error, openai.APIConnectionError):
        return TransientModelError(f"The model server cannot be reached{_why(cause)}.")
    return TransientModelError(f"The model client failed ({type(error).__name__}); it will be tried again.")


def _why(cause: BaseException | None) -> str:
    """The reason that a connection failed for, as far as it can be told from the error's words."""
    words = str(cause).lower()
    if "certificate" in words:
        return ": its certificate is not trusted; name your authority's file in SSL_CERT_FILE"
    if "ssl" in words or "tls" in words:
        return ": it does not speak TLS as expected; check whether OPENAI_BASE_URL begins with http or https"
    if "name or service not known" in words or "name resolution" in words or "nodename" in words:
        return ": its name cannot be resolved; check OPENAI_BASE_URL and the DNS of this machine"
    if isinstance(cause, httpx2.ProxyError):
        return ": the proxy refused; check HTTP_PROXY, HTTPS_PROXY and NO_PROXY"
    return "; check OPENAI_BASE_URL and the network"
