"""OpenAI's Agents SDK: ``StrandlineSession`` and ``StrandlineContextSession``, for ``session=`` of a run.

pip install 'strandline[agents]'
"""

from __future__ import annotations

from typing import Any

from agents import SessionSettings

from strandline.adapters.agents.context_session import ContextSession, FromContext, read_field
from strandline.adapters.agents.session import ItemSession
from strandline.memory import Memory

__all__ = ["StrandlineContextSession", "StrandlineSession"]

_SESSION_ID = read_field("session_id")
_USER_ID = read_field("user_id")


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


class StrandlineContextSession(ContextSession):
    """One session for all conversations of a server: which one, and whose, the context of each run says.

    Args:
        session_id: reads the conversation from a run's context; default: its ``session_id``, an attribute or
            an item.
        user_id: reads the owner of facts from it; default: its ``user_id``.
        session_settings: the SDK's own settings.
        options: as ``strandline.Memory.from_defaults`` takes them.

    Raises: as ``strandline.Memory.from_defaults``.
    """

    def __init__(
        self,
        *,
        session_id: FromContext = _SESSION_ID,
        user_id: FromContext = _USER_ID,
        session_settings: SessionSettings | None = None,
        **options: Any,
    ) -> None:
        def make(session: str, user: str) -> ItemSession:
            return StrandlineSession(session, user_id=user, session_settings=session_settings, **options)

        super().__init__(make, session_of=session_id, user_of=user_id, session_settings=session_settings)
        Memory.from_defaults(**options)  # options that cannot be used are refused now, not in the first run
