"""Checks that a URL names a server that can be used, when settings are read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from strandline.schemas.display.shown_text import quote
from strandline.schemas.display.shown_url import LIBPQ_OPTIONS, is_readable

DATABASE_DIALECTS = ("postgresql", "postgres")
# Drivers that SQLAlchemy's users write behind the plus sign: psycopg 3 connects for all of them.
DATABASE_DRIVERS = ("", "psycopg", "psycopg_async", "psycopg2", "asyncpg")
_TLS = {
    "ssl_cert_reqs": "required|optional|none|CERT_REQUIRED|CERT_OPTIONAL|CERT_NONE",
    "ssl_check_hostname": "(?i:true|false)",
    **dict.fromkeys(("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile", "ssl_password"), ".+"),
}
_OF_RABBITMQ = {"heartbeat": "[0-9]+", "login_method": "AMQPLAIN|EXTERNAL|GSSAPI|PLAIN"}
# The brokers that Strandline works with, and for each the options that have an effect, with their values.
BROKER_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "redis": {},
    "redis+socket": {"virtual_host": "/?[0-9]+"},
    "rediss": _TLS,
    "sentinel": {"master_name": ".+", "sentinel_password": ".+"},
    "amqp": _OF_RABBITMQ,
    "amqps": _OF_RABBITMQ,
    "pyamqp": _OF_RABBITMQ,
}
# libpq knows these as well, and Strandline works with these values alone.
_DATABASE_VALUES = {"client_encoding": "(utf-?8)?", "replication": "0|false|no|off"}


def check_database_url(url: str) -> str:
    """Return ``url`` if it names a Postgres that psycopg connects to.

    Raises:
        ValueError: it does not; the sentence shows nothing of it but its scheme.
    """
    scheme, rest = _split_scheme(url)
    dialect, _, driver = scheme.lower().partition("+")
    if dialect not in DATABASE_DIALECTS:
        raise ValueError(
            f"the database URL begins with {quote(scheme) if scheme else 'no scheme'}; Strandline keeps its"
            " log, its queue and its vectors in one Postgres transaction, so it runs on Postgres only:"
            " postgresql://user@host/database"
        )
    if driver not in DATABASE_DRIVERS:
        raise ValueError(
            f"the database URL names the driver {quote(driver)}; Strandline connects with psycopg:"
            f" leave it out, or write {', '.join(filter(None, DATABASE_DRIVERS))}, which all run on psycopg"
        )
    if not is_readable(f"postgresql://{rest}"):
        raise ValueError(
            "the database URL cannot be read: in its user and password the characters / ? # @ : % [ ]"
            " have to be percent-encoded, as %2F for / and %40 for @"
        )
    for name in url_options(url).keys() - LIBPQ_OPTIONS:
        raise ValueError(
            f"the database URL has {_shown_option(name, url)} that libpq does not know; leave it out, or"
            " percent-encode a & of its password as %26"
        )
    for name, value in url_options(url).items():
        if not re.fullmatch(_DATABASE_VALUES.get(name, "(?s:.*)"), value.lower()):
            raise ValueError(
                f"the database URL has a value of {name} that Strandline cannot work with; leave it out"
            )
    return url


def check_broker_url(url: str) -> str:
    """Return ``url`` if it names a Redis or a RabbitMQ, with known options; several are separated by ``;``.

    Raises:
        ValueError: it does not; the sentence shows nothing of it but its scheme.
    """
    for one in re.split(r";(?=[\w+.-]+://)", url):
        scheme, _rest = _split_scheme(one)
        if scheme.lower() not in BROKER_OPTIONS:
            raise ValueError(
                f"the broker URL begins with {quote(scheme) if scheme else 'no scheme'}; give that of a Redis"
                " (redis://host:6379/0, rediss://, redis+socket://, sentinel://) or a RabbitMQ"
                " (amqp://user@host//, amqps://)"
            )
        # A library would fail to read it, and quote a piece of the password as the port.
        if not is_readable(one, leniently=True):
            raise ValueError(
                "the broker URL cannot be read: in its user and password the characters / ? # : ; [ ] have to"
                " be percent-encoded, as %2F for /"
            )
        _check_broker_options(scheme.lower(), one)
    if url.lower().startswith("sentinel://") and not re.search(r"[?&]master_name=[^&;]", url):
        raise ValueError(
            "the broker URL names Sentinels, but not the master that they watch; end it with"
            " ?master_name=NAME, and with &sentinel_password=PASSWORD if the Sentinels themselves ask for one"
        )
    return url


def check_model_url(url: str) -> str:
    """Return ``url`` if a model server can be behind it; the ValueError shows nothing of it."""
    if not _is_http(url):
        raise ValueError("it is not an http(s) URL; a valid one is http://localhost:11434/v1")
    return url


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def url_options(url: str) -> dict[str, str]:
    """The options that end a URL, in which a plus sign is one."""
    pairs = (item.partition("=") for item in url.partition("?")[2].split("&") if item)
    return {unquote(name): unquote(value) for name, _equals, value in pairs}


def _check_broker_options(scheme: str, url: str) -> None:
    for name, value in url_options(url).items():
        taken = BROKER_OPTIONS[scheme]
        if name not in taken:
            takes = f"takes {', '.join(taken)}" if taken else "takes none"
            raise ValueError(
                f"the broker URL has {_shown_option(name, url)}, which would have no effect; {scheme}://"
                f" {takes}"
            )
        if not re.fullmatch(taken[name], value):
            raise ValueError(f"the broker URL has a value of {name} that it cannot have: {taken[name]}")


def _shown_option(name: str, url: str) -> str:
    """Unless it may be a piece of a password with an & in it."""
    is_certain = name in _TLS or not re.search("[@?]|pass|secret", url.partition("?")[2])
    return f"the option {quote(name)}" if is_certain else "an option"


def _split_scheme(url: str) -> tuple[str, str]:
    """Scheme and rest; an empty scheme if it is not a valid one, because it may be a piece of a password."""
    match = re.match(r"([\w+.-]+)://", url)
    return (match[1], url[match.end() :]) if match else ("", url)
