"""Keeps a key in the base URL, as in ``?api-key=…``, out of the HTTP client's log."""

from __future__ import annotations

import logging
from functools import cache

from strandline.schemas.display.shown_url import HIDDEN, secrets_of

# Those that log the URLs of requests.
_LOGGERS = ("httpx2", "openai._base_client")


class _WithoutSecrets(logging.Filter):
    """Lets every record through, and puts ``***`` in place of secrets in its arguments."""

    def __init__(self, secrets: list[str]) -> None:
        super().__init__()
        self._secrets = secrets

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(map(self._without, record.args))
        return True

    def _without(self, argument: object) -> object:
        """The argument itself where nothing of it is secret."""
        text = str(argument)
        if not any(secret in text for secret in self._secrets):
            return argument
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return text


@cache
def hide_secrets_of(url: str) -> None:
    """Have the client's loggers hide what is secret in ``url``, from now on; once for each URL."""
    if secrets := secrets_of(url):
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(_WithoutSecrets(secrets))
