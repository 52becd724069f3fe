"""The parts of a server's URL that may be shown: never a password or key, even if the URL does not parse."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import parse_qsl, quote, unquote, urlsplit

HIDDEN = "***"

_SCHEME = re.compile(r"[\w+.-]+://")
_END_OF_AUTHORITY = re.compile("[/?#]")
_ONE_HOST = r"(?:\[[0-9A-Fa-f:.%]+\]|[\w.%*-]*)(?::\d*)?"
_HOSTS = re.compile(rf"{_ONE_HOST}(?:,{_ONE_HOST})*\Z")
# All options that libpq knows, and ``ssl``, which is read as its ``sslmode``.
_HARMLESS_OF_LIBPQ = frozenset(
    {
        "host", "hostaddr", "port", "dbname", "user", "service", "options", "application_name",
        "client_encoding", "connect_timeout", "keepalives", "keepalives_idle", "keepalives_interval",
        "keepalives_count", "tcp_user_timeout", "target_session_attrs", "load_balance_hosts",
        "channel_binding", "gssencmode", "ssl", "sslmode", "sslcert", "sslkey", "sslrootcert", "sslcrl",
        "sslnegotiation", "sslcertmode", "sslsni", "sslcompression", "sslcrldir", "ssl_min_protocol_version",
        "ssl_max_protocol_version", "require_auth", "requirepeer", "krbsrvname", "gsslib", "gssdelegation",
        "replication", "fallback_application_name", "servicefile", "min_protocol_version",
        "max_protocol_version", "oauth_issuer", "oauth_client_id", "oauth_scope", "sslkeylogfile",
    }
)  # fmt: skip
_SECRET_OF_LIBPQ = frozenset(
    {"password", "sslpassword", "passfile", "scram_client_key", "scram_server_key", "oauth_client_secret"}
)
LIBPQ_OPTIONS = _HARMLESS_OF_LIBPQ | _SECRET_OF_LIBPQ
_HARMLESS = _HARMLESS_OF_LIBPQ | {
    "ssl_cert_reqs", "ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile", "ssl_check_hostname",
    "virtual_host", "visibility_timeout", "heartbeat", "login_method", "db", "api-version", "master_name",
}  # fmt: skip
_SECRET = _SECRET_OF_LIBPQ | {
    "api-key", "api_key", "apikey", "key", "token", "access_token", "code", "secret", "signature", "sig",
    "subscription-key", "sentinel_password", "ssl_password",
}  # fmt: skip


def shown_url(url: str) -> str:
    """A URL, or several separated by ``;``, for people to read.

    Of user information only the name is left, and of a query only the values of harmless options.
    What follows the last ``@`` is the host: a password that was not percent-encoded may hold a ``/``, ``#``,
    ``?`` or ``@``, so nothing before that is shown but the name before the first ``:``.
    """
    return ";".join(map(_shown, _several(url)))


def secrets_of(url: str) -> list[str]:
    """The parts of a URL that must not be shown, in each of their spellings; the longest first."""
    secrets = {secret for one in _several(url) for secret in _secrets(one) if secret}
    plain = {unquote(secret) for secret in secrets}
    return sorted(secrets | plain | {quote(secret, safe="") for secret in plain}, key=len, reverse=True)


def without_secrets(text: str, url: str) -> str:
    """A driver's sentence without the secrets of the URL that it was given.

    A driver that read the URL in its own way may quote a piece of a password: if the URL can be read in more
    than one way, nothing of the sentence is left.
    """
    if not is_plain(url):
        return "the URL is ambiguous; percent-encode / ? # @ : % in its user and password"
    for secret in secrets_of(url):
        text = text.replace(secret, HIDDEN)
    return text


def is_plain(url: str) -> bool:
    """Whether a URL can be read in only one way: special characters in user and password are encoded."""
    return all(map(_is_plain, _several(url)))


def is_readable(url: str, *, leniently: bool = False) -> bool:
    """Whether the user information and the host of one URL can be distinguished from the rest.

    ``leniently=True``: as Celery reads URLs, to which an ``@`` or a ``%`` of a password is one as it stands.
    """
    _scheme, rest = _split(url)
    authority = _END_OF_AUTHORITY.split(rest, maxsplit=1)[0]
    userinfo, _, host = authority.rpartition("@")
    is_encoded = "@" not in userinfo and not re.search(r"%(?![0-9A-Fa-f]{2})", userinfo)
    return (
        "@" not in rest[len(authority) :].partition("?")[0]
        and "#" not in rest
        and (leniently or is_encoded)
        and not re.search(r"[\[\]]", userinfo)
        and _HOSTS.match(host) is not None
    )


def _is_plain(url: str) -> bool:
    """Also of a query: an ``&`` of a password would make what follows look like the name of an option."""
    query = url.partition("?")[2]
    names = {item.partition("=")[0].lower() for item in query.split("&")} - {""}
    return is_readable(url) and "?" not in query and "@" not in query and names <= _HARMLESS | _SECRET


def _several(url: str) -> list[str]:
    """The servers of one URL, as Celery takes them: separated by ``;``, with one scheme."""
    scheme, _rest = _split(url)
    return re.split(rf";(?={re.escape(scheme)})", url) if scheme else [url]


def _split(url: str) -> tuple[str, str]:
    match = _SCHEME.match(url)
    return (match[0], url[match.end() :]) if match else ("", url)


def _shown(url: str) -> str:
    scheme, rest = _split(url)
    if not _is_plain(url):
        return scheme + (_shown_to_query(rest) if is_readable(url) else _shown_for_certain(rest))
    before, at, after = rest.rpartition("@")
    host, question, query = after.partition("?")
    return f"{scheme}{_user(before)}{at}{host}{question}{_query(query)}"


def _shown_to_query(rest: str) -> str:
    front, question, _query = rest.partition("?")
    before, at, host = front.rpartition("@")
    if "@" in rest[len(front) :]:
        return _shown_for_certain(rest)
    return f"{_user(before)}{at}{host}{question}{HIDDEN}"


def _shown_for_certain(rest: str) -> str:
    """The parts of an ambiguous URL that are not part of a password or key in any reading."""
    before, at, after = rest.rpartition("@")
    if not at:
        return HIDDEN
    host = _END_OF_AUTHORITY.split(after, maxsplit=1)[0]
    name = _END_OF_AUTHORITY.split(before.partition(":")[0], maxsplit=1)[0].partition("@")[0]
    if "?" in before or not _HOSTS.match(host):
        return HIDDEN  # perhaps it is a query that ends so
    path = re.split("[?#]", after[len(host) :], maxsplit=1)[0]
    return f"{name}:{HIDDEN}@{host}{path}"


def _user(userinfo: str) -> str:
    name, colon, _password = userinfo.partition(":")
    return f"{name}:{HIDDEN}" if colon else name


def _query(query: str) -> str:
    return "&".join(_item(item) for item in query.split("&"))


def _item(item: str) -> str:
    name, equals, _value = item.partition("=")
    return item if name.lower() in _HARMLESS or not equals else f"{name}={HIDDEN}"


def _secrets(url: str) -> Iterator[str]:
    _scheme, rest = _split(url)
    userinfo = rest.rpartition("@")[0]
    yield userinfo.partition(":")[2]
    query = rest.partition("?")[2]
    for item in query.split("&"):
        name, _, value = item.partition("=")
        if name.lower() not in _HARMLESS:
            yield value
            yield from (decoded for _name, decoded in parse_qsl(item))


def server_place(url: str) -> str:
    """The place that a Postgres URL names, as a phrase: ``db.example port 5432``, or the socket's folder."""
    if not is_plain(url):
        return "the server of the database URL"
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    hosts = parts.netloc.rpartition("@")[2]
    if hosts.startswith(":") or not hosts:
        folder = options.get("host") or options.get("hostaddr")
        port = options.get("port") or hosts.lstrip(":") or "5432"
        return f"{folder or 'this machine'} port {port}"
    return " or ".join(f"{host} port {port}" for host, port in map(_host_port, hosts.split(",")))


def _host_port(text: str) -> tuple[str, str]:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        return text, "5432"
    return host, port or "5432"
