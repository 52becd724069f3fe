"""LlamaIndex: ``StrandlineMemory``, for agents, workflows and chat engines.

pip install 'strandline[llamaindex]'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.bridge.pydantic import Field, PrivateAttr

from strandline.adapters.llamaindex.declarations import (
    carried_blocks,
    own_block,
    restored_blocks,
)
from strandline.adapters.llamaindex.memory import ChatMemory
from strandline.adapters.llamaindex.own_blocks import LlamaIndexBlock
from strandline.memory import Memory
from strandline.producers.memory import new_session_id
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.values.identity import DEFAULT_NAMESPACE
from strandline.schemas.values.policy import (
    DEFAULT_FLUSH_SIZE,
    DEFAULT_HISTORY_RATIO,
    DEFAULT_IDLE_SECONDS,
    DEFAULT_TOKEN_LIMIT,
    DEFAULT_WINDOW_BYTES,
    DEFAULT_WINDOW_MESSAGES,
)

__all__ = ["LlamaIndexBlock", "StrandlineMemory"]

# Options that a context carries.
_SETTLED = {
    "user_id", "namespace", "token_limit", "chat_history_token_ratio", "token_flush_size",
    "max_window_messages", "max_window_bytes", "insert_method", "idle_seconds", "shared_scope",
}  # fmt: skip


class StrandlineMemory(ChatMemory):
    """LlamaIndex's memory interface over a session's memory; make one with ``from_defaults``.

    A context that holds a memory carries a reference: names and limits, never messages, URLs or code.
    ``not_carried`` names options that it cannot carry; a memory restored without them raises an error at its
    first use.
    """

    session_id: str
    user_id: str | None = None
    namespace: str = DEFAULT_NAMESPACE
    token_limit: int = DEFAULT_TOKEN_LIMIT
    chat_history_token_ratio: float = DEFAULT_HISTORY_RATIO
    token_flush_size: int = DEFAULT_FLUSH_SIZE
    max_window_messages: int = DEFAULT_WINDOW_MESSAGES
    max_window_bytes: int = DEFAULT_WINDOW_BYTES
    insert_method: str = "system"
    idle_seconds: int | None = DEFAULT_IDLE_SECONDS
    shared_scope: str | None = None
    database_schema: str | None = None
    declared_blocks: list[dict[str, Any]] = Field(default_factory=list)
    not_carried: list[str] = Field(default_factory=list)

    _memory: Memory | None = PrivateAttr(default=None)

    @classmethod
    def class_name(cls) -> str:
        return "StrandlineMemory"

    @classmethod
    def from_defaults(
        cls,
        session_id: str | None = None,
        chat_history: list[ChatMessage] | None = None,
        llm: Any = None,
        *,
        token_limit: int | None = None,
        memory_blocks: Sequence[Any] | None = None,
        insert_method: Any = "system",
        schema: str | None = None,
        db_schema: str | None = None,
        async_database_uri: str | None = None,
        async_engine: Any = None,
        **options: Any,
    ) -> StrandlineMemory:
        """Make a memory; does no I/O unless ``chat_history`` is given.

        Takes the arguments of LlamaIndex's ``Memory.from_defaults``, and those of
        ``strandline.Memory.from_defaults`` (``database_url``, ``pool``, ``broker_url``, ``consume``,
        ``tokenizer_fn``, …).

        Args:
            chat_history: replaces the session's history, if it is not empty.
            llm: only its context window is used, and only if no ``token_limit`` is given.
            memory_blocks: Strandline's blocks, or LlamaIndex's static, fact and vector blocks, whose models
                and stores are ignored; None, as in LlamaIndex: none, flushed messages are only archived.
            async_database_uri: LlamaIndex's name for ``database_url``.
            async_engine: its name for ``pool``: an async SQLAlchemy engine on psycopg 3 serves the async
                methods.

        Raises: as ``strandline.Memory.from_defaults``.
        """
        blocks = [own_block(block) for block in memory_blocks or ()]
        if async_database_uri is not None:
            options.setdefault("database_url", async_database_uri)
        if async_engine is not None:
            options.setdefault("pool", async_engine)
        settled: dict[str, Any] = {
            "session_id": session_id or new_session_id(),
            "token_limit": token_limit or _room_of(llm),
            "insert_method": str(getattr(insert_method, "value", insert_method)),
            **{name: options.pop(name) for name in _SETTLED & options.keys()},
        }
        schema = schema or db_schema
        session_memory = Memory.from_defaults(**settled, memory_blocks=blocks, schema=schema, **options)
        carried = carried_blocks(session_memory.memory_blocks)
        not_carried = [name for name, value in options.items() if value is not None]
        memory = cls(
            **settled,
            database_schema=schema,
            declared_blocks=carried or [],
            not_carried=not_carried if carried is not None else [*not_carried, "memory_blocks"],
        )
        memory._memory = session_memory
        if chat_history:
            memory.set(chat_history)
        return memory

    @property
    def session_memory(self) -> Memory:
        """The memory itself, for operations that LlamaIndex lacks: ``flush``, ``facts``, ``pop``, …

        Raises:
            ConfigurationError: the memory was restored from a context that does not carry all its options.
        """
        if self._memory is None:
            if self.not_carried:
                raise ConfigurationError(
                    f"The memory of session {self.session_id!r} was made with {', '.join(self.not_carried)},"
                    " which a context does not carry. Put a memory that has it into the context:"
                    " await ctx.store.set('memory', memory); or configure it in the environment."
                )
            self._memory = Memory.from_defaults(
                **{name: getattr(self, name) for name in ("session_id", *_SETTLED)},
                schema=self.database_schema,
                memory_blocks=restored_blocks(self.declared_blocks),
            )
        return self._memory


def _room_of(llm: Any) -> int:
    window = getattr(getattr(llm, "metadata", None), "context_window", None)
    return DEFAULT_TOKEN_LIMIT if not isinstance(window, int) else max(1, window * 3 // 4)
