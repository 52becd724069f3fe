"""A ``Session`` of the Agents SDK whose conversation and user come from the context of each run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from agents import RunContextWrapper, SessionSettings, TResponseInputItem
from agents.memory import OpenAIResponsesCompactionArgs

from strandline.adapters.agents.session import StrandlineSession
from strandline.memory import Memory
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError

FromContext = Callable[[Any], str]

# Sessions of so many conversations are kept ready; each is made again when it is needed.
MAX_READY_SESSIONS = 1_024


def _read_field(name: str) -> FromContext:
    def read(context: Any) -> Any:
        return context.get(name) if isinstance(context, Mapping) else getattr(context, name, None)

    return read


_SESSION_ID = _read_field("session_id")
_USER_ID = _read_field("user_id")


class StrandlineContextSession:
    """One session for all conversations of a server: which one, and whose, the context of each run says.

    Without a run, give the methods ``wrapper=RunContextWrapper(context)``, or use ``of(context)``.

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
        def make(session: str, user: str) -> StrandlineSession:
            return StrandlineSession(session, user_id=user, session_settings=session_settings, **options)

        # Empty, since one name for all would put their runs into one group of the SDK.
        self.session_id = ""
        self.session_settings = session_settings
        self._make = lru_cache(maxsize=MAX_READY_SESSIONS)(make)
        self._session_of = session_id
        self._user_of = user_id
        Memory.from_defaults(**options)  # options that cannot be used are refused now, not in the first run

    def of(self, context: object) -> StrandlineSession:
        """The session that a run with this context uses.

        Raises:
            ConfigurationError: the context does not name a conversation and a user.
            InvalidMessageError: one of the names is not valid.
        """
        names = (_read("session_id", self._session_of, context), _read("user_id", self._user_of, context))
        return self._make(*names)

    async def get_items(
        self, limit: int | None = None, *, wrapper: RunContextWrapper[Any] | None = None
    ) -> list[TResponseInputItem]:
        """As ``StrandlineSession.get_items``, of the run's conversation."""
        return await self._of_run(wrapper).get_items(limit)

    async def add_items(
        self, items: list[TResponseInputItem], *, wrapper: RunContextWrapper[Any] | None = None
    ) -> None:
        """As ``StrandlineSession.add_items``, to the run's conversation."""
        await self._of_run(wrapper).add_items(items)

    async def pop_item(self, *, wrapper: RunContextWrapper[Any] | None = None) -> TResponseInputItem | None:
        """As ``StrandlineSession.pop_item``, from the run's conversation."""
        return await self._of_run(wrapper).pop_item()

    async def clear_session(self, *, wrapper: RunContextWrapper[Any] | None = None) -> None:
        """As ``StrandlineSession.clear_session``: the run's conversation alone."""
        await self._of_run(wrapper).clear_session()

    async def run_compaction(
        self,
        args: OpenAIResponsesCompactionArgs | None = None,
        *,
        wrapper: RunContextWrapper[Any] | None = None,
    ) -> None:
        """As ``StrandlineSession.run_compaction``, of the run's conversation."""
        await self._of_run(wrapper).run_compaction(args)

    def _of_run(self, wrapper: RunContextWrapper[Any] | None) -> StrandlineSession:
        if wrapper is None:
            raise ConfigurationError(
                "A StrandlineContextSession was called without a run: use session.of(context), or give"
                " wrapper=RunContextWrapper(context)."
            )
        return self.of(wrapper.context)


def _read(name: str, read: FromContext, context: object) -> str:
    value: object = read(context)
    if not isinstance(value, str) or not value:
        raise ConfigurationError(
            f"The run's context gives {quote(value)} as {name}; run with a context that has it, as in"
            f" Runner.run(…, context={{'session_id': …, 'user_id': …}}), or say with {name}= how to read it."
        )
    return value
