"""LlamaIndex's deprecated memory types, each in its new form (docs/adapters/llamaindex.md has the table)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("llama_index.core", reason="needs the extra llamaindex")

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms import MockLLM
from llama_index.core.memory import ChatMemoryBuffer

from strandline import VectorMemoryBlock
from strandline.adapters.llamaindex import StrandlineMemory
from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.settings import load_settings
from tests.support.servers.databases import temporary_database
from tests.support.workers.draining import drain_everything

LINES = [f"{who} {number}" for number in range(6) for who in ("question", "answer")]


def chat(texts: list[str]) -> list[ChatMessage]:
    return [ChatMessage(role="user" if "question" in text else "assistant", content=text) for text in texts]


@pytest.fixture(scope="module")
def url(stack: EmbeddedStack) -> Iterator[str]:
    with temporary_database(stack.database_url) as url:
        yield url


@pytest.fixture
def derive(url: str) -> Any:
    settings = load_settings(database_url=url)
    database = Database.connect(ConnectionOptions.from_settings(url, settings))
    yield lambda: drain_everything(database, url, settings)
    database.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_chat_memory_buffer_is_a_memory_without_blocks(url: str) -> None:
    theirs = ChatMemoryBuffer.from_defaults(token_limit=16)
    theirs.put_messages(chat(LINES))
    ours = StrandlineMemory.from_defaults(
        "buffer", database_url=url, token_limit=24, chat_history_token_ratio=1.0, token_flush_size=6
    )
    for message in chat(LINES):
        ours.put(message)
    newest = [message.content for message in ours.get()]
    assert newest == LINES[-len(newest) :] and 2 <= len(newest) < len(LINES)
    assert [m.content for m in theirs.get()] == LINES[-len(theirs.get()) :]
    assert [m.content for m in ours.get_all()] == [m.content for m in theirs.get_all()] == LINES
    assert len(ours.get(initial_token_count=14)) < len(newest)
    ours.session_memory.close()


def test_a_history_and_a_models_window_are_taken_as_a_buffer_takes_them(url: str) -> None:
    model = MockLLM()  # of 3,900 tokens
    history = chat(["question: ahoy?", "answer: ahoy."])
    memory = StrandlineMemory.from_defaults("begun", history, model, database_url=url)
    assert memory.get() == memory.get_all() == history
    assert memory.token_limit == model.metadata.context_window * 3 // 4
    memory.session_memory.close()


def test_a_summary_buffer_is_a_summary_block(url: str, derive: Any) -> None:
    memory = StrandlineMemory.from_defaults(
        "summary", database_url=url, memory_blocks=["summary"], token_limit=120, token_flush_size=20
    )
    memory.put_messages(chat(["question: my boat is called Petrel.", "answer: a fine name.", *LINES]))
    memory.session_memory.flush()
    derive()
    shown = memory.get()
    assert "Petrel" in str(shown[0].content) and shown[0].role == "system"
    assert [m.content for m in shown[1:]] == LINES[-2:]
    memory.session_memory.close()


def test_a_vector_memory_is_a_search_right_after_the_put(url: str) -> None:
    memory = StrandlineMemory.from_defaults("vector", database_url=url, memory_blocks=["vectors"])
    memory.put_messages(chat(["question: where is the anchor?", "answer: below deck.", *LINES]))
    found = memory.session_memory.search("anchor", limit=1)
    assert [hit.text for hit in found] == ["question: where is the anchor?"]
    memory.reset()
    assert memory.session_memory.search("anchor") == []
    memory.session_memory.close()


def test_a_composable_memory_is_a_list_of_blocks_without_repetitions(url: str, derive: Any) -> None:
    earlier = StrandlineMemory.from_defaults(
        "earlier", database_url=url, user_id="ana", memory_blocks=["vectors"]
    )
    earlier.put_messages(chat(["question: the anchor is below deck.", "answer: good."]))
    earlier.session_memory.flush(all=True)
    derive()
    block = VectorMemoryBlock(scope="owner", similarity_top_k=2)
    memory = StrandlineMemory.from_defaults("now", database_url=url, user_id="ana", memory_blocks=[block])
    memory.put_messages(chat(["question: what of the anchor?", "answer: which anchor?"]))
    shown = "\n".join(str(message.content) for message in memory.get("the anchor"))
    assert shown.count("the anchor is below deck") == 1
    assert shown.count("what of the anchor?") == 1, "what the window shows is not repeated"
    memory.set(chat(["question: anew"]))
    assert [str(m.content) for m in memory.get_all()] == ["question: anew"]
    memory.session_memory.close()
    earlier.session_memory.close()
