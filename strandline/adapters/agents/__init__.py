"""OpenAI's Agents SDK: ``StrandlineSession``, for ``Runner.run(agent, …, session=…)``.

pip install 'strandline[agents]'
"""

from __future__ import annotations

from typing import Any

from agents import SessionSettings

from strandline.adapters.agents.session import ItemSession
from strandline.memory import Memory

__all__ = ["StrandlineSession"]


class StrandlineSession(ItemSession):
    """A session of the Agents SDK whose history is a window with long-term memory before it.

    Args:
        session_id: the conversation; default: a new random one.
        user_id: the owner of facts, across sessions.
        session_settings: the SDK's own settings.
        options: as ``strandline.Memory.from_defaults`` takes them (``token_limit``, ``memory_blocks``,
            ``database_url``, …).

    Attributes:
        memory: the session's memory itself, for operations that the SDK lacks (``flush``, ``facts``, …).

    Raises: as ``strandline.Memory.from_defaults``.
    """

    memory: Memory

    def __init__(
        self,
        session_id: str | None = None,
        *,
        user_id: str | None = None,
        session_settings: SessionSettings | None = None,
        **options: Any,
    ) -> None:
        memory = Memory.from_defaults(session_id, user_id=user_id, **options)
        bare = Memory.from_defaults(memory.session_id, user_id=user_id, **{**options, "memory_blocks": []})
        super().__init__(memory, bare, session_settings)
