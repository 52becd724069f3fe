"""How long-term memory looks in a prompt: escaped text in named sections inside ``<memory>``.

The default form is three lines of Python, so it costs no import; ``producers.blocks.template`` compiles a
caller's template, and is imported only if one is given (Jinja takes 60 ms). A block escapes the text of its
section when it renders it, so that no message of a conversation can close a section or open another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from html import escape
from itertools import groupby
from operator import itemgetter

from strandline.schemas.display.local_time import in_zone
from strandline.schemas.display.shown_text import seen
from strandline.schemas.values.message import Message, speaker_name, speaker_of_line


@dataclass(frozen=True, slots=True)
class Section:
    """One block's part of the memory: its name (a tag name), and its text, already escaped."""

    name: str
    text: str


# The names that blocks have unless an application gives them others.
_SECTION_NAMES = (
    "facts", "fact_extraction_memory", "static_memory", "summary", "vector_memory", "vectors",
)  # fmt: skip
BEGIN, _END = "<memory>", "</memory>"
# Texts that a read adds for providers: in place of a result, and before an assistant's first message.
NOTE = "[No result of this call is recorded; it may have run or not.]"
USER_LINE = "[The conversation begins here.]"
ADDED = frozenset({NOTE, USER_LINE})
# Between memory and the text of its message.
SEPARATOR = "\n\n"
# As it comes back: other line breaks, indentation, text behind it.
_MEMORY = re.compile(
    rf"^[ \t]*{BEGIN}[ \t]*\r?\n(?P<body>(?:(?!^[ \t]*{BEGIN}).)*?)^[ \t]*{_END}[ \t]*\r?$",
    re.MULTILINE | re.DOTALL,
)

Renderer = Callable[[Sequence[Section]], str]


def render_memory(sections: Sequence[Section]) -> str:
    """The sections in order, inside ``<memory>``; an empty text without sections."""
    if not sections:
        return ""
    body = "\n".join(f"<{section.name}>\n{section.text}\n</{section.name}>" for section in sections)
    return f"{BEGIN}\n{body}\n{_END}"


def without_memory(text: str, names: Iterable[str] = ()) -> str:
    """A text without memory, known by its marks and a section's usual name or ``names``."""
    if BEGIN not in text:
        return text
    known = {*_SECTION_NAMES, *names}
    memories = [one for one in _MEMORY.finditer(text) if _is_memory(one["body"], known)]
    ends, begins = [0, *(one.end() for one in memories)], [*(one.start() for one in memories), len(text)]
    first, *others = (text[end:begin] for end, begin in zip(ends, begins, strict=True))
    if not others:
        return text
    kept = (one.strip("\r\n") for one in others if one.strip())
    return SEPARATOR.join(one for one in (first.rstrip("\r\n"), *kept) if one)


def _is_memory(body: str, names: Iterable[str]) -> bool:
    lines = [line.strip() for line in body.splitlines()]
    return any(f"<{name}>" in lines and f"</{name}>" in lines for name in names)


def escaped(text: str) -> str:
    """``text`` with ``&``, ``<`` and ``>`` as entities, and invisible characters made visible.

    So it can neither close a tag nor open one.  Quotes stay as they are: as entities they cost a seventh of
    the tokens of real conversations.
    """
    return escape(seen(text), quote=False)


def quoted(text: str) -> str:
    """``text`` for an attribute in single quotes, on one line."""
    return escape(seen(text).replace("\n", "\\n").replace("\t", "\\t"), quote=True)


def fact_line(text: str) -> str:
    """One fact as it appears in a section."""
    return f"<fact>{escaped(text)}</fact>"


def facts_text(facts: Iterable[tuple[str, str]]) -> str:
    """Facts as they appear where many are shown: each day, and the lines of facts said on it.

    Args:
        facts: the day of each, and its ``fact_line``, in the order given.
    """
    return "\n".join(
        line for day, of_day in groupby(facts, itemgetter(0)) for line in (day, *(one[1] for one in of_day))
    )


def message_line(message: Message) -> str:
    """One message as a line of a section: its speaker and its text, with marks for other content."""
    name = f" name='{quoted(speaker_name(message.name, message.role))}'" if message.name else ""
    return f"<message role='{quoted(message.role)}'{name}>{escaped(message.shown_text)}</message>"


def conversation_text(messages: Sequence[tuple[object, Message, str]], time_zone: str | None = None) -> str:
    """Messages as they appear where many are shown: by session and day, in the order given.

    A blank line stands where messages are left out.

    Args:
        messages: what tells its session from others, the message, and its ``speech_line``.
        time_zone: whose days those messages have that name no offset of their own; None: UTC.
    """
    lines: list[str] = []
    before: tuple[object, date | None] | None = None
    seq = 0
    for session, message, line in messages:
        day = None if message.created_at is None else in_zone(message.created_at, time_zone).date()
        if before != (session, day):
            if before is not None:
                lines.append("</conversation>")
            lines.append("<conversation>" if day is None else f"<conversation date='{day}'>")
            before = session, day
        elif (message.seq or 0) > seq + 1:
            lines.append("")
        lines.append(line)
        seq = message.seq or 0
    return "\n".join([*lines, "</conversation>"])


def speech_line(message: Message) -> str:
    """A message as it appears among many: who said it, and its text.

    Its further lines are indented, so that no text of a message can begin a line, and pass for another's.
    """
    text = escaped(message.shown_text).strip().replace("\n", "\n  ")
    return f"{quoted(speaker_of_line(message.name, message.role))}: {text}"
