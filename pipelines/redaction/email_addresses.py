"""Finds e-mail addresses, from each ``@`` to both sides."""

from __future__ import annotations

import re
from collections.abc import Iterator

# Letters as European languages have them: in Chinese or Japanese the words beside an address have no spaces.
LETTERS = "A-Za-z\u00c0-\u024f\u0370-\u03ff\u0400-\u052f"
# As RFC 5321 bounds them.
_MAX_LOCAL = 64
_MAX_DOMAIN = 255
_LOCAL = re.compile(rf"[0-9{LETTERS}._%+'-]")
_DOMAIN = re.compile(
    rf"(?:[0-9{LETTERS}](?:[0-9{LETTERS}-]{{0,62}})\.){{1,8}}(?:xn--[0-9a-z-]{{2,59}}|[{LETTERS}]{{2,24}})(?![0-9{LETTERS}_])"
)
# Ends of files' names, which no domain has: "logo@2x.png".
_FILES = frozenset("bmp css gif html ico jpeg jpg js json lock png svg toml webp whl xml yaml yml".split())


def find_emails(text: str) -> Iterator[tuple[int, int]]:
    """Where addresses begin and end."""
    at, end = text.find("@"), 0
    while at >= 0:
        if (span := _around(text, at, end)) is not None:
            yield span
            end = span[1]
        at = text.find("@", max(at + 1, end))


def _around(text: str, at: int, after: int) -> tuple[int, int] | None:
    domain = _DOMAIN.match(text, at + 1, at + 1 + _MAX_DOMAIN)
    if domain is None or domain[0].rpartition(".")[2].casefold() in _FILES:
        return None
    # "git@host.example:path" names a place, and nobody.
    if text[domain.end() : domain.end() + 1] == ":" and text[domain.end() + 1 : domain.end() + 2].isalpha():
        return None
    start = at
    while start > max(after, at - _MAX_LOCAL) and _LOCAL.fullmatch(text[start - 1]):
        start -= 1
    while start < at and text[start] in ".-+%'":
        start += 1
    return None if start == at else (start, domain.end())
