"""What a server said when it refused a request, whatever the shape of its body, for decisions alone.

The text may quote a key, or what people wrote, so it is shown to a check alone, which sends our own words.
What it quotes is taken out before anything is recognised in it, so that nobody's words decide what becomes of
a request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from strandline.schemas.display.shown_text import quote

MAX_MESSAGE_CHARACTERS = 4_000
_MAX_LEVELS = 8
_MAX_BODY = 200_000
# Where servers put sentences about what they object to.
_TOLD_IN = frozenset(
    "error errors message detail details msg error_msg raw metadata reason reasons status type title"
    " description error_description loc".split()
)
_WAITS = frozenset({"retryDelay", "retry_after", "retry_after_seconds"})
# A quotation of several words, and an object: what was sent, or what the model said.
_QUOTED = re.compile(
    r"\"[^\"\n]{0,400}\"|'[^'\n]{0,400}'(?!\w)|`[^`\n]{0,400}`|[\u201c\u00ab][^\u201d\u00bb\n]{0,400}[\u201d\u00bb]"
)
# A shorter one is in any word.
_MIN_SECRET_CHARACTERS = 4
# Also one of which all but its ends is hidden.
_LIKE_A_KEY = re.compile(
    r"(?<!\S)\S*[*\u2022]\S*|\b(sk|key|gsk)-\S+|(?<![\w+/=-])(?=[\w+/=-]*[\dA-Z])[\w+/=-]{20,}"
)
_CODE = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class RejectedError(Exception):
    """The server refused, by its HTTP status or in the body; its caller decides what that means."""

    def __init__(self, rejection: Rejection) -> None:
        super().__init__(f"the model server answered {rejection.status}")
        self.rejection = rejection


@dataclass(frozen=True, slots=True)
class Rejection:
    """A refusal.

    Attributes:
        status: the HTTP status, or the one that an error within a 200 stands for.
        message: what it says, without quotations.
        code, param: as in OpenAI's error body.
    """

    status: int
    message: str = ""
    code: str | None = None
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def subject(self) -> str:
        """All that names what it is about."""
        return f"{self.param or ''} {self.code or ''} {self.message}"

    @property
    def shown_code(self) -> str:
        """The code in parentheses behind the status, if it can be shown."""
        is_plain = self.code and _CODE.fullmatch(self.code) and self.code != str(self.status)
        return f" ({self.code})" if is_plain else ""

    def shown_words(self, secrets: Iterable[str]) -> str:
        """What it says, in short, of a request that held our own words alone; without keys and their ends."""
        words = self.message
        for secret in secrets:
            words = words.replace(secret, "…") if len(secret) >= _MIN_SECRET_CHARACTERS else words
        words = " ".join(_LIKE_A_KEY.sub("…", words).split())
        return f" It says {quote(words)}." if words else ""


def read_rejection(status: int, body: bytes, headers: Mapping[str, str]) -> Rejection:
    """The refusal that an answer with an error status is."""
    text = body[:_MAX_BODY].decode("utf-8", "replace").lstrip("\ufeff")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return Rejection(status, _without_quotations(text), headers=headers)
    return _rejection(status, value, headers)


def error_within(value: object, headers: Mapping[str, str]) -> Rejection | None:
    """The refusal in a body with status 200, at its top or in its first choice; None if there is none."""
    if not isinstance(value, dict):
        return None
    choices = value.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    for holder in (value, first):
        error = holder.get("error") if isinstance(holder, dict) else None
        if error and not (holder is value and first):
            return _rejection(_status_of(error), error, headers)
    return None


def _status_of(error: object) -> int:
    """The status that an error stands for; without one it is the server's own trouble, which passes."""
    if isinstance(error, dict):
        for key in ("code", "status", "status_code", "http_status"):
            number = str(error.get(key, ""))
            if number.isdecimal() and 400 <= int(number[:4]) < 600:
                return int(number)
        if "rate_limit" in f"{error.get('code')} {error.get('type')}".lower():
            return 429
    return 502


def _rejection(status: int, value: Any, headers: Mapping[str, str]) -> Rejection:
    sentences = " ".join(dict.fromkeys(_sentences(value, _MAX_LEVELS)))
    return Rejection(
        status,
        _without_quotations(sentences),
        _first_text(value, "code"),
        _first_text(value, "param"),
        headers,
    )


def _sentences(value: Any, levels: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value[:MAX_MESSAGE_CHARACTERS]
    elif levels and isinstance(value, list):
        for item in value[:20]:
            yield from _sentences(item, levels - 1)
    elif levels and isinstance(value, dict):
        for key, item in value.items():
            if key in _WAITS and isinstance(item, (str, int, float)):
                yield f"retry in {item}"
            elif key in _TOLD_IN:
                yield from _sentences(item, levels - 1)


def _first_text(value: Any, key: str) -> str | None:
    """The text, or number as text, under ``key``: of the error, or of the first of a list of errors."""
    for _ in range(_MAX_LEVELS):
        if isinstance(value, list) and value:
            value = value[0]
        elif isinstance(value, dict) and isinstance(value.get("error"), (dict, list)):
            value = value["error"]
        else:
            break
    content = value.get(key) if isinstance(value, dict) else None
    return str(content) if isinstance(content, (str, int)) and not isinstance(content, bool) else None


def _without_quotations(text: str) -> str:
    shown = text[:MAX_MESSAGE_CHARACTERS]
    while (begin := shown.find("{")) >= 0 and (end := shown.rfind("}")) > begin:
        shown = f"{shown[:begin]} {shown[end + 1 :]}"
    return _QUOTED.sub(lambda quoted: quoted[0] if len(quoted[0].split()) == 1 else " ", shown)
