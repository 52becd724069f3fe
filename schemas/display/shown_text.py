"""Makes text from outside safe to show to a person: on a terminal, in a log, in an error's sentence.

Stored names and messages may hold characters that move a cursor, colour a screen, write to a clipboard,
turn the direction of what follows, or begin a line that looks like one of the program's own.  Here these
become visible escapes (``\\x1b``, ``\\n``, ``\\u202e``); all other text, of any language, stays as it is.
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from reprlib import Repr
from unicodedata import category

MAX_QUOTED_CHARACTERS = 200
# Controls, characters of format (zero-width and bidirectional ones among them), lone surrogates, ends of
# lines and paragraphs.
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Nothing is drawn for these either, though Unicode calls them letters or marks.
_UNDRAWN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2065\u3164\uffa0")
# Tags and variation selectors: a whole text can be hidden in them.
_INVISIBLE_PLANE = range(0xE0000, 0xE1000)
_SELECTORS = range(0xFE00, 0xFE10)

# Most of English, and nothing that is hidden.
_ORDINARY = re.compile("[\n\t -~]*")

_KEPT_IN_PROMPTS = frozenset("\n\t\u200c\u200d\ufe0e\ufe0f")
# Between characters there is a joiner at most, and a selector of emoji before it; more could spell something.
_JOINERS = re.compile("[\u200c\u200d\ufe0e\ufe0f]{3,}|[\u200c\u200d]{2,}|[\ufe0e\ufe0f]{2,}")


class _Brief(Repr):
    """Shows other values than text shortened, even if they cannot show themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.maxother = self.maxlong = MAX_QUOTED_CHARACTERS
        self.maxlist = self.maxtuple = self.maxset = self.maxdict = 10

    def repr_int(self, x: int, level: int) -> str:
        try:
            return super().repr_int(x, level)
        except ValueError:  # Python writes out no number of so many digits
            return f"a whole number of {x.bit_length():,} bits"


# Of the characters that conversations are written in; a look at one costs a microsecond.
@lru_cache(maxsize=8_192)
def is_hidden(character: str) -> bool:
    """Whether a character has an effect, or is invisible, where it should be seen."""
    return (
        category(character) in _HIDDEN_CATEGORIES
        or character in _UNDRAWN
        or ord(character) in _INVISIBLE_PLANE
        or ord(character) in _SELECTORS
    )


def shown(text: str, *, most: int | None = None) -> str:
    """``text`` on one line, without a character that is not seen; at most ``most`` characters of it."""
    if most is not None and len(text) > most:
        text = text[: most - 1] + "…"
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(character) if is_hidden(character) else character for character in text)


def seen(text: str) -> str:
    """``text`` for a prompt: with its lines and tabs, and without a character that a person would not see.

    Single joiners and selectors of emoji stay, since words of several languages and many emoji are written
    with them.
    """
    if _ORDINARY.fullmatch(text):
        return text  # each read does this with all that it shows, which took longer than its statement
    hidden = {character for character in set(text) - _KEPT_IN_PROMPTS if is_hidden(character)}
    joined = _JOINERS.sub(lambda match: "".join(map(_escaped, match[0])), text)
    return joined.translate({ord(character): _escaped(character) for character in hidden})


def shown_lines(text: str) -> list[str]:
    """``text`` line by line, each as ``shown`` makes it; only LF and CRLF end a line."""
    return [shown(line) for line in text.replace("\r\n", "\n").split("\n")]


def quote(value: object, *, most: int = MAX_QUOTED_CHARACTERS) -> str:
    """A value as an error's sentence quotes it: as Python writes it, on one line, bounded."""
    # The repr of a very long text is not made whole, only to be cut.
    if isinstance(value, (str, bytes)) and type(value) in (str, bytes):
        return shown(repr(value)) if len(value) <= most else shown(repr(value[:most])[:-1]) + "…"
    return shown(_Brief().repr(value))


def quantity(number: int, thing: str, things: str | None = None) -> str:
    """A number and the things that it counts: ``1 session``, ``2,000 sessions``."""
    return f"{number:,} {thing if number == 1 else things or f'{thing}s'}"


def time_text(moment: datetime) -> str:
    """A time to the second, with its zone: ``2026-11-28 13:00:00+00:00``."""
    return moment.isoformat(sep=" ", timespec="seconds")


def json_seen(document: str) -> str:
    """A JSON document of one line for a prompt; characters that ``seen`` makes visible become ``\\uXXXX``."""
    joined = _JOINERS.sub(lambda match: "".join(map(_json_escaped, match[0])), document)
    hidden = {character for character in set(document) - _KEPT_IN_PROMPTS if is_hidden(character)}
    return joined.translate({ord(character): _json_escaped(character) for character in hidden})


def json_shown(document: str) -> str:
    """A JSON document in which the same characters are ``\\uXXXX``; it says the same."""
    if document.isascii() and "\x7f" not in document:
        return document
    return "".join(
        _json_escaped(character) if character != "\n" and is_hidden(character) else character
        for character in document
    )


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _json_escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[place]:02x}{units[place + 1]:02x}" for place in range(0, len(units), 2))
