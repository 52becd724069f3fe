"""Finds JSON in a model's text, and mends slips whose meaning is certain.

Models write JSON amid talk and thoughts, with single quotes, trailing commas, comments, raw line breaks,
words of Python, or doubled braces, and stop in the middle.  The work is linear in the length of the text;
libraries that mend JSON take time that grows with its square (decision 0105).
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from strandline.schemas.foreign_json import refuse_constant, refuse_repeated

# Deeper than any form of an answer, wrapped.
_MAX_DEPTH = 24
# No line and no fact has a number of more digits, and Python refuses to read one of some thousands.
_MAX_DIGITS = 20
# Text read in vain, as a multiple of its length, and beginnings tried, after which no further one is.
_MAX_VAIN = 4
_MAX_TRIES = 10_000

# Ends of a model's thoughts: the text before is not an answer.
_THOUGHTS = r"(?:\w{1,20}:)?(?i:think|thought|reason|reflect|analysis|scratchpad)\w{0,10}[>\]\u25b7]"
_THOUGHTS_END = (
    rf"[<\[\u25c1]/{_THOUGHTS}"
    r"|<\|channel\|>\s*final\b|<channel\|>|<\|end_of_(?:thought|thinking|reasoning)\|>"
)
_THOUGHTS_BEGINNING = re.compile(rf"[<\[\u25c1]{_THOUGHTS}")
_ENDED = re.compile(_THOUGHTS_END)
_BEGINNING = re.compile(rf"(?P<end>{_THOUGHTS_END})|[{{\[]")
_BLANK = re.compile(r"(?:[\s\u200b-\u200d\u2060\ufeff]+|(?://|#\s)[^\n]*|/\*(?s:.{0,500}?)\*/)*")
# Between the parts of one answer: marks, and no words.
_BETWEEN_PARTS = re.compile(r"(?:[\s,;]|```\w{0,10}|<[^<>{}\[\]\s]{1,40}>)*")
_ELLIPSIS = re.compile(r"\.\.\.|\u2026")
# Also as they stand on keyboards of other scripts.
_COMMAS, _COLONS, _ENDS = ",;\uff0c\uff1b", ":=\uff1a", "}])"
_NEXT_KEY = re.compile(r'"[^"\\\n]{1,40}"\s{0,4}:')
_QUOTES = "\"'`"
_PLAIN = {quote: re.compile(rf"[^\\{quote}]+") for quote in _QUOTES}
_WORD = re.compile(rf"[^\s{_COMMAS}{_COLONS}{{}}()\[\]{_QUOTES}/\\]+")
_WORDS = {"true": True, "false": False, "null": None, "none": None, "nan": None, "undefined": None}
_WORDS |= {"infinity": None, "-infinity": None}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_ESCAPED_MARK = re.compile("&(quot|#0*34|#x0*22);", re.IGNORECASE)
_PRINTED = str.maketrans("\u201c\u201d\uff5b\uff5d\uff3b\uff3d", '""{}[]')
_HEX = re.compile(r"[0-9A-Fa-f]{4}")
# A quotation within a string: on one line, without the marks of JSON's own structure.
_QUOTED = {quote: re.compile(rf"[^\\{quote}{{}}\[\]:\n]*{quote}") for quote in _QUOTES}


class Unreadable(ValueError):
    """No value of JSON begins here; ``at`` is where that showed."""

    def __init__(self, at: int) -> None:
        super().__init__(f"no JSON at {at}")
        self.at = at


# Stands for a value of which only the beginning is there.
_CUT = object()


@dataclass(slots=True)
class Found:
    """A value in a text.

    Attributes:
        value: a dict or list.
        is_cut: the text ended within it; its complete parts are there.
        is_outermost: nothing unreadable begins before it, which it may be a part of.
        follows: no words stand between it and the value before.
    """

    value: Any
    is_cut: bool = False
    is_outermost: bool = True
    follows: bool = False


def spellings(text: str) -> Iterator[str]:
    """The text, and how it reads where its quotation marks are escaped or printed ones."""
    yield text
    if _ESCAPED_MARK.search(text):
        yield html.unescape(text)
    if '\\"' in text or "\\n" in text:
        yield text.replace("\\n", "\n").replace('\\"', '"')
    if (plain := text.translate(_PRINTED)) != text:
        yield plain


def is_within_thoughts(text: str) -> bool:
    """Whether a text that was cut off holds a model's thoughts alone, and drafts among them."""
    begun = _THOUGHTS_BEGINNING.match(text := text.lstrip())
    return begun is not None and _ENDED.search(text, begun.end()) is None


def find_values(text: str) -> list[Found]:
    """The objects and lists in ``text``, in order; those among a model's thoughts come last.

    A text that is one JSON string is read as what that string holds.
    """
    text = _without_quotes(text)
    values: list[Found] = []
    thoughts: list[Found] = []
    for item in _values(text):
        if item is None:
            thoughts += values
            values = []
        else:
            values.append(item)
    return values + thoughts


def _without_quotes(text: str) -> str:
    stripped = text.strip("\ufeff \t\r\n")
    if stripped[:1] == '"':
        try:
            inner = json.loads(stripped)
        except (ValueError, RecursionError):
            return stripped
        return str(inner)
    return stripped


def _values(text: str) -> Iterator[Found | None]:
    """Each value from the left; None for each end of thoughts outside of values."""
    at, is_outermost, tries, vain = 0, True, _MAX_TRIES, _MAX_VAIN * len(text)
    ended_at = len(text)
    while tries and vain >= 0 and (beginning := _BEGINNING.search(text, at)):
        if beginning["end"]:
            at, is_outermost = beginning.end(), True
            ended_at = len(text)
            yield None
            continue
        start = beginning.start()
        try:
            candidate, at = _value(text, start)
        except Unreadable as error:
            tries, vain = tries - 1, vain - (error.at - start)
            at, is_outermost = start + 1, False
        else:
            candidate.is_outermost = is_outermost
            candidate.follows = _BETWEEN_PARTS.fullmatch(text, ended_at, start) is not None
            ended_at = at
            yield candidate


def _value(text: str, start: int) -> tuple[Found, int]:
    try:
        value, end = _STRICT.raw_decode(text, start)
    except json.JSONDecodeError as error:
        failed_at = error.pos
    except (ValueError, RecursionError):
        failed_at = len(text)
    else:
        return Found(value), end
    reader = _Reader(text, start)
    try:
        value = reader.read_value(_MAX_DEPTH)
    except Unreadable as error:
        raise Unreadable(max(error.at, failed_at) + 1) from None
    if value is _CUT:
        raise Unreadable(len(text))
    return Found(value, reader.is_cut), reader.at


def bounded_int(digits: str) -> int:
    """An integer of JSON, of at most 20 digits."""
    return int(digits[:_MAX_DIGITS])


_STRICT = json.JSONDecoder(
    object_pairs_hook=refuse_repeated, parse_constant=refuse_constant, parse_int=bounded_int
)


class _Reader:
    def __init__(self, text: str, at: int) -> None:
        self._text = text
        self.at = at
        self.is_cut = False

    def read_value(self, depth: int) -> Any:
        begins = self._next()
        if not begins:
            self.is_cut = True
            return _CUT
        if begins in "{[(":
            if depth == 0:
                raise Unreadable(self.at)
            self.at += 1
            return self._object(depth - 1) if begins == "{" else self._list(depth - 1)
        return self._string(_COMMAS + _ENDS) if begins in _PLAIN else self._word()

    def _object(self, depth: int) -> Any:
        pairs: dict[str, Any] = {}
        doubled = 0
        while True:
            match self._next(_COMMAS):
                case "":
                    self.is_cut = True
                case "{" if not pairs and not doubled:
                    self.at += 1
                    doubled = 1
                    continue
                case "}":
                    self._close("}", 1 + doubled)
                    break
                case _:
                    key, value = self._key(), _CUT
                    if not (mark := self._next()):
                        self.is_cut = True
                    elif mark in _COLONS:
                        self.at += 1
                        value = self.read_value(depth)
                    else:
                        raise Unreadable(self.at)
                    if value is not _CUT and pairs.setdefault(key, value) != value:
                        raise Unreadable(self.at)
            if self.is_cut:
                return pairs or _CUT
        return pairs

    def _list(self, depth: int) -> list[Any]:
        items: list[Any] = []
        while not self.is_cut:
            match self._next(_COMMAS):
                case "":
                    self.is_cut = True
                case "]" | ")":
                    self.at += 1
                    break
                case "." | "\u2026" if items and (left_out := _ELLIPSIS.match(self._text, self.at)):
                    self.at = left_out.end()
                case _:
                    item = self.read_value(depth)
                    if not self.is_cut or _ends_in_list(item):
                        items.append(item)
        return items

    def _close(self, mark: str, times: int) -> None:
        for _ in range(times):
            if self._next() != mark:
                raise Unreadable(self.at)
            self.at += 1

    def _key(self) -> str:
        if self._next() in _PLAIN:
            key = self._string(_COLONS)
            return "" if key is _CUT else str(key)
        word = _WORD.match(self._text, self.at)
        if word is None:
            raise Unreadable(self.at)
        self.at = word.end()
        return word.group()

    def _word(self) -> Any:
        word = _WORD.match(self._text, self.at)
        if word is None:
            raise Unreadable(self.at)
        if word.end() == len(self._text):
            self.is_cut = True
            return _CUT
        word_text = word.group()
        if word_text.lower() in _WORDS:
            self.at = word.end()
            return _WORDS[word_text.lower()]
        try:
            number = bounded_int(word_text) if word_text.lstrip("+-").isdecimal() else float(word_text)
        except ValueError:
            raise Unreadable(self.at) from None
        self.at = word.end()
        return number

    def _string(self, behind: str) -> Any:
        text, quote = self._text, self._text[self.at]
        pieces: list[str] = []
        self.at += 1
        while self.at < len(text):
            if plain := _PLAIN[quote].match(text, self.at):
                pieces.append(plain.group())
                self.at = plain.end()
            elif text[self.at] == "\\":
                pieces.append(self._escape())
            else:
                self.at += 1
                if self._ends(behind):
                    return _join(pieces)
                quoted = _QUOTED[quote].match(text, self.at)
                if quoted is None and quote == '"':
                    raise Unreadable(self.at)
                pieces.append(quote)
        self.is_cut = True
        return _CUT

    def _ends(self, behind: str) -> bool:
        following = _BLANK.match(self._text, self.at)
        end = following.end() if following else self.at
        return self._text[end : end + 1] in behind or _NEXT_KEY.match(self._text, end) is not None

    def _escape(self) -> str:
        mark = self._text[self.at + 1 : self.at + 2]
        digits = _HEX.match(self._text, self.at + 2) if mark == "u" else None
        if digits is not None:
            self.at = digits.end()
            return chr(int(digits.group(), 16))
        self.at += 2
        return _ESCAPES.get(mark, mark)

    def _next(self, skipped: str = "") -> str:
        while True:
            blank = _BLANK.match(self._text, self.at)
            self.at = blank.end() if blank else self.at
            mark = self._text[self.at : self.at + 1]
            if not mark or mark not in skipped:
                return mark
            self.at += 1


def _ends_in_list(value: Any) -> bool:
    """Whether an object was cut in a list, whose first items say something by themselves."""
    return isinstance(value, dict) and isinstance([*value.values()][-1], list)


def _join(pieces: list[str]) -> str:
    text = "".join(pieces)
    return (
        text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    )
