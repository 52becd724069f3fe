"""The head of a request: its headers, one at a time, and its route."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Set
from functools import lru_cache
from hashlib import sha256
from ipaddress import ip_address
from typing import Any
from urllib.parse import parse_qsl, quote, unquote_to_bytes

from starlette.types import Scope

from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.values.identity import MAX_NAME_BYTES, NO_USER, check_user_id
from strandline.schemas.wire.base import IDEMPOTENCY_HEADER, USER_HEADER, ProblemPlace
from strandline.service.gate.bodies import CLOSE
from strandline.service.gate.problems import (
    INVALID,
    MALFORMED,
    UNAUTHENTICATED,
    UNSUPPORTED,
    ProblemError,
    invalid,
)

KEY_REFUSED = (
    "This route does not know repeated requests by a key; leave it out, and look what was done before you"
    " repeat."
)
_ONCE = (USER_HEADER, IDEMPOTENCY_HEADER, "If-Match", "Last-Event-ID", "Content-Encoding")
MAX_QUERY_FIELDS = 100
_PLAIN_PATH = re.compile("[A-Za-z0-9_.~/-]*")


def route_of(scope: Scope) -> str:
    """Method and path, whose parts are encoded in one way."""
    path = scope["path"]
    if not _PLAIN_PATH.fullmatch(path):
        path = "/".join(quote(unquote_to_bytes(part), safe="") for part in path.split("/"))
    return f"{scope['method']} {path}"


def headers_of(scope: Scope) -> dict[bytes, bytes]:
    """The headers by name.

    A proxy may append one to a client's, and the owner of the memory must not depend on their order.

    Raises:
        ProblemError: a deciding one comes twice, the host is missing, or the body is encoded in a
            way that is not undone here.
    """
    headers = dict(scope["headers"])
    names = [name for name, _ in scope["headers"]]
    if names.count(b"authorization") > 1:
        raise ProblemError(MALFORMED, headers=CLOSE)
    if scope.get("http_version") == "1.1" and names.count(b"host") != 1:
        raise ProblemError(MALFORMED, headers=CLOSE)
    if headers.get(b"content-encoding", b"").strip().lower() not in (b"", b"identity"):
        raise ProblemError(UNSUPPORTED, headers=CLOSE)
    if len(headers) < len(names):
        for name in _ONCE:
            if names.count(name.lower().encode()) > 1:
                raise invalid(f"/header/{name}", "It is given more than once.")
    return headers


def bearer_in(value: bytes | None) -> str:
    kind, _, token = (value or b"").partition(b" ")
    if kind.lower() != b"bearer":
        raise ProblemError(UNAUTHENTICATED)
    return token.strip().decode("latin-1")


def refuse_key(headers: dict[bytes, bytes]) -> None:
    """Raise a problem for an Idempotency-Key, which the route could not keep to."""
    if IDEMPOTENCY_HEADER.lower().encode() in headers:
        raise invalid(f"/header/{IDEMPOTENCY_HEADER}", KEY_REFUSED)


def text_in(name: str, value: bytes | None, most: int) -> str | None:
    """A header that holds text in UTF-8; raises a problem if it does not, or is too long."""
    if value is None:
        return None
    if not value:
        raise invalid(f"/header/{name}", "It is empty; leave it out, or give it a value.")
    if len(value) > most:
        raise invalid(f"/header/{name}", f"It is longer than {most} bytes; make it shorter.")
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise invalid(f"/header/{name}", "It must be text in UTF-8.") from None


def user_in(value: bytes | None) -> str | None:
    """The user of ``Strandline-User``, or ``NO_USER``; raises a problem if it is neither."""
    user = text_in(USER_HEADER, value, MAX_NAME_BYTES)
    return user if user in (None, NO_USER) else user_at(f"/header/{USER_HEADER}", user)


def user_at(place: str, user_id: str) -> str:
    """The id of a user; raises a problem at this place if it is not one."""
    try:
        return check_user_id(user_id)
    except InvalidMessageError as error:
        raise invalid(place, str(error.for_clients)) from None


def is_loopback(host: str) -> bool:
    """Whether an address, or a name, is reached from this machine alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@lru_cache(maxsize=1024)
def address_in(client: str) -> str | None:
    """The address of a client, without port and zone; None for other text, which a proxy may pass on."""
    host = client.partition("]")[0].removeprefix("[")
    if host.count(":") == 1:
        host = host.partition(":")[0]
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return str(getattr(address, "ipv4_mapped", None) or address)


def preferred_seconds(prefer: bytes | None) -> float | None:
    """The seconds of ``Prefer: wait=5`` (RFC 7240); None for an unreadable value."""
    for preference in (prefer or b"").split(b","):
        name, _, value = preference.partition(b";")[0].partition(b"=")
        if name.strip().lower() == b"wait" and value.strip().isdigit() and len(value) < 10:
            return float(value)
    return None


def read_query(scope: Scope, known: Set[str], lists: Set[str]) -> dict[str, Any]:
    """The parameters of a query by name.

    ``known``: the parameters that the route has; ``lists``: may come several times, and are given as lists.

    Raises:
        ProblemError: the route lacks a parameter, or one comes too often, or is not text.
    """
    if not scope["query_string"]:
        return {}
    query = scope["query_string"].decode("latin-1")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS)
    except ValueError:
        raise invalid("/query", f"It has more than {MAX_QUERY_FIELDS} parameters.") from None
    counts = Counter(name for name, _ in pairs)
    if not counts.keys() <= known:
        names = ", ".join(sorted(known)) or "none"
        raise invalid("/query", f"There is a parameter that this route does not have; it has: {names}.")
    twice = {name for name, count in counts.items() if count > 1} - lists
    if twice:
        places = [
            ProblemPlace(pointer=f"/query/{name}", detail="It is given more than once.")
            for name in sorted(twice)
        ]
        raise ProblemError(INVALID, places=places)
    for name, value in pairs:
        if "\0" in value:  # no text of Postgres holds it
            raise invalid(f"/query/{name}", "It must not hold NUL.")
    single: dict[str, Any] = dict(pairs)
    return single | {name: [value for key, value in pairs if key == name] for name in lists & single.keys()}


def fingerprint_of(scope: Scope, body: bytes) -> bytes:
    route = f"{route_of(scope)}?".encode() + scope["query_string"]
    return sha256(sha256(route).digest() + body).digest()
