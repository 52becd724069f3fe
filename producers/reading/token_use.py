"""What the tokens of a read are used for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from strandline.producers.reading.given import GivenSection, SectionKind
from strandline.schemas.values.message import Message


@dataclass(frozen=True, slots=True)
class TokenUse:
    """The tokens of a read by what they are used for.

    Attributes:
        limit: the tokens that the read could use.
        head: the pinned head, which is always shown.
        window: the messages of the window.
        tail: flushed messages that memory does not cover yet.
        facts: the facts' sections.
        summary: the summary's sections.
        messages: the sections of what searches found.
        other: all else in the memory: sections of other blocks, their content parts, and the tags.
    """

    limit: int
    head: int = 0
    window: int = 0
    tail: int = 0
    facts: int = 0
    summary: int = 0
    messages: int = 0
    other: int = 0

    @property
    def total(self) -> int:
        """The tokens of the read, as ``MemoryContext.tokens`` has them."""
        return self.head + self.window + self.tail + self.facts + self.summary + self.messages + self.other

    @property
    def free(self) -> int:
        """The tokens that nothing used; 0 if the read is over its limit."""
        return max(0, self.limit - self.total)


def sum_tokens(messages: Sequence[Message]) -> int:
    """The tokens that were counted when the messages were put."""
    return sum(message.tokens or 0 for message in messages)


def count_sections(
    sections: Sequence[GivenSection], memory_tokens: int, count_text: Callable[[str], int]
) -> dict[SectionKind, int]:
    """The tokens of the memory by kind of section, tags and parts as ``other``: ``memory_tokens`` in all."""
    counts: dict[SectionKind, int] = dict.fromkeys(("facts", "summary", "messages"), 0)
    left = memory_tokens
    for section in sections:
        if section.kind != "other":
            tokens = min(left, count_text(section.text))
            counts[section.kind] += tokens
            left -= tokens
    return counts | {"other": left}
