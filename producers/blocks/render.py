"""How long-term memory looks in a prompt: escaped text in named sections inside ``<memory>``.

The default form is three lines of Python, so it costs no import; ``producers.blocks.template`` compiles a
caller's template, and is imported only if one is given (Jinja takes 60 ms). A block escapes the text of its
section when it renders it, so that no message of a conversation can close a section or open another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from strandline.schemas.display.shown_text import seen
from strandline.schemas.values.message import Message, speaker_name


@dataclass(frozen=True, slots=True)
class Section:
    """One block's part of the memory: its name (a tag name), and its text, already escaped."""

    name: str
    text: str


Renderer = Callable[[Sequence[Section]], str]


def render_memory(sections: Sequence[Section]) -> str:
    """The sections in order, inside ``<memory>``; an empty text without sections."""
    if not sections:
        return ""
    body = "\n".join(f"<{section.name}>\n{section.text}\n</{section.name}>" for section in sections)
    return f"<memory>\n{body}\n</memory>"


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


def message_line(message: Message) -> str:
    """One message as it appears in a section: who spoke, and its text without other content parts."""
    name = f" name='{quoted(speaker_name(message.name, message.role))}'" if message.name else ""
    return f"<message role='{quoted(message.role)}'{name}>{escaped(message.text)}</message>"
