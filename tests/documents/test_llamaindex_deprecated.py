"""What LlamaIndex's deprecated memory types are used for, in the form that takes their place here.

`docs/adapters/llamaindex.md` has the table of old types and new forms; each row is run here.
"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("llama_index.core", reason="needs the extra llamaindex")

from llama_index.core.llms import ChatMessage

from strandline import SummaryMemoryBlock, VectorMemoryBlock
from strandline.adapters.llamaindex import StrandlineMemory
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from tests.support.agents.llamaindex_model import shown, user
from tests.support.workers.draining import drain_everything


@pytest.fixture
def configured(database_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("STRANDLINE_DATABASE_URL", database_url)
    return database_url


def put_days(memory: StrandlineMemory, count: int) -> None:
    for day in range(count):
        memory.put_messages(
            [user(f"Day {day}: the wind is west."), ChatMessage(role="assistant", content="Noted.")]
        )


def test_chat_memory_buffer_is_a_memory_without_blocks(configured: str) -> None:
    memory = StrandlineMemory.from_defaults("buffer", token_limit=100)
    put_days(memory, 20)
    newest = memory.get()
    assert newest == memory.get_all()[-len(newest) :] and 2 <= len(newest) < 40
    assert memory.session_memory.get().tokens <= 100
    assert len(memory.get(initial_token_count=80)) < len(newest), "beside the tokens of a prompt"
    memory.session_memory.close()


def test_chat_memory_buffer_takes_a_history_and_the_models_window(configured: str) -> None:
    class Described:
        class metadata:
            context_window = 4000

    history = [user("Ahoy"), ChatMessage(role="assistant", content="Ahoy!")]
    memory = StrandlineMemory.from_defaults(chat_history=history, llm=Described())
    assert shown(memory.get()) == ["user: Ahoy", "assistant: Ahoy!"]
    assert memory.token_limit == 3000
    memory.session_memory.close()


def test_chat_summary_memory_buffer_is_a_summary_block(
    configured: str, database: Database, settings: Settings
) -> None:
    memory = StrandlineMemory.from_defaults("rolling", token_limit=200, memory_blocks=[SummaryMemoryBlock()])
    put_days(memory, 30)
    drain_everything(database, configured, settings)
    summary, *newest = memory.get()
    assert summary.role == "system" and "<summary>" in (summary.content or "")
    assert newest == memory.get_all()[-len(newest) :]
    assert len(memory.get_all()) == 60, "the history stays, where the old type summarised it away"
    memory.session_memory.close()


def test_vector_memory_is_a_search(configured: str, database: Database, settings: Settings) -> None:
    memory = StrandlineMemory.from_defaults("vectors", memory_blocks=[VectorMemoryBlock(similarity_top_k=1)])
    memory.put(user("The spare anchor lies under the port berth."))
    put_days(memory, 3)
    found = memory.session_memory.search("Where is the anchor?", limit=1)
    assert [hit.text for hit in found] == ["The spare anchor lies under the port berth."], (
        "right after the put"
    )
    memory.session_memory.flush(all=True)
    drain_everything(database, configured, settings)
    (again,) = memory.session_memory.search("Where is the anchor?", limit=1)
    assert again.text == found[0].text and again.similarity is not None
    memory.session_memory.close()


def test_simple_composable_memory_is_a_window_beside_a_vector_block(
    configured: str, database: Database, settings: Settings
) -> None:
    blocks: list[Any] = [VectorMemoryBlock(similarity_top_k=1)]
    memory = StrandlineMemory.from_defaults("composed", token_limit=120, memory_blocks=blocks)
    memory.put(user("The spare anchor lies under the port berth."))
    put_days(memory, 20)
    drain_everything(database, configured, settings)
    hits, *newest = memory.get("Where is the spare anchor?")
    assert "spare anchor lies" in (hits.content or "")
    assert newest == memory.get_all()[-len(newest) :]
    (window,) = memory.get("Day 19")[-1:]
    shown_days = "\n".join(shown(memory.get("Day 19: the wind is west.")))
    assert shown_days.count("Day 19:") == 1, "what the window shows is among no hits"
    assert window.content == "Noted."
    memory.session_memory.close()
