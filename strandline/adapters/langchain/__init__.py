"""LangChain: ``StrandlineHistory``, for ``RunnableWithMessageHistory`` and custom chains.

pip install 'strandline[langchain]'
"""

from __future__ import annotations

from typing import Any

from strandline.adapters.langchain.history import MemoryHistory
from strandline.memory import Memory

__all__ = ["StrandlineHistory"]


class StrandlineHistory(MemoryHistory):
    """A chat message history whose messages are a window with long-term memory before it.

    Args:
        session_id: the conversation; default: a new random one.
        user_id: the owner of facts, across sessions.
        options: as ``strandline.Memory.from_defaults`` takes them (``token_limit``, ``memory_blocks``,
            ``database_url``, …).

    Attributes:
        memory: the session's memory itself, for operations that LangChain lacks (``flush``, ``facts``, …).

    Raises: as ``strandline.Memory.from_defaults``.
    """

    memory: Memory

    def __init__(self, session_id: str | None = None, *, user_id: str | None = None, **options: Any) -> None:
        super().__init__(Memory.from_defaults(session_id, user_id=user_id, **options))
