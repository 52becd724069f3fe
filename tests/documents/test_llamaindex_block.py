"""The block of its own that LlamaIndex's guide writes, as a custom block of Strandline's.

A line that differs from the guide's ends with ``# changed``.
What is said in it, and what stands around it, is ours.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

pytest.importorskip("llama_index.core", reason="needs the extra llamaindex")

from strandline import Message
from strandline.adapters.llamaindex import StrandlineMemory as Memory  # changed
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import load_settings
from strandline.wiring.assembly import prepare_stages
from tests.support.agents.llamaindex_model import user
from tests.support.workers.draining import drain_everything


class MentionCounter:  # changed: without a base class, which would run in the agent's process
    name = "mentions"  # changed: the guide's block has its name from whoever makes it
    version = "1"  # changed
    mention_name: str = "Maren"

    def initial(self) -> dict[str, int]:  # changed: mention_count: int = 0
        return {"mention_count": 0}

    def render(self, state: dict[str, int]) -> str:  # changed: _aget
        return f"{self.mention_name} was mentioned {state['mention_count']} times."  # changed

    def fold(self, state: dict[str, int], messages: Sequence[Message]) -> dict[str, int]:  # changed: _aput
        count = state["mention_count"]
        for message in messages:
            if self.mention_name in message.text:  # changed: message.content
                count += 1  # changed
        return {"mention_count": count}

    def truncate(self, content: str, tokens: int) -> str | None:  # changed: atruncate
        return ""


def test_guide_09_a_block_counts_mentions(
    database_url: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_DATABASE_URL", database_url)
    monkeypatch.setenv("STRANDLINE_BLOCKS", f"{__name__}:MentionCounter")
    settings = load_settings(database_url=database_url)
    prepare_stages(database, settings, ["mentions"])
    memory = Memory.from_defaults("my_session", memory_blocks=[MentionCounter()])
    memory.put_messages([user("Maren is here."), user("Who?"), user("Maren, I said.")])
    memory.session_memory.flush(all=True)
    drain_everything(database, database_url, settings, ["mentions"])
    assert "<mentions>\nMaren was mentioned 2 times.\n</mentions>" in (memory.get()[0].content or "")
    # Another process, and another object, goes on with the count.
    again = Memory.from_defaults("my_session", memory_blocks=["mentions"])
    again.put(user("Maren once more."))
    again.session_memory.flush(all=True)
    drain_everything(database, database_url, settings, ["mentions"])
    assert "Maren was mentioned 3 times." in (again.get()[0].content or "")
    memory.session_memory.close()
