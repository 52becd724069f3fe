"""TFrameX: ``StrandlineMemoryStore``, for ``memory_store=`` of agents.

pip install 'strandline[tframex]'
"""

from __future__ import annotations

from typing import Any

from strandline import ConfigurationError, Memory, sliding_window
from strandline.adapters.legacy.tframex.store import Bounds, MessageStore
from strandline.producers.arguments import check_count
from strandline.schemas.display.shown_text import quote

__all__ = ["StrandlineMemoryStore"]

# As many messages as an agent of TFrameX asks for, unless it is configured otherwise.
AGENT_HISTORY = 10


class StrandlineMemoryStore(MessageStore):
    """A memory store of TFrameX: the newest messages of a session, with long-term memory before them.

    Args:
        session_id: the conversation; default: a new random one.
        user_id: the owner of facts, across sessions and scopes.
        max_messages: maximum number of messages that ``get_history`` gives; None: no bound.
            The log keeps all.
        max_tokens: the same in tokens; at least one message is given.
        eviction_strategy: ``"fifo"``; the oldest leave first.
        history_limit: what your agents ask for, if you configured their ``history_limit``: memory tells of
            what is before these messages.
        options: as ``strandline.Memory.from_defaults`` takes them (``token_limit``, ``memory_blocks``,
            ``database_url``, …); ``deliver`` is ``"turn"`` here.

    Attributes:
        memory: the session's memory itself, for operations that TFrameX lacks (``flush``, ``facts``, …).

    Raises:
        ConfigurationError: an argument cannot be used, ``eviction_strategy`` another one included.
        InvalidMessageError: a name is not valid.
    """

    memory: Memory

    def __init__(
        self,
        session_id: str | None = None,
        *,
        user_id: str | None = None,
        max_messages: int | None = None,
        max_tokens: int | None = None,
        eviction_strategy: str = "fifo",
        history_limit: int = AGENT_HISTORY,
        **options: Any,
    ) -> None:
        if eviction_strategy != "fifo":
            raise ConfigurationError(
                f"eviction_strategy is {quote(eviction_strategy)}; only 'fifo' is offered: the oldest"
                " messages leave the window first, and stay in the log and in memory."
            )
        bounds = Bounds(_check_bound("max_messages", max_messages), _check_bound("max_tokens", max_tokens))
        shown = min(
            _check_bound("history_limit", history_limit) or AGENT_HISTORY, bounds.messages or history_limit
        )
        memory = Memory.from_defaults(
            session_id, user_id=user_id, **{"deliver": "turn", **sliding_window(shown), **options}
        )
        super().__init__(memory, bounds)


def _check_bound(name: str, value: int | None) -> int | None:
    if value is None:
        return None
    number = check_count(name, value)
    if number == 0:
        raise ConfigurationError(f"{name} is 0; it must be above 0, or None for no bound.")
    return number
