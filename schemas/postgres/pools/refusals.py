"""Why a server refused a connection, by its SQLSTATE: the sentence comes in the server's language.

libpq tells no code of a connection that was not made. Where a server answered, a second attempt is made, and
what libpq traces of it, which only memory holds, has the code.
"""

from __future__ import annotations

import os
import re
import selectors
import time
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from strandline.schemas.postgres.pools.connect_problems import TOO_MANY, is_unanswered

# A server that says so is there, and will take connections: when it has started, or others have left.
# A second attempt may have succeeded.
_SUCCEEDED = "00000"
WILL_TAKE_MORE = frozenset({"57P03", TOO_MANY, _SUCCEEDED})

_CODE = re.compile(rb'ErrorResponse\t.* C "(\w{5})"')
_SECONDS = 5.0
_MAX_SENTENCES = 100
_OF_PSYCOPG = frozenset({"autocommit", "prepare_threshold", "context", "row_factory", "cursor_factory"})


class Refusals:
    """The SQLSTATEs with which one server refuses connections, looked up once for each of its sentences.

    A second attempt is another line in the server's log, more load where it is full, and another wrong
    password where an account is locked after some.
    """

    def __init__(self) -> None:
        self._codes: dict[str, str] = {}

    def code(self, error: Exception, url: str, options: Mapping[str, Any]) -> str | None:
        """The SQLSTATE of ``error``, of the first attempt; None if the server did not answer."""
        if not isinstance(error, psycopg.OperationalError) or is_unanswered(error):
            return None
        sentence = str(error)
        code = error.sqlstate or self._codes.get(sentence) or _look_up(url, options)
        if code is not None and code != _SUCCEEDED and len(self._codes) < _MAX_SENTENCES:
            self._codes[sentence] = code
        return code


def _look_up(url: str, options: Mapping[str, Any]) -> str | None:
    arguments = {name: value for name, value in options.items() if name not in _OF_PSYCOPG}
    conninfo = make_conninfo(url, **arguments).encode()
    try:
        return _attempt(conninfo)
    except (AttributeError, psycopg.NotSupportedError):  # nothing is traced but on Linux
        return "57P03" if pq.PGconn.ping(conninfo) == pq.Ping.REJECT else None
    except (OSError, psycopg.Error):  # the first attempt's own error says enough
        return None


def _attempt(conninfo: bytes) -> str | None:
    connection = pq.PGconn.connect_start(conninfo)
    ends_at = time.monotonic() + _SECONDS
    with os.fdopen(os.memfd_create("strandline"), "rb") as trace:
        try:
            connection.trace(trace.fileno())
            while (polled := connection.connect_poll()) not in (pq.PollingStatus.OK, pq.PollingStatus.FAILED):
                event = selectors.EVENT_READ if polled == pq.PollingStatus.READING else selectors.EVENT_WRITE
                with selectors.DefaultSelector() as selector:
                    selector.register(connection.socket, event)
                    if not selector.select(max(0.0, ends_at - time.monotonic())):
                        return None
            connection.untrace()
        finally:
            connection.finish()
        trace.seek(0)
        codes = _CODE.findall(trace.read())
    return _SUCCEEDED if polled == pq.PollingStatus.OK else codes[-1].decode() if codes else None
