"""The block with code of its own that LlamaIndex's guide writes, on the adapter.

A line that differs from the guide's ends with ``# changed``.
What is said in it, and what stands around it, is ours.
"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("llama_index.core", reason="needs the extra llamaindex")

from llama_index.core.llms import ChatMessage
from llama_index.core.memory.memory import BaseMemoryBlock

from strandline.adapters.llamaindex import LlamaIndexBlock
from strandline.adapters.llamaindex import StrandlineMemory as Memory  # changed
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import load_settings
from strandline.wiring.assembly import prepare_stages
from tests.support.agents.llamaindex_model import user
from tests.support.workers.draining import drain_everything


class MentionCounter(BaseMemoryBlock[str]):
    mention_name: str = "Maren"
    mention_count: int = 0

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:
        return f"{self.mention_name} was mentioned {self.mention_count} times."

    async def _aput(self, messages: list[ChatMessage]) -> None:
        for message in messages:
            if self.mention_name in (message.content or ""):
                self.mention_count += 1

    async def atruncate(self, content: str, tokens_to_truncate: int) -> str | None:
        return ""


mentions = LlamaIndexBlock(MentionCounter(name="mentions"))  # changed: the workers' own, by STRANDLINE_BLOCKS


def test_guide_09_a_block_counts_mentions(database_url: str, database: Database) -> None:
    settings = load_settings(database_url=database_url, blocks=f"{__name__}:mentions")
    prepare_stages(database, settings, ["mentions"])
    memory = Memory.from_defaults(
        "my_session", database_url=database_url, memory_blocks=[MentionCounter(name="mentions")]
    )
    memory.put_messages([user("Maren is here."), user("Who?"), user("Maren, I said.")])
    memory.session_memory.flush(all=True)
    drain_everything(database, database_url, settings, ["mentions"])
    assert "<mentions>\nMaren was mentioned 2 times.\n</mentions>" in (memory.get()[0].content or "")
    # Another object, as in another process, goes on with the count.
    again = Memory.from_defaults(
        "my_session", database_url=database_url, memory_blocks=[MentionCounter(name="mentions")]
    )
    again.put(user("Maren once more."))
    again.session_memory.flush(all=True)
    drain_everything(database, database_url, settings, ["mentions"])
    assert "Maren was mentioned 3 times." in (again.get()[0].content or "")
    memory.session_memory.close()
