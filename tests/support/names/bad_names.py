"""Texts that are no names, wherever they come in, and some that look odd and are."""

from __future__ import annotations

_BLANKS = (
    " \t\n\r\x0b\x0c\x1f\x85\xa0\u1680\u2003"
    "\u2028\u2029\u202f\u205f\u3000\u200b\u200d\u200e\u2060\u2800\u3164\ufeff"
)
BAD_NAMES = (
    "",
    " ",
    "\x00",
    "a\x00b",
    "a\nb",
    "a\tb",
    "a\x7fb",
    "a\x9bb",
    "\ud800",
    "a" * 513,
    "\u00f6" * 257,
    *(f"{blank}ana" for blank in _BLANKS),
    *(f"ana{blank}" for blank in _BLANKS),
)
GOOD_NAMES = (
    "ana",
    "Ana Lopez",
    "a" * 512,
    "-a",
    "--",
    "%20ana",
    "\u540d\u524d",
    "\u2764\ufe0f",
    "key",
    "a:b",
)
RESERVED_USERS = ("-", "key:0123456789abcdef", "KEY:x", "cli:root")
