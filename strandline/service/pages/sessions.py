"""Sessions of the page: which keys a browser has proved, in a cookie that is none of them.

The cookie names keys and an end, under a seal of the installation's secret: no server keeps a state, each
process with the secret opens it, and neither a copy of the cookie nor one of the tables is a key.
"""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass
from hashlib import sha256

COOKIE = "strandline_page"
PATH = "/page"
OWN_COOKIE = "strandline_own"
OWN_PATH = f"{PATH}/own"
SESSION_SECONDS = 8 * 3_600
_SEALED = re.compile(r"(\d{10})((?:\.[0-9a-f]{16}){1,2})\.([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class PageSession:
    """The keys that a browser has proved.

    Attributes:
        key_ids: at most one of a namespace and one of the installation.
        ends_at: seconds since 1970.
    """

    key_ids: tuple[str, ...]
    ends_at: int


class Sealer:
    """Makes and opens cookies.

    Args:
        secret: STRANDLINE_SERVICE_PAGE_SECRET.
    """

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    def seal(self, session: PageSession) -> str:
        """The value of the cookie."""
        text = ".".join((str(session.ends_at), *session.key_ids))
        return f"{text}.{self._digest('session', text)}"

    def open(self, value: str, now: float) -> PageSession | None:
        """The session of a cookie; None: it was not sealed here, or has ended."""
        match = _SEALED.fullmatch(value)
        if match is None:
            return None
        text, _, seal = value.rpartition(".")
        if not hmac.compare_digest(seal, self._digest("session", text)) or int(match[1]) <= now:
            return None
        return PageSession(tuple(match[2][1:].split(".")), int(match[1]))

    def token(self, value: str) -> str:
        """The token that the page's forms carry in this session."""
        return self._digest("form", value)

    def is_token(self, value: str, token: str) -> bool:
        return hmac.compare_digest(self.token(value).encode(), token.encode())

    def _digest(self, purpose: str, text: str) -> str:
        return hmac.new(self._secret, f"strandline page {purpose} {text}".encode(), sha256).hexdigest()


def cookie_in(header: bytes | None, cookie: str) -> str:
    """A session's cookie of a request, whatever other cookies are; empty without one."""
    pairs = (pair.strip().partition("=") for pair in (header or b"").decode("latin-1").split(";"))
    return next((value for name, _, value in pairs if name == cookie), "")


def cookie_header(
    value: str, *, is_secure: bool, seconds: int = SESSION_SECONDS, is_own: bool = False
) -> str:
    """``Set-Cookie``; with 0 seconds it removes the cookie.  ``is_own``: for frames in pages of others."""
    named = f"{OWN_COOKIE}={value}; Path={OWN_PATH}" if is_own else f"{COOKIE}={value}; Path={PATH}"
    sites = "None; Partitioned" if is_own else "Strict"
    secure = "; Secure" if is_secure else ""
    return f"{named}; Max-Age={seconds}; HttpOnly; SameSite={sites}{secure}"
