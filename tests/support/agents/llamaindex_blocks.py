"""LlamaIndex blocks as an application would write them; workers load them by STRANDLINE_BLOCKS."""

from __future__ import annotations

from typing import Any

from llama_index.core.base.llms.types import ChatMessage, TextBlock
from llama_index.core.memory.memory import BaseMemoryBlock
from pydantic import BaseModel, Field

from strandline.adapters.llamaindex import LlamaIndexBlock


class Sighting(BaseModel):
    """One mention: who spoke, and what."""

    role: str
    text: str


class MentionCounter(BaseMemoryBlock[str]):
    """Counts how often a name is said, and keeps the last mention."""

    mention_name: str = "Logan"
    mention_count: int = 0
    last: Sighting | None = None
    notify: Any = Field(default=print, exclude=True)

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:
        asked = messages[-1].content if messages else "nothing"
        style = block_kwargs.get("style", "plain")
        last = "" if self.last is None else f", last by the {self.last.role}"
        return f"{self.mention_name}: {self.mention_count} times{last}; asked: {asked}; style: {style}."

    async def _aput(self, messages: list[ChatMessage]) -> None:
        for message in messages:
            if self.mention_name in (message.content or ""):
                self.mention_count += 1
                self.last = Sighting(role=message.role.value, text=message.content or "")

    async def atruncate(self, content: str, tokens_to_truncate: int) -> str | None:
        return content.split(";", maxsplit=1)[0]


class Closed(MentionCounter):
    """Does not take what leaves the short-term memory, and shows parts."""

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> Any:
        return [TextBlock(text=f"{self.mention_count} mentions")]


class Holder(MentionCounter):
    """A field of it is no JSON."""

    live: Any = print


mentions = LlamaIndexBlock(MentionCounter(name="mentions", priority=2))
closed = LlamaIndexBlock(Closed(name="closed", accept_short_term_memory=False), version="2")
