"""What of a server's URL may be shown: never a password or a key, also where the URL does not parse."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import parse_qsl, unquote, urlsplit

HIDDEN = "***"

_SCHEME = re.compile(r"[\w+.-]+://")
_ONE_HOST = r"(?:\[[0-9A-Fa-f:.%]+\]|[\w.%*-]*)(?::\d*)?"
_HOSTS = re.compile(rf"{_ONE_HOST}(?:,{_ONE_HOST})*\Z")
_HARMLESS = frozenset(
    {
        "host", "hostaddr", "port", "dbname", "user", "ssl", "sslmode", "connect_timeout", "application_name",
        "target_session_attrs", "load_balance_hosts", "virtual_host", "db", "api-version",
    }
)  # fmt: skip


def shown_url(url: str) -> str:
    """A URL, or several parted by ``;``, for people to read.

    Of user information only the name is left, and of a query the values of options known to be harmless.
    What follows the last ``@`` is the host: a password that was not percent-encoded may hold a ``/``, ``#``,
    ``?`` or ``@``, so nothing before that is shown but the name before the first ``:``.
    """
    return ";".join(map(_shown, _several(url)))


def secrets_of(url: str) -> list[str]:
    """What of a URL must not be shown, in each of its spellings; the longest first."""
    found = {secret for one in _several(url) for secret in _secrets(one) if secret}
    return sorted(found | {unquote(secret) for secret in found}, key=len, reverse=True)


def without_secrets(text: str, url: str) -> str:
    """A sentence of a driver's, without what is secret in the URL that it was given.

    A driver that read the URL in its own way may quote a piece of a password: where the URL can be read in
    more than one way, nothing of the sentence is left.
    """
    if not is_plain(url):
        return "the URL cannot be read for certain; percent-encode / ? # @ : % in its user and password"
    for secret in secrets_of(url):
        text = text.replace(secret, HIDDEN)
    return text


def is_plain(url: str) -> bool:
    """Whether a URL can be read in one way only: what is special in a user or password is encoded."""
    return all(map(_is_plain, _several(url)))


def is_readable(url: str) -> bool:
    """Whether the user information and the host of one URL can be told apart from the rest."""
    _scheme, rest = _split(url)
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    userinfo, _, host = authority.rpartition("@")
    return (
        "@" not in rest[len(authority) :].partition("?")[0]
        and "#" not in rest
        and "@" not in userinfo
        and not re.search(r"%(?![0-9A-Fa-f]{2})", userinfo)
        and _HOSTS.match(host) is not None
    )


def _is_plain(url: str) -> bool:
    query = url.partition("?")[2]
    return is_readable(url) and "?" not in query and "@" not in query


def _several(url: str) -> list[str]:
    """The servers of one URL, as Celery takes them: parted by ``;``, each with the same scheme."""
    scheme, _rest = _split(url)
    return re.split(rf";(?={re.escape(scheme)})", url) if scheme else [url]


def _split(url: str) -> tuple[str, str]:
    found = _SCHEME.match(url)
    return (found[0], url[found.end() :]) if found else ("", url)


def _shown(url: str) -> str:
    scheme, rest = _split(url)
    before, at, after = rest.rpartition("@")
    if at and not _is_plain(url):
        # Where user information ends is anybody's guess, and a query may hold an "@" as well.
        name = re.split(r"[:/?#@]", before, maxsplit=1)[0] if ":" in before else ""
        return f"{scheme}{name}:{HIDDEN}@{HIDDEN}"
    host, question, query = after.partition("?")
    userinfo = f"{_user(before)}@" if at else ""
    return f"{scheme}{userinfo}{_path(host)}{question}{_query(query)}"


def _user(userinfo: str) -> str:
    name, colon, _password = userinfo.partition(":")
    return f"{name}:{HIDDEN}" if colon else name


def _path(host: str) -> str:
    """Host, port and path; a fragment means nothing to a server, so it is part of something else."""
    kept, number_sign, _rest = host.partition("#")
    return kept + (f"#{HIDDEN}" if number_sign else "")


def _query(query: str) -> str:
    return "&".join(_item(item) for item in query.split("&"))


def _item(item: str) -> str:
    name, equals, _value = item.partition("=")
    if not equals:
        return item if name.lower() in _HARMLESS or not name else HIDDEN
    return item if name.lower() in _HARMLESS else f"{name}={HIDDEN}"


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
    """Where a Postgres URL leads, as a phrase: ``db.example port 5432``, or the socket's folder."""
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
