"""What blocks contribute to the memory of a read, and how it is rendered and counted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from strandline.producers.blocks.base import BaseMemoryBlock, CountText
from strandline.producers.blocks.render import Renderer, Section, render_memory
from strandline.producers.reading.budget.recent_counts import recent_counts
from strandline.producers.tokens import PART_TOKENS, count_parts
from strandline.schemas.errors import ConfigurationError

# Lines and markup stay as they are, for templates that look at these.
_ANY_CHARACTER = re.compile(r"[^\s<>&;]")
_OTHER_CHARACTER = "\u2588"

# Separates the memory from the message that it is inserted into.
SEPARATOR = "\n\n"


@dataclass(frozen=True, slots=True)
class Contribution:
    """The output of one block: its text, escaped, and its content parts."""

    block: BaseMemoryBlock
    text: str
    parts: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Measure:
    """How the memory is rendered and counted; ``part_tokens``: tokens of content parts that are not text,
    by type.
    """

    count_text: CountText
    render: Renderer
    part_tokens: Mapping[str, int] = field(default_factory=lambda: PART_TOKENS)

    def render_all(self, contributions: Iterable[Contribution]) -> str:
        return self.render([Section(c.block.name, c.text) for c in contributions if c.text])

    def find_unrendered(self, contributions: Sequence[Contribution]) -> list[Contribution]:
        """The contributions whose text the caller's template does not show at all."""
        if self.render is render_memory:
            return []
        return [c for c in contributions if c.text and not self._shows(c, contributions)]

    def _shows(self, one: Contribution, contributions: Sequence[Contribution]) -> bool:
        # A template may lay text out as it likes, so what counts is that another text gives another memory.
        other = replace(one, text=_ANY_CHARACTER.sub(_OTHER_CHARACTER, one.text))
        try:
            changed = self.render_all([other if c is one else c for c in contributions])
        except ConfigurationError:
            return True  # it stumbles over this text, so it looks at it
        return changed != self.render_all(contributions)

    def cost(self, contributions: Sequence[Contribution]) -> int:
        """Tokens of the memory as inserted, and of the content parts by their estimates."""
        text = self.render_all(contributions)
        parts = [part for c in contributions for part in c.parts]
        estimates = count_parts(parts, self.count_text, self.part_tokens)
        return estimates + (recent_counts.count(self.count_text, text + SEPARATOR) if text else 0)
