"""The client of model servers: one request, one reply or one error.  Only this module imports ``openai``."""

from __future__ import annotations

import json
import logging
import re
import ssl
import weakref
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, urlencode

import httpx2
import openai
from pydantic import SecretStr

from strandline.pipelines.models.openai.errors import RejectedError, read_rejection
from strandline.pipelines.models.openai.replies import Body
from strandline.pipelines.models.openai.response_bounds import (
    UNCOMPRESSED,
    EndlessAnswerError,
    UnboundedAnswerError,
    start_clock,
    watch_body,
)
from strandline.schemas.display.shown_url import HIDDEN, secrets_of
from strandline.schemas.errors import (
    ConfigurationError,
    ModelError,
    TransientModelError,
    UnusableAnswerError,
)
from strandline.schemas.forking import ProcessKey, this_process
from strandline.schemas.model_roles import COMMON, Role, is_header_text

# Loggers of request URLs.
_LOGGERS = ("httpx2", "openai._base_client")


@cache
def hide_secrets_of(url: str) -> None:
    """Have the client's loggers hide the secrets of ``url``, from now on; once for each URL."""
    secrets = secrets_of(url)

    def shown(argument: object) -> object:
        text = str(argument)
        if not any(secret in text for secret in secrets):
            return argument
        for secret in secrets:
            text = text.replace(secret, HIDDEN)
        return text

    def hide(record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(map(shown, record.args))
        return True

    for name in _LOGGERS if secrets else ():
        logging.getLogger(name).addFilter(hide)


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
        ConfigurationError: neither key nor base URL is set, or one of them, or the environment's proxies and
            authorities, cannot be used.
    """

    def __init__(
        self,
        role: Role[Any],
        *,
        connect_timeout_seconds: float = 5.0,
        max_answer_bytes: int = MAX_COMPLETION_BYTES,
    ) -> None:
        if not role.is_configured:
            raise ConfigurationError(
                f"A model server is chosen for {role.name}, but none is configured; set OPENAI_API_KEY or"
                f" OPENAI_BASE_URL, or {role.place('base_url')}."
            )
        self.role = role
        self._body = json.loads(role.of.body or "{}")
        hide_secrets_of(role.address)
        # The paths of requests are behind the address, and its query behind them; some name the path as well.
        address, _, query = role.address.partition("?")
        address = address.rstrip("/").removesuffix("/chat/completions").removesuffix("/embeddings")
        query_values = dict(parse_qsl(query, keep_blank_values=True)) | _plain(role.of.query)
        hide_secrets_of(f"{address}?{urlencode(query_values)}")
        total = role.of.timeout_seconds
        timeout = openai.Timeout(total, connect=min(connect_timeout_seconds, total))
        key = _key(role)
        try:
            http = openai.DefaultHttpxClient(
                timeout=timeout,
                follow_redirects=False,
                headers=UNCOMPRESSED,
                verify=_trusted_authorities(),
                event_hooks={
                    "request": [start_clock(role.of.silence_seconds)],
                    "response": [watch_body(max_answer_bytes)],
                },
            )
            self._client = openai.OpenAI(
                api_key=key,
                # Given even where it is the default: otherwise the SDK would read the environment itself.
                base_url=address,
                default_query=query_values,
                default_headers=_headers(role, key),
                max_retries=0,
                timeout=timeout,
                http_client=http,
            )
        except (OSError, ValueError, ImportError, openai.OpenAIError) as error:
            raise ConfigurationError(
                f"The client of model servers cannot be made ({type(error).__name__}); check HTTP_PROXY,"
                " HTTPS_PROXY, ALL_PROXY, SSL_CERT_FILE and SSL_CERT_DIR."
            ) from None
        # A client that is dropped without close() leaves no sockets behind.
        weakref.finalize(self, _close_own, http, this_process())

    def post(self, path: str, request: Mapping[str, Any], *, timeout_seconds: float | None = None) -> Body:
        """The reply; ``timeout_seconds``: for all of it, default: the settings'.

        The SDK's methods for each endpoint transform request and reply by their types, which takes half as
        long again.

        Raises:
            RejectedError: the server refused.
            TransientModelError: time-out, connection failure, or a reply that cannot be read.
            UnusableAnswerError: the answer did not end in time.
        """
        options: openai.RequestOptions = {} if timeout_seconds is None else {"timeout": timeout_seconds}
        if (self.role.of.key_header or "authorization").lower() != "authorization":
            options["headers"] = {"Authorization": openai.Omit()}
        try:
            fields = {**request, **self._body}
            body = {name: value for name, value in fields.items() if value is not None}
            response = self._client.post(path, cast_to=httpx2.Response, body=body, options=options)
        except openai.APIStatusError as error:
            answer = error.response
            raise RejectedError(read_rejection(error.status_code, answer.content, answer.headers)) from None
        except openai.OpenAIError as error:
            raise _unreachable(error, self.role) from None
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


def _headers(role: Role[Any], key: str) -> dict[str, Any]:
    headers: dict[str, Any] = {}
    if role.place("base_url") != COMMON["base_url"]:
        headers |= dict.fromkeys(("OpenAI-Organization", "OpenAI-Project"), openai.Omit())
    if role.of.key_header is not None:
        headers[role.of.key_header] = key
    return headers | _plain(role.of.headers)


def _plain(pairs: tuple[tuple[str, SecretStr], ...] | None) -> dict[str, str]:
    return {name: content.get_secret_value() for name, content in pairs or ()}


def _close_own(http: openai.DefaultHttpxClient, process: ProcessKey) -> None:
    # The connections that a forked child finds are its parent's.
    if process == this_process():
        http.close()


def _key(role: Role[Any]) -> str:
    secret = role.of.api_key
    key = "" if secret is None else secret.get_secret_value().strip()
    if not is_header_text(key):
        raise ConfigurationError(
            f"{role.place('api_key')} holds characters that a key cannot have; copy it again."
        )
    return key or PLACEHOLDER_KEY


def _unreachable(error: openai.OpenAIError, role: Role[Any]) -> ModelError:
    cause = error.__cause__
    if isinstance(cause, EndlessAnswerError):
        return UnusableAnswerError(
            f"The model's answer did not end: it took longer than {role.place('timeout_seconds')} allows."
        )
    if isinstance(error, openai.APITimeoutError):
        late = TransientModelError(
            f"The model server did not answer in time; see {role.place('timeout_seconds')} and"
            f" {role.place('silence_seconds')}."
        )
        late.is_slow = True
        return late
    if isinstance(cause, UnboundedAnswerError):
        return TransientModelError(f"The model server's answer could not be read: {cause}.")
    if isinstance(error, openai.APIConnectionError):
        return TransientModelError(
            f"The model server cannot be reached: {_why(cause, role.place('base_url'))}."
        )
    return TransientModelError(f"The model client failed ({type(error).__name__}); it will be tried again.")


# The meaning of a network error's words.
_CAUSES = (
    (r"certificate", "its certificate is not trusted; name your authority's file in SSL_CERT_FILE"),
    (r"ssl|tls", "it does not speak TLS as expected; check whether {address} begins with http or https"),
    (
        r"name or service not known|name resolution|nodename",
        "its name cannot be resolved; check {address} and the DNS of this machine",
    ),
    (r"proxyerror", "the proxy refused; check HTTP_PROXY, HTTPS_PROXY and NO_PROXY"),
    (r"refused", "it refuses connections; check {address}, and whether the server runs"),
    (r"", "check {address} and the network"),
)


def _why(cause: BaseException | None, address: str) -> str:
    words = f"{cause} {type(cause).__name__}".lower()
    return next(why for pattern, why in _CAUSES if re.search(pattern, words)).format(address=address)
