"""Reaching the embedded server and no other, whatever variables the host sets for its own servers."""

from __future__ import annotations

import logging
import os
import re
import socket
import struct
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import pq

logger = logging.getLogger("strandline.embedded")

_SERVICE = "PGSERVICE"
# libpq reads these whatever a URL says, by the words with which it or the server refuses a value.
_BEYOND_URLS = {
    _SERVICE: r'(service file|definition of service) "',
    "PGDATESTYLE": 'parameter "datestyle"',
    "PGGEQO": 'parameter "geqo"',
    "PGTZ": 'parameter "timezone"',
}
# Named by the URL, or by each connection.
_NAMED = frozenset({"service", "host", "port", "user", "dbname", "connect_timeout"})
# Where libpq takes no empty value, and has no default of its own.
_NEUTRAL = {"sslcertmode": "allow", "min_protocol_version": "3.0", "max_protocol_version": "3.0"}
_SECONDS = 3.0


def undisturbed_options(environ: Mapping[str, str]) -> str:
    """Options to end a URL with, so that libpq's ``PG…`` variables, or their service file, decide nothing."""
    return "".join(f"&{name}={quote(value)}" for name, value in _options(environ))


def _options(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if not any(name.startswith("PG") for name in environ):
        return
    for option in pq.Conninfo.get_defaults():
        name, variable = option.keyword.decode(), (option.envvar or b"").decode()
        if variable and name not in _NAMED and (variable in environ or _SERVICE in environ):
            yield name, _NEUTRAL.get(name, (option.compiled or b"").decode())


def unset_unusable(url: str, environ: MutableMapping[str, str]) -> None:
    """Unset variables as long as their values would end each connection of this process, to any server."""
    while suspects := [name for name in _BEYOND_URLS if name in environ]:
        try:
            psycopg.connect(url, connect_timeout=int(_SECONDS)).close()
        except psycopg.OperationalError as error:
            refused = [name for name in suspects if re.search(_BEYOND_URLS[name], str(error).lower())]
            if not refused:
                return  # whoever connects learns it
            del environ[refused[0]]
            logger.warning(
                "variable ignored",
                extra={
                    "action": "variable_ignored",
                    "reason": f"libpq connects nowhere with {refused[0]} as it is set; unset it",
                },
            )
        else:
            return


def listening_pid(path: Path) -> int | None:
    """The process that listens on a Unix socket; None where that cannot be known.

    Raises:
        OSError: no process listens there.
    """
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(_SECONDS)
        asking.connect(os.fspath(path))
        if not hasattr(socket, "SO_PEERCRED") or sys.platform != "linux":
            return None
        pid, _user, _group = struct.unpack("3i", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    # 0: it runs in another container.
    return pid or None
