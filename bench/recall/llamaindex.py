"""A baseline: LlamaIndex's Memory with its vector block, on the same embedder and at the same limit.

Everything else is as its library has it by default: what a read searches for is the last five messages, the
question among them, and the block holds a node for each flush, of which it gives two.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.memory import Memory, VectorMemoryBlock
from llama_index.core.schema import BaseNode
from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryResult

from bench.peers.ground import LLAMAINDEX
from bench.recall.contexts import Prompt, Read
from bench.recall.data import Conversation
from strandline.pipelines.models.local.wordllama_embedder import WordLlamaEmbedder
from strandline.producers.tokens import count_default


class LocalEmbedding(BaseEmbedding):
    """The local embedder in their form."""

    _embedder: WordLlamaEmbedder = PrivateAttr(default_factory=WordLlamaEmbedder)

    def _get_text_embedding(self, text: str) -> list[float]:
        return list(self._embedder.embed([text]).vectors[0])

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


class StoreWithTexts(SimpleVectorStore):
    """Their store in memory, which keeps the nodes as well: their block takes no store without texts."""

    stores_text: bool = True
    _nodes: dict[str, BaseNode] = PrivateAttr(default_factory=dict)

    def add(self, nodes: Sequence[BaseNode], **more: Any) -> list[str]:
        self._nodes.update({node.node_id: node for node in nodes})
        return super().add(nodes, **more)

    def query(self, query: VectorStoreQuery, **more: Any) -> VectorStoreQueryResult:
        result = super().query(query, **more)
        result.nodes = [self._nodes[one] for one in result.ids or []]
        return result


@contextmanager
def open_llamaindex(url: str, conversation: Conversation, token_limit: int) -> Iterator[Mapping[str, Read]]:
    """Their memory of the conversation, with its messages in their store's SQLite in memory."""
    block = VectorMemoryBlock(vector_store=StoreWithTexts(), embed_model=LocalEmbedding())
    memory = Memory.from_defaults(
        session_id=conversation.name, token_limit=token_limit, memory_blocks=[block]
    )
    with asyncio.Runner() as runner:

        def read(question: str) -> Prompt:
            texts = [message.content or "" for message in runner.run(memory.aget(question))]
            return Prompt(texts, sum(map(count_default, texts)))

        try:
            for session in conversation.sessions:
                runner.run(memory.aput_messages([_message(one) for one in session]))
            yield {LLAMAINDEX: read}
        finally:
            if isinstance(store := memory.sql_store, SQLAlchemyChatStore) and store._async_engine:
                runner.run(store._async_engine.dispose())


def _message(given: Mapping[str, Any]) -> ChatMessage:
    """In their form a speaker's name is among the arguments that are handed to the model as they are."""
    name = {"name": given["name"]} if given.get("name") else {}
    return ChatMessage(role=given["role"], content=given["content"], additional_kwargs=name)
