"""A model of LlamaIndex that answers as it is told, at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llama_index.core import MockEmbedding
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.memory import FactExtractionMemoryBlock, StaticMemoryBlock, VectorMemoryBlock
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    VectorStoreQuery,
    VectorStoreQueryResult,
)

Answer = Callable[[Sequence[ChatMessage]], ChatMessage]


class ScriptedModel(MockFunctionCallingLLM):
    """A function-calling model that answers as it is told, and notes what it was sent."""

    _requests: list[list[ChatMessage]] = PrivateAttr(default_factory=list)

    def __init__(self, answer: Answer, **fields: Any) -> None:
        super().__init__(is_chat_model=True, **fields)

        def respond(messages: Sequence[ChatMessage], **_options: Any) -> ChatMessage:
            self._requests.append([message.model_copy(deep=True) for message in messages])
            return answer(messages)

        self.response_generator = respond

    @property
    def requests(self) -> list[list[ChatMessage]]:
        return self._requests


def saying(text: str) -> Answer:
    return lambda _messages: ChatMessage(role="assistant", content=text)


def echo(messages: Sequence[ChatMessage]) -> ChatMessage:
    return ChatMessage(role="assistant", content=f"You said: {messages[-1].content}")


def user(text: str) -> ChatMessage:
    return ChatMessage(role="user", content=text)


def shown(messages: Sequence[ChatMessage]) -> list[str]:
    return [str(message) for message in messages]


class UnaskedVectorStore(BasePydanticVectorStore):
    """A vector store that a block demands; whoever asks it for anything fails."""

    stores_text: bool = True

    @property
    def client(self) -> Any:
        raise AssertionError("pgvector is asked instead")

    def add(self, nodes: Sequence[BaseNode], **_options: Any) -> list[str]:
        raise AssertionError("workers fill pgvector instead")

    def delete(self, ref_doc_id: str, **_options: Any) -> None:
        raise AssertionError("reset(derived=True) deletes instead")

    def query(self, query: VectorStoreQuery, **_options: Any) -> VectorStoreQueryResult:
        raise AssertionError("pgvector is asked instead")


def long_term_blocks(llm: Any) -> list[Any]:
    """The three blocks of LlamaIndex's guide, its notebook and an introduction, as these write them.

    Where they have OpenAI's embeddings and Chroma, workers embed, and pgvector is asked.
    """
    about = "I am Maren, I live in Horta, and I mend boats."
    embed_model, vector_store = MockEmbedding(embed_dim=8), UnaskedVectorStore()
    return [
        StaticMemoryBlock(name="core_info", static_content=about, priority=0),  # type: ignore[arg-type]  # as there
        FactExtractionMemoryBlock(name="extracted_info", llm=llm, max_facts=50, priority=1),
        VectorMemoryBlock(
            name="vector_memory", vector_store=vector_store, priority=2, embed_model=embed_model
        ),
    ]
