"""Why a connection to Postgres does not come about: one sentence with the place, and without any secret."""

from __future__ import annotations

import re

import psycopg

from strandline.schemas.display.shown_url import server_place, without_secrets

_CHECK = "check that it runs, and that the database URL is right (STRANDLINE_DATABASE_URL)"

TOO_MANY = "53300"
_DENIED = "correct user and password in the database URL (STRANDLINE_DATABASE_URL)"
# What to do where a server answers and refuses, by SQLSTATE.
_ADVICE = {
    "22023": "correct it in PGOPTIONS, PGTZ, PGDATESTYLE, PGGEQO or the options of the database URL",
    "28000": _DENIED,
    "28P01": _DENIED,
    "3D000": "create it, or name another one in the database URL (STRANDLINE_DATABASE_URL)",
    "42501": "let its owner run GRANT CONNECT ON DATABASE",
}

# What libpq says itself, which is in English, of a server that did not answer.
_MEANINGS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile("Connection refused"), f"the connection was refused; {_CHECK}"),
    (
        re.compile("definition of service"),
        "no service file defines the service of PGSERVICE or of the database URL; correct it",
    ),
    (re.compile("No such file or directory"), f"no server listens on that socket; {_CHECK}"),
    (
        re.compile("failed to resolve|could not translate host name|Name or service not known"),
        "the name of the host cannot be resolved; check it in the database URL (STRANDLINE_DATABASE_URL)",
    ),
)


def connect_problem(error: Exception, url: str, code: str | None = None) -> str:
    """A sentence that names the server of ``url``, and why an attempt to connect to it failed.

    ``code`` is the SQLSTATE, where the server refused it.
    """
    where, reason = server_place(url), _reason(error, url, code)
    if code is None:
        return f"Postgres cannot be reached at {where}: {reason}."
    advice = f"; {_ADVICE[code]}" if code in _ADVICE else ""
    return f"Postgres at {where} refuses the connection: {reason}{advice}."


def is_unanswered(error: Exception) -> bool:
    """Whether no server answered an attempt to connect; libpq tells of each of several hosts."""
    if isinstance(error, psycopg.errors.ConnectionTimeout):
        return True
    unanswered = sum(len(pattern.findall(str(error))) for pattern, _meaning in _MEANINGS)
    return unanswered > 0 and unanswered >= str(error).count("connection to server")


def _reason(error: Exception, url: str, code: str | None) -> str:
    """The reason, without the server, which the message already names."""
    if isinstance(error, psycopg.errors.ConnectionTimeout):
        return f"it did not answer in time; {_CHECK}"
    if code == TOO_MANY:
        return (
            "it takes no more connections; raise its max_connections, lower STRANDLINE_POOL_MAX_SIZE, or put"
            " a pooler before it"
        )
    text = " ".join(str(error).split())
    match = re.search(r"FATAL: +(.*)", text)
    for pattern, meaning in _MEANINGS:
        if match is None and pattern.search(text):
            return meaning
    return without_secrets((match[1] if match else text or type(error).__name__).rstrip("."), url)
